//! Hearing from the kernel what changes in a tree, so that whoever remembers the tree need not ask after every file.
//!
//! A watch says what has changed since a [`Moment`] of its own, or that it does not know. It hears of changes before whoever made them goes on,
//! so what was written before it is asked is told. Not heard are writes by way of another name of a file, by a program that has mapped a file and
//! still holds it, and below what is mounted later: so files with several names are always asked after, and now and then
//! everything is ([`News::that_matters`]).

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};

use crate::beneath::Root;
use crate::look::is_of_this_machine;
use crate::memory::AsOf;
use crate::paths;

/// The most that the paths of all directories may take, in bytes.
const MOST_PATH_BYTES: usize = 4 << 20;

/// The most changes that are kept. When there are more, it is as if nothing had been heard before.
const MOST_CHANGES: usize = 20_000;

/// The most that is heard at once, in events.
const MOST_HEARD: usize = 32_768;

/// The most that is told, in bytes of paths: beyond that it is as well to look at everything.
const MOST_TOLD_BYTES: usize = 256 << 10;

/// How long it is relied on what is heard before everything is looked at once more, in nanoseconds.
const RELIED_ON_NS: i64 = 30_000_000_000;

const INSTANCE: InitFlags = InitFlags::IN_NONBLOCK.union(InitFlags::IN_CLOEXEC);

/// What matters of what happens in a directory.
const HEARD: AddWatchFlags =
    AddWatchFlags::IN_MODIFY.union(AddWatchFlags::IN_CLOSE_WRITE).union(AddWatchFlags::IN_ATTRIB).union(NAMES);

/// What changes the names in a directory.
const NAMES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO);

/// A moment in the life of one watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Which watch.
    pub watch: u64,
    /// How often it had been asked.
    pub at: u64,
}

/// What a watch says of a tree. Empty by default: nothing is known, and everything has to be looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// As of when.
    pub now: Option<Moment>,
    /// What may have changed since then, if that is known.
    pub touched: Option<(Moment, Touched)>,
}

/// What may have changed in a tree: everything else is as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    at: HashSet<ByteBuf>,
    /// Directories of which everything may have.
    beneath: HashSet<ByteBuf>,
}

/// Whether an event says enough to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    All,
    TooLittle,
}

/// One who hears what changes in a tree.
#[derive(Debug)]
pub struct Watch {
    inotify: Inotify,
    number: u64,
    root: PathBuf,
    device: u64,
    inode: u64,
    skips: fn(&[u8]) -> bool,
    /// The most directories that may be heard.
    most: usize,
    directories: HashMap<WatchDescriptor, Vec<u8>>,
    /// The length of all their paths.
    path_bytes: usize,
    /// How often it has been asked.
    asked: u64,
    /// What has changed up to here is not known.
    known_since: u64,
    /// Paths, and after how many questions they last changed; and the same for directories of which everything may have changed.
    changed: HashMap<Vec<u8>, u64>,
    changed_beneath: HashMap<Vec<u8>, u64>,
}

impl News {
    /// What may have changed since a memory was as it is; `None` if that is not known well enough, at a time in nanoseconds since the epoch.
    pub(crate) fn that_matters(&self, memory: Option<&AsOf>, now_ns: i64) -> Option<&Touched> {
        let (memory, (since, touched)) = (memory?, self.touched.as_ref()?);
        let is_covered = memory.moment.watch == since.watch && memory.moment.at >= since.at;
        let is_fresh = (0..RELIED_ON_NS).contains(&now_ns.saturating_sub(memory.looked_ns));
        (is_covered && is_fresh).then_some(touched)
    }
}

impl Touched {
    fn is_worth_telling(&self) -> bool {
        self.at.iter().chain(&self.beneath).map(|path| path.len()).sum::<usize>() <= MOST_TOLD_BYTES
    }

    /// Whether what is at `path` may be another thing than it was.
    pub(crate) fn may_be_at(&self, path: &[u8]) -> bool {
        let above = std::iter::successors(Some(path), |path| (!path.is_empty()).then(|| paths::parent(path)));
        self.at.contains(Bytes::new(path))
            || !self.beneath.is_empty() && above.into_iter().any(|above| self.beneath.contains(Bytes::new(above)))
    }
}

impl Watch {
    /// Begins to hear of changes in the directory at `root`, an absolute path without links, but for paths that are skipped, in no more than `most`
    /// directories. `number` tells it from all others.
    ///
    /// # Errors
    /// When the kernel can watch no more, or a part of the tree is on another disk, or on one on which others may write unheard.
    pub fn begin(root: &Path, number: u64, most: usize, skips: fn(&[u8]) -> bool) -> io::Result<Self> {
        let directory = Root::without_links(root)?;
        if !is_of_this_machine(&directory)? {
            return Err(io::Error::other("others may write there unheard"));
        }
        let found = fstat(directory.as_fd())?;
        let mut watch = Self {
            inotify: Inotify::init(INSTANCE)?,
            number,
            root: root.to_owned(),
            device: found.st_dev,
            inode: found.st_ino,
            skips,
            most,
            directories: HashMap::new(),
            path_bytes: 0,
            asked: 0,
            known_since: 0,
            changed: HashMap::new(),
            changed_beneath: HashMap::new(),
        };
        watch.add_all(&directory)?;
        Ok(watch)
    }

    /// Which directory it is, for the kernel: its device and its number there.
    #[must_use]
    pub const fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// How many directories are heard.
    #[must_use]
    pub fn directories(&self) -> usize {
        self.directories.len()
    }

    /// What has changed since a moment, to be asked for with the rights of whoever began.
    ///
    /// # Errors
    /// When the tree is no longer the one that is watched, or it can no longer be; then this watch is of no use any more.
    pub fn news(&mut self, since: Option<Moment>) -> io::Result<News> {
        let found = fs::symlink_metadata(&self.root)?;
        if (found.dev(), found.ino()) != self.identity() {
            return Err(io::Error::other("another directory has taken its place"));
        }
        self.hear()?;
        let now = Moment { watch: self.number, at: self.asked };
        self.asked += 1;
        let since = since.filter(|since| since.watch == self.number && since.at >= self.known_since);
        let touched = since.and_then(|since| {
            let later = |all: &HashMap<Vec<u8>, u64>| {
                let later = all.iter().filter(|(_, at)| **at > since.at);
                later.map(|(path, _)| ByteBuf::from(path.clone())).collect()
            };
            let touched = Touched { at: later(&self.changed), beneath: later(&self.changed_beneath) };
            touched.is_worth_telling().then_some((since, touched))
        });
        Ok(News { now: Some(now), touched })
    }

    /// Takes what the kernel has to tell, before too much of it waits.
    ///
    /// # Errors
    /// As for [`Watch::news`].
    pub fn hear(&mut self) -> io::Result<()> {
        let mut count = 0;
        while count < MOST_HEARD {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            count += events.len();
            for event in &events {
                if self.take(event)? == Heard::TooLittle {
                    return self.begin_again();
                }
            }
        }
        // It comes faster than it can be heard.
        self.begin_again()
    }

    fn take(&mut self, event: &InotifyEvent) -> io::Result<Heard> {
        const MOVED: AddWatchFlags = AddWatchFlags::IN_MOVED_FROM.union(AddWatchFlags::IN_MOVED_TO);
        let says = |flags| event.mask.intersects(flags);
        if says(AddWatchFlags::IN_Q_OVERFLOW | AddWatchFlags::IN_UNMOUNT) {
            return Ok(Heard::TooLittle);
        }
        if says(AddWatchFlags::IN_IGNORED) {
            let Some(gone) = self.directories.remove(&event.wd) else { return Ok(Heard::All) };
            self.path_bytes -= gone.len();
            // Of the root there may be another one by now, even with the same number.
            return if gone.is_empty() { Err(io::Error::other("the directory is gone")) } else { Ok(Heard::All) };
        }
        let Some(directory) = self.directories.get(&event.wd).cloned() else { return Ok(Heard::All) };
        let is_directory = says(AddWatchFlags::IN_ISDIR);
        let Some(name) = &event.name else {
            // It was the directory itself. If others may look into it now, so may this one.
            return Ok(if says(AddWatchFlags::IN_ATTRIB) { Heard::TooLittle } else { Heard::All });
        };
        let path = paths::join(&directory, name.as_bytes());
        if (self.skips)(&path) {
            return Ok(Heard::All);
        }
        if is_directory && says(MOVED | AddWatchFlags::IN_ATTRIB) {
            return Ok(Heard::TooLittle);
        }
        if says(NAMES | AddWatchFlags::IN_ATTRIB) {
            // There may be something in it now that could not be described before.
            self.note(directory);
        }
        self.note(path.clone());
        if !says(AddWatchFlags::IN_CREATE) {
            return Ok(Heard::All);
        }
        if is_directory {
            let root = Root::without_links(&self.root)?;
            self.changed_beneath.insert(path.clone(), self.asked);
            return self.add(&root, path);
        }
        // Another name of a file that is known by one.
        let at = self.root.join(OsStr::from_bytes(&path));
        let is_linked = fs::symlink_metadata(at).is_ok_and(|found| found.is_file() && found.nlink() > 1);
        if is_linked {
            self.forget();
        }
        Ok(Heard::All)
    }

    fn note(&mut self, path: Vec<u8>) {
        self.changed.insert(path, self.asked);
        if self.changed.len() + self.changed_beneath.len() > MOST_CHANGES {
            self.forget();
        }
    }

    /// Something was not heard, or it is easier to find out anew what there is: after a directory was moved, everything below it has another
    /// path.
    fn begin_again(&mut self) -> io::Result<()> {
        let root = Root::without_links(&self.root)?;
        let found = fstat(root.as_fd())?;
        if (found.st_dev, found.st_ino) != self.identity() {
            return Err(io::Error::other("another directory has taken its place"));
        }
        // To leave each directory would be said of each in turn.
        self.inotify = Inotify::init(INSTANCE)?;
        self.directories.clear();
        self.path_bytes = 0;
        self.forget();
        self.add_all(&root)
    }

    fn add_all(&mut self, root: &Root) -> io::Result<()> {
        match self.add(root, Vec::new())? {
            Heard::All => Ok(()),
            Heard::TooLittle => Err(io::Error::other("directories in it are moved all the time")),
        }
    }

    fn forget(&mut self) {
        self.known_since = self.asked;
        self.changed.clear();
        self.changed_beneath.clear();
    }

    /// Listens at a directory and at all below it. What this user cannot read cannot be described either.
    fn add(&mut self, root: &Root, path: Vec<u8>) -> io::Result<Heard> {
        let mut unheard = vec![path];
        while let Some(path) = unheard.pop() {
            let directory = match root.open_directory(&path) {
                Ok(directory) => directory,
                Err(error) if !path.is_empty() && is_none(&error) => continue,
                Err(error) if is_denied(&error) && self.is_no_mount(&path) => continue,
                Err(error) => return Err(error),
            };
            if fstat(&directory)?.st_dev != self.device {
                return Err(io::Error::other("it is on several disks"));
            }
            let itself = format!("/proc/self/fd/{}", directory.as_raw_fd());
            let descriptor = self.inotify.add_watch(itself.as_str(), HEARD | AddWatchFlags::IN_ONLYDIR)?;
            self.path_bytes += path.len();
            match self.directories.insert(descriptor, path.clone()) {
                // Found a second time on the way.
                Some(before) if before == path => self.path_bytes -= path.len(),
                // It was moved while nobody looked, or is at two places.
                Some(before) => {
                    self.path_bytes -= before.len();
                    return Ok(Heard::TooLittle);
                }
                None => {}
            }
            if self.directories.len() > self.most || self.path_bytes > MOST_PATH_BYTES {
                return Err(io::Error::other("it has too many directories"));
            }
            for entry in Dir::from_fd(directory)?.iter() {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                let below = paths::join(&path, name);
                let may_be_directory = entry.file_type().is_none_or(|kind| kind == Type::Directory);
                if may_be_directory && !matches!(name, b"." | b"..") && !(self.skips)(&below) {
                    unheard.push(below);
                }
            }
        }
        Ok(Heard::All)
    }

    /// Whether something that cannot be opened is a directory as any other: what a user has mounted, others may not see, and the user does.
    fn is_no_mount(&self, path: &[u8]) -> bool {
        let found = fs::symlink_metadata(self.root.join(OsStr::from_bytes(path)));
        !path.is_empty() && found.is_ok_and(|found| found.dev() == self.device)
    }
}

fn is_none(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP))
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(watch: &mut Watch, since: Moment) -> Vec<String> {
        let news = watch.news(Some(since)).expect("it is there");
        let (_, touched) = news.touched.expect("it is known");
        let mut paths: Vec<_> = touched.at.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        paths.extend(touched.beneath.iter().map(|path| format!("{}/**", String::from_utf8_lossy(path))));
        paths.sort();
        paths
    }

    #[test]
    fn it_says_what_has_changed_and_where() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("a/b")).expect("writable");
        fs::create_dir(at(".git")).expect("writable");
        fs::write(at("a/file"), "1").expect("writable");
        let mut watch = Watch::begin(folder.path(), 7, 100, |path| path == b".git").expect("it can be watched");
        let first = watch.news(None).expect("there");
        assert!(first.touched.is_none(), "since when?");
        let began = first.now.expect("it says when");
        assert_eq!(said(&mut watch, began), Vec::<String>::new());
        fs::write(at("a/file"), "2").expect("writable");
        fs::write(at(".git/x"), "2").expect("writable");
        assert_eq!(said(&mut watch, began), ["a/file"]);
        let later = watch.news(None).expect("there").now.expect("it says when");
        fs::create_dir_all(at("c/d")).expect("writable");
        assert_eq!(said(&mut watch, later), ["", "c", "c/**"]);
        fs::write(at("c/d/new"), "").expect("writable");
        assert!(said(&mut watch, later).contains(&"c/d/new".to_owned()), "new directories are heard as well");
        let later = watch.news(None).expect("there").now.expect("it says when");
        fs::write(at("c/d/new"), "again").expect("writable");
        assert_eq!(said(&mut watch, later), ["c/d/new"]);
        assert!(watch.news(Some(Moment { watch: 8, at: 0 })).expect("there").touched.is_none(), "another's");
        assert!(said(&mut watch, began).contains(&"a/file".to_owned()), "whoever has an old one hears all since");
    }

    #[test]
    fn after_a_directory_was_moved_it_is_heard_where_it_is() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("a/below")).expect("writable");
        fs::create_dir_all(at("b/below")).expect("writable");
        let mut watch = Watch::begin(folder.path(), 7, 100, |_| false).expect("it can be watched");
        let heard = |watch: &mut Watch, path: &str| {
            let before = watch.news(None).expect("there").now.expect("it says when");
            fs::write(at(path), "x").expect("writable");
            assert!(said(watch, before).contains(&path.to_owned()), "{path}");
        };
        // Into a directory of which nothing was known before.
        let before = watch.news(None).expect("there").now;
        fs::create_dir(at("new")).expect("writable");
        fs::rename(at("a"), at("new/a")).expect("ours");
        assert!(watch.news(before).expect("there").touched.is_none(), "anything may be different");
        heard(&mut watch, "new/a/below/x");
        let swap = std::process::Command::new("python3")
            .args(["-c", "import ctypes, sys; sys.exit(ctypes.CDLL(None).renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2))"])
            .args([at("new/a"), at("b")])
            .status();
        assert!(swap.expect("there is python3").success());
        heard(&mut watch, "new/a/below/x");
        heard(&mut watch, "b/below/x");
        // A second name makes a file one that is not known by what happens to the first.
        let before = watch.news(None).expect("there").now;
        fs::hard_link(at("b/below/x"), at("name")).expect("ours");
        assert!(watch.news(before).expect("there").touched.is_none());
    }

    #[test]
    fn a_directory_made_anew_in_its_place_is_not_the_one_even_by_its_number() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path().join("tree");
        fs::create_dir(&root).expect("writable");
        let mut watch = Watch::begin(&root, 1, 100, |_| false).expect("it can be watched");
        fs::remove_dir(&root).expect("ours");
        fs::create_dir(&root).expect("writable");
        assert!(watch.news(None).is_err());
    }

    #[test]
    fn too_many_directories_are_an_error_and_not_a_part_of_them() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        (0..20).for_each(|number| fs::create_dir(folder.path().join(format!("{number}"))).expect("writable"));
        assert!(Watch::begin(folder.path(), 1, 20, |_| false).is_err());
        let mut watch = Watch::begin(folder.path(), 1, 21, |_| false).expect("it can be watched");
        assert_eq!(watch.directories(), 21);
        fs::create_dir(folder.path().join("more")).expect("writable");
        assert!(watch.news(None).is_err());
    }

    #[test]
    fn another_directory_in_its_place_is_not_the_one() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path().join("tree");
        fs::create_dir(&root).expect("writable");
        let mut watch = Watch::begin(&root, 1, 100, |_| false).expect("it can be watched");
        fs::rename(&root, folder.path().join("old")).expect("ours");
        assert!(watch.news(None).is_err());
        fs::create_dir(&root).expect("writable");
        assert!(watch.news(None).is_err());
    }

    #[test]
    fn what_was_not_heard_is_not_claimed() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mut watch = Watch::begin(folder.path(), 1, 100, |_| false).expect("it can be watched");
        let began = watch.news(None).expect("there").now;
        // More than the kernel keeps.
        for number in 0..20_000 {
            fs::write(folder.path().join(format!("{number:05}")), "").expect("writable");
        }
        let news = watch.news(began).expect("there");
        assert!(news.touched.is_none());
        fs::write(folder.path().join("one"), "more").expect("writable");
        assert_eq!(said(&mut watch, news.now.expect("it says when")), ["", "one"]);
        assert!(watch.hear().is_ok());
    }
}

//! Hearing from the kernel what changes in a tree, so that whoever remembers the tree need not ask after every file.
//!
//! A watch says what has changed since a [`Moment`] of its own, or that it does not know. It hears of changes before whoever made them goes on,
//! so what was written before it is asked is told. Not heard are writes by way of another name of a file outside of the tree, by a program that
//! has mapped a file and still holds it, and below what is mounted later: so files with several names are always asked after, and
//! now and then everything is ([`News::that_matters`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::memory::AsOf;
use crate::paths;

/// The most directories of a tree that is watched: the kernel keeps something for each.
const MOST_DIRECTORIES: usize = 20_000;

/// The most changes that are kept. When there are more, it is as if nothing had been heard before.
const MOST_CHANGES: usize = 20_000;

/// The most that is told, in bytes of paths: beyond that it is as well to look at everything.
const MOST_TOLD_BYTES: usize = 256 << 10;

/// How long it is relied on what is heard before everything is looked at once more, in nanoseconds.
const RELIED_ON_NS: i64 = 30_000_000_000;

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
    beneath: Vec<ByteBuf>,
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
    by_descriptor: HashMap<WatchDescriptor, Vec<u8>>,
    by_path: BTreeMap<Vec<u8>, WatchDescriptor>,
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
        self.at.contains(serde_bytes::Bytes::new(path)) || self.beneath.iter().any(|above| is_at_or_below(path, above))
    }
}

impl Watch {
    /// Begins to hear of changes in the directory at `root`, an absolute path, but for paths that are skipped. `number` tells it from all others.
    ///
    /// # Errors
    /// When the kernel can watch no more, or a part of the tree is on another disk.
    pub fn begin(root: &Path, number: u64, skips: fn(&[u8]) -> bool) -> io::Result<Self> {
        let found = fs::symlink_metadata(root)?;
        let mut watch = Self {
            inotify: Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?,
            number,
            root: root.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            skips,
            by_descriptor: HashMap::new(),
            by_path: BTreeMap::new(),
            asked: 0,
            known_since: 0,
            changed: HashMap::new(),
            changed_beneath: HashMap::new(),
        };
        watch.add(Vec::new())?;
        Ok(watch)
    }

    /// Which directory it is, for the kernel: its device and its number there.
    #[must_use]
    pub const fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// What has changed since a moment, to be asked for with the rights of whoever began.
    ///
    /// # Errors
    /// When the tree is no longer the one that is watched, or it can no longer be; then this watch is of no use any more.
    pub fn news(&mut self, since: Option<Moment>) -> io::Result<News> {
        let found = fs::symlink_metadata(&self.root)?;
        if (found.dev(), found.ino()) != (self.device, self.inode) {
            return Err(io::Error::other("another directory has taken its place"));
        }
        self.hear()?;
        let now = Moment { watch: self.number, at: self.asked };
        self.asked += 1;
        let since = since.filter(|since| since.watch == self.number && since.at >= self.known_since);
        let touched = since.and_then(|since| {
            let later = |all: &HashMap<Vec<u8>, u64>| {
                let later = all.iter().filter(|(_, at)| **at > since.at);
                later.map(|(path, _)| ByteBuf::from(path.clone())).collect::<Vec<_>>()
            };
            let touched =
                Touched { at: later(&self.changed).into_iter().collect(), beneath: later(&self.changed_beneath) };
            touched.is_worth_telling().then_some((since, touched))
        });
        Ok(News { now: Some(now), touched })
    }

    /// Takes what the kernel has to tell, before too much of it waits.
    ///
    /// # Errors
    /// As for [`Watch::news`].
    pub fn hear(&mut self) -> io::Result<()> {
        loop {
            match self.inotify.read_events() {
                Ok(events) => events.iter().try_for_each(|event| self.take(event))?,
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.changed.len() + self.changed_beneath.len() > MOST_CHANGES {
            self.forget();
        }
        Ok(())
    }

    fn take(&mut self, event: &InotifyEvent) -> io::Result<()> {
        if event.mask.intersects(AddWatchFlags::IN_Q_OVERFLOW | AddWatchFlags::IN_UNMOUNT) {
            return self.begin_again();
        }
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            if let Some(path) = self.by_descriptor.remove(&event.wd)
                && self.by_path.get(&path) == Some(&event.wd)
            {
                self.by_path.remove(&path);
            }
            return Ok(());
        }
        let Some(directory) = self.by_descriptor.get(&event.wd).cloned() else { return Ok(()) };
        let Some(name) = &event.name else {
            // It was the directory itself.
            self.note(directory);
            return Ok(());
        };
        let path = paths::join(&directory, name.as_bytes());
        if (self.skips)(&path) {
            return Ok(());
        }
        if event.mask.intersects(NAMES | AddWatchFlags::IN_ATTRIB) {
            // There may be something in it now that could not be described before.
            self.note(directory);
        }
        self.note(path.clone());
        if !event.mask.contains(AddWatchFlags::IN_ISDIR) {
            return Ok(());
        }
        if event.mask.intersects(AddWatchFlags::IN_MOVED_FROM | AddWatchFlags::IN_DELETE) {
            self.leave(&path);
        } else if event.mask.intersects(NAMES) || !self.by_path.contains_key(&path) {
            self.add(path.clone())?;
            self.changed_beneath.insert(path, self.asked);
        }
        Ok(())
    }

    fn note(&mut self, path: Vec<u8>) {
        self.changed.insert(path, self.asked);
    }

    /// Something was not heard.
    fn begin_again(&mut self) -> io::Result<()> {
        self.leave(b"");
        self.forget();
        self.add(Vec::new())
    }

    fn forget(&mut self) {
        self.known_since = self.asked;
        self.changed.clear();
        self.changed_beneath.clear();
    }

    /// Listens at a directory and at all below it. What this user cannot read cannot be described either.
    fn add(&mut self, path: Vec<u8>) -> io::Result<()> {
        let flags = HEARD | AddWatchFlags::IN_ONLYDIR | AddWatchFlags::IN_DONT_FOLLOW;
        let mut unheard = vec![path];
        while let Some(path) = unheard.pop() {
            let full = if path.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(&path)) };
            let descriptor = match self.inotify.add_watch(&full, flags) {
                Ok(descriptor) => descriptor,
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES) if !path.is_empty() => continue,
                Err(error) => return Err(error.into()),
            };
            self.by_descriptor.insert(descriptor, path.clone());
            self.by_path.insert(path.clone(), descriptor);
            if self.by_path.len() > MOST_DIRECTORIES {
                return Err(io::Error::other("it has too many directories"));
            }
            match fs::symlink_metadata(&full) {
                Ok(found) if found.dev() != self.device => return Err(io::Error::other("it is on several disks")),
                _ => {}
            }
            for entry in fs::read_dir(&full).into_iter().flatten().flatten() {
                let below = paths::join(&path, entry.file_name().as_bytes());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !(self.skips)(&below) {
                    unheard.push(below);
                }
            }
        }
        Ok(())
    }

    /// A directory is somewhere else, with all below it.
    fn leave(&mut self, path: &[u8]) {
        let below = self.by_path.range(path.to_vec()..).take_while(|(it, _)| it.starts_with(path));
        let left: Vec<_> = below.filter(|(it, _)| is_at_or_below(it, path)).map(|(it, _)| it.clone()).collect();
        for path in left {
            if let Some(descriptor) = self.by_path.remove(&path) {
                self.by_descriptor.remove(&descriptor);
                // It is gone already if the directory is.
                let _ = self.inotify.rm_watch(descriptor);
            }
        }
    }
}

fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || above.is_empty() || rest[0] == b'/')
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
        let mut watch = Watch::begin(folder.path(), 7, |path| path == b".git").expect("it can be watched");
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
        fs::rename(at("c"), at("a/e")).expect("ours");
        assert_eq!(said(&mut watch, later), ["", "a", "a/e", "a/e/**", "c"]);
        let later = watch.news(None).expect("there").now.expect("it says when");
        fs::write(at("a/e/d/new"), "more").expect("writable");
        assert_eq!(said(&mut watch, later), ["a/e/d/new"], "by its new name");
        assert!(watch.news(Some(Moment { watch: 8, at: 0 })).expect("there").touched.is_none(), "another's");
        assert!(said(&mut watch, began).contains(&"a/file".to_owned()), "whoever has an old one hears all since");
    }

    #[test]
    fn another_directory_in_its_place_is_not_the_one() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let root = folder.path().join("tree");
        fs::create_dir(&root).expect("writable");
        let mut watch = Watch::begin(&root, 1, |_| false).expect("it can be watched");
        fs::rename(&root, folder.path().join("old")).expect("ours");
        assert!(watch.news(None).is_err());
        fs::create_dir(&root).expect("writable");
        assert!(watch.news(None).is_err());
    }

    #[test]
    fn what_was_not_heard_is_not_claimed() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mut watch = Watch::begin(folder.path(), 1, |_| false).expect("it can be watched");
        let began = watch.news(None).expect("there").now;
        // More than the kernel keeps.
        for number in 0..20_000 {
            fs::write(folder.path().join(format!("{number:05}")), "").expect("writable");
        }
        let news = watch.news(began).expect("there");
        assert!(news.touched.is_none());
        fs::write(folder.path().join("one"), "more").expect("writable");
        assert_eq!(said(&mut watch, news.now.expect("it says when")), ["", "one"]);
    }
}

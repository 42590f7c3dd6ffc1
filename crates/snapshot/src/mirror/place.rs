//! Puts the files that a remote command wrote in place on the caller's machine.
//!
//! Files are first written under temporary names in the same tree and renamed together once everything has arrived.
//! Other processes see either the old or the new file. If something is missing, nothing changes. The received data
//! are untrusted: paths are resolved beneath the tree and never through links.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use hostler_proto::manifest::EntryKind;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, UtimensatFlags, fchmod, futimens, mkdirat, utimensat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::named::Named;
use crate::beneath::{Kind, Root, Stat, time_of};
use crate::paths;
use crate::seen::Seen;

/// The permission bits that files and directories get; other mode bits are dropped.
const MODE_BITS: u32 = 0o777;

/// The difference up to which the clocks of the disk and of this machine count as equal, in nanoseconds. Time stamps
/// are not more precise.
const SAME_CLOCK_NS: i64 = 20_000_000;

/// The modification time to give a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// The command set this time explicitly; nanoseconds since the epoch.
    Set(i64),
    /// The file was written at this time while the command ran, by the clock of the machine that ran it; nanoseconds
    /// since the epoch.
    Now(i64),
}

/// The reason why an entry could not be put in place.
#[derive(Debug, thiserror::Error)]
#[error("cannot put {} in place", paths::show(.path))]
pub struct PlaceError {
    /// Path below the tree.
    pub path: Vec<u8>,
    #[source]
    pub source: io::Error,
}

/// A new file or link, which still has a temporary name.
#[derive(Debug)]
struct Staged {
    path: Vec<u8>,
    /// The path of the directory that contains the temporary file.
    beside: Vec<u8>,
    name: Vec<u8>,
}

/// Changes to apply to a tree. Dropping the value without a commit leaves the tree as it was.
#[derive(Debug)]
pub struct Placing {
    root: Root,
    prefix: String,
    staged: Vec<Staged>,
    directories: Vec<(Vec<u8>, u32)>,
    removed: Vec<Vec<u8>>,
    emptied: Vec<Vec<u8>>,
    /// How far the clock of the disk is ahead of this machine's clock, in nanoseconds; `None` until it was measured.
    ahead_ns: Option<i64>,
}

impl Placing {
    /// The prefix of temporary file names.
    pub const PREFIX: &str = ".hostler-mirror-";

    /// Starts to collect changes for the tree at `path`. `token` must be unique among concurrent calls.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn begin(path: &Path, token: u64) -> io::Result<Self> {
        Ok(Self {
            root: Root::open(path)?,
            prefix: format!("{}{token:016x}-", Self::PREFIX),
            staged: Vec::new(),
            directories: Vec::new(),
            removed: Vec::new(),
            emptied: Vec::new(),
            ahead_ns: None,
        })
    }

    /// Plans to create a directory. Parents must be planned before their entries.
    pub fn directory(&mut self, path: &[u8], mode: u32) {
        self.directories.push((path.to_vec(), mode & MODE_BITS));
    }

    /// Plans to remove the entry at `path` and everything below it. Entries that this machine did not send stay.
    pub fn remove(&mut self, path: Vec<u8>) {
        self.removed.push(path);
    }

    /// Plans to remove everything below the directory `path`. Entries that this machine did not send stay.
    pub fn empty(&mut self, path: Vec<u8>) {
        self.emptied.push(path);
    }

    /// Plans to create a link.
    ///
    /// # Errors
    /// The link cannot be created under its temporary name.
    pub fn link(&mut self, path: &[u8], target: &[u8], stamp: Stamp) -> Result<(), PlaceError> {
        let time = time_of(self.time_here(stamp, None));
        let name = self.next_name();
        let make = |directory: &dyn AsFd| {
            symlinkat(target, directory.as_fd(), name.as_slice())?;
            utimensat(directory.as_fd(), name.as_slice(), &time, &time, UtimensatFlags::NoFollowSymlink)?;
            Ok(())
        };
        let beside = self.beside(path).and_then(|(beside, directory)| make(&directory).map(|()| beside));
        let beside = beside.map_err(|source| PlaceError { path: path.to_vec(), source })?;
        self.staged.push(Staged { path: path.to_vec(), beside, name });
        Ok(())
    }

    /// Plans to create a file. The caller writes the content to the returned [`Filling`].
    ///
    /// # Errors
    /// The file cannot be created under its temporary name.
    pub fn file(&mut self, path: &[u8]) -> Result<Filling, PlaceError> {
        let name = self.next_name();
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = self.beside(path).and_then(|(beside, directory)| {
            Ok((beside, File::from(openat(directory, name.as_slice(), flags, Mode::S_IRUSR | Mode::S_IWUSR)?)))
        });
        let (beside, file) = opened.map_err(|source| PlaceError { path: path.to_vec(), source })?;
        self.staged.push(Staged { path: path.to_vec(), beside, name });
        Ok(Filling { path: path.to_vec(), file })
    }

    /// Completes a file: sets its mode and time.
    ///
    /// # Errors
    /// The mode or the time cannot be set.
    pub fn filled(&mut self, filling: Filling, mode: u32, stamp: Stamp) -> Result<(), PlaceError> {
        let Filling { path, file } = filling;
        let time = time_of(self.time_here(stamp, Some(&file)));
        let finish = || {
            fchmod(&file, Mode::from_bits_truncate(mode & MODE_BITS))?;
            futimens(&file, &time, &time)
        };
        finish().map_err(|error| PlaceError { path, source: error.into() })
    }

    /// Applies all planned changes. `sent` lists the entries that this machine sent, sorted by path; planned removals
    /// apply only to them.
    ///
    /// # Errors
    /// The first change that fails. Changes before it remain.
    pub fn commit(mut self, sent: &[Arc<Named>]) -> Result<(), PlaceError> {
        let returned: std::collections::HashSet<Vec<u8>> = self
            .staged
            .iter()
            .map(|it| it.path.clone())
            .chain(self.directories.iter().map(|it| it.0.clone()))
            .collect();
        let kept = |path: &[u8]| returned.contains(path);
        for path in &self.emptied {
            self.clear(path, sent, &kept, false).map_err(|source| PlaceError { path: path.clone(), source })?;
        }
        for path in &self.removed {
            self.clear(path, sent, &kept, true).map_err(|source| PlaceError { path: path.clone(), source })?;
        }
        for (path, _) in &self.directories {
            self.make_directory(path).map_err(|source| PlaceError { path: path.clone(), source })?;
        }
        for staged in std::mem::take(&mut self.staged) {
            if let Err(source) = self.take_place(&staged, sent) {
                let error = PlaceError { path: staged.path.clone(), source };
                self.staged.push(staged);
                return Err(error);
            }
        }
        for (path, mode) in self.directories.iter().rev() {
            let set = self.root.open_directory(path).and_then(|directory| {
                let is_so = Stat::of(&directory)?.mode & MODE_BITS == *mode;
                if !is_so {
                    fchmod(directory, Mode::from_bits_truncate(*mode))?;
                }
                Ok(())
            });
            set.map_err(|source| PlaceError { path: path.clone(), source })?;
        }
        Ok(())
    }

    fn next_name(&self) -> Vec<u8> {
        format!("{}{}", self.prefix, self.staged.len()).into_bytes()
    }

    /// Returns the nearest existing directory above `path`.
    fn beside(&self, path: &[u8]) -> io::Result<(Vec<u8>, std::os::fd::OwnedFd)> {
        let mut at = paths::parent(path);
        loop {
            match self.root.open_directory(at) {
                Ok(directory) => return Ok((at.to_vec(), directory)),
                Err(error) if at.is_empty() => return Err(error),
                // A file or a link may be in the way and is removed later.
                Err(_) => at = paths::parent(at),
            }
        }
    }

    /// Converts a time to the clock of the disk, which may belong to another machine. Uses `fresh`, a newly written
    /// file, to measure the difference between the clocks.
    fn time_here(&mut self, stamp: Stamp, fresh: Option<&File>) -> i64 {
        let ns = match stamp {
            Stamp::Set(ns) => return ns,
            Stamp::Now(ns) => ns,
        };
        if self.ahead_ns.is_none()
            && let Some(stat) = fresh.and_then(|file| Stat::of(file).ok())
        {
            let ahead = stat.modified_ns.saturating_sub(Seen::now());
            self.ahead_ns = Some(if ahead.abs() <= SAME_CLOCK_NS { 0 } else { ahead });
        }
        ns.saturating_add(self.ahead_ns.unwrap_or(0))
    }

    fn make_directory(&self, path: &[u8]) -> io::Result<()> {
        let parent = self.root.open_directory(paths::parent(path))?;
        let name = paths::name(path);
        match mkdirat(&parent, name, Mode::S_IRWXU) {
            Err(Errno::EEXIST) if Stat::at(&parent, name)?.kind == Kind::Directory => Ok(()),
            Err(Errno::EEXIST) => {
                unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir)?;
                Ok(mkdirat(&parent, name, Mode::S_IRWXU)?)
            }
            made => Ok(made?),
        }
    }

    fn take_place(&self, staged: &Staged, sent: &[Arc<Named>]) -> io::Result<()> {
        let from = self.root.open_directory(&staged.beside)?;
        let to = self.root.open_directory(paths::parent(&staged.path))?;
        let name = paths::name(&staged.path);
        let take = || renameat(&from, staged.name.as_slice(), &to, name);
        match take() {
            // A directory is in the way.
            Err(Errno::EISDIR | Errno::ENOTEMPTY | Errno::EEXIST) => {
                self.clear(&staged.path, sent, &|_| false, true)?;
                Ok(take()?)
            }
            // Another disk is mounted there.
            Err(Errno::EXDEV) => self.copy_over(&from, &staged.name, &to, name),
            taken => Ok(taken?),
        }
    }

    fn copy_over(&self, from: &impl AsFd, waiting: &[u8], to: &impl AsFd, name: &[u8]) -> io::Result<()> {
        let stat = Stat::at(from, waiting)?;
        if stat.kind == Kind::Symlink {
            let target = crate::beneath::link_text(from, waiting)?;
            let _ = unlinkat(to, name, UnlinkatFlags::NoRemoveDir);
            symlinkat(target.as_slice(), to, name)?;
        } else {
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let mut source = File::from(openat(from, waiting, OFlag::O_RDONLY | OFlag::O_NOFOLLOW, Mode::empty())?);
            let mut copy = File::from(openat(to, waiting, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
            let time = time_of(stat.modified_ns);
            let copied = io::copy(&mut source, &mut copy).and_then(|_| {
                fchmod(&copy, Mode::from_bits_truncate(stat.mode))?;
                futimens(&copy, &time, &time)?;
                Ok(renameat(to, waiting, to, name)?)
            });
            if copied.is_err() {
                let _ = unlinkat(to, waiting, UnlinkatFlags::NoRemoveDir);
            }
            copied?;
        }
        Ok(unlinkat(from, waiting, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes the entries in `sent` at and below `path`, except those that `kept` accepts. Removes a directory only if
    /// it is empty by then.
    fn clear(&self, path: &[u8], sent: &[Arc<Named>], kept: &dyn Fn(&[u8]) -> bool, with_it: bool) -> io::Result<()> {
        let below = [path, b"/"].concat();
        let first = sent.partition_point(|entry| entry.path.as_slice() < below.as_slice());
        let inside = sent[first..].iter().take_while(|entry| entry.path.starts_with(&below));
        let own = sent.iter().find(|entry| with_it && entry.path == path);
        let doomed: Vec<_> = own.into_iter().chain(inside).filter(|entry| !kept(&entry.path)).collect();
        for entry in doomed.into_iter().rev() {
            let flag = match entry.kind {
                EntryKind::Directory => UnlinkatFlags::RemoveDir,
                _ => UnlinkatFlags::NoRemoveDir,
            };
            let Ok(parent) = self.root.open_directory(paths::parent(&entry.path)) else { continue };
            match unlinkat(parent, paths::name(&entry.path), flag) {
                // It no longer exists, has another type, or holds entries that were never sent.
                Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EISDIR | Errno::ENOTEMPTY | Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        for Staged { beside, name, .. } in &self.staged {
            if let Ok(directory) = self.root.open_directory(beside) {
                let _ = unlinkat(directory, name.as_slice(), UnlinkatFlags::NoRemoveDir);
            }
        }
    }
}

/// An open temporary file of [`Placing`], to write content to.
#[derive(Debug)]
pub struct Filling {
    path: Vec<u8>,
    file: File,
}

impl Filling {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// For example, the disk is full.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PlaceError> {
        self.file.write_all(bytes).map_err(|source| PlaceError { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::super::memory::Memory;
    use super::super::survey::survey;
    use super::*;

    struct Here {
        folder: tempfile::TempDir,
        sent: Vec<Arc<Named>>,
    }

    impl Here {
        /// Makes a tree with a few entries.
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a temporary directory can be made");
            let path = folder.path().join("tree");
            fs::create_dir_all(path.join("sub/deep")).expect("writable");
            for name in ["a.o", "sub/b.o", "sub/deep/c.o"] {
                fs::write(path.join(name), "old").expect("writable");
            }
            let sent = survey(&path, &Memory::default(), &|_| false, &|_, _| None).expect("readable").entries;
            Self { folder, sent }
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.folder.path().join("tree").join(name)
        }

        fn placing(&self) -> Placing {
            Placing::begin(&self.path(""), 7).expect("the tree exists")
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.path(name)).unwrap_or_default()
        }
    }

    fn put(placing: &mut Placing, path: &str, text: &str) -> Result<(), PlaceError> {
        let mut filling = placing.file(path.as_bytes())?;
        filling.write(text.as_bytes())?;
        placing.filled(filling, 0o4755, Stamp::Set(5_000_000_000))
    }

    #[test]
    fn nothing_changes_before_the_commit() {
        let here = Here::new();
        let mut placing = here.placing();
        put(&mut placing, "a.o", "new").expect("writable");
        put(&mut placing, "new/x/d.o", "d").expect("writable");
        placing.remove(b"sub".to_vec());
        assert_eq!(here.text("a.o"), "old");
        drop(placing);
        let left: Vec<_> =
            fs::read_dir(here.path("")).expect("the directory exists").flatten().map(|it| it.file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert_eq!(here.text("sub/b.o"), "old");
    }

    #[test]
    fn received_entries_are_placed_with_mode_and_time() {
        let here = Here::new();
        let mut placing = here.placing();
        placing.directory(b"new", 0o500);
        placing.directory(b"new/x", 0o755);
        put(&mut placing, "a.o", "new").expect("writable");
        put(&mut placing, "new/x/d.o", "d").expect("writable");
        placing.link(b"l", b"../elsewhere", Stamp::Now(0)).expect("writable");
        placing.commit(&here.sent).expect("the changes can be put in place");
        assert_eq!((here.text("a.o"), here.text("new/x/d.o")), ("new".to_owned(), "d".to_owned()));
        let found = fs::metadata(here.path("a.o")).expect("the entry exists");
        assert_eq!((found.mode() & 0o7777, found.mtime()), (0o755, 5), "the set-user-ID bit is dropped");
        assert_eq!(fs::metadata(here.path("new")).expect("the entry exists").mode() & 0o777, 0o500);
        assert_eq!(fs::read_link(here.path("l")).expect("a link").as_os_str(), "../elsewhere");
        fs::set_permissions(here.path("new"), PermissionsExt::from_mode(0o700)).expect("the test owns it");
    }

    #[test]
    fn only_what_was_sent_is_removed() {
        let here = Here::new();
        fs::create_dir(here.path("sub/.git")).expect("writable");
        let mut placing = here.placing();
        placing.remove(b"sub".to_vec());
        placing.remove(b"a.o".to_vec());
        placing.commit(&here.sent).expect("the changes can be put in place");
        assert!(!here.path("a.o").exists() && !here.path("sub/deep").exists() && here.path("sub/.git").is_dir());
    }

    #[test]
    fn directories_become_files_and_files_directories() {
        let here = Here::new();
        let mut placing = here.placing();
        put(&mut placing, "sub", "a file").expect("writable");
        placing.directory(b"a.o", 0o755);
        put(&mut placing, "a.o/in", "in").expect("writable");
        placing.commit(&here.sent).expect("the changes can be put in place");
        assert_eq!((here.text("sub"), here.text("a.o/in")), ("a file".to_owned(), "in".to_owned()));
    }

    #[test]
    fn emptied_directory_keeps_only_the_received_files() {
        let here = Here::new();
        let mut placing = here.placing();
        placing.empty(b"sub".to_vec());
        put(&mut placing, "sub/n.o", "n").expect("writable");
        placing.commit(&here.sent).expect("the changes can be put in place");
        let left: Vec<_> =
            fs::read_dir(here.path("sub")).expect("the directory exists").flatten().map(|it| it.file_name()).collect();
        assert_eq!(left, ["n.o"]);
    }

    #[test]
    fn nothing_is_written_through_a_link_out_of_the_tree() {
        let here = Here::new();
        symlink("..", here.path("up")).expect("writable");
        let mut placing = here.placing();
        put(&mut placing, "up/evil", "x").expect("a temporary file can be written");
        placing.commit(&here.sent).expect_err("the path contains a link");
        assert!(!here.folder.path().join("evil").exists());
    }

    #[test]
    fn stamp_uses_the_clock_of_the_disk() {
        let here = Here::new();
        let mut placing = here.placing();
        let filling = placing.file(b"x").expect("writable");
        let now = Seen::now();
        placing.filled(filling, 0o644, Stamp::Now(now - 1_000_000_000)).expect("the test owns it");
        placing.commit(&here.sent).expect("the changes can be put in place");
        let stamped = fs::metadata(here.path("x")).expect("the entry exists");
        let stamped = stamped.mtime() * 1_000_000_000 + stamped.mtime_nsec();
        assert_eq!(stamped, now - 1_000_000_000, "the same clock gives no offset");
    }
}

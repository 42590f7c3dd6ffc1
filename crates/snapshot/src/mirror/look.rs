//! Compares a tree with a [`Memory`] of it: finds the unchanged entries, and the new and changed ones.
//!
//! The comparison asks the kernel for the metadata of every remembered path, in one pass, and reads only directories that
//! have changed. A path component that is replaced meanwhile is harmless: either the metadata still match, or the
//! entry is opened beneath the root before it is described.

use std::collections::HashSet;
use std::io;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{fstat, fstatat};
use nix::sys::statfs::fstatfs;
use nix::unistd::{AccessFlags, Uid, faccessat};

use super::memory::Memory;
use crate::beneath::{Kind, Root, Stat};
use crate::paths;

/// File system types that update a directory's time stamps when a name in the directory changes: ext2 to ext4, XFS,
/// Btrfs, F2FS, ZFS, bcachefs, tmpfs and overlays. Other types, especially network file systems, may show new names
/// under an old stamp.
const STAMPS_DIRECTORIES: [i64; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e, 0x0102_1994, 0x794c_7630];

/// Returns whether a directory is on a local disk of a known type, so that no other machine writes to it.
pub(crate) fn is_local_disk(root: &Root) -> io::Result<bool> {
    let found = fstatfs(root.as_fd())?.filesystem_type();
    Ok(STAMPS_DIRECTORIES.iter().any(|&known| known as libc::__fsword_t == found.0))
}

/// What has changed in a tree since an earlier survey remembered the tree.
#[derive(Debug)]
pub(crate) struct Looked {
    /// The metadata of the root directory.
    pub(crate) root: Stat,
    /// Indices of the records whose entries are unchanged, ascending.
    pub(crate) kept: Vec<u32>,
    /// All other entries, sorted by path.
    pub(crate) fresh: Vec<Fresh>,
    /// Directories whose time stamps do not show all changes of their entries.
    pub(crate) untrusted: HashSet<Vec<u8>>,
    /// For how many entries the kernel was asked for metadata.
    pub(crate) asked: usize,
}

/// A new or changed entry.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) path: Vec<u8>,
    pub(crate) stat: Stat,
    /// The target of a link; otherwise empty.
    pub(crate) target: Vec<u8>,
}

/// The state of a comparison of a tree with the memory of an earlier survey.
pub(crate) struct Look<'a> {
    root: &'a Root,
    memory: &'a Memory,
    skips: &'a dyn Fn(&[u8]) -> bool,
    /// The disk whose directories have reliable time stamps.
    device: Option<u64>,
    /// Whether to check read permission. Root may read everything, so the check would only cost time.
    checks_access: bool,
    is_kept: Vec<bool>,
    fresh: Vec<Fresh>,
    /// Directories that must be read.
    unread: Vec<(Vec<u8>, Stat)>,
    untrusted: HashSet<Vec<u8>>,
    asked: usize,
}

impl Looked {
    /// Returns whether a directory's time stamps show changes of its entries.
    pub(crate) fn may_trust(&self, directory: &[u8]) -> bool {
        !self.untrusted.contains(directory)
    }

    /// Returns the size of all files together.
    pub(crate) fn bytes(&self, memory: &Memory) -> u64 {
        let kept = self.kept.iter().map(|&place| memory.record(place as usize));
        let kept = kept.filter(|it| it.kind == Kind::File).map(|it| it.mark.size);
        let fresh = self.fresh.iter().filter(|it| it.stat.kind == Kind::File).map(|it| it.stat.size);
        kept.chain(fresh).fold(0, u64::saturating_add)
    }
}

impl<'a> Look<'a> {
    /// Compares everything below `root` with `memory`, except paths that `skips` accepts.
    ///
    /// # Errors
    /// The root itself cannot be read.
    pub(crate) fn at(root: &'a Root, memory: &'a Memory, skips: &'a dyn Fn(&[u8]) -> bool) -> io::Result<Looked> {
        let found = fstat(root.as_fd())?;
        let trusts = is_local_disk(root)?;
        let mut look = Self {
            root,
            memory,
            skips,
            device: trusts.then_some(found.st_dev),
            checks_access: !Uid::effective().is_root(),
            is_kept: vec![false; memory.len()],
            fresh: Vec::new(),
            unread: Vec::new(),
            untrusted: HashSet::new(),
            asked: 1,
        };
        let stat = Stat::from(&found);
        if trusts && !memory.is_empty() && memory.record(0).is(&stat) {
            look.is_kept[0] = true;
        } else {
            if !trusts {
                look.distrust(b"");
            }
            look.list(b"", Dir::from_fd(root.open_directory(b"")?)?)?;
            look.list_all();
        }
        (1..memory.len()).for_each(|place| look.ask(place));
        let kept = look.is_kept.iter().zip(0..).skip(1).filter(|(is_kept, _)| **is_kept);
        let kept = kept.map(|(_, place)| place).collect();
        look.fresh.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(Looked { root: stat, kept, fresh: look.fresh, untrusted: look.untrusted, asked: look.asked })
    }

    /// Compares a remembered entry with the disk, unless the entry's directory was read completely.
    fn ask(&mut self, place: usize) {
        let record = self.memory.record(place);
        if self.is_kept[place] || !self.is_kept[record.parent] {
            return;
        }
        self.asked += 1;
        let known = |found: libc::stat| self.is_trusted(&found) && record.is(&Stat::from(&found));
        match fstatat(self.root.as_fd(), record.path, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) if known(found) => self.is_kept[place] = true,
            Ok(found) => self.take(record.path.to_vec(), Stat::from(&found)),
            Err(_) => self.distrust(paths::parent(record.path)),
        }
        self.list_all();
    }

    /// Reads the directories in `unread` until none is left.
    fn list_all(&mut self) {
        while let Some((path, stat)) = self.unread.pop() {
            let opened = self.root.open_directory(&path).and_then(|directory| {
                let found = fstat(&directory)?;
                Ok((found, Dir::from_fd(directory)?))
            });
            let stat = match &opened {
                Ok((found, _)) => Stat::from(found),
                Err(error) if is_gone(error) => {
                    self.distrust(paths::parent(&path));
                    continue;
                }
                // The directory exists, but this user cannot read it.
                Err(_) => stat,
            };
            self.fresh.push(Fresh { path: path.clone(), stat, target: Vec::new() });
            if !opened.as_ref().is_ok_and(|(found, _)| self.is_trusted(found)) {
                self.distrust(&path);
            }
            if opened.and_then(|(_, directory)| self.list(&path, directory)).is_err() {
                self.distrust(&path);
            }
        }
    }

    /// Handles all entries of a directory.
    fn list(&mut self, at: &[u8], mut directory: Dir) -> io::Result<()> {
        // Collect the names first: reading the directory borrows it, and so does looking at its entries.
        let mut names = Vec::new();
        for entry in directory.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let path = paths::join(at, name);
            if !matches!(name, b"." | b"..") && !(self.skips)(&path) {
                names.push(path);
            }
        }
        for path in names {
            self.asked += 1;
            let found = match fstatat(&directory, paths::name(&path), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(found) => found,
                Err(_) => {
                    self.distrust(at);
                    continue;
                }
            };
            let stat = Stat::from(&found);
            let known = self.memory.find(&path).filter(|&place| self.memory.record(place).is(&stat));
            match known.filter(|_| self.is_trusted(&found)) {
                Some(place) => self.is_kept[place] = true,
                None => self.take(path, stat),
            }
        }
        Ok(())
    }

    /// Adds a new or changed entry.
    fn take(&mut self, path: Vec<u8>, stat: Stat) {
        let target = match stat.kind {
            Kind::Directory => return self.unread.push((path, stat)),
            Kind::File => self.check_access(&path, &stat).map(|()| Vec::new()),
            Kind::Symlink => self.root.read_link(&path),
            Kind::Pipe | Kind::Socket | Kind::Device => return,
        };
        match target {
            Ok(target) => self.fresh.push(Fresh { path, stat, target }),
            Err(_) => self.distrust(paths::parent(&path)),
        }
    }

    /// Checks read permission before anything is read. World-readable files need no check.
    fn check_access(&self, path: &[u8], stat: &Stat) -> io::Result<()> {
        if self.checks_access && stat.mode & 0o444 != 0o444 {
            faccessat(self.root.as_fd(), path, AccessFlags::R_OK, AtFlags::AT_EACCESS)?;
        }
        Ok(())
    }

    /// Returns whether the time stamps of an entry show all changes of the entry.
    fn is_trusted(&self, found: &libc::stat) -> bool {
        found.st_mode & libc::S_IFMT != libc::S_IFDIR || self.device == Some(found.st_dev)
    }

    fn distrust(&mut self, directory: &[u8]) {
        self.untrusted.insert(directory.to_vec());
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP))
}

//! Opens paths beneath a directory with possibly hostile contents, never through a symbolic link.
//!
//! An agent works as root in directories that belong to a job. The job may, for example, replace a directory with a
//! link to `/etc`; paths resolved here still never leave the root. The kernel enforces this with `openat2`. Without
//! that call (Linux before 5.6, or a container that forbids it), the path is walked one component at a time.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::sys::time::TimeSpec;

use crate::paths;

/// The metadata of a file that show whether it has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: Kind,
    /// Permission bits (0o7777).
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) modified_ns: i64,
    pub(crate) changed_ns: i64,
    pub(crate) inode: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Pipe,
    Socket,
    Device,
}

impl Stat {
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&fstat(file)?))
    }

    /// Returns the metadata of `name` in `directory`. Does not follow a link.
    pub(crate) fn at(directory: impl AsFd, name: &[u8]) -> io::Result<Self> {
        Ok(Self::from(&fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?))
    }
}

impl From<&FileStat> for Stat {
    fn from(stat: &FileStat) -> Self {
        let kind = match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File,
            libc::S_IFDIR => Kind::Directory,
            libc::S_IFLNK => Kind::Symlink,
            libc::S_IFIFO => Kind::Pipe,
            libc::S_IFSOCK => Kind::Socket,
            _ => Kind::Device,
        };
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            size: stat.st_size.cast_unsigned(),
            modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
        }
    }
}

/// Combines seconds and nanoseconds to nanoseconds. Saturates for times outside the years 1677 to 2262, which some
/// files have by accident.
pub(crate) fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// Converts nanoseconds since the epoch, possibly negative, to a time for `futimens`.
pub(crate) fn time_of(nanoseconds: i64) -> TimeSpec {
    TimeSpec::new(nanoseconds.div_euclid(1_000_000_000), nanoseconds.rem_euclid(1_000_000_000))
}

/// An open directory. Paths are resolved beneath it and cannot lead outside.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    path: PathBuf,
}

impl Root {
    /// Opens the directory at `path`. `path` itself may contain symbolic links.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let directory = OwnedFd::from(File::open(path)?);
        if !fs::metadata(path)?.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        Ok(Self { directory, path: path.to_owned() })
    }

    /// Returns the full path of `path`, for messages.
    pub(crate) fn full(&self, path: &[u8]) -> PathBuf {
        self.path.join(std::ffi::OsStr::from_bytes(path))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Opens the directory at `path`; an empty path is the root itself.
    pub(crate) fn open_directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        Ok(self.open_beneath(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?)
    }

    /// Opens the regular file at `path` for reading. Any other type is an error. The call never blocks, e.g. on a named
    /// pipe.
    pub(crate) fn open_file(&self, path: &[u8]) -> io::Result<File> {
        // Without O_NONBLOCK, opening a pipe in the file's place would block until a writer appears.
        let file = File::from(self.open_beneath(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?);
        if Stat::of(&file)?.kind == Kind::File { Ok(file) } else { Err(not_a_file()) }
    }

    /// Returns the metadata of `path`. Does not follow a link.
    pub(crate) fn stat(&self, path: &[u8]) -> io::Result<Stat> {
        Stat::at(self.open_directory(paths::parent(path))?, paths::name(path))
    }

    /// Returns the target of the link at `path`.
    pub(crate) fn read_link(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        link_text(self.open_directory(paths::parent(path))?, paths::name(path))
    }

    fn open_beneath(&self, path: &[u8], flags: OFlag) -> nix::Result<OwnedFd> {
        static LACKS_OPENAT2: AtomicBool = AtomicBool::new(false);
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        if !LACKS_OPENAT2.load(Ordering::Relaxed) {
            let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
            match openat2(&self.directory, path, OpenHow::new().flags(flags).resolve(resolve)) {
                // Some container runtimes answer EPERM to unknown system calls.
                Err(Errno::ENOSYS | Errno::EPERM) => LACKS_OPENAT2.store(true, Ordering::Relaxed),
                // The kernel could not rule out a concurrent rename; walking the path can.
                Err(Errno::EAGAIN) => {}
                answer => return answer,
            }
        }
        self.walk_to(path, flags)
    }

    /// Opens `path` one component at a time.
    fn walk_to(&self, path: &[u8], flags: OFlag) -> nix::Result<OwnedFd> {
        let step = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut at: Option<OwnedFd> = None;
        for name in paths::parent(path).split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            debug_assert_ne!(name, b"..", "callers check that paths have no `..`");
            at = Some(openat(at.as_ref().map_or(self.as_fd(), AsFd::as_fd), name, step, Mode::empty())?);
        }
        openat(at.as_ref().map_or(self.as_fd(), AsFd::as_fd), paths::name(path), flags, Mode::empty())
    }
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Returns whether [`Root::open_file`] failed because no regular file has the path any more.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
        || (error.raw_os_error().is_none() && error.kind() == io::ErrorKind::InvalidInput)
}

/// Returns the target of the link `name` in `directory`.
pub(crate) fn link_text(directory: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(readlinkat(directory, name)?.as_bytes().to_vec())
}

/// Caches the last opened parent directory. Consecutive entries in path order mostly have the same parent.
pub(crate) struct Parents<'a> {
    root: &'a Root,
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> Parents<'a> {
    pub(crate) fn of(root: &'a Root) -> Self {
        Self { root, last: None }
    }

    /// Opens the parent directory of `path`.
    pub(crate) fn directory_of(&mut self, path: &[u8]) -> io::Result<BorrowedFd<'_>> {
        let parent = paths::parent(path);
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            self.last = Some((parent.to_vec(), self.root.open_directory(parent)?));
        }
        Ok(self.last.as_ref().map_or(self.root.as_fd(), |(_, directory)| directory.as_fd()))
    }
}

/// Reads `length` bytes at `offset`, or fewer at the end of the file.
pub(crate) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Reads a small ignore file. As in git, a link or any other type counts as absent.
pub(crate) fn read_small(directory: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    const LIMIT_BYTES: u64 = 1 << 20;
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        // The walk reports an unreadable file when it reaches it.
        Err(Errno::ENOENT | Errno::ELOOP | Errno::EACCES) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if Stat::of(&file)?.kind != Kind::File {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(LIMIT_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn both_ways_of_opening_refuse_links() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let path = dir.path();
        fs::create_dir_all(path.join("root/a/b")).expect("writable");
        fs::write(path.join("root/a/b/file"), "in").expect("writable");
        fs::write(path.join("secret"), "out").expect("writable");
        symlink("../secret", path.join("root/leaf")).expect("writable");
        symlink("..", path.join("root/up")).expect("writable");
        symlink("a", path.join("root/alias")).expect("writable");
        let root = Root::open(&path.join("root")).expect("exists");
        for open in [Root::open_beneath, Root::walk_to] {
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
            assert!(open(&root, b"a/b/file", flags).is_ok());
            for bad in ["leaf", "up/secret", "alias/b/file", "a/missing"] {
                assert!(open(&root, bad.as_bytes(), flags).is_err(), "{bad}");
            }
        }
        assert!(root.open_beneath(b"../secret", OFlag::O_RDONLY).is_err());
    }

    #[test]
    fn times_before_the_epoch_round_trip() {
        for nanoseconds in [-1, -1_000_000_001, 0, 1_700_000_000_123_456_789] {
            let time = time_of(nanoseconds);
            assert_eq!(super::nanoseconds(time.tv_sec(), time.tv_nsec()), nanoseconds);
        }
    }
}

//! Removes a directory tree with possibly hostile contents.
//!
//! A program may nest directories to any depth and put any number of names into one. So the removal does not recurse:
//! it first moves a deep directory up. It reads names in batches, never follows links, and holds at most three
//! descriptors open. It also removes directories whose owner made them read-only.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{UnlinkatFlags, unlinkat};

const BATCH: usize = 4096;

/// The number of attempts to empty a directory that another process writes into.
const ATTEMPTS: usize = 16;

/// The maximum number of names to remove in one call; a moved directory counts twice. The limit ends the removal even
/// if a process keeps making files. A disk of 4 TiB has as many files by default. The next call removes the rest of a
/// larger tree.
const MOST_NAMES: u64 = 1 << 28;

/// How many names may still be removed.
struct Names(Cell<u64>);

impl Names {
    /// Subtracts `count`, at least one; fails when no names are left.
    fn take(&self, count: usize) -> io::Result<()> {
        let left = self.0.get().checked_sub(count.max(1) as u64).ok_or_else(being_filled)?;
        self.0.set(left);
        Ok(())
    }
}

/// Removes the directory at `path` and everything in it on the same disk, with constant memory and stack. A missing
/// directory is not an error.
///
/// # Errors
/// The first entry that cannot be removed; other entries may remain too. A link or a file at `path` is an error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove_within(AT_FDCWD, path, MOST_NAMES)
}

/// Like [`remove_tree`], for the directory `name` in `parent`.
///
/// # Errors
/// As for [`remove_tree`].
pub(crate) fn remove_tree_at(parent: impl AsFd, name: &str) -> io::Result<()> {
    remove_within(parent, Path::new(name), MOST_NAMES)
}

fn remove_within(parent: impl AsFd, path: &Path, most_names: u64) -> io::Result<()> {
    let left = Names(Cell::new(most_names));
    let open = || Ok(openat(&parent, path, directory_flags(), Mode::empty())?);
    let top = match unlocking(&parent, path, open) {
        Ok(top) => top,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut moved = 0_u64;
    for _ in 0..ATTEMPTS {
        // Directories moved up here are removed in a later round.
        let mut remove_batch = || empty(&top, &left, |name| remove_directory(&top, name, &mut moved, &left));
        while unlocking(&parent, path, &mut remove_batch)? > 0 {}
        match unlinkat(&parent, path, UnlinkatFlags::RemoveDir) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            removed => return Ok(removed?),
        }
    }
    Err(being_filled())
}

const fn directory_flags() -> OFlag {
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC)
}

/// Removes a directory in `top`. Moves its subdirectories to `top` first.
fn remove_directory(top: &OwnedFd, name: &[u8], moved: &mut u64, left: &Names) -> io::Result<()> {
    if remove_if_empty(top, name)? {
        return Ok(());
    }
    let path = Path::new(OsStr::from_bytes(name));
    let open = || match openat(top, path, directory_flags(), Mode::empty()) {
        // The entry was replaced meanwhile; the next batch shows its new type.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
        opened => Ok(Some(opened?)),
    };
    let Some(directory) = unlocking(top, path, open)? else { return Ok(()) };
    for _ in 0..ATTEMPTS {
        unlocking(top, path, || {
            empty(&directory, left, |below| {
                if remove_if_empty(&directory, below)? { Ok(()) } else { move_up(&directory, below, top, moved) }
            })
        })?;
        if remove_if_empty(top, name)? {
            return Ok(());
        }
    }
    Err(being_filled())
}

/// Calls `work`. If permission is denied, gives the owner all permissions on the directory `path` in `parent`, and calls
/// `work` again.
fn unlocking<T>(parent: impl AsFd, path: &Path, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match work() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && unlock(parent, path).is_ok() => work(),
        done => done,
    }
}

/// Gives the owner all permissions on a directory. Never follows a link at `path`.
fn unlock(parent: impl AsFd, path: &Path) -> nix::Result<()> {
    // A directory without permissions can be opened only as a path, and its mode be changed only through this link.
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = openat(parent, path, flags, Mode::empty())?;
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    fchmodat(AT_FDCWD, link.as_str(), Mode::S_IRWXU, FchmodatFlags::FollowSymlink)
}

/// Removes an empty directory. Returns whether the directory no longer exists.
fn remove_if_empty(parent: &OwnedFd, name: &[u8]) -> io::Result<bool> {
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes all entries except directories. Passes each directory to `each`, which must remove it. Returns the number of
/// names in the last batch.
fn empty(directory: &OwnedFd, left: &Names, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<usize> {
    loop {
        let names = batch(directory)?;
        for (name, kind) in &names {
            if *kind == Some(Type::Directory) {
                each(name)?;
                continue;
            }
            match unlinkat(directory, name.as_slice(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(Errno::EISDIR) => each(name)?,
                Err(error) => return Err(error.into()),
            }
        }
        left.take(names.len())?;
        if names.len() < BATCH {
            return Ok(names.len());
        }
    }
}

/// Reads a limited number of names of a directory, with their types.
fn batch(directory: &OwnedFd) -> io::Result<Vec<(Vec<u8>, Option<Type>)>> {
    let mut names = Vec::new();
    for entry in Dir::openat(directory, ".", directory_flags(), Mode::empty())?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push((name.to_vec(), entry.file_type()));
        }
        if names.len() >= BATCH {
            break;
        }
    }
    Ok(names)
}

fn being_filled() -> io::Error {
    io::Error::new(io::ErrorKind::DirectoryNotEmpty, "another process keeps creating files in this directory")
}

/// Moves a directory into `top` under an unused name.
fn move_up(from: impl AsFd, name: &[u8], top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    let mut unlocked = false;
    loop {
        *moved += 1;
        match renameat(&from, name, top, format!(".{moved}").as_str()) {
            // The name belongs to a file or to a directory that is not empty.
            Err(Errno::ENOTDIR | Errno::ENOTEMPTY | Errno::EEXIST) => {}
            Err(Errno::ENOENT) => return Ok(()),
            // A directory can only be moved to another directory with write permission on itself.
            Err(Errno::EACCES) if !unlocked => {
                unlocked = true;
                unlock(&from, Path::new(OsStr::from_bytes(name)))?;
            }
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::sys::stat::mkdirat;

    use super::*;

    #[test]
    fn directory_is_removed_with_its_content_only() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let (doomed, other) = (folder.path().join("doomed"), folder.path().join("other"));
        fs::create_dir_all(doomed.join("a/b/c")).expect("writable");
        fs::create_dir_all(doomed.join("a/.1/.2")).expect("writable");
        fs::create_dir_all(doomed.join(".1")).expect("writable");
        fs::create_dir(&other).expect("writable");
        for file in ["doomed/.2", "doomed/.1/x", "doomed/a/b/c/file", "other/file"] {
            fs::write(folder.path().join(file), "x").expect("writable");
        }
        symlink(&other, doomed.join("a/link")).expect("writable");
        remove_tree(&doomed).expect("the directory can be removed");
        assert!(!doomed.exists());
        assert!(other.join("file").exists());
        remove_tree(&doomed).expect("removing a missing directory succeeds");
        symlink(&other, &doomed).expect("writable");
        remove_tree(&doomed).expect_err("a link is not a directory");
        assert!(other.join("file").exists());
    }

    #[test]
    fn read_only_directories_are_removed() {
        // Root may write to read-only directories, so that this test acts as another user.
        let remove = || {
            if nix::unistd::geteuid().is_root() {
                nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
            }
            let folder = tempfile::tempdir().expect("a temporary directory can be made");
            for (number, mode) in [0o555, 0o500, 0o000, 0o755].into_iter().enumerate() {
                let doomed = folder.path().join(number.to_string());
                fs::create_dir_all(doomed.join("a/b/c")).expect("writable");
                fs::write(doomed.join("a/b/c/file"), "x").expect("writable");
                for path in ["a/b/c", "a/b", "a", ""] {
                    fs::set_permissions(doomed.join(path), fs::Permissions::from_mode(mode)).expect("the test owns it");
                }
                remove_tree(&doomed).expect("the owner can change the mode");
                assert!(!doomed.exists());
            }
        };
        std::thread::spawn(remove).join().expect("all directories are removed");
    }

    #[test]
    fn directory_larger_than_a_batch_is_removed() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let doomed = folder.path().join("doomed");
        fs::create_dir_all(doomed.join("wide")).expect("writable");
        for number in 0..BATCH + 10 {
            fs::create_dir(doomed.join("wide").join(number.to_string())).expect("writable");
            if number % 7 == 0 {
                fs::create_dir_all(doomed.join("wide").join(number.to_string()).join("a/b")).expect("writable");
                fs::write(doomed.join(number.to_string()), "x").expect("writable");
            }
        }
        remove_tree(&doomed).expect("the directory can be removed");
        assert!(!doomed.exists());
    }

    #[test]
    fn removal_gives_up_on_a_directory_that_is_refilled() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let top = openat(AT_FDCWD, folder.path(), directory_flags(), Mode::empty()).expect("the directory exists");
        mkdirat(&top, "0", Mode::S_IRWXU).expect("writable");
        let left = Names(Cell::new(1000));
        let mut made = 0;
        let mut remove_and_make = |name: &[u8]| {
            assert!(remove_if_empty(&top, name)?);
            made += 1;
            Ok(mkdirat(&top, made.to_string().as_str(), Mode::S_IRWXU)?)
        };
        let given_up = (0..2000).find_map(|_| empty(&top, &left, &mut remove_and_make).err());
        assert_eq!(given_up.expect("the removal gives up").kind(), io::ErrorKind::DirectoryNotEmpty);
        assert_eq!(made, 1001);
    }

    #[test]
    fn later_calls_remove_the_remaining_names() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let doomed = folder.path().join("doomed");
        for number in 0..100 {
            fs::create_dir_all(doomed.join(format!("{number}/a/b"))).expect("writable");
        }
        let error = remove_within(AT_FDCWD, &doomed, 50).expect_err("the directory has more than 50 names");
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        let calls = (1..100).find(|_| remove_within(AT_FDCWD, &doomed, 50).is_ok());
        assert!(calls.is_some() && !doomed.exists(), "each call removes some names");
    }

    #[test]
    fn deeply_nested_directory_is_removed_with_a_small_stack() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let doomed = folder.path().join("doomed");
        fs::create_dir(&doomed).expect("writable");
        let mut at = openat(AT_FDCWD, &doomed, directory_flags(), Mode::empty()).expect("the directory exists");
        for _ in 0..20_000 {
            mkdirat(&at, "d", Mode::S_IRWXU).expect("writable");
            at = openat(&at, "d", directory_flags(), Mode::empty()).expect("the directory exists");
        }
        let small = std::thread::Builder::new().stack_size(128 << 10);
        let removed = small.spawn(move || remove_tree(&doomed)).expect("a thread can be started").join();
        removed.expect("the thread does not panic").expect("the directory can be removed");
        assert_eq!(fs::read_dir(folder.path()).expect("the directory exists").count(), 0);
    }
}

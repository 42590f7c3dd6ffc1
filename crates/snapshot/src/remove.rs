//! Removing a directory that somebody else has filled.
//!
//! A program may nest directories as deep as it likes. Whoever removes them by descending needs room for each level, and an agent that runs out of
//! it is gone. So nothing descends here: what is deep is first moved up.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Removes the directory at `path` and everything in it, on one disk, in constant memory for each directory. That it is not there is no error.
///
/// # Errors
/// The first thing that could not be removed; other things are left with it.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let top = match open(path, directory_flags(), Mode::empty()) {
        Ok(top) => top,
        Err(Errno::ENOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut moved = 0_u64;
    // Each round empties the directories that are in it, and leaves in it those that were in them.
    loop {
        let inside = empty(&top)?;
        if inside.is_empty() {
            return std::fs::remove_dir(path);
        }
        for name in inside {
            let directory = openat(&top, name.as_slice(), directory_flags(), Mode::empty())?;
            for below in empty(&directory)? {
                move_up(&directory, &below, &top, &mut moved)?;
            }
            unlinkat(&top, name.as_slice(), UnlinkatFlags::RemoveDir)?;
        }
    }
}

const fn directory_flags() -> OFlag {
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC)
}

/// Removes all but the directories from a directory, and names those.
fn empty(directory: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::openat(directory, ".", directory_flags(), Mode::empty())?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push((name.to_vec(), entry.file_type()));
        }
    }
    let mut directories = Vec::new();
    for (name, kind) in names {
        if kind == Some(Type::Directory) {
            directories.push(name);
            continue;
        }
        match unlinkat(directory, name.as_slice(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::EISDIR) => directories.push(name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(directories)
}

/// Moves a directory, under a name that nothing has there.
fn move_up(from: impl AsFd, name: &[u8], top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        match renameat(&from, name, top, format!(".{moved}").as_str()) {
            // A file, or a directory that is not empty.
            Err(Errno::ENOTDIR | Errno::ENOTEMPTY | Errno::EEXIST) => {}
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::mkdirat;

    use super::*;

    #[test]
    fn a_directory_goes_with_everything_in_it_and_nothing_else() {
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
        remove_tree(&doomed).expect("it can be removed");
        assert!(!doomed.exists());
        assert!(other.join("file").exists());
        remove_tree(&doomed).expect("nothing is there");
        symlink(&other, &doomed).expect("writable");
        remove_tree(&doomed).expect_err("a link is no directory");
        assert!(other.join("file").exists());
    }

    #[test]
    fn a_directory_may_be_deeper_than_any_stack() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let doomed = folder.path().join("doomed");
        fs::create_dir(&doomed).expect("writable");
        let mut at = open(&doomed, directory_flags(), Mode::empty()).expect("there");
        for _ in 0..20_000 {
            mkdirat(&at, "d", Mode::S_IRWXU).expect("writable");
            at = openat(&at, "d", directory_flags(), Mode::empty()).expect("there");
        }
        let small = std::thread::Builder::new().stack_size(128 << 10);
        let removed = small.spawn(move || remove_tree(&doomed)).expect("there is room").join();
        removed.expect("no panic").expect("it can be removed");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    }
}

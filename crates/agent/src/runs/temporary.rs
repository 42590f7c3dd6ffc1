//! Temporary directories for runs that launch processes on their other nodes.
//!
//! Open MPI and other programs create temporary files whose names contain the job and the machine, but not the node.
//! Nodes on one machine would share these files, so each such run gets a private directory on every node.
//!
//! The directory is in the usual place for temporary files, because programs create sockets in it, and socket paths are
//! limited to 107 bytes. A link among the run's files points to it, and both are removed together.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use hostler_snapshot::remove_tree;

/// Parent directory for users other than the agent's own.
const USUAL: &str = "/tmp";

/// Parent directory of the temporary directory for a run of `owner` (uid and gid). `None` is the agent's own user,
/// whose jobs have the agent's `TMPDIR`.
pub(crate) fn place(owner: Option<(u32, u32)>) -> PathBuf {
    if owner.is_some() { PathBuf::from(USUAL) } else { std::env::temp_dir() }
}

/// Creates a directory in `place` with the first free name of `names`, gives the directory to `owner`, and creates the
/// link `link` to it.
///
/// # Errors
/// If all names are in use, or the disk refuses.
pub(crate) fn make(place: &Path, names: &[String], owner: Option<(u32, u32)>, link: &Path) -> io::Result<PathBuf> {
    let mut free = Err(io::ErrorKind::InvalidInput.into());
    for name in names {
        let path = place.join(name);
        free = DirBuilder::new().mode(0o700).create(&path).map(|()| path);
        match &free {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            _ => break,
        }
    }
    let path = free?;
    let give = || -> io::Result<()> {
        symlink(&path, link)?;
        if let Some((uid, gid)) = owner {
            lchown(link, Some(uid), Some(gid))?;
            chown(&path, Some(uid), Some(gid))?;
        }
        Ok(())
    };
    if let Err(error) = give() {
        // Without the link, nothing would remove the directory.
        let _ = fs::remove_dir(&path);
        return Err(error);
    }
    Ok(path)
}

/// Removes the link and its target directory with all contents, if they exist.
///
/// Other users can create directories in the same place. The target is removed only if it belongs to the user of the
/// link.
///
/// # Errors
/// If the disk refuses.
pub(crate) fn remove(link: &Path) -> io::Result<()> {
    let Some((path, owner)) = unless_gone(fs::read_link(link).and_then(|path| Ok((path, owner_of(link)?))))? else {
        return Ok(());
    };
    // A file system that the job has mounted there would be asked for the owner. Only root can detach it.
    let _ = hostler_sys::detach_mounts(&path);
    if unless_gone(owner_of(&path))? == Some(owner) {
        remove_with_mounts(&path)?;
    }
    fs::remove_file(link)
}

/// Removes a directory of a run, and detaches what is mounted in it: a killed program cannot unmount its file systems.
///
/// # Errors
/// If the disk or the kernel refuses.
pub(crate) fn remove_with_mounts(directory: &Path) -> io::Result<()> {
    match remove_tree(directory) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            hostler_sys::detach_mounts(directory)?;
            remove_tree(directory)
        }
        removed => removed,
    }
}

fn owner_of(path: &Path) -> io::Result<u32> {
    Ok(fs::symlink_metadata(path)?.uid())
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Needs root.
    #[test]
    fn temporary_directory_is_private_and_removed_only_if_still_owned() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let names = ["a".to_owned(), "a-1".to_owned()];
        let user = Some((65534, 65533));
        let make = |link: &str| make(root.path(), &names, user, &root.path().join(link));
        let (first, second) = (make("one").expect("free"), make("two").expect("the second name is free"));
        assert_eq!((first.clone(), second), (root.path().join("a"), root.path().join("a-1")));
        assert_eq!(make("three").expect_err("no name is free").kind(), io::ErrorKind::AlreadyExists);
        let metadata = fs::metadata(&first).expect("the path exists");
        assert_eq!((metadata.uid(), metadata.gid(), metadata.permissions().mode() & 0o7777), (65534, 65533, 0o700));

        fs::create_dir(first.join("full")).expect("root has permission");
        let remove = |link: &str| remove(&root.path().join(link)).expect("root has permission");
        remove("one");
        remove("one");
        assert!(!first.exists() && fs::symlink_metadata(root.path().join("one")).is_err());
        // Another user now owns a directory with this name.
        chown(root.path().join("a-1"), Some(65532), None).expect("root has permission");
        remove("two");
        assert!(root.path().join("a-1").exists() && fs::symlink_metadata(root.path().join("two")).is_err());
    }
}

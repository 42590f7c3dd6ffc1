//! A directory for the temporary files of a run whose processes launch on its other nodes.
//!
//! Open MPI and others keep files there whose names say which job and which machine, but not which node: on nodes that are one machine they
//! would be the same files. So each of these runs has a directory of its own on every node, for its user alone. It lies where temporary
//! files usually do, and not beside the run's other files, since programs make sockets in it, whose paths may have no more than 107 bytes;
//! a link beside the run's files says where, and both go together.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use hostler_snapshot::remove_tree;

/// Where they are made for other users than the agent's own.
const USUAL: &str = "/tmp";

/// Where those of a run of this user are made; `None` is the agent's own, whose jobs have its `TMPDIR`.
pub(crate) fn place(owner: Option<(u32, u32)>) -> PathBuf {
    if owner.is_some() { PathBuf::from(USUAL) } else { std::env::temp_dir() }
}

/// Makes one within `place`, which is to belong to a user and group, and the link to it. It has the first of these names that is free.
///
/// # Errors
/// When none of the names is free, or the disk refuses.
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
        // Nothing else would find it again.
        let _ = fs::remove_dir(&path);
        return Err(error);
    }
    Ok(path)
}

/// Removes the link and the directory that it leads to with all that is in it, if there are any.
///
/// Others may make directories beside it: one that is not of the user for whom it was made is not it.
///
/// # Errors
/// When the disk refuses.
pub(crate) fn remove(link: &Path) -> io::Result<()> {
    let Some((path, owner)) = unless_gone(fs::read_link(link).and_then(|path| Ok((path, owner_of(link)?))))? else {
        return Ok(());
    };
    if unless_gone(owner_of(&path))? == Some(owner) {
        remove_tree(&path)?;
    }
    fs::remove_file(link)
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
    fn it_belongs_to_the_user_and_only_what_does_is_removed() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let names = ["a".to_owned(), "a-1".to_owned()];
        let user = Some((65534, 65533));
        let make = |link: &str| make(root.path(), &names, user, &root.path().join(link));
        let (first, second) = (make("one").expect("free"), make("two").expect("the second name is free"));
        assert_eq!((first.clone(), second), (root.path().join("a"), root.path().join("a-1")));
        assert_eq!(make("three").expect_err("none is").kind(), io::ErrorKind::AlreadyExists);
        let metadata = fs::metadata(&first).expect("there");
        assert_eq!((metadata.uid(), metadata.gid(), metadata.permissions().mode() & 0o7777), (65534, 65533, 0o700));

        fs::create_dir(first.join("full")).expect("root may");
        let remove = |link: &str| remove(&root.path().join(link)).expect("root may");
        remove("one");
        remove("one");
        assert!(!first.exists() && fs::symlink_metadata(root.path().join("one")).is_err());
        // The user has made room for somebody else's.
        chown(root.path().join("a-1"), Some(65532), None).expect("root may");
        remove("two");
        assert!(root.path().join("a-1").exists() && fs::symlink_metadata(root.path().join("two")).is_err());
    }
}

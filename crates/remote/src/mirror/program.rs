//! Finds the program of a command and compares it between nodes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hostler_model::Digest;
use hostler_snapshot::chunk::digest_of;
use hostler_sys::LOGIN_PATH;
use nix::libc;
use serde::{Deserialize, Serialize};

use crate::message::Command;

/// Maximum size in bytes of a program to compare. The file is read into memory.
const MOST_BYTES: u64 = 1 << 30;

/// File metadata that shows whether a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    /// Opens a file and reads the metadata for its mark. Waits neither for a lease on the file nor for a pipe.
    ///
    /// # Errors
    /// Fails when the file cannot be opened, or is not a regular file.
    pub fn open(path: &Path) -> io::Result<(File, Self)> {
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mark = Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        };
        Ok((file, mark))
    }

    /// Returns the digest of the marked file.
    ///
    /// # Errors
    /// Fails when the file cannot be read, or is too large.
    pub fn digest(&self, file: File) -> io::Result<Digest> {
        if self.size > MOST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(digest_of(&bytes))
    }
}

/// Returns the candidate paths of a command's program, in search order.
#[must_use]
pub fn places_of_program(command: &Command) -> Vec<PathBuf> {
    let (argv, directory) = (command.argv(), command.directory());
    let Some(name) = argv.first() else { return Vec::new() };
    if name.as_encoded_bytes().contains(&b'/') {
        return vec![directory.join(name)];
    }
    let path = command.environment().into_iter().find(|(variable, _)| variable == "PATH").map(|(_, path)| path);
    let path = path.unwrap_or_else(|| OsStr::new(LOGIN_PATH).to_owned());
    std::env::split_paths(&path).map(|at| directory.join(at).join(name)).collect()
}

/// Returns whether `path` is an executable file. The file may be executable for other users only.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(argv: &str, path: Option<&str>) -> Vec<PathBuf> {
        let environment = path.map(|path| ("PATH".into(), path.into()));
        places_of_program(&Command::new(&[argv.into()], environment, "/tree/sub".into()))
    }

    #[test]
    fn programs_are_looked_up_along_the_search_path() {
        assert_eq!(places("gcc", Some("/a:b:/c")), ["/a/gcc", "/tree/sub/b/gcc", "/c/gcc"].map(PathBuf::from));
        assert_eq!(places("./gcc", Some("/a")), [PathBuf::from("/tree/sub/./gcc")]);
        assert_eq!(places("/x/gcc", None), [PathBuf::from("/x/gcc")]);
        assert_eq!(places("gcc", None).len(), 3);
        assert!(is_program(Path::new("/bin/sh")) && !is_program(Path::new("/bin")) && !is_program(Path::new("/x/y")));
    }

    #[test]
    fn mark_changes_with_the_file() {
        let file = tempfile::NamedTempFile::new().expect("writable");
        fs::write(file.path(), "one").expect("writable");
        let (opened, before) = Mark::open(file.path()).expect("the path exists");
        assert_eq!(before.digest(opened).expect("readable"), digest_of(b"one"));
        assert_eq!(Mark::open(file.path()).expect("the path exists").1, before);
        fs::write(file.path(), "more").expect("writable");
        assert_ne!(Mark::open(file.path()).expect("the path exists").1, before);
    }
}

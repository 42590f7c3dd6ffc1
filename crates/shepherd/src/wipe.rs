//! Using the directory of a run once more.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::record::{STDERR, STDOUT};
use crate::sys;

/// Empties the outputs in the directory of a run that is over, so that another run may have it; the journal is written
/// over by [`crate::journal::begin`]. `false` when any process still has an output open, by the kernel's word:
/// it would read what the next run writes, or write into it. Then, and after an error, the directory is not to be used.
///
/// # Errors
/// When the files cannot be looked at or emptied, or are no files.
pub fn wipe(directory: &Path) -> io::Result<bool> {
    for name in [STDOUT, STDERR] {
        let mut options = OpenOptions::new();
        let file = match options.read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(directory.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if !is_ours_alone(&file) {
            return Ok(false);
        }
        if file.metadata()?.len() > 0 {
            file.set_len(0)?;
        }
    }
    Ok(true)
}

/// Whether nobody else has the file open: the kernel grants a write lease then only. File systems that grant none, as
/// network ones, say no.
fn is_ours_alone(file: &File) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: plain integers go in.
        sys::check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) }.into())
    };
    lease(libc::F_WRLCK).and_then(|_| lease(libc::F_UNLCK)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_emptied_unless_somebody_has_them_open() {
        let directory = tempfile::tempdir().expect("a directory");
        let stdout = directory.path().join(STDOUT);
        std::fs::write(&stdout, "x").expect("writes");
        let reader = File::open(&stdout).expect("there");
        assert!(!wipe(directory.path()).expect("looks"));
        assert_eq!(std::fs::read(&stdout).expect("there"), b"x");
        drop(reader);
        let writer = OpenOptions::new().append(true).open(&stdout).expect("there");
        assert!(!wipe(directory.path()).expect("looks"));
        drop(writer);
        assert!(wipe(directory.path()).expect("looks"));
        assert!(std::fs::read(&stdout).expect("there").is_empty());
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let other = directory.path().join("other");
        std::fs::write(&other, "mine").expect("writes");
        std::os::unix::fs::symlink(&other, directory.path().join(STDERR)).expect("links");
        wipe(directory.path()).expect_err("a link is no output");
        assert_eq!(std::fs::read(&other).expect("there"), b"mine");
    }
}

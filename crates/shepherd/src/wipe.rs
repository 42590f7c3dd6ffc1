//! Prepares the directory of an ended run for reuse.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::journal::JOURNAL;
use crate::record::{STDERR, STDOUT};
use crate::sys;

/// `fcntl` command that sets the signal for lease breaks; libc defines it only for GNU.
const F_SETSIG: libc::c_int = 10;

/// Truncates the outputs in the directory of an ended run, so that another run can use it. [`crate::journal::begin`]
/// later overwrites the journal. Returns the uid of the outputs' owner; only a run of this user may reuse the
/// directory.
///
/// Returns `None` if the directory contains other files, or if any process still has an output open: that process could
/// read the next run's output or write into it. After `None` or an error, the directory must not be reused. Never waits
/// for a lease that the owner of an output holds on it.
///
/// # Errors
/// If the files cannot be read or truncated, or are not regular files.
pub fn wipe(directory: &Path) -> io::Result<Option<u32>> {
    let mut owner = None;
    for entry in fs::read_dir(directory)? {
        if !entry?.file_name().to_str().is_some_and(|name| [JOURNAL, STDOUT, STDERR].contains(&name)) {
            return Ok(None);
        }
    }
    for name in [STDOUT, STDERR] {
        // Without O_NONBLOCK, a lease of the output's owner would delay this process for 45 seconds.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(directory.join(name)) {
            Ok(file) => file,
            // A process that has the file open may have removed it, or may hold a lease on it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let is_as_made = metadata.nlink() == 1 && metadata.mode() & 0o777 == 0o600;
        if !is_as_made || *owner.get_or_insert(metadata.uid()) != metadata.uid() || !has_no_other_user(&file) {
            return Ok(None);
        }
        // An empty file may have blocks reserved beyond its end.
        if metadata.len() > 0 || metadata.blocks() > 0 {
            file.set_len(0)?;
        }
    }
    Ok(owner)
}

/// Whether no other process has the file open: only then does the kernel grant a write lease. Returns `false` on file
/// systems without leases, such as network file systems. If another process opens the file during the lease, the kernel
/// sends a signal. The default signal is fatal, so SIGURG replaces it.
fn has_no_other_user(file: &File) -> bool {
    let set = |what: libc::c_int, value: libc::c_int| {
        // SAFETY: the system call takes plain integers.
        sys::check(unsafe { libc::fcntl(file.as_raw_fd(), what, value) }.into())
    };
    let lease = |kind| set(libc::F_SETLEASE, kind);
    set(F_SETSIG, libc::SIGURG).and_then(|_| lease(libc::F_WRLCK)).and_then(|_| lease(libc::F_UNLCK)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn outputs_are_truncated_unless_a_process_has_them_open() {
        let directory = tempfile::tempdir().expect("a directory");
        let stdout = outputs(directory.path());
        std::fs::write(&stdout, "x").expect("the file can be written");
        let reader = File::open(&stdout).expect("the file exists");
        assert_eq!(wipe(directory.path()).expect("the directory can be checked"), None);
        assert_eq!(std::fs::read(&stdout).expect("the file exists"), b"x");
        drop(reader);
        let writer = OpenOptions::new().append(true).open(&stdout).expect("the file exists");
        assert_eq!(wipe(directory.path()).expect("the directory can be checked"), None);
        drop(writer);
        assert_eq!(
            wipe(directory.path()).expect("the directory can be checked"),
            Some(nix::unistd::geteuid().as_raw())
        );
        assert!(std::fs::read(&stdout).expect("the file exists").is_empty());
        // Reserved blocks beyond the end are freed too.
        let file = OpenOptions::new().write(true).open(&stdout).expect("the file exists");
        nix::fcntl::fallocate(&file, nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 1 << 20)
            .expect("the disk has space");
        assert_eq!((file.metadata().expect("open").len(), file.metadata().expect("open").blocks() > 0), (0, true));
        drop(file);
        assert!(wipe(directory.path()).expect("the directory can be checked").is_some());
        assert_eq!(std::fs::metadata(&stdout).expect("the file exists").blocks(), 0);
        std::fs::hard_link(&stdout, directory.path().join("mine")).expect("a link can be made");
        assert_eq!(wipe(directory.path()).expect("the directory can be checked"), None, "the file has another link");
    }

    /// Creates outputs as a shepherd does, and returns the path of the first output.
    fn outputs(directory: &Path) -> std::path::PathBuf {
        for name in [STDOUT, STDERR] {
            OpenOptions::new().append(true).create(true).mode(0o600).open(directory.join(name)).expect("writable");
        }
        directory.join(STDOUT)
    }

    #[test]
    fn wipe_does_not_wait_for_a_lease_of_the_owner() {
        let directory = tempfile::tempdir().expect("a directory");
        outputs(directory.path());
        for name in [STDOUT, STDERR] {
            let held = File::open(directory.path().join(name)).expect("the file exists");
            // By default, the signal for a broken lease would end this process.
            for (command, value) in [(F_SETSIG, libc::SIGURG), (libc::F_SETLEASE, libc::F_RDLCK)] {
                // SAFETY: the system call takes plain integers.
                let set = unsafe { libc::fcntl(held.as_raw_fd(), command, value) };
                assert_eq!(set, 0, "the owner gets a lease on {name}: {}", io::Error::last_os_error());
            }
            let began = Instant::now();
            assert_eq!(wipe(directory.path()).expect("the directory can be checked"), None, "{name}");
            // The kernel breaks a lease after 45 seconds.
            assert!(began.elapsed() < Duration::from_secs(20), "{name}: {:?}", began.elapsed());
        }
        assert!(wipe(directory.path()).expect("the directory can be checked").is_some(), "the leases have ended");
    }

    #[test]
    fn wipe_does_not_follow_links() {
        let directory = tempfile::tempdir().expect("a directory");
        let elsewhere = tempfile::tempdir().expect("a directory");
        let other = elsewhere.path().join("other");
        std::fs::write(&other, "mine").expect("the file can be written");
        outputs(directory.path());
        std::fs::remove_file(directory.path().join(STDERR)).expect("the file exists");
        std::os::unix::fs::symlink(&other, directory.path().join(STDERR)).expect("a link can be made");
        wipe(directory.path()).expect_err("a link is not an output");
        assert_eq!(std::fs::read(&other).expect("the file exists"), b"mine");
    }
}

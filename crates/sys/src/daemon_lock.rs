//! The lock by which a daemon alone uses its directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

const LOCK: &str = "lock";

/// Locks `directory` until the value is dropped or the process ends; `None` if another process holds the lock.
///
/// # Errors
/// If the lock file cannot be opened.
pub fn lock_directory(directory: &Path) -> io::Result<Option<Flock<File>>> {
    // Not readable for others: a process that can open the file could hold the lock.
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(directory.join(LOCK))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// Whether a process holds the lock of `directory`.
#[must_use]
pub fn is_locked(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join(LOCK)) else { return false };
    Flock::lock(file, FlockArg::LockSharedNonblock).is_err()
}

//! A lock so that only one `up` or `down` runs at a time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use hostler_cli::failure::{During, Failure};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// A held file lock. The lock is released when the value is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: Flock<File>,
}

impl Lock {
    /// Waits for the lock. Calls `busy` first if another process holds the lock.
    pub(crate) fn take(path: &Path, busy: impl FnOnce()) -> Result<Self, Failure> {
        let failed = || format!("cannot lock {}", path.display());
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path).during(failed)?;
        let held = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => held,
            Err((file, Errno::EWOULDBLOCK)) => {
                busy();
                Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error).during(failed)?
            }
            Err((_, error)) => return Err(error).during(failed),
        };
        Ok(Self { _held: held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lock_waits_for_the_first() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("lock");
        let first = Lock::take(&path, || panic!("the lock is free")).expect("free");
        let (waiting, told) = std::sync::mpsc::sync_channel(1);
        let second = std::thread::spawn({
            let path = path.clone();
            move || Lock::take(&path, || waiting.send(()).expect("the test listens")).map(drop)
        });
        told.recv_timeout(std::time::Duration::from_secs(10)).expect("the second lock must wait");
        drop(first);
        second.join().expect("the thread does not panic").expect("free again");
    }
}

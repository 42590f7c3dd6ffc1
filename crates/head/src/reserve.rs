//! A reserve file on the head's disk. It is deleted when the disk is full, so that the head can still start.
//!
//! A running head does not need the file, because its store has its own reserve. A start creates a few new files, in
//! the head and in its parent process.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;

/// Size of the reserve file: more than the head writes when it starts.
const BYTES: u64 = 2 << 20;

/// On a small disk, the reserve file takes at most the disk size divided by this number.
const PART: u64 = 20;

/// The reserve file is created only when the free space is at least this many times its size.
const MIN_FREE_FACTOR: u64 = 4;

fn file_in(directory: &Path) -> PathBuf {
    directory.join("reserve")
}

/// Free bytes on the disk of `directory`, and the size that the reserve file should have on this disk.
fn free_and_wanted(directory: &Path) -> Option<(u64, u64)> {
    let stat = statvfs(directory).ok()?;
    let wanted = BYTES.min(stat.blocks() * stat.fragment_size() / PART);
    Some((stat.blocks_available() * stat.fragment_size(), wanted))
}

/// Deletes the reserve file in the head's `directory` if the disk is nearly full, so that the head can start or stop.
pub fn release_if_full(directory: &Path) {
    if free_and_wanted(directory).is_some_and(|(free, wanted)| free < wanted) {
        // The file may not exist, e.g. before the first start. The start itself reports a full disk.
        let _ = fs::remove_file(file_in(directory));
    }
}

/// Creates the reserve file if it does not exist and the disk has enough space.
pub(crate) fn hold(directory: &Path) {
    let path = file_in(directory);
    let Some((free, wanted)) = free_and_wanted(directory) else { return };
    if free / MIN_FREE_FACTOR < wanted || path.exists() {
        return;
    }
    let make = || -> io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        fallocate(file.as_fd(), FallocateFlags::empty(), 0, i64::try_from(wanted).unwrap_or(i64::MAX))?;
        Ok(())
    };
    if let Err(error) = make() {
        tracing::debug!(%error, "cannot create the reserve file for a start on a full disk");
        let _ = fs::remove_file(&path);
    }
}

#[cfg(test)]
mod tests {
    use hostler_testkit::{fill_disk, mount_for_this_thread};

    use super::*;

    #[test]
    fn reserve_file_is_freed_on_a_full_disk_and_created_again_later() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        mount_for_this_thread(directory.path(), 8 << 20);
        hold(directory.path());
        release_if_full(directory.path());
        assert!(file_in(directory.path()).exists(), "the disk is not full");
        let ballast = directory.path().join("ballast");
        fill_disk(&ballast, 0);
        fs::write(directory.path().join("x"), [1; 10_000]).expect_err("the disk is full");
        release_if_full(directory.path());
        fs::write(directory.path().join("x"), [1; 300_000]).expect("the reserve was freed");
        hold(directory.path());
        assert!(!file_in(directory.path()).exists(), "too little space for a new reserve");
        fs::remove_file(ballast).expect("the file exists");
        hold(directory.path());
        assert!(file_in(directory.path()).exists());
    }
}

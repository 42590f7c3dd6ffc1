//! A file that is there to be removed: room on the disk for what a head needs to start, when nothing else is left.
//!
//! A running head needs it not: its store has room of its own. Starting means a few new files, of the head and of whoever starts it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;

/// What a start needs, generously.
const BYTES: u64 = 2 << 20;

/// On a small disk, this part of it.
const PART: u64 = 20;

/// The disk has room for the file when this many times its size is free.
const ROOMY: u64 = 4;

fn file_in(directory: &Path) -> PathBuf {
    directory.join("reserve")
}

/// What is free on the disk of `directory`, and what the file should take there.
fn free_and_wanted(directory: &Path) -> Option<(u64, u64)> {
    let stat = statvfs(directory).ok()?;
    let wanted = BYTES.min(stat.blocks() * stat.fragment_size() / PART);
    Some((stat.blocks_available() * stat.fragment_size(), wanted))
}

/// Makes room on the disk of the head whose state is in `directory`, if there is hardly any, for it to be started or stopped.
pub fn release_if_full(directory: &Path) {
    if free_and_wanted(directory).is_some_and(|(free, wanted)| free < wanted) {
        // There may be none, or no head has ever been here: then the start tells what is missing.
        let _ = fs::remove_file(file_in(directory));
    }
}

/// Makes the file if it is not there and the disk has room.
pub(crate) fn hold(directory: &Path) {
    let path = file_in(directory);
    let Some((free, wanted)) = free_and_wanted(directory) else { return };
    if free / ROOMY < wanted || path.exists() {
        return;
    }
    let make = || -> io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        fallocate(file.as_fd(), FallocateFlags::empty(), 0, i64::try_from(wanted).unwrap_or(i64::MAX))?;
        Ok(())
    };
    if let Err(error) = make() {
        tracing::debug!(%error, "cannot keep room for a start on a full disk");
        let _ = fs::remove_file(&path);
    }
}

#[cfg(test)]
mod tests {
    use hostler_testkit::{fill_disk, mount_for_this_thread};

    use super::*;

    #[test]
    fn a_full_disk_gets_room_for_a_start_and_keeps_some_again_later() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        mount_for_this_thread(directory.path(), 8 << 20);
        hold(directory.path());
        release_if_full(directory.path());
        assert!(file_in(directory.path()).exists(), "the disk is not full");
        let ballast = directory.path().join("ballast");
        fill_disk(&ballast, 0);
        fs::write(directory.path().join("x"), [1; 10_000]).expect_err("nothing fits");
        release_if_full(directory.path());
        fs::write(directory.path().join("x"), [1; 300_000]).expect("there is room now");
        hold(directory.path());
        assert!(!file_in(directory.path()).exists(), "what is left is not for that");
        fs::remove_file(ballast).expect("it is there");
        hold(directory.path());
        assert!(file_in(directory.path()).exists());
    }
}

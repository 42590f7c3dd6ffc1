//! Room on the disk that is the store's own before it needs it, so that commits go on for a while on a disk that others have filled.
//!
//! The blocks belong to the log and the database themselves, beyond their ends, so nobody else can take them. A log is written from its
//! beginning again after a checkpoint, so a log that is checkpointed in time always has the last third of its room left.
//!
//! btrfs writes every block to a new place. It is asked to write these files in place instead ([`make_files`]): otherwise a full disk would
//! even end the process, at a write to the memory that SQLite shares through the file `-shm`. Where a file system has no such thing (ZFS),
//! or cannot set blocks aside, commits fail on a full disk until there is room.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc;
use nix::sys::statvfs::statvfs;

use super::filesystem::directory_of;
use crate::StoreError;

/// Room for the log: more than the most that a checkpoint leaves, and less than `journal_size_limit`, above which SQLite gives room back.
const LOG_BYTES: u64 = 12 << 20;

/// On a small disk, this part of it.
const PART: u64 = 40;

/// The size of a page in the log.
const PAGE_BYTES: u64 = 4096;

/// What is set aside.
#[derive(Debug)]
pub(super) struct Reserve {
    log: PathBuf,
    log_bytes: u64,
    /// Open as long as any connection is: closing it drops the locks that SQLite has on the database for this process.
    database: Option<File>,
}

impl Reserve {
    /// What a store at `path` sets aside.
    pub(super) fn of(path: &Path) -> Self {
        let disk_bytes = statvfs(directory_of(path)).map_or(0, |stat| stat.blocks() * stat.fragment_size());
        Self {
            log: beside(path, "-wal"),
            log_bytes: LOG_BYTES.min(disk_bytes / PART),
            // Without it commits work as ever while there is room.
            database: OpenOptions::new().write(true).open(path).ok(),
        }
    }

    /// After how many pages that are only in the log it is to be moved into the database.
    pub(super) fn checkpoint_pages(&self) -> i64 {
        i64::try_from(self.log_bytes / 3 * 2 / PAGE_BYTES).unwrap_or(i64::MAX).max(1)
    }

    /// Sets aside what is not yet. Where that fails, commits still work while there is room.
    pub(super) fn hold(&self) {
        if let Ok(log) = OpenOptions::new().write(true).open(&self.log) {
            set_aside(&log, 0, self.log_bytes);
        }
        if let Some(database) = &self.database
            && let Ok(metadata) = database.metadata()
        {
            set_aside(database, metadata.len(), self.log_bytes / 3);
        }
    }
}

/// Makes the files of a store that are not there yet, empty, so that only we may read them and they are written in place. SQLite takes them
/// as they are.
///
/// A database that exists is not opened: closing it again would drop the locks that SQLite has on it for readers of this process.
pub(super) fn make_files(path: &Path) -> Result<(), StoreError> {
    for ending in ["", "-wal", "-shm"] {
        let path = &beside(path, ending);
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => write_in_place(&file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::set_permissions(path, Permissions::from_mode(0o600))
                    .map_err(|error| StoreError::io("restrict access to", path, error))?;
            }
            Err(error) => return Err(StoreError::io("create", path, error)),
        }
    }
    Ok(())
}

/// The name of one of a store's files.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Has a new file written in place, where that is not so by itself.
fn write_in_place(file: &File) {
    /// `FS_NOCOW_FL` of the kernel's `linux/fs.h`, which the libc crate does not name.
    const NO_COPY_ON_WRITE: libc::c_int = 0x0080_0000;
    let mut flags: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel reads and writes an int there, whatever the constants' names say.
    let known = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) } == 0;
    flags |= NO_COPY_ON_WRITE;
    // SAFETY: the same.
    let set = known && unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) } == 0;
    // Most file systems know no such flag, and need none.
    tracing::trace!(set, "asked for writing in place");
}

/// Gives `file` blocks for these bytes without changing its length.
fn set_aside(file: &File, from: u64, bytes: u64) {
    let (Ok(from), Ok(bytes)) = (i64::try_from(from), i64::try_from(bytes)) else { return };
    if let Err(error) = fallocate(file.as_fd(), FallocateFlags::FALLOC_FL_KEEP_SIZE, from, bytes) {
        tracing::debug!(%error, "cannot set aside room for the store");
    }
}

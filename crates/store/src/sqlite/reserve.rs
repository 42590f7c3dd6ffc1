//! Reserves disk space for the store in advance, so that commits continue for a while after other programs fill the
//! disk.
//!
//! The reserved blocks belong to the log and the database themselves, beyond their ends, so no other program can take
//! them. After a checkpoint, the log is overwritten from its beginning. A log that is checkpointed in time therefore
//! always has the last third of its space left.
//!
//! btrfs normally writes every block to a new place; [`make_files`] tells it to write these files in place.
//! Otherwise, on a full disk, a write to SQLite's shared memory file `-shm` would kill the process. If a file system
//! has no such option (ZFS) or cannot reserve blocks, commits fail on a full disk until space is freed.

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

/// Space to reserve for the log. A checkpoint leaves less than this in the log, and SQLite truncates a log only above
/// `journal_size_limit`, which is larger.
const LOG_BYTES: u64 = 12 << 20;

/// On a small disk, the reserve is the disk size divided by this number.
const PART: u64 = 40;

/// The size of a page in the log.
const PAGE_BYTES: u64 = 4096;

/// The disk space that is reserved for a store.
#[derive(Debug)]
pub(super) struct Reserve {
    log: PathBuf,
    log_bytes: u64,
    /// The database file. It stays open as long as any connection: closing it would drop the locks that SQLite holds on
    /// the database for this process.
    database: Option<File>,
}

impl Reserve {
    /// Determines the reserve for a store at `path`. Reserves nothing yet.
    pub(super) fn of(path: &Path) -> Self {
        let disk_bytes = statvfs(directory_of(path)).map_or(0, |stat| stat.blocks() * stat.fragment_size());
        Self {
            log: beside(path, "-wal"),
            log_bytes: LOG_BYTES.min(disk_bytes / PART),
            // Without this file, commits still work while the disk has space.
            database: OpenOptions::new().write(true).open(path).ok(),
        }
    }

    /// Returns the number of log pages at which a checkpoint is due. Only pages that are not in the database yet count.
    pub(super) fn checkpoint_pages(&self) -> i64 {
        i64::try_from(self.log_bytes / 3 * 2 / PAGE_BYTES).unwrap_or(i64::MAX).max(1)
    }

    /// Reserves the missing space. If that fails, commits still work while the disk has space.
    pub(super) fn hold(&self) {
        if let Ok(log) = OpenOptions::new().write(true).open(&self.log) {
            reserve_blocks(&log, 0, self.log_bytes);
        }
        if let Some(database) = &self.database
            && let Ok(metadata) = database.metadata()
        {
            reserve_blocks(database, metadata.len(), self.log_bytes / 3);
        }
    }
}

/// Creates missing files of a store, empty, private to this user and written in place. SQLite accepts these files as
/// they are.
///
/// Does not open an existing database: closing it would drop the locks that SQLite holds on it for readers in this
/// process.
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

/// The path of one of a store's files.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Makes a new file be written in place, on file systems that do not do so by default.
fn write_in_place(file: &File) {
    /// `FS_NOCOW_FL` of the kernel's `linux/fs.h`, which the libc crate does not define.
    const NO_COPY_ON_WRITE: libc::c_int = 0x0080_0000;
    let mut flags: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes an int at this address, although the name of the constant
    // suggests a long.
    let known = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) } == 0;
    flags |= NO_COPY_ON_WRITE;
    // SAFETY: the descriptor is open, and the kernel reads an int at this address.
    let set = known && unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const flags) } == 0;
    // Most file systems do not know the flag and do not need it.
    tracing::trace!(set, "requested writing in place");
}

/// Allocates blocks for these bytes of `file` without changing its length.
fn reserve_blocks(file: &File, from: u64, bytes: u64) {
    let (Ok(from), Ok(bytes)) = (i64::try_from(from), i64::try_from(bytes)) else { return };
    if let Err(error) = fallocate(file.as_fd(), FallocateFlags::FALLOC_FL_KEEP_SIZE, from, bytes) {
        tracing::debug!(%error, "cannot reserve disk space for the store");
    }
}

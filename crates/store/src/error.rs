//! What can go wrong in a store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a store could not do what it was asked.
///
/// It can be cloned, because one failed transaction fails every commit that was grouped into it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Nothing was stored; the same request succeeds once there is room.
    #[error("the disk that holds {} is full ({free_bytes} bytes are free)", path.display())]
    DiskFull {
        /// The database.
        path: PathBuf,
        /// What its filesystem has left, in bytes.
        free_bytes: u64,
    },
    /// An earlier commit failed, so this one was not tried: it would have come out of order.
    #[error("nothing more is stored since an earlier commit failed, until the head reloads")]
    Stopped {
        /// Why the earlier commit failed.
        #[source]
        cause: Arc<StoreError>,
    },
    /// Events do not follow on those already stored. The caller is wrong, not the disk.
    #[error("events are out of sequence: expected number {expected}, found {found}")]
    Sequence {
        /// The number that comes next.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// What was read is not what was written.
    #[error("{what} in {} is damaged: {why}", path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// The row, such as `event 12`.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The writer was shut down before this was asked.
    #[error("the store is closed")]
    Closed,
    /// Two heads must never write one store.
    #[error("the store {} is in use by {}", path.display(), holder(*pid))]
    InUse {
        /// The database.
        path: PathBuf,
        /// The process that holds it, where known.
        pid: Option<u32>,
    },
    /// A newer release has written the store; this one does not know what it would destroy.
    #[error("the store {} has schema version {found}, this release knows versions up to {supported}", path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version that this build knows.
        supported: u32,
    },
    /// An older release wrote the store in a format that this release cannot read.
    #[error(
        "the store {} has schema version {found}, and this release reads only version {supported}; start the older release again, or \
         move the file away to begin with an empty cluster, without the jobs, users, settings and nodes in it",
        path.display()
    )]
    Older {
        /// The database.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The version that this build reads.
        supported: u32,
    },
    /// The file is something else.
    #[error("{} is not a Hostler store: {why}", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// How that is known.
        why: String,
    },
    /// Locks and fsync cannot be relied on there.
    #[error("{} is on a network filesystem ({kind}), where a store can be damaged", path.display())]
    NetworkFilesystem {
        /// The database.
        path: PathBuf,
        /// The kind of filesystem.
        kind: &'static str,
    },
    /// The SQLite linked in has a bug that loses committed data.
    #[error("SQLite {found} can lose committed data, at least {required} is needed")]
    UnsafeSqlite {
        /// The version linked in.
        found: &'static str,
        /// The oldest version without the bug.
        required: &'static str,
    },
    /// SQLite failed. After a failed commit it is not known whether the next head will see the batch.
    #[error("could not {doing} {}", path.display())]
    Sqlite {
        /// What was being done, such as `commit to`.
        doing: &'static str,
        /// The database.
        path: PathBuf,
        /// SQLite's own error.
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// The operating system failed.
    #[error("could not {doing} {}", path.display())]
    Io {
        /// What was being done, such as `create`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's own error.
        #[source]
        source: Arc<io::Error>,
    },
}

impl StoreError {
    /// Whether a full disk is the cause, here or in the commit that failed before: room, and then a reload, makes it good.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::DiskFull { .. } => true,
            Self::Stopped { cause } => cause.is_disk_full(),
            _ => false,
        }
    }

    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source: Arc::new(source) }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into(), why: why.into() }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

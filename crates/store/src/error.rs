//! Errors of the store, for the head to act on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An error of a store.
///
/// It can be cloned, because one failed transaction fails every commit in its group.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Nothing was stored. The same request succeeds once the disk has space.
    #[error("the disk that holds {} is full ({free_bytes} bytes are free)", path.display())]
    DiskFull {
        path: PathBuf,
        /// Free space of the file system, in bytes.
        free_bytes: u64,
    },
    /// An earlier commit failed, so this commit was not tried: its events would be out of order.
    #[error("an earlier commit failed; nothing is stored until the head reloads the stored data")]
    Stopped {
        /// The failure of the earlier commit.
        #[source]
        cause: Arc<StoreError>,
    },
    /// The events do not continue the stored ones. This is a bug in the caller, not a disk error.
    #[error("events are out of sequence: expected number {expected}, found {found}")]
    Sequence { expected: u64, found: u64 },
    /// A stored row is damaged.
    #[error("{what} in {} is damaged: {why}", path.display())]
    Damaged {
        path: PathBuf,
        /// The row, such as `event 12`.
        what: String,
        /// The kind of damage.
        why: String,
    },
    /// The writer was shut down before this request.
    #[error("the store is closed")]
    Closed,
    /// Another head uses the store; two heads must never write to one store.
    #[error("the store {} is in use by {}", path.display(), holder(*pid))]
    InUse {
        path: PathBuf,
        /// The pid of the other head, if known.
        pid: Option<u32>,
    },
    /// A newer release wrote the store. This release might destroy data that it does not know.
    #[error("the store {} has schema version {found}, this release knows versions up to {supported}", path.display())]
    Newer { path: PathBuf, found: u32, supported: u32 },
    /// An older release wrote the store in a format that this release cannot read.
    #[error(
        "the store {} has schema version {found}, and this release reads only version {supported}; start the older release again, or \
         move the file away to begin with an empty cluster, without the jobs, users, settings and nodes in it",
        path.display()
    )]
    Older { path: PathBuf, found: u32, supported: u32 },
    /// The file is not a store.
    #[error("{} is not a Hostler store: {why}", path.display())]
    NotAStore {
        path: PathBuf,
        /// What is wrong with the data, as text.
        why: String,
    },
    /// The store is on a network file system, where locks and fsync are unreliable.
    #[error("{} is on a network filesystem ({kind}), where a store can be damaged", path.display())]
    NetworkFilesystem {
        path: PathBuf,
        /// The type of the file system.
        kind: &'static str,
    },
    /// The linked SQLite has a bug that loses committed data.
    #[error("SQLite {found} can lose committed data, at least {required} is needed")]
    UnsafeSqlite {
        found: &'static str,
        /// The oldest version without the bug.
        required: &'static str,
    },
    /// SQLite failed. After a failed commit, the next head may or may not see the batch.
    #[error("could not {doing} {}", path.display())]
    Sqlite {
        /// The attempted action, such as `commit to`.
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: Arc<rusqlite::Error>,
    },
    /// The operating system failed.
    #[error("could not {doing} {}", path.display())]
    Io {
        /// The attempted action, such as `create`.
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },
}

impl StoreError {
    /// Whether a full disk is the cause of this error, or of the earlier failed commit. The head must reload the stored
    /// data after the disk has space again.
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

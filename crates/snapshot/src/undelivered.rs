//! Why a delivery failed.

use std::io;
use std::path::PathBuf;

use hostler_model::Digest;

use crate::check::ManifestError;
use crate::paths::show;
use crate::wire::WireError;

/// A user's file that conflicts with a delivered file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Path below the destination directory.
    pub path: Vec<u8>,
    /// Whether [`OnConflict::Overwrite`](crate::OnConflict::Overwrite) and
    /// [`OnConflict::Rename`](crate::OnConflict::Rename) can resolve the conflict. They cannot if a
    /// directory and a file or link have the same path, or if a parent directory is a symbolic link.
    pub can_be_settled: bool,
}

/// The reason why a delivery failed. The next attempt reuses the chunks that were received.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// User's files conflict with delivered files; lists all conflicts, sorted by path.
    #[error("{} already contains other files:{}", .destination.display(), listed(.conflicts))]
    Conflicts { destination: PathBuf, conflicts: Vec<Conflict> },
    /// Another process delivers the same results to the same directory.
    #[error("another process delivers the same results to {}; wait until it has finished", .0.display())]
    Busy(PathBuf),
    /// The bytes of a chunk do not match its digest.
    #[error("the received bytes of chunk {digest} are damaged")]
    Damaged {
        digest: Digest,
        #[source]
        source: WireError,
    },
    /// [`Delivery::finish`](crate::Delivery::finish) was called while chunks were missing.
    #[error("{0} chunks were not received")]
    Incomplete(usize),
    #[error("no space left in {}: {needed} more bytes are needed, {free} are free", .path.display())]
    DiskFull {
        path: PathBuf,
        /// Bytes that are still missing.
        needed: u64,
        /// Free space of the file system, in bytes.
        free: u64,
    },
    /// Any other error of the file system.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn listed(conflicts: &[Conflict]) -> String {
    conflicts.iter().map(|conflict| format!("\n  {}", show(&conflict.path))).collect()
}

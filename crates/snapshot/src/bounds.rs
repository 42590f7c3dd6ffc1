//! Limits of a capture: the manifest must be sent as one message and fit into the receiver's memory.

use hostler_model::format_bytes;

use crate::wire::MAX_BLOB_BYTES;

/// The maximum number of files, directories and links.
pub const MOST_ENTRIES: usize = 1_000_000;

/// The maximum size of all files together, holes included, in bytes. The digests of more chunks do not fit into a
/// manifest.
pub const MOST_BYTES: u64 = 512 << 30;

/// The maximum nesting depth of directories.
pub const MOST_DEPTH: usize = 512;

/// A lower bound for the size of an entry in a manifest, without its path and chunks, in bytes.
const ENTRY_BYTES: usize = 32;

/// The limit of this module that a folder exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    #[error("it has more than {0} files, directories and links")]
    Entries(usize),
    /// The files are too large; the limit in bytes.
    #[error("its files have more than {} together, holes included", format_bytes(*.0))]
    Bytes(u64),
    /// The manifest is too large; the limit in bytes.
    #[error("the list of paths, link targets and chunks takes more than {}", format_bytes(*.0 as u64))]
    Manifest(usize),
}

/// Adds up the entries that a walk finds and checks them against the limits.
#[derive(Debug)]
pub(crate) struct Tally {
    most_entries: usize,
    entries: usize,
    bytes: u64,
    /// A lower bound for the size of the manifest.
    manifest_bytes: usize,
}

impl Tally {
    /// Creates a tally with this limit for entries and the usual values for the other limits.
    pub(crate) fn up_to(most_entries: usize) -> Self {
        Self { most_entries, entries: 0, bytes: 0, manifest_bytes: 0 }
    }

    /// Counts one entry: the bytes of its path and link target, and the size of a file.
    pub(crate) fn add(&mut self, text_bytes: usize, file_bytes: u64) -> Result<(), TooMuch> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(file_bytes);
        self.manifest_bytes += text_bytes + ENTRY_BYTES;
        if self.entries > self.most_entries {
            Err(TooMuch::Entries(self.most_entries))
        } else if self.bytes > MOST_BYTES {
            Err(TooMuch::Bytes(MOST_BYTES))
        } else if self.manifest_bytes > MAX_BLOB_BYTES {
            Err(TooMuch::Manifest(MAX_BLOB_BYTES))
        } else {
            Ok(())
        }
    }

    /// Returns the number of entries still allowed.
    pub(crate) fn left(&self) -> usize {
        self.most_entries.saturating_sub(self.entries)
    }
}

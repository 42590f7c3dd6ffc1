//! How much a capture may hold: what travels as one manifest, and fits into the memory of whoever reads it.

use hostler_model::format_bytes;

use crate::wire::MAX_BLOB_BYTES;

/// The most files, directories and links.
pub const MOST_ENTRIES: usize = 1_000_000;

/// The most that files may have together, holes included, in bytes. The names of more chunks do not fit into a manifest.
pub const MOST_BYTES: u64 = 512 << 30;

/// How deep directories may be nested.
pub const MOST_DEPTH: usize = 512;

/// What an entry takes in a manifest besides its path and its chunks, in bytes: less than it does.
const ENTRY_BYTES: usize = 32;

/// What a capture would have too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    /// Files, directories and links.
    #[error("it has more than {0} files, directories and links")]
    Entries(usize),
    /// Bytes in files.
    #[error("its files have more than {} together, holes included", format_bytes(*.0))]
    Bytes(u64),
    /// Names and chunks.
    #[error("the list of its names, links and pieces takes more than {}", format_bytes(*.0 as u64))]
    Manifest(usize),
}

/// Adds up what a walk finds.
#[derive(Debug)]
pub(crate) struct Tally {
    most_entries: usize,
    entries: usize,
    bytes: u64,
    /// What the manifest will take at least.
    manifest_bytes: usize,
}

impl Tally {
    /// With the usual bounds but this one.
    pub(crate) fn up_to(most_entries: usize) -> Self {
        Self { most_entries, entries: 0, bytes: 0, manifest_bytes: 0 }
    }

    /// Counts one entry: what its path and its link's text take, and how long it is if it is a file, in bytes.
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

    /// How many more entries there may be.
    pub(crate) fn left(&self) -> usize {
        self.most_entries.saturating_sub(self.entries)
    }
}

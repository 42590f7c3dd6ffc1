//! Manifests: what a captured folder or a result holds, as names, modes and chunk lists.
//!
//! A manifest is stored in the chunk store under the hash of its encoding, like any chunk, so naming a manifest names every byte
//! of the folder. Paths are bytes, as on Linux: they need not be UTF-8.

use hostler_model::{Digest, RunId};
use serde::{Deserialize, Serialize};

/// The version of this format; a reader refuses a newer one.
pub const VERSION: u16 = 1;

/// A captured folder. Entries are sorted by path, so a folder has exactly one manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`] of the writer.
    pub version: u16,
    /// Everything in the folder, parents before children, without the folder itself.
    pub entries: Vec<Entry>,
}

/// One file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path below the folder, `/`-separated, without `.`, `..` or a leading `/`.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Permission bits (0o7777).
    pub mode: u32,
    /// Modification time in nanoseconds since the Unix epoch.
    pub modified_ns: i64,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File(Content),
    /// A directory; may be empty.
    Directory,
    /// A symbolic link to a path inside the folder.
    Symlink {
        /// The link's text, as it stands.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
    },
}

/// A byte string as a list of chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Length in bytes: the sum of the chunks' lengths.
    pub size: u64,
    /// The chunks in order; none for empty content.
    pub chunks: Vec<Chunk>,
}

/// One chunk by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// BLAKE3 of its (uncompressed) bytes.
    pub digest: Digest,
    /// Its length in bytes.
    pub len: u32,
}

/// What came of one run: the files it created or changed, and its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultManifest {
    /// [`VERSION`] of the writer.
    pub version: u16,
    /// The run.
    pub run: RunId,
    /// Created and changed entries of the work directory, with the directories that hold them.
    pub tree: Manifest,
    /// Paths of the captured folder that the run removed.
    pub removed: Vec<serde_bytes::ByteBuf>,
    /// What it wrote to standard output.
    pub stdout: Content,
    /// What it wrote to standard error.
    pub stderr: Content,
    /// What preparing its environment wrote; empty when nothing had to be built.
    pub setup: Content,
    /// What could not be captured, one sentence each.
    pub problems: Vec<String>,
}

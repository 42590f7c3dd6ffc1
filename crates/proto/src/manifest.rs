//! Manifests: the contents of a captured folder or a result as names, modes and chunk lists.
//!
//! A manifest is stored in the chunk store under the hash of its encoding, like any chunk. Its hash therefore
//! identifies every byte of the folder. Paths are bytes, as on Linux: they need not be UTF-8.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use hostler_model::{Digest, RunId};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Version of the manifest format. A reader refuses newer versions.
pub const VERSION: u16 = 1;

/// Maximum number of entries in a manifest, and of paths in a list. The maximum protects the reader's memory against
/// malicious manifests with entries of one or two bytes. Ordinary manifests reach the transfer limits first.
pub const MAX_ENTRIES: usize = 1_000_000;

/// Maximum number of problems listed in a result.
pub const MAX_PROBLEMS: usize = 100_000;

/// A captured folder. Entries are sorted by path, so each folder has exactly one manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`] of the writer.
    pub version: u16,
    /// Everything in the folder except the folder itself, parents before children.
    #[serde(deserialize_with = "at_most::<_, _, MAX_ENTRIES>")]
    pub entries: Vec<Entry>,
}

impl Manifest {
    /// Returns the folder after a run that started in this folder and has left `result`.
    #[must_use]
    pub fn after(&self, result: &ResultManifest) -> Self {
        let mut entries: BTreeMap<&[u8], &Entry> = self.entries.iter().map(|entry| (&*entry.path, entry)).collect();
        for path in &result.removed {
            entries.remove(path.as_slice());
        }
        entries.extend(result.tree.entries.iter().map(|entry| (&*entry.path, entry)));
        Self { version: self.version.max(result.tree.version), entries: entries.into_values().cloned().collect() }
    }
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
    /// Type of the entry, with its content.
    pub kind: EntryKind,
}

/// Type of an entry, with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File(Content),
    /// A directory; may be empty.
    Directory,
    /// A symbolic link to a path inside the folder.
    Symlink {
        /// Target of the link as in the folder, but relative if it was absolute and led into the folder.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
    },
}

/// A byte string as a list of chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Length in bytes: the sum of the chunks' lengths.
    pub size: u64,
    /// The chunks in order; empty if the content is empty.
    pub chunks: Vec<Chunk>,
}

/// Reference to one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// BLAKE3 hash of the uncompressed bytes.
    pub digest: Digest,
    /// Length in bytes.
    pub len: u32,
}

/// Result of one run: the files that it created or changed, and its output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultManifest {
    /// [`VERSION`] of the writer.
    pub version: u16,
    /// Id of the run.
    pub run: RunId,
    /// Created and changed entries of the working directory, and their parent directories.
    pub tree: Manifest,
    /// Paths of the captured folder that the run removed.
    #[serde(deserialize_with = "at_most::<_, _, MAX_ENTRIES>")]
    pub removed: Vec<serde_bytes::ByteBuf>,
    /// Standard output of the run.
    pub stdout: Content,
    /// Standard error of the run.
    pub stderr: Content,
    /// Output of the environment setup; empty if nothing was built.
    pub setup: Content,
    /// The measurement certificate as JSON; only for exclusive jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Box<Content>>,
    /// Problems during the capture of the result, one sentence each.
    #[serde(deserialize_with = "at_most::<_, _, MAX_PROBLEMS>")]
    pub problems: Vec<String>,
}

/// Decodes a list of at most `MOST` elements. The limit protects memory: a decoded element can use a hundred times more
/// bytes than in the message.
fn at_most<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct List<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::with_capacity(elements.size_hint().unwrap_or_default().min(1024));
            while let Some(element) = elements.next_element()? {
                if list.len() == MOST {
                    return Err(A::Error::custom(format_args!("a list of more than {MOST} elements")));
                }
                list.push(element);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, encode};

    /// Encodes a result whose lists have the given lengths.
    fn result(removed: usize, problems: usize) -> Vec<u8> {
        #[derive(Serialize)]
        struct Written {
            version: u16,
            run: RunId,
            tree: Manifest,
            removed: Vec<serde_bytes::ByteBuf>,
            stdout: Content,
            stderr: Content,
            setup: Content,
            problems: Vec<String>,
        }
        let run =
            serde_json::from_value(serde_json::json!({ "task": { "job": 1, "index": 0 }, "attempt": 1, "epoch": 1 }));
        encode(&Written {
            version: VERSION,
            run: run.expect("a run"),
            tree: Manifest { version: VERSION, entries: Vec::new() },
            removed: vec![serde_bytes::ByteBuf::new(); removed],
            stdout: Content::default(),
            stderr: Content::default(),
            setup: Content::default(),
            problems: vec![String::new(); problems],
        })
    }

    #[test]
    fn decode_refuses_lists_above_the_limits() {
        let read =
            |bytes: &[u8]| decode::<ResultManifest>(bytes).map(|result| result.removed.len() + result.problems.len());
        assert_eq!(read(&result(1000, MAX_PROBLEMS)).expect("a list at the limit is accepted"), 1000 + MAX_PROBLEMS);
        for (removed, problems) in [(MAX_ENTRIES + 1, 0), (0, MAX_PROBLEMS + 1)] {
            let error = std::error::Error::source(&read(&result(removed, problems)).expect_err("too long"))
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(error.contains("a list of more than"), "{error}");
        }
    }
}

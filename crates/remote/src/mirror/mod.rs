//! Mirrors a command's source tree to a node that does not share the caller's disk.
//!
//! ```text
//! caller                                        remote agent
//! describes the tree when its own agent has chosen another node
//! digest of the tree             ── Start ────▶ known? then the command runs
//! tags, one for each entry       ◀── Describe   unknown: which entries?
//! the unknown entries            ◀── Tell
//! the missing chunks             ◀── Send       a layer over the previous tree
//! ... the command runs over the layers, with a directory of its own for its changes ...
//! files, put in place together   ◀── Entries    the command's changes
//! ```
//!
//! **The idea.** Neither side relies on state about the other. A tree is named by its [`Tree::digest`], and a node
//! keeps its most recent trees. If a node does not know a digest, the caller sends an eight-byte tag for every entry.
//! The node then requests only the unknown entries. It checks the result against the digest, so a tag collision costs
//! one more question and nothing else.
//!
//! Pieces of a windowed stream carry the messages, and relaying agents pass them on unread. The remote side asks all
//! questions until the command has ended; then it only reports.

use std::path::Path;

use hostler_model::Digest;
use hostler_proto::manifest::Entry;
use hostler_snapshot::mirror::Placing;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::message::Proof;

mod home;
mod program;
mod supply;
mod talk;
mod tree;

pub use home::{ReceivedStats, ResultReceiver};
pub use program::{Mark, is_program, places_of_program};
pub use supply::{Described, SentStats, Supplier};
pub use talk::{TreeChannel, entries_in_parts};
#[cfg(feature = "fuzzing")]
pub(crate) use talk::{bytes_of, messages_in};
pub use tree::{Delta, Fault, Partial, Tree};

/// Maximum number of entries in a tree: files, directories and links.
pub const MOST_ENTRIES: usize = 400_000;

/// Maximum size of a tree's description, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 256 << 20;

/// Maximum total size of a tree's files, in bytes.
pub const MOST_BYTES: u64 = 16 << 30;

/// Paths at which no tree may be mounted, because the machine needs these paths. Trees may be mounted below these
/// paths, except below those in [`RESERVED_TREES`].
const RESERVED_PATHS: [&str; 12] =
    ["/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/root", "/run", "/sbin", "/usr", "/var"];

/// Paths at and below which no tree may be mounted.
const RESERVED_TREES: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Names of entries that trees leave out: version control data and Hostler's own directories.
const IGNORED_NAMES: [&[u8]; 9] =
    [b".git", b".hg", b".svn", b".bzr", b".jj", b"_darcs", b".pijul", b".hostler", b".hostler-partial"];

/// Returns whether trees leave out `path`: version control data, a directory of Hostler, or a temporary file of a
/// transfer or a proof.
#[must_use]
pub fn is_ignored(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    IGNORED_NAMES.contains(&name)
        || name.starts_with(Placing::PREFIX.as_bytes())
        || name.starts_with(Proof::FILE_PREFIX.as_bytes())
}

/// Returns whether the machine itself needs the path `root`, so that no tree may be mounted at `root`.
#[must_use]
pub fn belongs_to_machine(root: &Path) -> bool {
    RESERVED_PATHS.iter().any(|place| root == Path::new(place))
        || RESERVED_TREES.iter().any(|place| root.starts_with(place))
}

/// A message about a command's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// To the caller: describe the tree.
    Describe,
    /// To the caller: send the entries with these indexes, or all entries for `None`.
    Tell(Option<Vec<u32>>),
    /// To the caller: send these chunks.
    Send(Vec<Digest>),
    /// To the node: the tree's digest, and a tag for each entry.
    Described {
        tree: Digest,
        /// Permission bits of the tree's top directory.
        mode: u32,
        /// The tags, eight bytes for each entry.
        tags: ByteBuf,
    },
    /// Requested or written entries of the tree. More follow unless `is_last`.
    Entries {
        /// The entries, in order.
        entries: Vec<Entry>,
        is_last: bool,
    },
    /// A chunk in wire format. Chunks arrive in the order of the request or of the preceding entries.
    Chunk(ByteBuf),
    /// To the node: the tree has changed since the survey; start again.
    Changed,
    /// To the caller: start and end of the command, in nanoseconds since the epoch by the node's clock. The first
    /// message about the written files.
    Ran { began_ns: i64, ended_ns: i64 },
    /// To the caller: the entries that the command removed, and the directories that it emptied. Of an emptied
    /// directory, only the entries in later messages remain.
    Gone { removed: Vec<ByteBuf>, emptied: Vec<ByteBuf> },
    /// To the caller: the last message.
    Done,
}

#[cfg(test)]
mod tests {
    use super::is_ignored;

    #[test]
    fn only_version_control_and_mirror_directories_are_left_out() {
        assert!(is_ignored(b".git") && is_ignored(b"sub/.git") && is_ignored(b"x/.hostler-mirror-1-2"));
        assert!(
            !is_ignored(b".gitignore") && !is_ignored(b"config.h") && !is_ignored(b".git/x") && !is_ignored(b"a.git")
        );
    }
}

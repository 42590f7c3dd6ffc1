//! A command that takes its tree along, to a node that does not share the caller's disk.
//!
//! ```text
//!  caller                                        far agent
//!  describes the tree when its own agent has chosen another node
//!  its digest                     ── Start ────▶ has it? then it runs
//!  tags, one for each entry       ◀── Describe   no: what has changed?
//!  the entries that are unknown   ◀── Tell
//!  the chunks that are lacking    ◀── Send       a layer over what was there before
//!                                                ... runs over it, with a directory of its own for what it writes ...
//!  files, in place all at once    ◀── Entries    what it wrote
//! ```
//!
//! **The idea.** Neither side keeps anything about the other that must be right. A tree is named by its [`Tree::digest`], of which a node knows
//! the last few; when it does not know one, the caller names every entry by eight bytes, and only those that the node does not have are told
//! in full. What they say is checked against the digest in the end, so a tag that means two things costs a question more and nothing else.
//!
//! All of it is carried by pieces of a line with a window, like streams, and those in between pass it on unread. Who asks is always the far
//! side, until the command has ended; then it only tells.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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

pub use home::{Came, Homecoming};
pub use program::{Mark, is_program, places_of_program};
pub use supply::{Described, Supplier, Went};
pub use talk::{Talk, entries_in_parts};
#[cfg(feature = "fuzzing")]
pub(crate) use talk::{bytes_of, messages_in};
pub use tree::{Delta, Fault, Partial, Tree};

/// The most that a tree may hold: files, directories and links.
pub const MOST_ENTRIES: usize = 400_000;

/// The most that the description of a tree may take, in bytes.
pub const MOST_WORDS_BYTES: usize = 256 << 20;

/// The most that the files of a tree may hold together, in bytes.
pub const MOST_BYTES: u64 = 16 << 30;

/// Places that no tree is shown at: what is there makes the machine what it is. At the first ones, and at and below the others.
const OUT_OF_BOUNDS: [&str; 12] =
    ["/", "/bin", "/boot", "/etc", "/home", "/lib", "/lib64", "/root", "/run", "/sbin", "/usr", "/var"];
const DEEPLY_OUT_OF_BOUNDS: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What version control keeps for itself; nobody compiles that.
const LEFT_OUT: [&[u8]; 9] =
    [b".git", b".hg", b".svn", b".bzr", b".jj", b"_darcs", b".pijul", b".hostler", b".hostler-partial"];

/// Whether a path in a tree is left out of it: what version control keeps for itself, and what is only there while something is put in place.
#[must_use]
pub fn is_left_out(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    LEFT_OUT.contains(&name)
        || name.starts_with(Placing::PREFIX.as_bytes())
        || name.starts_with(Proof::FILE_PREFIX.as_bytes())
}

/// Whether what is at this place is for nobody to take along.
#[must_use]
pub fn belongs_to_machine(root: &Path) -> bool {
    OUT_OF_BOUNDS.iter().any(|place| root == Path::new(place))
        || DEEPLY_OUT_OF_BOUNDS.iter().any(|place| root.starts_with(place))
}

/// The tree that a command takes along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSpec {
    root: ByteBuf,
    /// Its name: what it holds.
    pub tree: Digest,
    /// What the program holds that is to run, if it must be the same there and is not in the tree.
    #[serde(default)]
    pub program: Option<Digest>,
}

impl TreeSpec {
    /// The tree at `root`, an absolute path without links.
    #[must_use]
    pub fn new(root: PathBuf, tree: Digest, program: Option<Digest>) -> Self {
        Self { root: ByteBuf::from(root.into_os_string().as_bytes().to_vec()), tree, program }
    }

    /// Where it is, on the caller's machine and for the command.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        OsStr::from_bytes(&self.root).into()
    }

    /// Whether it is a place that a tree can be at, and a command can start in `directory` of it.
    pub(crate) fn is_sound(&self, directory: &[u8]) -> bool {
        let below = directory.strip_prefix(self.root.as_slice());
        self.root.strip_prefix(b"/").is_some_and(|path| hostler_snapshot::fault(path).is_none())
            && below.is_some_and(|below| {
                below.is_empty() || below.strip_prefix(b"/").is_some_and(|path| hostler_snapshot::fault(path).is_none())
            })
    }
}

/// What the ends of a call say of its tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// To the caller: which tree is it?
    Describe,
    /// To the caller: tell these entries, by their places; all of them if there are none.
    Tell(Option<Vec<u32>>),
    /// To the caller: send these chunks.
    Send(Vec<Digest>),
    /// To the node: this tree, with a tag for each entry.
    Described {
        /// Its name.
        tree: Digest,
        /// Permission bits of the directory itself.
        mode: u32,
        /// Eight bytes for each entry.
        tags: ByteBuf,
    },
    /// Entries of the tree that were asked for, or that were written; more follow unless `is_last`.
    Entries {
        /// In order.
        entries: Vec<Entry>,
        /// Whether these are the last.
        is_last: bool,
    },
    /// A chunk in its wire form: of those that were asked for, or of the entries before, in order.
    Chunk(ByteBuf),
    /// To the node: the tree has changed meanwhile, so begin anew.
    Changed,
    /// To the caller: when the command ran, by the node's clock in nanoseconds since the epoch. Begins what it has written.
    Ran {
        /// From when.
        began_ns: i64,
        /// Until when.
        ended_ns: i64,
    },
    /// To the caller: these are gone, and everything in these directories but what follows.
    Gone {
        /// Files, directories and links.
        removed: Vec<ByteBuf>,
        /// Directories.
        emptied: Vec<ByteBuf>,
    },
    /// To the caller: that was all.
    Done,
}

#[cfg(test)]
mod tests {
    use super::is_left_out;

    #[test]
    fn nothing_is_left_out_but_what_version_control_keeps() {
        assert!(is_left_out(b".git") && is_left_out(b"sub/.git") && is_left_out(b"x/.hostler-mirror-1-2"));
        assert!(
            !is_left_out(b".gitignore")
                && !is_left_out(b"config.h")
                && !is_left_out(b".git/x")
                && !is_left_out(b"a.git")
        );
    }
}

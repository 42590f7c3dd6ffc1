//! Where a mirrored tree is, and which tree it is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use hostler_model::Digest;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The tree that is mirrored for a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSpec {
    root: ByteBuf,
    /// The digest that names the tree.
    pub tree: Digest,
    /// Digest of the program, if the node's program must equal it and the tree does not hold it.
    #[serde(default)]
    pub program: Option<Digest>,
}

impl TreeSpec {
    /// Describes the tree at `root`, an absolute path without symbolic links.
    #[must_use]
    pub fn new(root: PathBuf, tree: Digest, program: Option<Digest>) -> Self {
        Self { root: ByteBuf::from(root.into_os_string().as_bytes().to_vec()), tree, program }
    }

    /// Returns the tree's path, which is the same for the caller and the command.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        OsStr::from_bytes(&self.root).into()
    }

    /// Returns whether a tree may be mounted at this path, and a command may start in its subdirectory `directory`.
    pub(crate) fn is_sound(&self, directory: &[u8]) -> bool {
        let below = directory.strip_prefix(self.root.as_slice());
        self.root.strip_prefix(b"/").is_some_and(|path| hostler_snapshot::fault(path).is_none())
            && below.is_some_and(|below| {
                below.is_empty() || below.strip_prefix(b"/").is_some_and(|path| hostler_snapshot::fault(path).is_none())
            })
    }
}

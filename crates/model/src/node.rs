//! Nodes: what they have and whether they can be used.

use serde::{Deserialize, Serialize};

use crate::CpuSet;

/// What a node has to give, or an allocation holds, on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// CPU ids, as the node numbers them.
    pub cpus: CpuSet,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// Which limits a node's kernel does not hold jobs to, and why; `None` for those that it does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advisory {
    /// A job may use other CPUs than its own.
    pub cpus: Option<String>,
    /// A job may use more memory than it asked for.
    pub memory: Option<String>,
    /// Jobs of different users run as one, and are not protected from each other.
    #[serde(default)]
    pub users: Option<String>,
}

/// Whether a node can be given work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Its agent is connected.
    Up,
    /// Its agent has been silent for a short while: nothing new is placed, running jobs are left alone.
    Suspect,
    /// Its agent has been silent for so long that what can run again runs elsewhere; in the end its jobs are given up.
    Down,
    /// An operator drains it: nothing new is placed, and tasks still run there.
    Draining,
    /// An operator has drained it, and nothing runs there any more.
    Drained,
    /// An operator has removed it: it is in no list any more and its certificate is worth nothing. Only notices say so.
    Removed,
}

impl NodeState {
    /// The word shown to people and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Removed => "removed",
        }
    }
}

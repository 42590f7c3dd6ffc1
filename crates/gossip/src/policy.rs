//! What makes a node better than another, as operators may set it.

use serde::{Deserialize, Serialize};

/// How nodes are compared. Scores are in thousandths of the time that a command takes on an idle usual node; the lowest is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// What a node's score grows by as it fills up, before its CPUs have to be shared: so much when all are busy.
    pub fullness: u32,
    /// What a node's score grows by when all work is held up for want of a CPU, of memory, or of IO.
    pub cpu_pressure: u32,
    /// See [`Self::cpu_pressure`].
    pub memory_pressure: u32,
    /// See [`Self::cpu_pressure`].
    pub io_pressure: u32,
    /// What a node's score grows by as its memory fills up: so much when none is left, divided by the node's memory weight.
    pub used_memory: u32,
    /// The load that a command adds to where it was sent until that node's own load shows it, in hundredths of a CPU.
    pub call_load: u32,
    /// For how long it adds that when nothing more is heard of the command, in milliseconds.
    pub call_ms: u32,
    /// By how much another node must be better than this one, in thousandths of its score: the way there costs something.
    pub remote_margin: u32,
    /// The same for a command that had rather stay here.
    pub prefer_local_margin: u32,
    /// Nodes whose scores differ by no more than this are equals, and chance decides among them, so that several callers who know the
    /// same do not all go to the same node.
    pub tie: u32,
    /// For how long a node that could not be reached is passed over, in milliseconds.
    pub avoid_ms: u32,
    /// The longest that a short command waits for a free CPU on this node, in milliseconds, at most 30,000. With 0 none
    /// does.
    pub wait_ms: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            fullness: 250,
            cpu_pressure: 500,
            memory_pressure: 1000,
            io_pressure: 500,
            used_memory: 100,
            call_load: 100,
            call_ms: 3000,
            remote_margin: 150,
            prefer_local_margin: 1000,
            tie: 50,
            avoid_ms: 10_000,
            wait_ms: 2000,
        }
    }
}

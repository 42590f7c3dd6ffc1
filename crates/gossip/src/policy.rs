//! The policy for comparing nodes, which operators can configure.

use hostler_model::Rank;
use serde::{Deserialize, Serialize};

/// The weights with which nodes are compared. Scores are thousandths of a command's time on an idle reference node; the
/// lowest score is best.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Replaces the score by an expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// Added to the score in proportion to busy CPUs, up to this amount when all are busy.
    pub fullness: u32,
    /// Added to the score in proportion to CPU pressure, up to this amount when all work is stalled.
    pub cpu_pressure: u32,
    /// Added to the score in proportion to memory pressure, up to this amount when all work is stalled.
    pub memory_pressure: u32,
    /// Added to the score in proportion to IO pressure, up to this amount when all work is stalled.
    pub io_pressure: u32,
    /// Added to the score in proportion to used memory, up to this amount when all memory is used. Divided by the
    /// node's memory weight.
    pub used_memory: u32,
    /// The load that a command in flight adds to its node until the node's own load includes it, in hundredths of a CPU.
    pub call_load: u32,
    /// How long a command in flight counts if it is not reported as started, in milliseconds.
    pub call_ms: u32,
    /// Added to the score of every node except the local one, in thousandths of that score.
    pub remote_margin: u32,
    /// Replaces `remote_margin` for a command that prefers the local node.
    pub prefer_local_margin: u32,
    /// Scores, but not ranks, that differ by at most this much count as equal, and a random node among them is chosen. Nodes with the
    /// same knowledge therefore choose different nodes.
    pub tie: u32,
    /// How long an unreachable node is avoided, in milliseconds.
    pub avoid_ms: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rank: None,
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
        }
    }
}

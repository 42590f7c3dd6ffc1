//! Versions: the order of a node's news without clocks.

use serde::{Deserialize, Serialize};

/// The number of an agent's starts, incremented at each start and stored on the node's disk.
///
/// If the disk loses the number (reinstallation, restored backup), the node starts with a number that its peers have
/// already seen. They send it the highest one, and it continues above: see [`crate::Gossip::incarnation`]. This needs
/// neither a clock nor the head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// Returns the next incarnation; saturates.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The version of what a node publishes. The greater of two versions is newer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The incarnation of the node's agent.
    pub incarnation: Incarnation,
    /// Counts up from 1 within an incarnation; zero if only the incarnation is known.
    pub seq: u64,
}

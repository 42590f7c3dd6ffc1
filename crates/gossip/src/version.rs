//! Versions: the order of a node's news without clocks.

use serde::{Deserialize, Serialize};

/// The number of an agent's starts, incremented at each start and stored on the node's disk.
///
/// If the disk loses the number (reinstallation, restored backup), the node starts with a number that its peers have
/// already seen. The peers then send the node its highest number, and the node continues above that number: see
/// [`crate::Gossip::incarnation`]. Neither a clock nor the head is necessary.
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

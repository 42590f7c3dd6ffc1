//! Versions: the order of a node's news without clocks.

use serde::{Deserialize, Serialize};

/// The incarnation of an agent: incremented at each start and stored on the node's disk.
///
/// If the disk loses it (a reinstallation, a restored backup), the node starts with a number that its peers have already seen. They tell
/// it the highest one, and it continues above: see [`crate::Gossip::incarnation`]. This needs neither a clock nor the head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// The next incarnation; saturates.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The version of a node's news; the greater of two is newer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The incarnation of its agent.
    pub incarnation: Incarnation,
    /// Counts from 1 within the incarnation; zero if only the incarnation is known.
    pub seq: u64,
}

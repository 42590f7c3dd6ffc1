//! How news of a node are put in order without any clock.

use serde::{Deserialize, Serialize};

/// Which life of an agent, counted up by one at each start and kept on the node's disk.
///
/// If the disk has forgotten it (a reinstallation, a restored backup), the node begins with a number that its peers have seen before.
/// They tell it what they have, and it goes on above that: see [`crate::Gossip::incarnation`]. No clock is asked and no head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// The one after it; the last one stays.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Which news of a node: of two, the greater is the later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The life of its agent.
    pub incarnation: Incarnation,
    /// Counts up within that life, from 1; zero where only the life is known.
    pub seq: u64,
}

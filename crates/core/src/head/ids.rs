//! Ids of connections and submissions, and the time of an event.

use hostler_model::{Timestamp, WallTime};
use serde::{Deserialize, Serialize};

/// Identifies one connection of an agent; never reused while a head runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionId(pub u64);

/// A key that a client creates for each intended submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubmissionKey(pub u128);

/// The time of an event on two clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// The cluster's clock, for decisions.
    pub at: Timestamp,
    /// The head's wall clock, for display.
    pub wall: WallTime,
}

impl Now {
    /// Converts a time of the cluster's clock to the wall clock. Correct only for times at which this head ran.
    #[must_use]
    pub fn wall_at(self, at: Timestamp) -> WallTime {
        let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        WallTime(self.wall.0.saturating_add(ms(at.ms_since(self.at))).saturating_sub(ms(self.at.ms_since(at))))
    }
}

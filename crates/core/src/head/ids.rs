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

//! What an operator may set about the head's decisions.

use hostler_sched::Policy;
use serde::{Deserialize, Serialize};

/// Settings of the head. All times are in milliseconds on the cluster's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How often an agent must say something.
    pub heartbeat_ms: u64,
    /// After how long a silence a node gets no new work.
    pub suspect_after_ms: u64,
    /// After how long a silence the runs on a node are given up.
    pub lost_after_ms: u64,
    /// Between TERM and KILL, unless the job says otherwise.
    pub grace_ms: u64,
    /// How long an ended job and its results are kept, fetched or not.
    pub retention_ms: u64,
    /// How waiting jobs are chosen.
    #[serde(skip, default = "default_policy")]
    pub policy: Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_ms: 1_000,
            suspect_after_ms: 5_000,
            lost_after_ms: 60_000,
            grace_ms: 10_000,
            retention_ms: 14 * 24 * 3600 * 1000,
            policy: default_policy(),
        }
    }
}

/// Backfill that never delays the first waiting job.
fn default_policy() -> Policy {
    Policy::Easy
}

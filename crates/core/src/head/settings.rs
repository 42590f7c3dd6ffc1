//! What an operator may set about the head's decisions.

use hostler_sched::Policy;
use serde::{Deserialize, Serialize};

/// Settings of the head. All times are in milliseconds on the cluster's clock.
///
/// The three limits of silence must grow in the order in which they stand here, and the first must leave room for a heartbeat that
/// comes late: a machine under full load may take seconds to send one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// An agent that has nothing to say says so after this long.
    pub heartbeat_ms: u64,
    /// After how long a silence a node gets no new work.
    pub suspect_after_ms: u64,
    /// After how long a silence a node counts as down: what can run again without harm is placed elsewhere.
    pub down_after_ms: u64,
    /// After how long a silence every run on a node is given up. Longer, since this loses work where the node was only cut off.
    pub lost_after_ms: u64,
    /// Between TERM and KILL, unless the job says otherwise.
    pub grace_ms: u64,
    /// How long an ended job and its results are kept, fetched or not.
    pub retention_ms: u64,
    /// Whether operators and admins keep their role when they come through a node. Then root of any node can make itself one: a node's
    /// word is taken for who its users are.
    pub roles_through_nodes: bool,
    /// How waiting jobs are chosen.
    #[serde(skip, default = "default_policy")]
    pub policy: Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_ms: 4_000,
            suspect_after_ms: 7_000,
            down_after_ms: 9_000,
            lost_after_ms: 60_000,
            grace_ms: 10_000,
            retention_ms: 14 * 24 * 3600 * 1000,
            roles_through_nodes: false,
            policy: default_policy(),
        }
    }
}

/// Backfill that never delays the first waiting job.
fn default_policy() -> Policy {
    Policy::Easy
}

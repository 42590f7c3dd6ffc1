//! What the head keeps about a task that has ended, beyond the state of its job: one row in the store's history.

use hostler_model::{Attempt, Digest, Ending, JobId, NodeName, WallTime};
use serde::{Deserialize, Serialize};

use crate::link::Usage;

/// One ended task. A task has exactly one: attempts that were requeued leave none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTask {
    /// The job.
    pub job: JobId,
    /// The task's index.
    pub index: u32,
    /// The attempt that was accepted; zero when it ended without being placed.
    pub attempt: Attempt,
    /// How it ended.
    pub ending: Ending,
    /// What a person should know beyond that.
    pub message: Option<String>,
    /// Where it ran.
    pub node: Option<NodeName>,
    /// When its process started.
    pub started_at: Option<WallTime>,
    /// When it ended.
    pub ended_at: WallTime,
    /// The complete, verified result.
    pub result: Option<Digest>,
    /// What it used.
    pub usage: Usage,
}

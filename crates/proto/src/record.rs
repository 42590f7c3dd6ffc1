//! What the head keeps about a task that has ended, beyond the state of its job: one row in the store's history.

use hostler_model::{Attempt, Digest, Ending, JobId, NodeName, TaskId, WallTime};
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
    /// What it used; on all of its nodes together.
    pub usage: Usage,
    /// Its parts in the order of their nodes' ranks, for a task on several nodes. The result above is that of the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<EndedPart>,
}

impl EndedTask {
    /// All of its results: one, or one for each node. The first node's comes last: who has that has all.
    pub fn results(&self) -> impl Iterator<Item = TaskResult> {
        let task = TaskId { job: self.job, index: self.index };
        let only = if self.parts.is_empty() { self.result } else { None };
        let ranked = self.parts.iter().enumerate().rev().map(|(rank, part)| (rank as u32, part.result));
        let results = ranked.chain(std::iter::once((0, only)));
        results.filter_map(move |(rank, manifest)| Some(TaskResult { task, rank, manifest: manifest? }))
    }
}

/// One result of an ended task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskResult {
    /// The task.
    pub task: TaskId,
    /// The rank of the node that it is from, 0 for a task on one node.
    pub rank: u32,
    /// The hash of its manifest.
    pub manifest: Digest,
}

/// What an ended task on several nodes had on one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedPart {
    /// Where.
    pub node: NodeName,
    /// How it ended there; absent when it was lost, or never began.
    pub ending: Option<Ending>,
    /// What a person should know beyond that.
    pub message: Option<String>,
    /// The complete, verified result.
    pub result: Option<Digest>,
    /// What it used.
    pub usage: Usage,
}

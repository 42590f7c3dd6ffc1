//! Record of an ended task: one row in the store's history.

use hostler_model::{Attempt, Digest, Ending, JobId, NodeName, TaskId, WallTime};
use serde::{Deserialize, Serialize};

use crate::certificate::Certificate;
use crate::link::{RunEnd, StepRecord, Usage};
use crate::stages::Stages;

/// The record of an ended task. Each task leaves one record; a requeued attempt leaves one until its result is fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTask {
    /// Job id.
    pub job: JobId,
    /// Index of the task in its array.
    pub index: u32,
    /// Number of the last attempt; zero if the task ended before it was placed.
    pub attempt: Attempt,
    /// How the task ended.
    pub ending: Ending,
    /// Details for people, e.g. why the task could not start.
    pub message: Option<String>,
    /// Node that ran the task.
    pub node: Option<NodeName>,
    /// Time at which the task's process started.
    pub started_at: Option<WallTime>,
    /// Time at which the task ended.
    pub ended_at: WallTime,
    /// When the last attempt reached each stage.
    #[serde(default)]
    pub stages: Stages,
    /// Hash of the complete, verified result.
    pub result: Option<Digest>,
    /// Resource usage of the task on all of its nodes.
    pub usage: Usage,
    /// The steps of the last attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    /// How quiet the node was; only for exclusive jobs on one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Box<Certificate>>,
    /// Parts of a task on several nodes, by rank. `result` is the result of the first node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<EndedPart>,
}

impl EndedTask {
    /// Returns all results of the task, one per node. The result of the first node comes last: once it is present, the
    /// results of all other nodes are present too.
    pub fn results(&self) -> impl Iterator<Item = TaskResult> {
        let task = TaskId { job: self.job, index: self.index };
        let only = if self.parts.is_empty() { self.result } else { None };
        let ranked = self.parts.iter().enumerate().rev().map(|(rank, part)| (rank as u32, part.end.manifest()));
        let results = ranked.chain(std::iter::once((0, only)));
        results.filter_map(move |(rank, manifest)| Some(TaskResult { task, rank, manifest: manifest? }))
    }

    /// Returns the hash of each result, with the rank of its node.
    #[must_use]
    pub fn ranked_results(&self) -> Vec<(u32, Digest)> {
        self.results().map(|result| (result.rank, result.manifest)).collect()
    }
}

/// One result of an ended task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskResult {
    /// The task that produced the result.
    pub task: TaskId,
    /// Rank of the node that produced the result; 0 for a task on one node.
    pub rank: u32,
    /// Hash of the result manifest.
    pub manifest: Digest,
}

/// The part on one node of a task on several nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedPart {
    /// Name of the node.
    pub node: NodeName,
    /// How the part ended, and its result.
    pub end: RunEnd,
}

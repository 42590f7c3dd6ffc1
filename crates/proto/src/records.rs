//! Records of jobs with their tasks, many in one answer (part of [`crate::api`]), for programs that show everything about jobs.

use std::collections::BTreeMap;

use hostler_model::{
    ArraySpec, Attempt, Constraint, Counted, Dependency, Files, IndexSet, JobId, JobState, Labels, PartitionName,
    Reason, Surroundings, WallTime,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::TaskView;

/// A page of records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordPage {
    /// The records: newest job first; latest end first if `ended_since` is set; in the order of their ids if `jobs` names them.
    pub records: Vec<JobRecord>,
    /// Pass as `before` to get the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A job with its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobRecord {
    /// The job's id.
    pub id: JobId,
    /// The job's name.
    pub name: String,
    /// The owner.
    pub user: String,
    /// State of the whole job.
    pub state: JobState,
    /// Why the waiting tasks wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Latest time at which the job should start, if its nodes are reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start_at: Option<WallTime>,
    /// The partition; absent if the cluster has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionName>,
    /// Number of nodes of each task.
    pub nodes: u32,
    /// Number of processes that the job runs on each node.
    pub tasks_per_node: u32,
    /// CPUs per node.
    pub cpus: u32,
    /// Memory per node, in bytes.
    pub memory_bytes: u64,
    /// GPUs per node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gpus: u32,
    /// Counted resources per node.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub counted: Counted,
    /// Time limit of each task in milliseconds; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// The highest attempt of the job's tasks; zero if none was placed.
    pub attempt: Attempt,
    /// The tasks of an array; absent without an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArraySpec>,
    /// The tasks of an array that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<ArraySpec>,
    /// Labels that the user gave the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Jobs with a higher priority start first.
    pub priority: i32,
    /// Whether the job runs again if its node is lost.
    pub requeue: bool,
    /// What surrounds each task. Only the job's user and operators see the image, the container and the submit line.
    #[serde(flatten)]
    pub surroundings: Surroundings,
    /// Whether an operator holds the job, so that its owner cannot release it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_by_operator: bool,
    /// The waiting tasks of an array that are held on their own; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_tasks: Option<IndexSet>,
    /// Those of `held_tasks` that an operator holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_tasks_by_operator: Option<IndexSet>,
    /// What the nodes must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// The jobs that this job waits for, as submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
    /// The conditions in `after` that do not hold yet, at least for some tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<Dependency>,
    /// Earliest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin_at: Option<WallTime>,
    /// The command line, quoted for a shell. For the job's user and operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The directory in which the command runs. For the job's user and operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The files of the command. For the job's user and operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// Whether the job is an allocation, whose program runs on the client's machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allocation: bool,
    /// Whether the command is a script that was submitted by its content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub script: bool,
    /// Time of the submission.
    pub submitted_at: WallTime,
    /// Time at which the first task started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<WallTime>,
    /// Time at which the last task ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<WallTime>,
    /// The tasks that run or have ended, by index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskView>,
    /// Index of the first ended task that the record leaves out because it is too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_next: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

//! Results that clients fetch; part of [`crate::api`].

use hostler_model::{Attempt, Digest, IndexSet, JobId, JobState, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /jobs/{id}/fetched`: results that the client has stored safely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fetched {
    /// Task indices.
    pub indices: IndexSet,
    /// The earlier attempt of the results; absent for the last attempt of each task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
}

/// `POST /jobs/{id}/cancel-tasks`: tasks of an array to cancel together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelTasks {
    /// Task indices. Tasks that have ended or do not exist are ignored.
    pub indices: IndexSet,
}

/// `GET /results`: results that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultPage {
    /// Results by job and index.
    pub results: Vec<ResultView>,
    /// Value of `after` for the next page; absent if there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<JobId>,
    /// With `unfetched`, on the last page: jobs of the user that were deleted before anybody had fetched their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<DeletedResults>,
}

/// A job that was deleted before anybody had fetched its results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeletedResults {
    /// Job id.
    pub job: JobId,
    /// Time of the deletion.
    pub deleted_at: WallTime,
}

/// The value for heads that do not say it.
const fn project() -> bool {
    true
}

/// One result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultView {
    /// Job id.
    pub job: JobId,
    /// Name of the job.
    pub name: String,
    /// Index of the task; absent if the job is not an array.
    pub index: Option<u32>,
    /// Rank of the node, for a job on several nodes. Rank 0 comes last: once it is present, so are the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_rank: Option<u32>,
    /// Final state of the task.
    pub state: JobState,
    /// Whether the job ran a project folder. The result of any other command is its output only.
    #[serde(default = "project")]
    pub project: bool,
    /// Whether the task is a call of `hostler.map`, whose result is for the program that maps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub map: bool,
    /// Hash of the result manifest.
    pub manifest: Digest,
    /// Whether the result was fetched before.
    pub fetched: bool,
    /// Number of the attempt that produced the result.
    #[serde(default)]
    pub attempt: Attempt,
    /// Whether the task was requeued after this attempt. The head keeps such a result until it is fetched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub earlier: bool,
    /// When the job was submitted, which tells it from a job that had the same id before a backup of the head was restored.
    #[serde(default)]
    pub submitted_at: WallTime,
}

//! REST + JSON about jobs, beyond lists and details (part of [`crate::api`]).

use std::collections::BTreeMap;
use std::str::FromStr;

use hostler_model::{Constraint, Counted, Dependency, ParseError, PartitionName, RequestedTime, Submission};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::Schema;
use utoipa::openapi::schema::Type;

use crate::api::{ErrorBody, Submitted};

/// Answer to `POST /jobs/{id}/signal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Signalled {
    /// Number of nodes that the signal was sent to. A node counts once for each of the job's tasks on it.
    pub nodes: u32,
    /// Number of nodes that are not connected, and get no signal.
    pub unreachable: u32,
}

/// Answer of `GET /jobs/{id}/script`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScriptView {
    /// Content of the script.
    pub script: String,
}

/// Request body of `POST /submissions`: submits several jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmitSeveral {
    /// The submissions.
    #[schema(max_items = 1000)]
    pub submissions: Vec<KeyedSubmission>,
}

/// One submission of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyedSubmission {
    /// Idempotency key, as in `POST /jobs`.
    #[schema(min_length = 1, max_length = 256)]
    pub key: String,
    /// Specification of the job.
    pub spec: Submission,
}

/// Answer to [`SubmitSeveral`]. The head sends it once all accepted jobs are stored on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmittedSeveral {
    /// What became of each submission, in the order of the request.
    pub answers: Vec<SubmissionAnswer>,
}

/// What became of one submission of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubmissionAnswer {
    /// The job is stored.
    Submitted(Submitted),
    /// The head refused this submission, and does not keep it.
    Refused(ErrorBody),
}

/// Order of the jobs in the answer of `GET /jobs`. Jobs with equal values follow each other by id, oldest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobOrder {
    /// Newest first.
    #[default]
    Newest,
    /// Oldest first: those that have waited longest.
    Oldest,
    /// Jobs that run first, then waiting ones as by `priority`, held ones last.
    Queue,
    /// Highest priority first, of the partition and then of the job.
    Priority,
    /// By name.
    Name,
    /// By user.
    User,
    /// Largest first: by CPUs on all nodes of a task, then GPUs, then memory.
    Size,
    /// Jobs that have run longest first; those that have not started last.
    Started,
    /// Shortest time limit first; jobs without a limit last.
    Limit,
    /// By partition; jobs without one first.
    Partition,
}

impl JobOrder {
    /// All orders.
    pub const ALL: [Self; 10] = [
        Self::Newest,
        Self::Oldest,
        Self::Queue,
        Self::Priority,
        Self::Name,
        Self::User,
        Self::Size,
        Self::Started,
        Self::Limit,
        Self::Partition,
    ];

    /// Name in the API and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Oldest => "oldest",
            Self::Queue => "queue",
            Self::Priority => "priority",
            Self::Name => "name",
            Self::User => "user",
            Self::Size => "size",
            Self::Started => "started",
            Self::Limit => "limit",
            Self::Partition => "partition",
        }
    }
}

impl FromStr for JobOrder {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected =
            || ParseError::new(text, "newest, oldest, queue, priority, name, user, size, started, limit or partition");
        Self::ALL.into_iter().find(|order| order.as_str() == text).ok_or_else(expected)
    }
}

/// Request body of `POST /jobs/{id}/duplicate`: submits a copy of a job. Absent fields keep the job's values. The copy
/// depends on no other job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DuplicateRequest {
    /// Idempotency key, created by the client: a retry with the same key returns the same job.
    #[schema(min_length = 1, max_length = 256)]
    pub key: String,
    /// Name of the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^[^\x00-\x1f\x7f-\x9f]{1,255}$")]
    pub name: Option<String>,
    /// Program and arguments of the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = nullable_argv, required = false)]
    pub argv: Option<Vec<String>>,
    /// CPUs per task and node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cpus: Option<u32>,
    /// Memory per task and node, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 8_388_608)]
    pub memory_bytes: Option<u64>,
    /// GPUs per task and node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Time limit of a task, in milliseconds; zero means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// Submit the copy without environment variables if the caller cannot use those of the job: the head deletes them
    /// when a job completes, and only the job's user may use them.
    #[serde(default)]
    pub without_environment: bool,
    /// Partition of the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionName>,
    /// Priority of the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// Request body of `POST /jobs/{id}`: changes a job. Absent fields keep their values.
///
/// The job's name, labels, time limit and `requeue` can change while its tasks run. Only operators raise the time limit then.
/// Priority, dependencies, begin time and the limit of an array apply to waiting tasks. The other fields can change only while
/// no task runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobChange {
    /// Name of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^[^\x00-\x1f\x7f-\x9f]{1,255}$")]
    pub name: Option<String>,
    /// Time limit of a task, in milliseconds; zero means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// Priority of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Partition of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionName>,
    /// Constraint that the job's nodes must satisfy; null for none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Constraint>)]
    pub constraint: Option<Option<Constraint>>,
    /// Conditions on other jobs that must hold before the job starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub after: Option<Vec<Dependency>>,
    /// Earliest time at which the job starts; null for none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RequestedTime>)]
    pub begin: Option<Option<RequestedTime>>,
    /// Whether the job runs again when its node is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<bool>,
    /// How many tasks of the array may run at once; zero means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_limit: Option<u32>,
    /// Labels to set; null removes a label. Other labels stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = hostler_model::label_changes_schema)]
    pub labels: BTreeMap<String, Option<String>>,
    /// Number of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub nodes: Option<u32>,
    /// Number of processes of each task on each of its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4096)]
    pub tasks_per_node: Option<u32>,
    /// CPUs per task and node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cpus: Option<u32>,
    /// Memory per task and node, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 8_388_608)]
    pub memory_bytes: Option<u64>,
    /// GPUs per task and node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Counted resources per task and node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

/// Distinguishes null from an absent field.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn nullable_argv() -> Schema {
    let mut schema = hostler_model::argv_schema();
    if let Schema::Array(argv) = &mut schema {
        argv.schema_type = [Type::Array, Type::Null].into_iter().collect();
    }
    schema
}

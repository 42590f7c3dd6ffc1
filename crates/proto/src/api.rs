//! REST + JSON between clients and the head, under `/api/v1`. The committed OpenAPI file describes the routes.
//!
//! Times are milliseconds since the Unix epoch and sizes are bytes; field names say so. Clients ignore unknown fields.
//! Errors are sent as [`ErrorBody`] with a suitable HTTP status.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{
    Advisory, ArraySpec, Attempt, Constraint, Counted, Dependency, Digest, Feature, GpuId, JobId, JobSpec, JobState,
    NodeName, NodeState, PartitionName, Reason, Submission, TaskId, Vendor, WallTime,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use crate::blobs::{BlobRequest, DigestList};
use crate::link::Usage;
use crate::power::{JobEnergy, PowerView};

/// Base path of the API.
pub const BASE: &str = "/api/v1";

/// Version of this API. The head refuses clients with another version.
pub const API_VERSION: u32 = 1;

/// Header in which a client sends its [`API_VERSION`].
pub const VERSION_HEADER: &str = "hostler-api";

/// `POST /jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmitRequest {
    /// Idempotency key, created by the client: a retry with the same key returns the same job.
    #[schema(min_length = 1, max_length = 256)]
    pub key: String,
    /// Specification of the job. The head fills absent values with the operators' defaults.
    pub spec: Submission,
}

impl SubmitRequest {
    /// Creates a submission in which every field is set.
    #[must_use]
    pub fn new(key: String, spec: JobSpec) -> Self {
        Self { key, spec: spec.into() }
    }
}

/// The answer to [`SubmitRequest`]. The job is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// Job id.
    pub id: JobId,
    /// Whether this key was accepted before.
    pub duplicate: bool,
}

/// An error for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Stable code for programs, e.g. `no_such_job`.
    pub code: String,
    /// What happened and why.
    pub message: String,
    /// What to do, one line each.
    #[serde(default)]
    pub hints: Vec<String>,
}

/// `GET /info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Info {
    /// The head.
    pub head: HeadInfo,
    /// Number of nodes in each state.
    pub nodes: NodeCounts,
    /// Number of tasks in each live state.
    pub tasks: LiveCounts,
    /// CPUs of the nodes that are up: total and free.
    pub cpus: Amount,
    /// Memory of the nodes that are up, in bytes: total and free.
    pub memory_bytes: Amount,
    /// GPUs of the nodes that are up: total and free.
    #[serde(default)]
    pub gpus: Amount,
    /// Counted resources of the nodes that are up.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
    /// Counted resources that no job holds.
    #[serde(default)]
    pub counted_free: BTreeMap<String, u64>,
}

/// The head process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeadInfo {
    /// Process id.
    pub pid: u32,
    /// Release of the head.
    pub version: String,
    /// [`API_VERSION`] of the head.
    pub api: u32,
    /// Number of times that a head has started on this store.
    pub epoch: u64,
    /// Whether the head belongs to an embedded cluster (`hostler up`).
    pub embedded: bool,
    /// Address to which agents connect.
    pub address: String,
    /// Fingerprint of the cluster's authority.
    #[serde(default)]
    pub authority: Option<Digest>,
    /// State directory.
    pub directory: String,
    /// Why the head refuses submissions at the moment, if it does.
    pub refusing: Option<String>,
    /// Size of all results at the last measurement, in bytes.
    #[serde(default)]
    pub results_bytes: Option<u64>,
    /// Limit for all results, in bytes. Above it, the head deletes fetched results before their retention ends.
    #[serde(default)]
    pub results_cap_bytes: u64,
    /// Warning for the head's operators, if any.
    #[serde(default)]
    pub warning: Option<String>,
    /// Machine of the head. The head runs no jobs there.
    #[serde(default)]
    pub machine: Option<HeadMachine>,
}

/// Machine on which the head runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeadMachine {
    /// Host name.
    pub name: String,
    /// CPUs that the head may use.
    pub cpus: u32,
    /// Memory that the head may use, in bytes.
    pub memory_bytes: u64,
}

/// Number of nodes in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCounts {
    /// Connected.
    pub up: u32,
    /// Silent for a short time.
    pub suspect: u32,
    /// Silent for a long time.
    pub down: u32,
    /// Drained by an operator; some tasks still run.
    #[serde(default)]
    pub draining: u32,
    /// Drained by an operator; no tasks run.
    #[serde(default)]
    pub drained: u32,
    /// Switched off.
    #[serde(default)]
    pub off: u32,
    /// Being switched on.
    #[serde(default)]
    pub waking: u32,
    /// Being switched off.
    #[serde(default)]
    pub stopping: u32,
}

/// Number of live tasks in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveCounts {
    /// Waiting.
    pub pending: u64,
    /// Placed, not yet running.
    pub starting: u64,
    /// Running.
    pub running: u64,
    /// Uploading results.
    pub completing: u64,
}

/// A total and its free part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// Total amount.
    pub total: u64,
    /// Amount that no job holds.
    pub free: u64,
}

/// One node, in `GET /nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Name of the node.
    pub name: NodeName,
    /// Whether the node can get tasks.
    pub state: NodeState,
    /// Power: a [`hostler_model::PowerState`] if the head can switch the node. Otherwise `on`, or `unknown` while the
    /// agent is not connected.
    pub power: String,
    /// CPUs.
    pub cpus: u32,
    /// CPUs that no job holds.
    pub cpus_free: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Memory that no job holds, in bytes.
    pub memory_free_bytes: u64,
    /// GPUs.
    #[serde(default)]
    pub gpus: u32,
    /// GPUs that no job holds.
    #[serde(default)]
    pub gpus_free: u32,
    /// Counted resources of the node.
    #[serde(default)]
    pub counted: Counted,
    /// Counted resources that no job holds.
    #[serde(default)]
    pub counted_free: Counted,
    /// Number of tasks that hold resources here.
    pub tasks: u32,
    /// Process id of the agent; 0 before its first connection.
    pub agent_pid: u32,
    /// Release of the agent.
    pub version: String,
    /// Limits that the node's kernel does not enforce, and why.
    #[serde(default)]
    pub advisory: Advisory,
    /// Who drained the node and why, if it is drained.
    #[serde(default)]
    pub reason: Option<String>,
    /// Partitions that contain the node.
    #[serde(default)]
    pub partitions: Vec<PartitionName>,
    /// Features that the agent and the operators report.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// Nodes with a lower weight are used first.
    #[serde(default)]
    pub weight: u32,
}

/// `GET /nodes/{name}`: details of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    /// The fields of the list.
    #[serde(flatten)]
    pub node: NodeView,
    /// The drain, if the node is draining or drained.
    pub drain: Option<DrainView>,
    /// Time since the agent was last heard, in milliseconds; 0 while it is connected.
    pub silent_ms: u64,
    /// Ids of the offered CPUs as the node numbers them, e.g. `0-3,8`.
    pub cpu_ids: String,
    /// The offered GPUs.
    #[serde(default)]
    pub gpu_list: Vec<GpuView>,
    /// Tasks that hold resources on the node.
    pub runs: Vec<NodeRunView>,
    /// Certificate of the node. Absent if the node joined with an older release and has not connected since.
    pub certificate: Option<CertificateView>,
    /// Power state, if the head can switch the node.
    #[serde(default)]
    pub power_detail: Option<PowerView>,
}

/// A drain, in [`NodeDetail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainView {
    /// User who drained the node.
    pub by: String,
    /// Reason that the user gave.
    pub reason: Option<String>,
    /// Time of the drain, in milliseconds since the Unix epoch.
    pub at: WallTime,
}

/// A task on a node, in [`NodeDetail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRunView {
    /// Job id.
    pub job: JobId,
    /// Index of the task; 0 if the job is not an array.
    pub index: u32,
    /// Ids of the task's CPUs, as the node numbers them.
    pub cpu_ids: String,
    /// Memory of the task, in bytes.
    pub memory_bytes: u64,
    /// GPUs of the task.
    #[serde(default)]
    pub gpu_ids: Vec<GpuId>,
    /// Counted resources of the task.
    #[serde(default)]
    pub counted: Counted,
}

/// A GPU of a node, in [`NodeDetail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuView {
    /// Stable id of the GPU, which allocations use.
    pub id: GpuId,
    /// `nvidia`, `amd` or `intel`; absent if unknown.
    pub vendor: Option<Vendor>,
    /// Model name.
    pub name: String,
    /// Its own memory in bytes, if known.
    pub memory_bytes: Option<u64>,
    /// NUMA node of the GPU, if known.
    pub numa: Option<u32>,
    /// Task that holds the GPU; absent while it is free.
    pub held_by: Option<TaskId>,
}

/// A node's certificate, in [`NodeDetail`]. Times are on the cluster's clock, which stops while no head runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateView {
    /// Time since it was issued, in milliseconds.
    pub age_ms: u64,
    /// Total validity, in milliseconds.
    pub life_ms: u64,
    /// Whether a newer certificate was issued but is not in use yet.
    pub is_being_renewed: bool,
}

/// `POST /nodes/invite`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Invite {
    /// Name of the node; absent to allow any new name.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// Address at which the node reaches the head, `HOST:PORT`; absent for the head's configured address.
    #[serde(default)]
    #[schema(
        format = "address",
        pattern = r"^([A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62}){0,2}|\[[0-9a-fA-F:.]{2,45}\])(:[1-9][0-9]{0,3})?$"
    )]
    pub address: Option<String>,
}

/// `POST /nodes/{name}/drain`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainRequest {
    /// Reason to show with the node: one line of at most 500 characters.
    #[serde(default)]
    #[schema(pattern = r"^[^\x00-\x1f\x7f-\x9f]{0,500}$")]
    pub reason: Option<String>,
}

/// A page of `GET /jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobPage {
    /// Jobs, newest first.
    pub jobs: Vec<JobSummary>,
    /// Total number of matching jobs.
    pub total: u64,
    /// Value of `before` for the next page.
    pub next: Option<JobId>,
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobSummary {
    /// Job id.
    pub id: JobId,
    /// Name of the job.
    pub name: String,
    /// User who submitted the job.
    pub user: String,
    /// State of the job.
    pub state: JobState,
    /// Why the job waits, as a sentence.
    pub reason: Option<String>,
    /// Which of its nodes is silent, since when, and the consequence, as a sentence. Absent if all nodes respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_problem: Option<String>,
    /// Number of times that the job was placed; for an array, the maximum over its tasks.
    pub attempt: Attempt,
    /// Nodes that run the job or ran it; for an array, the nodes of its live tasks.
    pub nodes: Vec<NodeName>,
    /// Exit code as a shell reports it; for an array, the maximum over its tasks.
    pub exit_code: Option<i32>,
    /// Command line, shown to the job's user and operators; in lists only on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Partition of the job; absent if it may use all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionName>,
    /// Number of nodes per task, used at the same time.
    #[serde(default = "one")]
    pub node_count: u32,
    /// CPUs per task and node.
    pub cpus: u32,
    /// Memory per task and node, in bytes.
    pub memory_bytes: u64,
    /// GPUs per task and node.
    #[serde(default)]
    pub gpus: u32,
    /// Counted resources per task and node.
    #[serde(default)]
    pub counted: Counted,
    /// The array, as the user requested it.
    pub array: Option<ArraySpec>,
    /// Number of tasks in each state.
    pub tasks: TaskCounts,
    /// Time of submission.
    pub submitted_at: WallTime,
    /// Time at which the first task started.
    pub started_at: Option<WallTime>,
    /// Time at which the job ended.
    pub ended_at: Option<WallTime>,
}

const fn one() -> u32 {
    1
}

/// Number of a job's tasks in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskCounts {
    /// All tasks.
    pub total: u64,
    /// Waiting.
    pub pending: u64,
    /// Placed, running or uploading results.
    pub live: u64,
    /// Ended with exit code 0.
    pub completed: u64,
    /// Ended in a state other than completed and cancelled.
    pub failed: u64,
    /// Cancelled before or after the start.
    #[serde(default)]
    pub cancelled: u64,
}

/// `GET /jobs/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    /// The fields of the list.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// Priority; higher starts first.
    pub priority: i32,
    /// Whether the job runs again if its node is lost.
    pub requeue: bool,
    /// Required node features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// Jobs that this job waits or waited for.
    pub after: Vec<Dependency>,
    /// Command line; empty except for the job's user and operators.
    pub command: String,
    /// Hash of the captured folder.
    pub snapshot: Option<Digest>,
    /// Each limit and whether the kernel enforces it.
    pub limits: Vec<LimitView>,
    /// Energy used on its nodes, including requeued runs; absent if none of the nodes has an energy meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<JobEnergy>,
    /// Number of tasks with results that were not fetched.
    pub unfetched: u64,
    /// All live tasks, and ended ones up to the `tasks` limit. With `from`, only ended ones from there. With `index`,
    /// one task.
    pub tasks_shown: Vec<TaskView>,
    /// Value of `from` for the next ended tasks; absent if there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_next: Option<u32>,
}

/// A limit on a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitView {
    /// `cpus`, `memory`, `gpus`, `time`, or the name of a counted resource.
    pub name: String,
    /// Limit as a count, bytes or milliseconds.
    pub value: u64,
    /// `enforced` or `advisory`; `unknown` for a job that was never placed on a node.
    pub enforcement: String,
    /// Why the limit is advisory.
    pub why: Option<String>,
}

/// One task of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// Index of the task.
    pub index: u32,
    /// State of the task.
    pub state: JobState,
    /// Number of the attempt.
    pub attempt: Attempt,
    /// Node that runs or ran the task.
    pub node: Option<NodeName>,
    /// GPUs of the task while it holds them; for a task on several nodes, see `parts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_ids: Vec<GpuId>,
    /// Exit code as a shell reports it.
    pub exit_code: Option<i32>,
    /// Details for people.
    pub message: Option<String>,
    /// Time at which the process started.
    pub started_at: Option<WallTime>,
    /// Time at which the task ended.
    pub ended_at: Option<WallTime>,
    /// Hash of the result manifest.
    pub result: Option<Digest>,
    /// Whether the result was fetched.
    pub fetched: bool,
    /// Resource usage on all of its nodes.
    pub usage: Option<Usage>,
    /// Its parts on each node, by rank; empty for a task on one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartView>,
}

/// The part of a multi-node task on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartView {
    /// Name of the node.
    pub node: NodeName,
    /// State of this part: `starting` until all nodes are ready.
    pub state: JobState,
    /// GPUs of this part while it holds them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_ids: Vec<GpuId>,
    /// Exit code as a shell reports it.
    pub exit_code: Option<i32>,
    /// Details for people.
    pub message: Option<String>,
    /// Hash of the result manifest.
    pub result: Option<Digest>,
    /// Resource usage of this part.
    pub usage: Option<Usage>,
}

/// `GET /jobs/{id}/why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Job id.
    pub id: JobId,
    /// State of the job.
    pub state: JobState,
    /// Why the job waits; absent if it does not.
    pub reason: Option<Reason>,
    /// The reason as sentences; the first one is the short answer.
    pub lines: Vec<String>,
    /// Latest expected start, based on the time limits of running jobs.
    pub expected_start_at: Option<WallTime>,
}

/// An action on a job, in `POST /jobs/{id}/{action}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// End the job; its state becomes `cancelled`.
    Cancel,
    /// Keep tasks that have not started from starting.
    Hold,
    /// Undo a hold.
    Release,
    /// Run the job again from the start. Running tasks are ended first; ended tasks run again.
    Requeue,
}

impl JobAction {
    /// Name in paths.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Requeue => "requeue",
        }
    }
}

/// `POST /jobs/{id}/fetched`: results that the client has stored safely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fetched {
    /// Task indices.
    pub indices: hostler_model::IndexSet,
}

/// `GET /results`: results that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultPage {
    /// Results by job and index.
    pub results: Vec<ResultView>,
    /// Value of `after` for the next page; absent if there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<JobId>,
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
    /// Hash of the result manifest.
    pub manifest: Digest,
    /// Whether the result was fetched before.
    pub fetched: bool,
}

/// A server-sent event of `GET /events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Notice {
    /// A job changed.
    Job {
        /// Job id.
        id: JobId,
        /// New state.
        state: JobState,
    },
    /// A node changed.
    Node {
        /// Name of the node.
        name: NodeName,
        /// Whether the node can get tasks.
        state: NodeState,
    },
    /// The reader was too slow and missed events. It should query the current state.
    Missed,
}

/// `POST /agent/join`: an agent proves that it was invited and requests a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinRequest {
    /// One-time secret of the join code.
    pub secret: String,
    /// Requested node name; absent for the name in the join code.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// Host name of the machine: the node's name if neither this request nor the code gives one.
    #[serde(default)]
    pub machine: Option<NodeName>,
    /// Certificate signing request, PEM.
    pub csr: String,
}

/// `POST /agent/renew`: an agent requests a certificate for a new key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewRequest {
    /// Certificate signing request, PEM.
    pub csr: String,
}

/// The answer to [`JoinRequest`] and [`RenewRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Joined {
    /// Certificate of the agent, PEM.
    pub certificate: String,
    /// Certificate of the cluster's authority, PEM.
    pub authority: String,
    /// Name of the node, as in the certificate.
    pub node: NodeName,
    /// Time until the agent should request the next certificate, in milliseconds.
    pub renew_in_ms: u64,
}

/// The answer to [`Invite`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Invitation {
    /// Join code for one node: address, fingerprint of the cluster's authority and a one-time secret.
    pub code: String,
}

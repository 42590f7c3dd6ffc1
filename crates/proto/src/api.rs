//! REST + JSON between clients and the head, under `/api/v1`. The committed OpenAPI file describes the routes.
//!
//! Times are milliseconds since the Unix epoch and sizes are bytes; field names say so. Clients ignore unknown fields.
//! Errors are sent as [`ErrorBody`] with a suitable HTTP status.

use std::collections::BTreeMap;
use std::net::IpAddr;

use hostler_model::{
    ArraySpec, Attempt, Constraint, Counted, Dependency, Digest, Files, GpuId, IndexSet, JobId, JobSpec, JobState,
    Labels, NodeName, NodeState, PartitionName, Reason, Request, Submission, Subscription, Surroundings, WallTime,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use crate::blobs::{BlobRequest, DigestList};
use crate::certificate::Certificate;
pub use crate::jobs::{
    DuplicateRequest, JobChange, JobOrder, KeyedSubmission, ScriptView, Signalled, SubmissionAnswer, SubmitSeveral,
    SubmittedSeveral,
};
use crate::link::{StepRecord, Usage};
pub use crate::nodes::{CertificateView, DrainView, GpuView, NodeDetail, NodeRunView, NodeView};
use crate::power::JobEnergy;
pub use crate::records::{JobRecord, RecordPage};
pub use crate::results::{CancelTasks, DeletedResults, Fetched, ResultPage, ResultView};
pub use crate::stages::{Stage, Stages, Step, timeline};
pub use crate::task_counts::{Pace, TaskCounts};

/// Base path of the API.
pub const BASE: &str = "/api/v1";

/// Version of this API. The head refuses clients with another version.
pub const API_VERSION: u32 = 1;

/// Header in which a client sends the [`API_VERSION`] that it was built with.
pub const VERSION_HEADER: &str = "hostler-api";

/// Header of the answer to a request for a terminal, if the caller can only watch: the head drops the caller's input.
pub const WATCHING_HEADER: &str = "hostler-watching";

/// Request body of `POST /jobs`: submits a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmitRequest {
    /// Idempotency key, created by the client: a retry with the same key returns the same job.
    #[schema(min_length = 1, max_length = 256)]
    pub key: String,
    /// Specification of the job. The head fills absent values with the operators' defaults.
    pub spec: Submission,
    /// Wait for the end of the job, but at most this long. The answer then describes the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

impl SubmitRequest {
    /// Creates a submission in which every field is set.
    #[must_use]
    pub fn new(key: String, spec: JobSpec) -> Self {
        Self { key, spec: spec.into(), wait_ms: None }
    }
}

/// The answer to [`SubmitRequest`]. The head sends it once the job is stored on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// Job id.
    pub id: JobId,
    /// Whether an earlier submission with the same key created the job.
    pub duplicate: bool,
    /// The job after the wait that the request asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited: Option<Box<AwaitedJob>>,
}

/// A job at its end, or when the wait for its end was over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AwaitedJob {
    /// The job with up to one of its ended tasks.
    pub job: JobDetail,
    /// Output of the job's only task; absent unless it has ended and its output is short text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<ShortOutput>,
}

/// The whole output of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShortOutput {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The error that every refused request gets as its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Stable code for programs, e.g. `no_such_job`.
    pub code: String,
    /// What happened and why, as a sentence for people.
    pub message: String,
    /// What the user can do, one hint per line.
    #[serde(default)]
    pub hints: Vec<String>,
}

/// Answer of `GET /info`: facts about the head, and the number and resources of the nodes and tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Info {
    /// Facts about the head process.
    pub head: HeadInfo,
    /// Number of nodes in each state.
    pub nodes: NodeCounts,
    /// Number of tasks in each live state.
    pub tasks: LiveCounts,
    /// How fast tasks end at present; absent if none has ended for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Resources of the nodes that are up.
    #[serde(flatten)]
    pub capacity: Capacity,
}

/// The resources of the nodes that are up, in [`Info`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capacity {
    /// CPUs: total and free.
    pub cpus: Amount,
    /// Memory in bytes: total and free.
    pub memory_bytes: Amount,
    /// GPUs: total and free.
    #[serde(default)]
    pub gpus: Amount,
    /// Counted resources.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
    /// Amounts of counted resources that no job holds, by name.
    #[serde(default)]
    pub counted_free: BTreeMap<String, u64>,
}

impl Capacity {
    /// Adds the resources of a node. A sum that overflows stays at the maximum.
    pub fn add(&mut self, total: &Request, free: &Request) {
        let add = |amount: &mut Amount, total: u64, free: u64| {
            *amount = Amount { total: amount.total.saturating_add(total), free: amount.free.saturating_add(free) };
        };
        add(&mut self.cpus, total.cpus.into(), free.cpus.into());
        add(&mut self.memory_bytes, total.memory_bytes, free.memory_bytes);
        add(&mut self.gpus, total.gpus.into(), free.gpus.into());
        for (sums, counted) in [(&mut self.counted, &total.counted), (&mut self.counted_free, &free.counted)] {
            for (name, count) in counted.iter() {
                let sum = sums.entry(name.to_owned()).or_insert(0);
                *sum = sum.saturating_add(count);
            }
        }
    }
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
    /// State directory of the head.
    pub directory: String,
    /// Why the head refuses submissions at the moment; absent if it accepts them.
    pub refusing: Option<String>,
    /// Size of all results at the last measurement, in bytes.
    #[serde(default)]
    pub results_bytes: Option<u64>,
    /// Maximum size of all results, in bytes. Above it, the head deletes fetched results before their retention ends.
    #[serde(default)]
    pub results_cap_bytes: u64,
    /// Warning for operators, such as a problem with the store; absent if there is none.
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
    /// Nodes whose agent is connected.
    pub up: u32,
    /// Nodes that have been silent for `suspect-after`.
    pub suspect: u32,
    /// Nodes that have been silent for `down-after`.
    pub down: u32,
    /// Drained nodes on which tasks still run.
    #[serde(default)]
    pub draining: u32,
    /// Drained nodes on which no task runs.
    #[serde(default)]
    pub drained: u32,
    /// Nodes that are switched off.
    #[serde(default)]
    pub off: u32,
    /// Nodes that are being switched on.
    #[serde(default)]
    pub waking: u32,
    /// Nodes that are being switched off.
    #[serde(default)]
    pub stopping: u32,
}

/// Number of live tasks in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveCounts {
    /// Tasks that wait.
    pub pending: u64,
    /// Tasks that are placed on a node and do not run yet.
    pub starting: u64,
    /// Tasks that run.
    pub running: u64,
    /// Tasks whose results are being uploaded.
    pub completing: u64,
}

/// A total amount and how much of it is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// Total amount.
    pub total: u64,
    /// Amount that no job holds.
    pub free: u64,
}

/// Request body of `POST /nodes/invite`: creates a join code.
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

/// Request body of `POST /nodes/{name}/drain`: drains a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainRequest {
    /// Reason to show with the node: one line of at most 500 characters.
    #[serde(default)]
    #[schema(pattern = r"^[^\x00-\x1f\x7f-\x9f]{0,500}$")]
    pub reason: Option<String>,
}

/// A page of jobs, in the answer of `GET /jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobPage {
    /// Jobs, in the requested order.
    pub jobs: Vec<JobSummary>,
    /// Total number of matching jobs. With a filter other than `state` and `user`, a lower bound: the head examines only
    /// a limited number of ended jobs per request.
    pub total: u64,
    /// Value of the query parameter `before` for the next page; absent on the last page. With such a filter, a page may
    /// have no jobs although more follow.
    pub next: Option<JobId>,
    /// The caller's ended jobs, listed or not, whose files the head deletes although nobody has fetched them. Absent without
    /// such jobs, and without the setting `unfetched-retention`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiring: Option<ExpiringJobs>,
}

/// Ended jobs whose unfetched files the head deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExpiringJobs {
    /// Number of jobs.
    pub jobs: u64,
    /// When the head deletes the first of them.
    pub kept_until: WallTime,
}

/// A job, in the answer of `GET /jobs`.
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
    /// Latest time at which the job should start, based on the time limits of running jobs. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start_at: Option<WallTime>,
    /// What the nodes do before the program runs and after it has ended, or why the job ended as it did. For an array: of
    /// one task, which the text names. Only the job's user and operators see details of an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A sentence about a silent node of the job: which node is silent, since when, and what happens next. Absent if
    /// all nodes of the job respond. While present, `state` is the last known state. It is unknown whether the
    /// job still runs, and tables show `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_problem: Option<String>,
    /// Number of times that the job was placed; for an array, the maximum over its tasks.
    pub attempt: Attempt,
    /// Nodes that run the job or ran it. For an array: the nodes of its live tasks.
    pub nodes: Vec<NodeName>,
    /// Exit code as a shell reports it; for an array, the maximum over its tasks.
    pub exit_code: Option<i32>,
    /// Command line. Only the job's user and operators see it, and in lists only if the request asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Partition of the job; absent if it may use all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionName>,
    /// Number of nodes that each task uses at the same time.
    #[serde(default = "one")]
    pub node_count: u32,
    /// CPUs that each task uses on each of its nodes.
    pub cpus: u32,
    /// Memory that each task uses on each of its nodes, in bytes.
    pub memory_bytes: u64,
    /// GPUs that each task uses on each of its nodes.
    #[serde(default)]
    pub gpus: u32,
    /// Counted resources that each task uses on each of its nodes.
    #[serde(default)]
    pub counted: Counted,
    /// Time limit of each task in milliseconds; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// The array, as submitted; absent if the job is not an array.
    pub array: Option<ArraySpec>,
    /// Labels of the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Number of tasks in each state.
    pub tasks: TaskCounts,
    /// Time of submission.
    pub submitted_at: WallTime,
    /// Time at which the first task started.
    pub started_at: Option<WallTime>,
    /// Time at which the job ended.
    pub ended_at: Option<WallTime>,
    /// Priority of the job. Jobs with a higher priority start first.
    #[serde(default)]
    pub priority: i32,
}

impl JobSummary {
    /// Resources per task and node.
    #[must_use]
    pub fn request(&self) -> Request {
        let Self { cpus, memory_bytes, gpus, .. } = *self;
        Request { cpus, memory_bytes, gpus, counted: self.counted.clone() }
    }

    /// The state as tables show it: `unknown` while a node of the job is silent. An array keeps its state, because its tasks
    /// may be on other nodes.
    #[must_use]
    pub const fn shown_state(&self) -> &'static str {
        match self.node_problem {
            Some(_) if self.array.is_none() && !self.state.is_ended() => "unknown",
            _ => self.state.as_str(),
        }
    }
}

const fn one() -> u32 {
    1
}

/// Answer of `GET /jobs/{id}`: details of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    /// The fields that the list of jobs also has.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// Whether the job runs again if its node is lost.
    pub requeue: bool,
    /// Node features that the job requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// Jobs that this job waits or waited for.
    pub after: Vec<Dependency>,
    /// Notifications about the job's events; empty unless the job's user or an operator makes the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Subscription>,
    /// Command line of the job; empty unless the job's user or an operator makes the request.
    pub command: String,
    /// Hash of the captured folder.
    pub snapshot: Option<Digest>,
    /// Working directory of a command; absent for a captured folder. Only the job's user and operators see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Number of processes of each task on each of its nodes.
    #[serde(default = "one")]
    pub tasks_per_node: u32,
    /// What surrounds each task. Only the job's user and operators see the image, the container and the submit line.
    #[serde(flatten)]
    pub surroundings: Surroundings,
    /// What a placed task of an exclusive job has on its first node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Request>,
    /// Whether the job is an allocation without a program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allocation: bool,
    /// Where the nodes of an allocation without a program accept steps, by rank; empty until they do. Only the job's user
    /// and operators see them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub step_hosts: Vec<StepHostView>,
    /// Whether the job's tasks have a terminal to attach to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminal: bool,
    /// Whether the command is a script that was given by its content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub script: bool,
    /// Files on the job's nodes, instead of kept output. Only the job's user and operators see them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// The job's limits, and whether the kernel enforces each.
    pub limits: Vec<LimitView>,
    /// Energy that the job used on its nodes, including requeued runs. Absent if none of the nodes has an energy meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<JobEnergy>,
    /// Number of tasks with results that were not fetched; 0 for users who may not fetch the results.
    pub unfetched: u64,
    /// When the head deletes the ended job; absent if its files wait until they are fetched or the disk needs their space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<WallTime>,
    /// All live tasks, and ended tasks up to the number in the query parameter `tasks`. With `from`, only ended tasks
    /// from that index on; with `index`, only that task.
    pub tasks_shown: Vec<TaskView>,
    /// Value of the query parameter `from` for the next ended tasks; absent if there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_next: Option<u32>,
    /// Indices of the tasks in each state, e.g. `3,17-20`, if the request asks for them. Absent if they have more than 100000
    /// ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub indices: Option<BTreeMap<JobState, IndexSet>>,
}

impl JobDetail {
    /// Resources per task and node: what an exclusive job has, once it is placed, else the request.
    #[must_use]
    pub fn on_each_node(&self) -> Request {
        self.held.clone().unwrap_or_else(|| self.summary.request())
    }
}

/// Where a node accepts steps of a job, in [`JobDetail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StepHostView {
    /// Name of the node.
    pub node: NodeName,
    /// Address of the node; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Port at this address.
    pub port: u16,
    /// Fingerprint of the node's certificate for this job.
    pub certificate: Digest,
}

/// A limit on a job, in [`JobDetail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitView {
    /// `cpus`, `memory`, `gpus`, `time`, or the name of a counted resource.
    pub name: String,
    /// The limit: a count, bytes or milliseconds, depending on `name`.
    pub value: u64,
    /// `enforced` or `advisory`; `unknown` for a job that was never placed on a node.
    pub enforcement: String,
    /// Why the limit is advisory. For enforced CPUs: who else uses them. Absent otherwise.
    pub why: Option<String>,
}

/// A task of a job, in [`JobDetail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// Index of the task.
    pub index: u32,
    /// State of the task.
    pub state: JobState,
    /// Number of the attempt.
    pub attempt: Attempt,
    /// Node that runs or ran the task; for a task on several nodes, see `parts`.
    pub node: Option<NodeName>,
    /// GPUs of the task while it holds them; for a task on several nodes, see `parts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_ids: Vec<GpuId>,
    /// Exit code of the task as a shell reports it.
    pub exit_code: Option<i32>,
    /// Details for people: what the nodes do before the program runs and after it has ended, or why the task could not
    /// start.
    pub message: Option<String>,
    /// Time at which the process started.
    pub started_at: Option<WallTime>,
    /// Time at which the task ended.
    pub ended_at: Option<WallTime>,
    /// When the last attempt reached each stage.
    #[serde(default)]
    pub stages: Stages,
    /// Hash of the result manifest.
    pub result: Option<Digest>,
    /// Whether the result was fetched.
    pub fetched: bool,
    /// Resource usage of the task on all of its nodes.
    pub usage: Option<Usage>,
    /// The steps of the last attempt, after its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    /// How quiet the node was while the task ran; only for exclusive jobs. For a task on several nodes, see `parts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Box<Certificate>>,
    /// Parts of a task on several nodes, by rank; empty for a task on one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartView>,
}

/// The part on one node of a task on several nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartView {
    /// Name of the node.
    pub node: NodeName,
    /// State of this part: `starting` until all nodes are ready.
    pub state: JobState,
    /// GPUs of this part, while it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_ids: Vec<GpuId>,
    /// Exit code of this part as a shell reports it.
    pub exit_code: Option<i32>,
    /// Details for people, such as why the part could not start.
    pub message: Option<String>,
    /// Hash of the result manifest.
    pub result: Option<Digest>,
    /// Resource usage of this part.
    pub usage: Option<Usage>,
    /// How quiet the node was while this part ran; only for exclusive jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Box<Certificate>>,
}

/// Answer of `GET /jobs/{id}/why`: why a job waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Job id.
    pub id: JobId,
    /// State of the job.
    pub state: JobState,
    /// Why the job waits; absent if it does not wait.
    pub reason: Option<Reason>,
    /// The reason as sentences; the first one is the short answer.
    pub lines: Vec<String>,
    /// Latest time at which the job should start, based on the time limits of running jobs.
    pub expected_start_at: Option<WallTime>,
}

/// An action on a job, in `POST /jobs/{id}/{action}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// End the job, whose state becomes `cancelled`.
    Cancel,
    /// Keep waiting tasks from starting.
    Hold,
    /// Like `Hold`, but the job's owner may release what an operator holds. In API paths, this is `hold` with the query
    /// parameter `owner=true`.
    HoldForOwner,
    /// Let a held job start.
    Release,
    /// Run the job again from the start: its running tasks, which are ended first, and its ended tasks. Completed tasks
    /// keep their results and do not run again.
    Requeue,
    /// Like `Requeue`, but completed tasks also run again, and their results are deleted. In API paths, this is
    /// `requeue` with the query parameter `completed=true`.
    RequeueAll,
    /// Like `Requeue`, or like `RequeueAll` if `completed` is set; the tasks are held. In API paths, this is `requeue` with
    /// the query parameter `hold=true`.
    RequeueHeld {
        /// Whether completed tasks also run again.
        completed: bool,
    },
    /// Queue a job again that was cancelled because of its dependencies. Refused if one of them can never be satisfied. In
    /// API paths, this is `requeue` with the query parameter `dependent=true`.
    RequeueDependent,
}

impl JobAction {
    /// Name of the action in API paths.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Hold | Self::HoldForOwner => "hold",
            Self::Release => "release",
            Self::Requeue | Self::RequeueAll | Self::RequeueHeld { .. } | Self::RequeueDependent => "requeue",
        }
    }
}

/// A server-sent event of `GET /events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Notice {
    /// The state of a job changed.
    Job {
        /// Job id.
        id: JobId,
        /// New state.
        state: JobState,
    },
    /// The state of a node changed.
    Node {
        /// Name of the node.
        name: NodeName,
        /// Whether the node can get tasks.
        state: NodeState,
    },
    /// The reader was too slow and missed events. The reader should query the current state.
    Missed,
}

/// Request body of `POST /agent/join`: an agent proves that it was invited and requests a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinRequest {
    /// One-time secret of the join code.
    pub secret: String,
    /// Requested node name; absent for the name in the join code.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// Host name of the machine, which becomes the node's name if neither this request nor the join code contains a
    /// name.
    #[serde(default)]
    pub machine: Option<NodeName>,
    /// Certificate signing request, PEM-encoded.
    pub csr: String,
    /// The machine's present node name, if it has tasks; absent if it may take another name nevertheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_as: Option<NodeName>,
}

/// Request body of `POST /agent/renew`: an agent requests a certificate for a new key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewRequest {
    /// Certificate signing request, PEM-encoded.
    pub csr: String,
}

/// The answer to [`JoinRequest`] and [`RenewRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Joined {
    /// Certificate of the agent, PEM-encoded.
    pub certificate: String,
    /// Certificate of the cluster's authority, PEM-encoded.
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

//! REST + JSON between clients and the head, under `/api/v1`. The committed OpenAPI file describes the routes.
//!
//! Times are milliseconds since the Unix epoch, sizes are bytes; both say so in their names. A client ignores fields it does not
//! know. Errors are [`ErrorBody`] with a fitting HTTP status.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{
    Advisory, ArraySpec, Attempt, Constraint, Counted, Dependency, Digest, Feature, GpuId, JobId, JobSpec, JobState,
    NodeName, NodeState, PartitionName, Reason, TaskId, Vendor, WallTime,
};
use serde::{Deserialize, Serialize};

use crate::link::Usage;
use crate::power::{JobEnergy, PowerView};

/// Where the API lives.
pub const BASE: &str = "/api/v1";

/// The version of this API: the head accepts clients of the same one and says so otherwise.
pub const API_VERSION: u32 = 1;

/// The header in which a client says [`API_VERSION`].
pub const VERSION_HEADER: &str = "hostler-api";

/// `POST /jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitRequest {
    /// Made by the client, unique for each intended submission: a retry with the same key gets the same job.
    pub key: String,
    /// What to run.
    pub spec: JobSpec,
    /// What of `spec` nobody has said: the head puts what its operators have set in the place of what stands there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsaid: Vec<Unsaid>,
}

/// A field of a [`JobSpec`] or its request that its user has not said, in [`SubmitRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsaid {
    /// On how many nodes each task runs.
    Nodes,
    /// How many processes it has on each.
    TasksPerNode,
    /// CPUs on each node.
    Cpus,
    /// Memory on each node.
    MemoryBytes,
    /// The time limit.
    TimeLimitMs,
}

impl SubmitRequest {
    /// A submission of which all was said.
    #[must_use]
    pub const fn new(key: String, spec: JobSpec) -> Self {
        Self { key, spec, unsaid: Vec::new() }
    }
}

/// The answer to [`SubmitRequest`]: the job is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// The job.
    pub id: JobId,
    /// Whether this key had been accepted before.
    pub duplicate: bool,
}

/// An error as people read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// A stable word for programs, such as `no_such_job`.
    pub code: String,
    /// What happened and why.
    pub message: String,
    /// What to do, a line each.
    #[serde(default)]
    pub hints: Vec<String>,
}

/// `GET /info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The head.
    pub head: HeadInfo,
    /// How many nodes are in each state.
    pub nodes: NodeCounts,
    /// How many tasks are in each live state.
    pub tasks: LiveCounts,
    /// CPUs of all nodes that are up, and how many are free.
    pub cpus: Amount,
    /// Memory of all nodes that are up, and how much is free, in bytes.
    pub memory_bytes: Amount,
    /// GPUs of all nodes that are up, and how many are free.
    #[serde(default)]
    pub gpus: Amount,
    /// What the configurations of the nodes that are up count, together.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
    /// What no job holds of that.
    #[serde(default)]
    pub counted_free: BTreeMap<String, u64>,
}

/// The head process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadInfo {
    /// Its process id.
    pub pid: u32,
    /// Its release.
    pub version: String,
    /// Its [`API_VERSION`].
    pub api: u32,
    /// How often a head has started on this store.
    pub epoch: u64,
    /// Whether it is part of an embedded cluster (`hostler up`).
    pub embedded: bool,
    /// Where agents connect.
    pub address: String,
    /// The fingerprint of the cluster's authority.
    #[serde(default)]
    pub authority: Option<Digest>,
    /// Its state directory.
    pub directory: String,
    /// Why submissions are refused at the moment, if they are.
    pub refusing: Option<String>,
    /// What results took when that was last measured, in bytes.
    #[serde(default)]
    pub results_bytes: Option<u64>,
    /// What they may take, in bytes: above it, results that have been fetched are dropped before their retention ends.
    #[serde(default)]
    pub results_cap_bytes: u64,
    /// What the head's user should know, if anything.
    #[serde(default)]
    pub warning: Option<String>,
    /// The machine it runs on. It runs no jobs there.
    #[serde(default)]
    pub machine: Option<HeadMachine>,
}

/// The machine of the head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadMachine {
    /// Its host name.
    pub name: String,
    /// CPUs that the head may use.
    pub cpus: u32,
    /// Memory that it may use, in bytes.
    pub memory_bytes: u64,
}

/// Nodes by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// Connected.
    pub up: u32,
    /// Silent for a short while.
    pub suspect: u32,
    /// Given up.
    pub down: u32,
    /// Drained by an operator, with tasks that still run.
    #[serde(default)]
    pub draining: u32,
    /// Drained by an operator.
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

/// Live tasks by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveCounts {
    /// Waiting.
    pub pending: u64,
    /// Placed, not yet running.
    pub starting: u64,
    /// Running.
    pub running: u64,
    /// Sending results.
    pub completing: u64,
}

/// A total and what is free of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// All.
    pub total: u64,
    /// What no job holds.
    pub free: u64,
}

/// One node, in `GET /nodes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// Whether it can be given work.
    pub state: NodeState,
    /// Whether it is powered: one of [`hostler_model::PowerState`] where the head can switch it; else `on`, or `unknown` while its agent is
    /// not connected.
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
    /// What its configuration counts.
    #[serde(default)]
    pub counted: Counted,
    /// What no job holds of that.
    #[serde(default)]
    pub counted_free: Counted,
    /// Tasks it holds.
    pub tasks: u32,
    /// The agent's process id, 0 before it ever connected.
    pub agent_pid: u32,
    /// The agent's release.
    pub version: String,
    /// What its kernel does not hold jobs to, and why.
    #[serde(default)]
    pub advisory: Advisory,
    /// Why it is drained and by whom, in a few words, if it is.
    #[serde(default)]
    pub reason: Option<String>,
    /// The partitions that it is in.
    #[serde(default)]
    pub partitions: Vec<PartitionName>,
    /// What it has that others may not have, as its agent and operators say.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// Nodes with a lower weight are used first.
    #[serde(default)]
    pub weight: u32,
}

/// `GET /nodes/{name}`: all about one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDetail {
    /// As in the list.
    #[serde(flatten)]
    pub node: NodeView,
    /// Who drained it, when and why, if it is drained or being drained.
    pub drain: Option<DrainView>,
    /// How long ago its agent was last heard, in milliseconds; 0 while it is connected.
    pub silent_ms: u64,
    /// The CPUs it gives, as the node numbers them, such as `0-3,8`.
    pub cpu_ids: String,
    /// The GPUs it gives.
    #[serde(default)]
    pub gpu_list: Vec<GpuView>,
    /// The tasks it holds.
    pub runs: Vec<NodeRunView>,
    /// Its certificate; absent when it joined with an older release and has not connected since.
    pub certificate: Option<CertificateView>,
    /// Its power, if the head can switch it.
    #[serde(default)]
    pub power_detail: Option<PowerView>,
}

/// A drain, in [`NodeDetail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainView {
    /// Who wanted it.
    pub by: String,
    /// Why, in their words.
    pub reason: Option<String>,
    /// When, milliseconds since the Unix epoch.
    pub at: WallTime,
}

/// A task on a node, in [`NodeDetail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRunView {
    /// The job.
    pub job: JobId,
    /// The task's index, 0 for a job that is no array.
    pub index: u32,
    /// The CPUs it holds, as the node numbers them.
    pub cpu_ids: String,
    /// The memory it holds, in bytes.
    pub memory_bytes: u64,
    /// The GPUs it holds.
    #[serde(default)]
    pub gpu_ids: Vec<GpuId>,
    /// What it holds of what the node's configuration counts.
    #[serde(default)]
    pub counted: Counted,
}

/// A GPU of a node, in [`NodeDetail`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuView {
    /// The name that stays with it, and by which jobs hold it.
    pub id: GpuId,
    /// `nvidia`, `amd` or `intel`; absent when nothing is known of it.
    pub vendor: Option<Vendor>,
    /// The model.
    pub name: String,
    /// Memory of its own, in bytes, as far as known.
    pub memory_bytes: Option<u64>,
    /// The NUMA node that it is attached to, as far as known.
    pub numa: Option<u32>,
    /// The task that holds it; absent while it is free.
    pub held_by: Option<TaskId>,
}

/// A node's certificate, in [`NodeDetail`]. All times are on the cluster's clock, which stands still while no head runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateView {
    /// How long ago it was issued, in milliseconds.
    pub age_ms: u64,
    /// How long it is good for in all, in milliseconds.
    pub life_ms: u64,
    /// Whether a newer one was issued and has not been used yet.
    pub is_being_renewed: bool,
}

/// `POST /nodes/invite`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// The node's name; absent for any name that is new.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// Where the node is to find the head, `HOST:PORT`; absent for where the head says that it is.
    #[serde(default)]
    pub address: Option<String>,
}

/// `POST /nodes/{name}/drain`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRequest {
    /// Why, for whoever looks at the node; at most 500 bytes, one line.
    #[serde(default)]
    pub reason: Option<String>,
}

/// A page of `GET /jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPage {
    /// Newest first.
    pub jobs: Vec<JobSummary>,
    /// How many match in all.
    pub total: u64,
    /// Pass as `before` for the next page.
    pub next: Option<JobId>,
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// Its id.
    pub id: JobId,
    /// Its name.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// Where it stands.
    pub state: JobState,
    /// Why it waits, as a sentence.
    pub reason: Option<String>,
    /// Which of its nodes is silent, since when and what will happen, as a sentence; absent when all of them are heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_problem: Option<String>,
    /// How many times it has been placed; the highest of its tasks.
    pub attempt: Attempt,
    /// Where it runs or ran; for an array the nodes of the tasks that are live.
    pub nodes: Vec<NodeName>,
    /// What the shell would show: for an array the highest of its tasks.
    pub exit_code: Option<i32>,
    /// What it runs, as a command line, for its user and operators; in lists only when that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its partition; none when it may use all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionName>,
    /// On how many nodes a task runs, all at once.
    #[serde(default = "one")]
    pub node_count: u32,
    /// CPUs a task, on each of its nodes.
    pub cpus: u32,
    /// Memory a task, on each of its nodes, in bytes.
    pub memory_bytes: u64,
    /// GPUs a task, on each of its nodes.
    #[serde(default)]
    pub gpus: u32,
    /// What a task holds of what configurations count, on each of its nodes.
    #[serde(default)]
    pub counted: Counted,
    /// The array, as it was asked for.
    pub array: Option<ArraySpec>,
    /// Tasks by state.
    pub tasks: TaskCounts,
    /// When it was submitted.
    pub submitted_at: WallTime,
    /// When its first task started.
    pub started_at: Option<WallTime>,
    /// When it ended.
    pub ended_at: Option<WallTime>,
}

const fn one() -> u32 {
    1
}

/// Tasks of a job by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// All.
    pub total: u64,
    /// Waiting.
    pub pending: u64,
    /// Placed, running or sending results.
    pub live: u64,
    /// Ended with exit code 0.
    pub completed: u64,
    /// Ended in any other way than completed or cancelled.
    pub failed: u64,
    /// Cancelled, before or after they started.
    #[serde(default)]
    pub cancelled: u64,
}

/// `GET /jobs/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDetail {
    /// What the list shows.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// Higher goes first.
    pub priority: i32,
    /// Run again when its node is lost.
    pub requeue: bool,
    /// What its nodes must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// What it waits or waited for.
    pub after: Vec<Dependency>,
    /// What it runs, as a command line; empty for others than its user and operators.
    pub command: String,
    /// The captured folder.
    pub snapshot: Option<Digest>,
    /// Each limit and whether the kernel enforces it.
    pub limits: Vec<LimitView>,
    /// What its nodes have drawn for it, runs that were requeued included; absent when none of them has a meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<JobEnergy>,
    /// Tasks whose results have not been fetched.
    pub unfetched: u64,
    /// Its tasks: all that are live, and those that ended, up to the `tasks` limit of the request. With `from`, only those that ended,
    /// from that index on. With `index`, that task alone.
    pub tasks_shown: Vec<TaskView>,
    /// Pass as `from` for the next tasks that have ended; absent when there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_next: Option<u32>,
}

/// A limit on a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitView {
    /// `cpus`, `memory`, `gpus`, `time`, or the name of what a configuration counts.
    pub name: String,
    /// Its value: a count, bytes or milliseconds.
    pub value: u64,
    /// `enforced` or `advisory`; `unknown` for a job that no node has had yet.
    pub enforcement: String,
    /// Why it is advisory.
    pub why: Option<String>,
}

/// One task of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// Its index.
    pub index: u32,
    /// Where it stands.
    pub state: JobState,
    /// Which placement.
    pub attempt: Attempt,
    /// Where.
    pub node: Option<NodeName>,
    /// The GPUs that it holds there, while it does; for a task on several nodes they are in `parts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_ids: Vec<GpuId>,
    /// What the shell would show.
    pub exit_code: Option<i32>,
    /// What a person should know beyond the state.
    pub message: Option<String>,
    /// When its process started.
    pub started_at: Option<WallTime>,
    /// When it ended.
    pub ended_at: Option<WallTime>,
    /// The hash of its result manifest.
    pub result: Option<Digest>,
    /// Whether its result has been fetched.
    pub fetched: bool,
    /// What it used, on all of its nodes together.
    pub usage: Option<Usage>,
    /// What it has on each of its nodes, in the order of their ranks; empty for a task on one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartView>,
}

/// What a task on several nodes has on one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartView {
    /// Where.
    pub node: NodeName,
    /// Where it stands there. `starting` until every node is ready.
    pub state: JobState,
    /// The GPUs that it holds there, while it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_ids: Vec<GpuId>,
    /// What the shell would show.
    pub exit_code: Option<i32>,
    /// What a person should know beyond the state.
    pub message: Option<String>,
    /// The hash of its result manifest.
    pub result: Option<Digest>,
    /// What it used.
    pub usage: Option<Usage>,
}

/// `GET /jobs/{id}/why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The job.
    pub id: JobId,
    /// Where it stands.
    pub state: JobState,
    /// Why it waits; absent when it does not.
    pub reason: Option<Reason>,
    /// The same as sentences, the first one being the answer.
    pub lines: Vec<String>,
    /// When it should start at the latest, judged by the time limits of what runs.
    pub expected_start_at: Option<WallTime>,
}

/// What a job may be told to do, in `POST /jobs/{id}/{action}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// End it; its state will be `cancelled`.
    Cancel,
    /// Do not start what has not started.
    Hold,
    /// Undo a hold.
    Release,
    /// Run it again from the start: what runs is ended first, what has ended runs again.
    Requeue,
}

impl JobAction {
    /// The word for it in paths.
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

/// `POST /blobs/missing`: hashes in, those the head lacks out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestList {
    /// Content hashes.
    pub digests: Vec<Digest>,
}

/// `POST /blobs/fetch`: which blobs, and in which results they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRequest {
    /// Content hashes.
    pub digests: Vec<Digest>,
    /// The tasks whose results name them. Users who are no operators get nothing else: to know a hash is not to own the content.
    #[serde(default)]
    pub results: Vec<TaskId>,
}

/// `POST /jobs/{id}/fetched`: results that are safely at the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// Task indices.
    pub indices: hostler_model::IndexSet,
}

/// `GET /results`: what has ended and can be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultPage {
    /// In order of job and index.
    pub results: Vec<ResultView>,
    /// There may be more: what to ask for next with `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<JobId>,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultView {
    /// The job.
    pub job: JobId,
    /// The job's name.
    pub name: String,
    /// The task's index; absent when the job is no array.
    pub index: Option<u32>,
    /// The rank of the node that it is from, for a job on several nodes. Rank 0 is listed last: who has that has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_rank: Option<u32>,
    /// How it ended.
    pub state: JobState,
    /// The hash of its result manifest.
    pub manifest: Digest,
    /// Whether it has been fetched before.
    pub fetched: bool,
}

/// A server-sent event of `GET /events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Notice {
    /// A job changed.
    Job {
        /// The job.
        id: JobId,
        /// Where it stands now.
        state: JobState,
    },
    /// A node changed.
    Node {
        /// The node.
        name: NodeName,
        /// Whether it can be given work.
        state: NodeState,
    },
    /// The reader was too slow and missed some; it should ask for what it wants to know.
    Missed,
}

/// `POST /agent/join`: an agent proves that it was invited and asks for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The one-time secret of the join code.
    pub secret: String,
    /// The name that the node should have; absent for the one that the code was made for.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// The machine's own name, which a node gets when neither this request nor the code names one.
    #[serde(default)]
    pub machine: Option<NodeName>,
    /// A certificate signing request, PEM.
    pub csr: String,
}

/// `POST /agent/renew`: an agent asks for a certificate for a new key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// A certificate signing request, PEM.
    pub csr: String,
}

/// The answer to [`JoinRequest`] and [`RenewRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The agent's certificate, PEM.
    pub certificate: String,
    /// The cluster's authority, PEM.
    pub authority: String,
    /// The node's name, as the certificate has it.
    pub node: NodeName,
    /// In how long the agent should ask for the next certificate, in milliseconds.
    pub renew_in_ms: u64,
}

/// The answer to [`Invite`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// A join code for one node: address, fingerprint of the cluster's authority and a one-time secret.
    pub code: String,
}

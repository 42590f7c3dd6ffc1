//! Nodes, as the API shows them; part of [`crate::api`].

use std::collections::BTreeSet;
use std::net::IpAddr;

use hostler_model::{
    Advisory, Counted, Feature, GpuId, JobId, JobState, NodeName, NodeState, Offer, PartitionName, TaskId, Vendor,
    WallTime,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::power::{PowerChange, PowerView};
use crate::usage::Reading;

/// One node, in `GET /nodes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Name of the node.
    pub name: NodeName,
    /// Whether the node can get tasks.
    pub state: NodeState,
    /// Power state: a [`hostler_model::PowerState`] if the head can switch the node on and off. Otherwise `on`, or
    /// `unknown` while the agent is not connected.
    pub power: String,
    /// CPUs of the node that jobs may use.
    pub cpus: u32,
    /// CPUs that no job holds.
    pub cpus_free: u32,
    /// Memory of the node that jobs may use, in bytes.
    pub memory_bytes: u64,
    /// Memory that no job holds, in bytes.
    pub memory_free_bytes: u64,
    /// Number of GPUs that jobs may use.
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
    /// Number of tasks that hold resources on the node.
    pub tasks: u32,
    /// Address at which other nodes reach the node; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Process id of the agent; 0 before its first connection.
    pub agent_pid: u32,
    /// Release of the agent.
    pub version: String,
    /// Limits that the node's kernel does not enforce, and why.
    #[serde(default)]
    pub advisory: Advisory,
    /// Whether another node of the same machine offers some of the same CPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_cpus: bool,
    /// Who drained the node and why; absent unless the node is drained.
    #[serde(default)]
    pub reason: Option<String>,
    /// Partitions that contain the node.
    #[serde(default)]
    pub partitions: Vec<PartitionName>,
    /// Features that the agent reports or operators have set.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// Weight of the node. Jobs use nodes with a lower weight first.
    #[serde(default)]
    pub weight: u32,
    /// Time at which the node's state began, on the head's clock. For a silent node: time of its last message. For an
    /// up node: when its agent connected. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// Why the node gets no work, as a sentence fragment for people; absent while the node is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Waiting job that keeps the node: other jobs start there only if they cannot delay it. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_for: Option<JobId>,
    /// Tasks that hold resources on the node. In lists only if the request asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<Vec<NodeRunView>>,
    /// Means of the last minute that the agent reported. Absent if no report arrived in the last five minutes. In lists
    /// only if the request asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Reading>,
}

/// Answer of `GET /nodes/{name}`: details of one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    /// The same fields as in the list of nodes.
    #[serde(flatten)]
    pub node: NodeView,
    /// The drain, if the node is draining or drained.
    pub drain: Option<DrainView>,
    /// Time since the agent's last message, in milliseconds; 0 while the agent is connected.
    pub silent_ms: u64,
    /// Ids of the CPUs that jobs may use, as the node numbers them, e.g. `0-3,8`.
    pub cpu_ids: String,
    /// The GPUs that jobs may use.
    #[serde(default)]
    pub gpu_list: Vec<GpuView>,
    /// Features that operators have set.
    #[serde(default)]
    pub assigned_features: BTreeSet<Feature>,
    /// The most that the node offers to jobs, as operators have set it.
    #[serde(default, skip_serializing_if = "Offer::is_all")]
    pub offer: Offer,
    /// Tasks that hold resources on the node.
    pub runs: Vec<NodeRunView>,
    /// Certificate of the node. Absent if the node joined with an older release and has not connected since.
    pub certificate: Option<CertificateView>,
    /// Power state; absent unless the head can switch the node on and off.
    #[serde(default)]
    pub power_detail: Option<PowerView>,
    /// The latest 32 changes of the power state, oldest first.
    #[serde(default)]
    pub power_history: Vec<PowerChange>,
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
    /// Name of the job.
    pub name: String,
    /// User who submitted the job.
    pub user: String,
    /// State of the task.
    pub state: JobState,
    /// Time at which the task started.
    pub started_at: Option<WallTime>,
    /// Number of the task's CPUs.
    pub cpus: u32,
    /// Ids of the task's CPUs, as the node numbers them.
    pub cpu_ids: String,
    /// Memory of the task, in bytes.
    pub memory_bytes: u64,
    /// GPUs of the task.
    #[serde(default)]
    pub gpu_ids: Vec<GpuId>,
    /// Amounts of counted resources that the task holds.
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
    /// Memory of the GPU itself in bytes, if known.
    pub memory_bytes: Option<u64>,
    /// NUMA node of the GPU, if known.
    pub numa: Option<u32>,
    /// Task that holds the GPU; absent while it is free.
    pub held_by: Option<TaskId>,
}

/// A node's certificate, in [`NodeDetail`]. Times are on the cluster's clock, which stops while no head runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateView {
    /// Time since the certificate was issued, in milliseconds.
    pub age_ms: u64,
    /// Total validity, in milliseconds.
    pub life_ms: u64,
    /// Whether a newer certificate was issued but is not in use yet.
    pub is_being_renewed: bool,
}

//! Partitions and node settings, as the API shows and accepts them (part of [`crate::api`]).

use std::collections::BTreeSet;

use hostler_model::{
    ExclusiveRule, Feature, NodePatterns, PartitionName, PartitionState, SandboxNetwork, SandboxRule, UserName,
    WallTime,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::{AllOfBuilder, ObjectBuilder, Ref, Schema};

use crate::task_counts::Pace;

/// The largest number of partitions of a cluster.
pub const MAX_PARTITIONS: usize = 1_000;

/// A partition, in the answer of `GET /partitions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartitionView {
    /// Name of the partition.
    pub name: PartitionName,
    /// Name patterns of the nodes, such as `n[1-8]`.
    pub nodes: NodePatterns,
    /// Whether the partition is the default, i.e. gets the jobs that name no partition.
    pub is_default: bool,
    /// Whether the partition accepts and starts jobs.
    pub state: PartitionState,
    /// Priority of the partition. Jobs in the partition with the higher number start first, whatever their own
    /// priority.
    pub priority: i32,
    /// Time limit of jobs that set no time limit, in milliseconds.
    pub default_time_ms: Option<u64>,
    /// Maximum time limit of a job, in milliseconds.
    pub max_time_ms: Option<u64>,
    /// Maximum number of nodes per task.
    pub max_nodes: Option<u32>,
    /// Users who may use the partition. If `users` and `groups` are both empty, everybody may.
    pub users: BTreeSet<UserName>,
    /// Groups whose users may use the partition.
    pub groups: BTreeSet<UserName>,
    /// Whether the partition's jobs run in a sandbox.
    pub sandbox: SandboxRule,
    /// The most network that the partition's jobs may have, if all of them run in a sandbox.
    #[serde(default)]
    pub sandbox_network: SandboxNetwork,
    /// Whether the partition's jobs have their nodes to themselves.
    #[serde(default)]
    pub exclusive: ExclusiveRule,
    /// When the join code for the partition's nodes becomes invalid; absent without such a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_code_until: Option<WallTime>,
    /// How fast the partition's tasks end at present; absent if none has ended for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Number of nodes in the partition.
    pub node_count: u32,
    /// Number of the partition's nodes that are up.
    pub nodes_up: u32,
    /// CPUs of the nodes that are up.
    pub cpus: u64,
    /// CPUs of the nodes that are up and that no job holds.
    pub cpus_free: u64,
    /// Number of waiting jobs.
    pub waiting: u64,
}

/// Request body of `POST /partitions/{name}`: changes a partition. Absent fields keep their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PartitionChange {
    /// Name patterns of the nodes, such as `n[1-8]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodePatterns>,
    /// Whether the partition is the default, i.e. gets the jobs that name no partition. At most one partition is the
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_default: Option<bool>,
    /// Whether the partition accepts and starts jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PartitionState>,
    /// Priority of the partition. Jobs in the partition with the higher number start first, whatever their own
    /// priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Time limit of jobs that set no time limit, in milliseconds; zero for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_time_ms: Option<u64>,
    /// Maximum time limit of a job, in milliseconds; zero for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_ms: Option<u64>,
    /// Maximum number of nodes per task; zero for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    /// Users who may use the partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<BTreeSet<UserName>>,
    /// Groups whose users may use the partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<BTreeSet<UserName>>,
    /// Whether the partition's jobs run in a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxRule>,
    /// The most network that the partition's jobs may have, if all of them run in a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_network: Option<SandboxNetwork>,
    /// Whether the partition's jobs have their nodes to themselves.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "rule_by_word")]
    pub exclusive: Option<ExclusiveRule>,
    /// Whether to end the join code for the partition's nodes, if there is one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ends_join_code: bool,
}

/// Request body of `POST /partitions/{name}/invite`: creates the join code for the nodes of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvitePartition {
    /// How long the code is valid, in milliseconds; absent for seven days.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 31_622_400_000_u64)]
    pub valid_ms: Option<u64>,
    /// Address at which the nodes reach the head, `HOST:PORT`; absent for the head's configured address.
    #[serde(default)]
    #[schema(
        format = "address",
        pattern = r"^([A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62}){0,2}|\[[0-9a-fA-F:.]{2,45}\])(:[1-9][0-9]{0,3})?$"
    )]
    pub address: Option<String>,
}

/// Reads a rule by its word only. Records may also have truth values.
fn rule_by_word<'de, D: Deserializer<'de>>(value: D) -> Result<Option<ExclusiveRule>, D::Error> {
    let Some(word) = Option::<String>::deserialize(value)? else { return Ok(None) };
    let rule = ExclusiveRule::ALL.into_iter().find(|rule| rule.as_str() == word);
    rule.map(Some).ok_or_else(|| D::Error::custom("`exclusive` must be optional, always or never"))
}

/// Returns the schema of [`PartitionChange`] with the field `nodes` required.
fn change_with_nodes() -> Schema {
    let change = Ref::from_schema_name("PartitionChange");
    AllOfBuilder::new().item(change).item(ObjectBuilder::new().required("nodes")).into()
}

/// Request body of `POST /partitions`: adds a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewPartition {
    /// Name of the partition.
    pub name: PartitionName,
    /// Properties of the partition; `nodes` is required.
    #[schema(schema_with = change_with_nodes)]
    pub about: PartitionChange,
}

/// Request body of `POST /nodes/{name}/traits`: changes a node. Absent fields keep their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TraitsChange {
    /// Weight of the node. Jobs use nodes with a lower weight first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// All features of the node that operators set. The list replaces the earlier list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub features: Option<BTreeSet<Feature>>,
}

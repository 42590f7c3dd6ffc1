//! Partitions and what is set about nodes, as the API shows and takes them: part of [`crate::api`].

use std::collections::BTreeSet;

use hostler_model::{Feature, NodePatterns, PartitionName, PartitionState, UserName};
use serde::{Deserialize, Serialize};

/// A partition, in `GET /partitions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionView {
    /// Its name.
    pub name: PartitionName,
    /// Which nodes are in it, by their names.
    pub nodes: NodePatterns,
    /// Whether jobs that name none go there.
    pub is_default: bool,
    /// What becomes of its jobs.
    pub state: PartitionState,
    /// Jobs of a partition with a higher one go first, whatever their own.
    pub priority: i32,
    /// The time limit of jobs that do not say one, in milliseconds.
    pub default_time_ms: Option<u64>,
    /// The longest time limit that a job may have, in milliseconds.
    pub max_time_ms: Option<u64>,
    /// The most nodes that a task may ask for.
    pub max_nodes: Option<u32>,
    /// Who may use it; with `groups` everybody if both are empty.
    pub users: BTreeSet<UserName>,
    /// Whose users may use it.
    pub groups: BTreeSet<UserName>,
    /// How many nodes of the cluster are in it.
    pub node_count: u32,
    /// How many of them are up.
    pub nodes_up: u32,
    /// CPUs of those that are up.
    pub cpus: u64,
    /// CPUs among these that nobody holds.
    pub cpus_free: u64,
    /// How many jobs wait in it.
    pub waiting: u64,
}

/// What is to be different about a partition: `POST /partitions/{name}`. What is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PartitionChange {
    /// Which nodes are in it, by their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodePatterns>,
    /// Whether jobs that name none go there. At most one partition is that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_default: Option<bool>,
    /// What becomes of its jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PartitionState>,
    /// Jobs of a partition with a higher one go first, whatever their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The time limit of jobs that do not say one, in milliseconds; zero for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_time_ms: Option<u64>,
    /// The longest time limit that a job may have, in milliseconds; zero for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_ms: Option<u64>,
    /// The most nodes that a task may ask for; zero for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    /// Who may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<BTreeSet<UserName>>,
    /// Whose users may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<BTreeSet<UserName>>,
}

/// A new partition: `POST /partitions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPartition {
    /// Its name.
    pub name: PartitionName,
    /// All about it; it needs nodes.
    pub about: PartitionChange,
}

/// What is to be different about a node: `POST /nodes/{name}/traits`. What is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraitsChange {
    /// Nodes with a lower weight are used first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// All that it has beyond what its agent says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<BTreeSet<Feature>>,
}

//! Partitions and node traits as the state holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_model::{
    Ability, Constraint, Digest, ExclusiveRule, Feature, JobSpec, NodeName, NodePatterns, Offer, PartitionName,
    PartitionState, SandboxNetwork, SandboxRule, UserName, WallTime,
};
use hostler_proto::partitions::PartitionChange;
use hostler_sched::NodeSet;
use serde::{Deserialize, Serialize};

use super::node::Node;

/// A part of the cluster with its own limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its name.
    pub name: PartitionName,
    /// Its nodes.
    pub nodes: NodePatterns,
    /// Whether it accepts and starts jobs.
    pub state: PartitionState,
    /// Jobs of a partition with a higher priority start first, regardless of their own priority.
    pub priority: i32,
    /// The time limit of jobs that do not set one, in milliseconds.
    pub default_time_ms: Option<u64>,
    /// The longest allowed time limit, in milliseconds.
    pub max_time_ms: Option<u64>,
    /// The most nodes that a task may request.
    pub max_nodes: Option<u32>,
    /// Users who may use it. Everyone may if this and [`Self::groups`] are empty.
    pub users: BTreeSet<UserName>,
    /// Groups whose users may use it.
    pub groups: BTreeSet<UserName>,
    /// Whether its jobs run in a sandbox.
    #[serde(default, skip_serializing_if = "SandboxRule::is_optional")]
    pub sandbox: SandboxRule,
    /// The most network that its jobs may have, if all of them run in a sandbox.
    #[serde(default, skip_serializing_if = "SandboxNetwork::is_none")]
    pub sandbox_network: SandboxNetwork,
    /// Whether its jobs have their nodes to themselves.
    #[serde(default, skip_serializing_if = "ExclusiveRule::is_optional")]
    pub exclusive: ExclusiveRule,
    /// The join code for its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_code: Option<PartitionCode>,
}

/// A code with which machines join that have the name of a node of the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionCode {
    /// The BLAKE3 hash of the code's secret.
    pub secret: Digest,
    /// When the code becomes invalid.
    pub until: WallTime,
}

/// Properties of a node that operators set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTraits {
    /// Nodes with a lower weight are used first.
    pub weight: u32,
    /// Features that operators add to those from the agent.
    pub features: BTreeSet<Feature>,
    /// The most that the node offers to jobs.
    #[serde(default, skip_serializing_if = "Offer::is_all")]
    pub offer: Offer,
}

/// All partitions and node traits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Partitions {
    pub(in crate::head) all: BTreeMap<PartitionName, Partition>,
    pub(in crate::head) default: Option<PartitionName>,
    pub(in crate::head) traits: BTreeMap<NodeName, NodeTraits>,
    /// A cache for jobs in the queue: the nodes that each may use. Jobs with the same restrictions share a set.
    #[serde(skip)]
    pub(in crate::head) sets: Sets,
    /// Whether nodes, partitions or features have changed since the sets were computed.
    #[serde(skip)]
    pub(in crate::head) is_stale: bool,
}

/// Node sets by owner, protections, partition and constraint. Nested maps allow lookups without copies.
pub(in crate::head) type Sets =
    BTreeMap<(Owner, Wanted), BTreeMap<Option<PartitionName>, BTreeMap<Option<Constraint>, Arc<NodeSet>>>>;

/// What a job wants of its nodes besides resources, as far as it restricts the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::head) struct Wanted {
    abilities: [bool; Ability::ALL.len()],
    exclusive: bool,
    /// The network of the sandbox.
    network: SandboxNetwork,
}

impl Wanted {
    pub(in crate::head) fn of(spec: &JobSpec) -> Self {
        let abilities = Ability::ALL.map(|ability| spec.needs(ability));
        Self { abilities, exclusive: spec.surroundings.exclusive, network: spec.surroundings.network }
    }
}

/// The kind of a job's owner, as far as it restricts the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::head) enum Owner {
    /// Any user except root.
    User,
    /// Root of the cluster's machines.
    Root,
    /// An account that exists on one node only, such as that node's root.
    ThroughNode,
}

impl Owner {
    /// Whether a node's agent runs jobs of this kind of owner.
    pub(in crate::head) const fn runs_on(self, node: &Node) -> bool {
        match self {
            Self::User => true,
            Self::Root => !node.facts.advisory.refuses_root,
            // A node that runs all jobs as one user needs no account for the owner.
            Self::ThroughNode => node.facts.advisory.users.is_some(),
        }
    }
}

/// An operator's change of partitions or traits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionsCommand {
    /// Add a partition.
    Add(PartitionName, PartitionChange),
    /// Change a partition.
    Change(PartitionName, PartitionChange),
    /// Remove a partition.
    Remove(PartitionName),
    /// Set the join code for the nodes of a partition, which replaces an earlier one.
    Invite(PartitionName, PartitionCode),
    /// Set traits of a node; absent traits stay as they are.
    SetTraits {
        /// The node.
        node: NodeName,
        /// Nodes with a lower weight are used first.
        weight: Option<u32>,
        /// All features that operators add to those from the agent.
        features: Option<BTreeSet<Feature>>,
    },
    /// Set the most that a node offers to jobs.
    SetOffer(NodeName, Offer),
}

/// A change of partitions or traits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionsEvent {
    /// A partition was added or changed.
    Put {
        /// The partition after the change.
        partition: Partition,
        /// Whether jobs that name no partition go there.
        is_default: bool,
    },
    /// A partition was removed.
    Removed(PartitionName),
    /// Traits of a node were set.
    Traits {
        /// The node.
        node: NodeName,
        /// All traits after the change.
        traits: NodeTraits,
    },
}

impl Partitions {
    /// The partitions by name.
    pub fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.all.values()
    }

    /// A partition by name.
    #[must_use]
    pub fn get(&self, name: &PartitionName) -> Option<&Partition> {
        self.all.get(name)
    }

    /// The partition of jobs that name none.
    #[must_use]
    pub const fn default(&self) -> Option<&PartitionName> {
        self.default.as_ref()
    }

    /// The traits that operators have set for a node.
    #[must_use]
    pub fn traits(&self, node: &NodeName) -> Option<&NodeTraits> {
        self.traits.get(node)
    }

    /// Whether a node has a feature: from its agent, from operators, or its name.
    pub(in crate::head) fn has(&self, node: &Node, feature: &Feature) -> bool {
        node.facts.features.contains(feature)
            || node.name.as_str() == feature.as_str()
            || self.traits.get(&node.name).is_some_and(|traits| traits.features.contains(feature))
    }

    /// Whether a job with this specification may use a node.
    pub(in crate::head) fn may_use(&self, owner: Owner, spec: &JobSpec, node: &Node) -> bool {
        spec.fits_abilities(&node.facts)
            && self.demanding_sandbox(spec, node).is_none()
            && self.sharing(spec, node).is_none()
            && self.would_use(owner, spec, node)
    }

    /// The partition that demands another sandbox of a job on this node than it has: the job's own partition, or any one of
    /// the node if the job names none.
    pub(in crate::head) fn demanding_sandbox(&self, spec: &JobSpec, node: &Node) -> Option<&Partition> {
        match &spec.partition {
            Some(name) => self.get(name).filter(|partition| partition.demands_another_sandbox(spec)),
            None => self
                .iter()
                .find(|partition| partition.demands_another_sandbox(spec) && partition.nodes.matches(&node.name)),
        }
    }

    /// The partition of a node where the job cannot have a node to itself, if the job names no partition.
    pub(in crate::head) fn sharing(&self, spec: &JobSpec, node: &Node) -> Option<&Partition> {
        let is_asked = spec.surroundings.exclusive && spec.partition.is_none();
        self.iter().filter(|_| is_asked).find(|it| it.demands_sharing() && it.nodes.matches(&node.name))
    }

    /// Gives a job a sandbox if its partition demands one, and if a sandbox can run the job, and a node to itself.
    pub(in crate::head) fn add_demands(&self, spec: &mut JobSpec) {
        let Some(partition) = spec.partition.as_ref().and_then(|name| self.get(name)) else { return };
        spec.surroundings.sandbox |= partition.demands_sandbox() && spec.fits_sandbox();
        spec.surroundings.exclusive |= partition.exclusive == ExclusiveRule::Always;
    }

    /// Whether a job may use a node as far as its owner, partition and constraint decide, regardless of sandboxes and
    /// other abilities.
    pub(in crate::head) fn would_use(&self, owner: Owner, spec: &JobSpec, node: &Node) -> bool {
        let is_in = |name: &PartitionName| self.get(name).is_some_and(|partition| partition.nodes.matches(&node.name));
        owner.runs_on(node)
            && spec.partition.as_ref().is_none_or(is_in)
            && spec.constraint.as_ref().is_none_or(|constraint| constraint.holds(|feature| self.has(node, feature)))
    }

    /// The priority of a job's partition.
    pub(in crate::head) fn tier(&self, name: Option<&PartitionName>) -> i32 {
        name.and_then(|name| self.get(name)).map_or(0, |partition| partition.priority)
    }

    /// Marks the cached node sets as stale, because nodes have changed.
    pub(in crate::head) const fn forget_sets(&mut self) {
        self.is_stale = true;
    }

    pub(in crate::head) fn forget_node(&mut self, node: &NodeName) {
        self.traits.remove(node);
    }
}

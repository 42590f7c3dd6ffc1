//! Partitions, what is set about nodes, and which nodes a job may use in consequence.
//!
//! A partition is a part of the cluster with limits and a priority of its own. Which nodes are in it is said by patterns of their names,
//! so that nodes which join later are in it as well. What a node has is said by features: its agent names some, operators others, and
//! its name is one. A job may use the nodes of its partition that satisfy its constraint; without either it may use all nodes, and
//! costs nothing here. A job of root may use only nodes that run jobs of root.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hostler_model::{
    Constraint, Feature, JobSpec, NodeName, NodePatterns, PartitionName, PartitionState, Reason, Timestamp, UserName,
    format_duration,
};
use hostler_proto::api::Unsaid;
use hostler_proto::partitions::PartitionChange;
use hostler_sched::NodeSet;
use serde::{Deserialize, Serialize};

use super::command::Refusal;
use super::job::Job;
use super::node::Node;
use super::state::State;

/// How many partitions there may be.
const MAX_PARTITIONS: usize = 1_000;

/// How many features operators may give a node, and how many users and groups a partition may name.
const MAX_NAMES: usize = 1_000;

/// How many sets of nodes are remembered before those that nobody needs any more are dropped.
const SETS_BEFORE_CLEANING: usize = 1_024;

/// A part of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its name.
    pub name: PartitionName,
    /// Its nodes.
    pub nodes: NodePatterns,
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
    /// Who may use it; with [`Self::groups`] everybody if both are empty.
    pub users: BTreeSet<UserName>,
    /// Whose users may use it.
    pub groups: BTreeSet<UserName>,
}

/// What operators have set about a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTraits {
    /// Nodes with a lower weight are used first.
    pub weight: u32,
    /// What it has, beyond what its agent says.
    pub features: BTreeSet<Feature>,
}

/// Everything the head knows of partitions and traits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Partitions {
    all: BTreeMap<PartitionName, Partition>,
    default: Option<PartitionName>,
    traits: BTreeMap<NodeName, NodeTraits>,
    /// For jobs in the queue: the nodes that they may use. Jobs that may use the same ones share a set.
    #[serde(skip)]
    sets: Sets,
    /// Nodes, partitions or features have changed since the sets were made.
    #[serde(skip)]
    is_stale: bool,
}

/// By owner, partition and constraint. Nested maps, so that looking up copies nothing.
type Sets = BTreeMap<Owner, BTreeMap<Option<PartitionName>, BTreeMap<Option<Constraint>, Arc<NodeSet>>>>;

/// Whose a job is, as far as that decides which nodes run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// Any user but root.
    User,
    /// Root of the cluster's machines.
    Root,
    /// Somebody who has a name through one node alone, such as its root, and no account anywhere.
    ThroughNode,
}

impl Owner {
    /// Whether a node's agent runs jobs of this owner.
    pub(super) const fn runs_on(self, node: &Node) -> bool {
        match self {
            Self::User => true,
            Self::Root => !node.advisory.refuses_root,
            // Only where all jobs run as one user does a job need no account.
            Self::ThroughNode => node.advisory.users.is_some(),
        }
    }
}

/// What an operator wants about partitions and traits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionsCommand {
    /// A new partition.
    Add(PartitionName, PartitionChange),
    /// Something else about one.
    Change(PartitionName, PartitionChange),
    /// A partition is to go.
    Remove(PartitionName),
    /// Something about a node; what is absent stays.
    SetTraits {
        /// Which.
        node: NodeName,
        /// Nodes with a lower weight are used first.
        weight: Option<u32>,
        /// All that it has beyond what its agent says.
        features: Option<BTreeSet<Feature>>,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionsEvent {
    /// A partition is new or has changed.
    Put {
        /// What it is now.
        partition: Partition,
        /// Whether jobs that name none go there.
        is_default: bool,
    },
    /// A partition was removed.
    Removed(PartitionName),
    /// Something was set about a node.
    Traits {
        /// Which.
        node: NodeName,
        /// All there is now.
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

    /// What operators have set about a node.
    #[must_use]
    pub fn traits(&self, node: &NodeName) -> Option<&NodeTraits> {
        self.traits.get(node)
    }

    /// All that a node has: what its agent says, what operators say, and its name.
    fn has(&self, node: &Node, feature: &Feature) -> bool {
        node.features.contains(feature)
            || node.name.as_str() == feature.as_str()
            || self.traits.get(&node.name).is_some_and(|traits| traits.features.contains(feature))
    }

    /// Whether a job with this specification may use a node.
    fn may_use(&self, owner: Owner, spec: &JobSpec, node: &Node) -> bool {
        let is_in = |name: &PartitionName| self.get(name).is_some_and(|partition| partition.nodes.matches(&node.name));
        owner.runs_on(node)
            && spec.partition.as_ref().is_none_or(is_in)
            && spec.constraint.as_ref().is_none_or(|constraint| constraint.holds(|feature| self.has(node, feature)))
    }

    fn known(&self, name: &PartitionName) -> Result<&Partition, Refusal> {
        let there = || self.all.keys().cloned().collect();
        self.get(name).ok_or_else(|| Refusal::NoSuchPartition { partition: name.clone(), there: there() })
    }

    /// The priority of a job's partition.
    pub(super) fn tier(&self, name: Option<&PartitionName>) -> i32 {
        name.and_then(|name| self.get(name)).map_or(0, |partition| partition.priority)
    }

    /// Nodes have changed: which of them jobs may use is to be found out anew.
    pub(super) const fn forget_sets(&mut self) {
        self.is_stale = true;
    }

    /// What was set about a node goes with it.
    pub(super) fn forget_node(&mut self, node: &NodeName) {
        self.traits.remove(node);
    }
}

impl Partition {
    /// Whether a job in it can start as far as the partition is concerned.
    #[must_use]
    pub fn starts_jobs(&self) -> bool {
        self.state != PartitionState::Paused
    }

    /// Refuses what a user may not have here.
    fn admit(&self, state: &State, user: &str, spec: &JobSpec) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::PartitionRefuses { partition: self.name.clone(), why });
        let span = |ms: u64| format_duration(Duration::from_millis(ms));
        if self.state == PartitionState::Closed {
            return refuse("is closed: it takes no new jobs".to_owned());
        }
        if !self.is_open_to(state, user) {
            return refuse(format!("is not open to {user}"));
        }
        if let Some(most) = self.max_nodes.filter(|most| spec.nodes > *most) {
            let nodes = if most == 1 { "node" } else { "nodes" };
            return refuse(format!("gives a job at most {most} {nodes}, and this one asks for {}", spec.nodes));
        }
        match (self.max_time_ms, spec.time_limit_ms) {
            (Some(most), Some(asked)) if asked > most => {
                refuse(format!("lets jobs run for at most {}, and this one asks for {}", span(most), span(asked)))
            }
            (Some(most), None) => {
                refuse(format!("lets jobs run for at most {}, and this one has no limit", span(most)))
            }
            _ => Ok(()),
        }
    }

    fn is_open_to(&self, state: &State, user: &str) -> bool {
        let is_named = || self.users.iter().any(|name| name.as_str() == user);
        let is_in_group = || state.users.get(user).is_some_and(|user| !user.groups.is_disjoint(&self.groups));
        self.users.is_empty() && self.groups.is_empty() || is_named() || is_in_group()
    }
}

impl State {
    /// Adds to a submission what its user has left unsaid and operators have set, for the cluster or for its partition.
    pub fn complete(&self, spec: &mut JobSpec, unsaid: &[Unsaid]) {
        if spec.partition.is_none() {
            spec.partition.clone_from(&self.partitions.default);
        }
        self.settings.fill(spec, unsaid);
        let partition = spec.partition.as_ref().and_then(|name| self.partitions.get(name));
        let Some(partition) = partition.filter(|_| unsaid.contains(&Unsaid::TimeLimitMs)) else { return };
        let limit = partition.default_time_ms.or(spec.time_limit_ms);
        spec.time_limit_ms = match (limit, partition.max_time_ms) {
            (Some(limit), Some(most)) => Some(limit.min(most)),
            (limit, most) => limit.or(most),
        };
    }

    /// The partitions that a node is in.
    pub fn partitions_of(&self, node: &NodeName) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(|partition| partition.nodes.matches(node))
    }

    /// Whether a job may use a node, whatever its size and state.
    #[must_use]
    pub fn may_use(&self, job: &Job, node: &Node) -> bool {
        self.partitions.may_use(self.owner_of(job), &job.spec, node)
    }

    /// The owner with this name in the cluster, and this uid if it is known.
    pub(super) fn owner(&self, user: &str, uid: Option<u32>) -> Owner {
        if self.is_name_through_node(user) {
            Owner::ThroughNode
        } else if user == "root" || uid == Some(0) {
            Owner::Root
        } else {
            Owner::User
        }
    }

    /// Whose a job is.
    pub(super) fn owner_of(&self, job: &Job) -> Owner {
        self.owner(&job.user, job.uid)
    }

    /// Whether the partition and the constraint allow at least one node, but every allowed node refuses jobs of this owner.
    pub(super) fn all_refuse(&self, owner: Owner, spec: &JobSpec) -> bool {
        if owner == Owner::User {
            return false;
        }
        let mut its = self.nodes().filter(|node| self.partitions.may_use(Owner::User, spec, node)).peekable();
        its.peek().is_some() && !its.any(|node| owner.runs_on(node))
    }

    /// Everything that a node has but its name.
    #[must_use]
    pub fn features_of(&self, node: &Node) -> BTreeSet<Feature> {
        let set = self.partitions.traits(&node.name).into_iter().flat_map(|traits| traits.features.iter());
        node.features.iter().chain(set).cloned().collect()
    }

    /// The nodes that a job may use; `None` when it may use all.
    pub(super) fn among(&self, owner: Owner, spec: &JobSpec) -> Option<Arc<NodeSet>> {
        if may_use_all(owner, spec) {
            return None;
        }
        let sets = self.partitions.sets.get(&owner).and_then(|sets| sets.get(&spec.partition));
        match sets.and_then(|sets| sets.get(&spec.constraint)) {
            Some(set) if !self.partitions.is_stale => Some(Arc::clone(set)),
            _ => Some(Arc::new(self.nodes_for(owner, spec))),
        }
    }

    fn nodes_for(&self, owner: Owner, spec: &JobSpec) -> NodeSet {
        let usable = self.nodes().filter(|node| self.partitions.may_use(owner, spec, node));
        usable.map(|node| node.ix).collect()
    }

    /// Remembers which nodes a job of the queue may use.
    pub(super) fn remember_set(&mut self, owner: Owner, spec: &JobSpec) {
        if self.partitions.is_stale {
            return;
        }
        let mut sets = std::mem::take(&mut self.partitions.sets);
        if self.add_set(&mut sets, owner, spec) {
            let count: usize = sets.values().flat_map(BTreeMap::values).map(BTreeMap::len).sum();
            self.partitions.is_stale = count > SETS_BEFORE_CLEANING;
        }
        self.partitions.sets = sets;
    }

    /// Finds out anew which nodes the jobs of the queue may use, if that may have changed.
    pub(super) fn renew_sets(&mut self) {
        if std::mem::take(&mut self.partitions.is_stale) {
            let mut sets = Sets::new();
            self.queue().for_each(|job| {
                self.add_set(&mut sets, self.owner_of(job), &job.spec);
            });
            self.partitions.sets = sets;
        }
    }

    /// Adds the set of a job that may not use all nodes; says whether it was not there.
    fn add_set(&self, sets: &mut Sets, owner: Owner, spec: &JobSpec) -> bool {
        let (partition, constraint) = (&spec.partition, &spec.constraint);
        let sets = sets.entry(owner).or_default();
        if may_use_all(owner, spec) || sets.get(partition).is_some_and(|sets| sets.contains_key(constraint)) {
            return false;
        }
        let set = Arc::new(self.nodes_for(owner, spec));
        sets.entry(partition.clone()).or_default().insert(constraint.clone(), set);
        true
    }
}

/// Whether nothing keeps a job from any node.
fn may_use_all(owner: Owner, spec: &JobSpec) -> bool {
    owner == Owner::User && spec.partition.is_none() && spec.constraint.is_none()
}

/// Refuses a job that its partition does not take, or that no node of the cluster may run.
pub(super) fn admit(state: &State, user: &str, spec: &JobSpec) -> Result<(), Refusal> {
    if let Some(name) = &spec.partition {
        state.partitions.known(name)?.admit(state, user, spec)?;
    }
    Ok(())
}

/// Why a job waits that its partition does not let start, or for which there is no node at all.
pub(super) fn waits_for_partition(state: &State, job: &Job) -> Option<Reason> {
    let spec = &job.spec;
    if let Some(name) = &spec.partition {
        match state.partitions.get(name) {
            None => return Some(Reason::PartitionGone { partition: name.clone() }),
            Some(partition) if !partition.starts_jobs() => {
                return Some(Reason::PartitionPaused { partition: name.clone() });
            }
            Some(_) => {}
        }
    }
    let owner = state.owner_of(job);
    let is_nowhere = state.among(owner, spec).is_some_and(|among| among.is_empty());
    is_nowhere.then(|| no_nodes(spec, state.all_refuse(owner, spec)))
}

/// The reason of a job that no node may run.
pub(super) fn no_nodes(spec: &JobSpec, for_root: bool) -> Reason {
    Reason::NoNodes { partition: spec.partition.clone(), constraint: spec.constraint.clone(), for_root }
}

/// The events that follow from `command`.
pub(super) fn decide_partitions(state: &State, command: &PartitionsCommand) -> Result<Vec<PartitionsEvent>, Refusal> {
    let partitions = &state.partitions;
    match command {
        PartitionsCommand::Add(name, _) if partitions.get(name).is_some() => {
            Err(Refusal::PartitionExists(name.clone()))
        }
        PartitionsCommand::Add(name, change) => {
            if partitions.all.len() >= MAX_PARTITIONS {
                return Err(Refusal::BadPartition(format!("a cluster has at most {MAX_PARTITIONS} partitions")));
            }
            let nodes =
                change.nodes.clone().ok_or_else(|| Refusal::BadPartition("a partition needs nodes".to_owned()))?;
            let new = Partition {
                name: name.clone(),
                nodes,
                state: PartitionState::Open,
                priority: 0,
                default_time_ms: None,
                max_time_ms: None,
                max_nodes: None,
                users: BTreeSet::new(),
                groups: BTreeSet::new(),
            };
            put(partitions, &new, change)
        }
        PartitionsCommand::Change(name, change) => put(partitions, partitions.known(name)?, change),
        PartitionsCommand::Remove(name) => {
            partitions.known(name)?;
            let waits = |job: &&Arc<Job>| job.spec.partition.as_ref() == Some(name) && !job.pending.is_empty();
            match state.live_jobs().filter(waits).count() {
                0 => Ok(vec![PartitionsEvent::Removed(name.clone())]),
                jobs => Err(Refusal::PartitionInUse { partition: name.clone(), jobs }),
            }
        }
        PartitionsCommand::SetTraits { node, weight, features } => {
            if state.node(node).is_none() && state.member(node).is_none() {
                return Err(Refusal::NoSuchNode(node.clone()));
            }
            if features.as_ref().is_some_and(|features| features.len() > MAX_NAMES) {
                return Err(Refusal::BadPartition(format!("a node has at most {MAX_NAMES} features")));
            }
            let before = partitions.traits(node).cloned().unwrap_or_default();
            let weight = weight.unwrap_or(before.weight);
            let traits = NodeTraits { weight, features: features.clone().unwrap_or_else(|| before.features.clone()) };
            let is_news = traits != before;
            Ok(is_news.then(|| PartitionsEvent::Traits { node: node.clone(), traits }).into_iter().collect())
        }
    }
}

/// A partition with a change made to it. A limit of zero is none.
fn put(partitions: &Partitions, before: &Partition, change: &PartitionChange) -> Result<Vec<PartitionsEvent>, Refusal> {
    let mut after = before.clone();
    let limit = |limit: u64| Some(limit).filter(|limit| *limit > 0);
    if let Some(nodes) = &change.nodes {
        after.nodes = nodes.clone();
    }
    after.state = change.state.unwrap_or(before.state);
    after.priority = change.priority.unwrap_or(before.priority);
    after.default_time_ms = change.default_time_ms.map_or(before.default_time_ms, limit);
    after.max_time_ms = change.max_time_ms.map_or(before.max_time_ms, limit);
    after.max_nodes = change.max_nodes.map_or(before.max_nodes, |most| Some(most).filter(|most| *most > 0));
    if let Some(users) = &change.users {
        after.users.clone_from(users);
    }
    if let Some(groups) = &change.groups {
        after.groups.clone_from(groups);
    }
    if after.users.len() + after.groups.len() > MAX_NAMES {
        return Err(Refusal::BadPartition(format!("a partition names at most {MAX_NAMES} users and groups")));
    }
    if let (Some(usual), Some(most)) = (after.default_time_ms, after.max_time_ms)
        && usual > most
    {
        return Err(Refusal::BadPartition(
            "the usual time limit of a partition cannot be above its longest".to_owned(),
        ));
    }
    let was_default = partitions.default.as_ref() == Some(&before.name);
    let is_default = change.is_default.unwrap_or(was_default);
    let is_news = partitions.get(&before.name) != Some(&after) || is_default != was_default;
    Ok(is_news.then_some(PartitionsEvent::Put { partition: after, is_default }).into_iter().collect())
}

/// Applies one event. What waited may start now.
pub(super) fn update_partitions(state: &mut State, event: &PartitionsEvent, now: Timestamp) {
    let partitions = &mut state.partitions;
    partitions.forget_sets();
    match event {
        PartitionsEvent::Put { partition, is_default } => {
            let name = partition.name.clone();
            if *is_default {
                partitions.default = Some(name.clone());
            } else if partitions.default.as_ref() == Some(&name) {
                partitions.default = None;
            }
            let tier = partition.priority;
            partitions.all.insert(name.clone(), partition.clone());
            state.set_tier(&name, tier);
        }
        PartitionsEvent::Removed(name) => {
            partitions.all.remove(name);
            if partitions.default.as_ref() == Some(name) {
                partitions.default = None;
            }
            state.set_tier(name, 0);
        }
        PartitionsEvent::Traits { node, traits } => {
            if *traits == NodeTraits::default() {
                partitions.traits.remove(node);
            } else {
                partitions.traits.insert(node.clone(), traits.clone());
            }
            state.sync_weight(node);
            // Features that operators name are told to nodes that gossip.
            state.peers.changed(now);
        }
    }
    state.needs_pass = true;
}

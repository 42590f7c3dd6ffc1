//! Partitions, node traits set by operators, and the nodes that a job may use.
//!
//! A partition is a part of the cluster with its own limits and priority. Patterns of node names select its nodes, so nodes that join
//! later belong to it as well. Features describe a node: its agent names some, operators add others, and the node's name is one. A job
//! may use the nodes of its partition that satisfy its constraint. A job with neither may use all nodes, and skips this code. A job of
//! root may use only nodes that accept jobs of root. A job without a sandbox never starts in a partition that demands a sandbox, and if
//! it names no partition, on no node of such a partition. Likewise for a job with `--exclusive` and a partition that allows none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_model::{
    Ability, ExclusiveRule, Feature, JobSpec, NodeName, PartitionName, PartitionState, Reason, SandboxNetwork,
    SandboxRule, Submission, Timestamp, WallTime, format_ms,
};
use hostler_proto::partitions::{MAX_PARTITIONS, PartitionChange};
use hostler_sched::NodeSet;

use super::node::Node;
use super::partition::{NodeTraits, Owner, Partition, Partitions, PartitionsCommand, PartitionsEvent, Sets, Wanted};
use crate::head::command::Refusal;
use crate::head::jobs::job::Job;
use crate::head::state::State;

/// The largest number of features that operators may give a node, and of users and groups that a partition may name.
const MAX_NAMES: usize = 1_000;

/// How many node sets are cached before unused ones are dropped.
const SETS_BEFORE_CLEANING: usize = 1_024;

impl Partitions {
    fn known(&self, name: &PartitionName) -> Result<&Partition, Refusal> {
        let there = || self.all.keys().cloned().collect();
        self.get(name).ok_or_else(|| Refusal::NoSuchPartition { partition: name.clone(), there: there() })
    }
}

impl Partition {
    /// Returns whether the partition allows its jobs to start.
    #[must_use]
    pub fn starts_jobs(&self) -> bool {
        self.state != PartitionState::Paused
    }

    /// Returns whether jobs without a sandbox cannot start in the partition.
    #[must_use]
    pub fn demands_sandbox(&self) -> bool {
        self.sandbox == SandboxRule::Always
    }

    /// Returns whether the job cannot start in the partition because of its sandbox: it has none, or too much network.
    pub(in crate::head) fn demands_another_sandbox(&self, spec: &JobSpec) -> bool {
        self.demands_sandbox() && (!spec.surroundings.sandbox || spec.surroundings.network > self.sandbox_network)
    }

    /// Returns whether no job of the partition can have its nodes to itself.
    pub(in crate::head) fn demands_sharing(&self) -> bool {
        self.exclusive == ExclusiveRule::Never
    }

    /// Refuses a job that exceeds the partition's limits, or that enters a partition that does not accept it.
    fn admit(&self, state: &State, user: &str, spec: &JobSpec, enters: bool) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::PartitionRefuses { partition: self.name.clone(), why });
        if enters && self.state == PartitionState::Closed {
            return refuse("is closed and accepts no new jobs".to_owned());
        }
        if enters && !self.is_open_to(state, user) {
            return refuse(format!("is not open to {user}"));
        }
        if enters && self.demands_sandbox() && !spec.surroundings.sandbox {
            return refuse(match spec.fits_sandbox() {
                true => "runs its jobs in a sandbox, and this job has none; submit it again".to_owned(),
                false => {
                    "runs its jobs in a sandbox, where a job has one node (several with `--network job` or `host`), no \
                     container engine (`--runtime`), and starts its steps itself; `hostler run`, `hostler submit` and \
                     `sbatch` start such jobs"
                        .to_owned()
                }
            });
        }
        if enters && self.demands_another_sandbox(spec) {
            return refuse(match self.sandbox_network {
                SandboxNetwork::Job => {
                    "runs its jobs in a sandbox without the network of its node; submit the job with `--network job`, \
                     or without `--network`"
                        .to_owned()
                }
                SandboxNetwork::None | SandboxNetwork::Host => format!(
                    "runs its jobs in a sandbox without a network; submit the job without `--network {}`",
                    spec.surroundings.network
                ),
            });
        }
        if enters && self.demands_sharing() && spec.surroundings.exclusive {
            return refuse(
                "does not allow exclusive jobs; submit the job without `--exclusive`, and ask for the CPUs and the memory that it needs"
                    .to_owned(),
            );
        }
        if let Some(most) = self.max_nodes.filter(|most| spec.nodes > *most) {
            let nodes = if most == 1 { "node" } else { "nodes" };
            return refuse(format!("allows at most {most} {nodes} per job, and this job asks for {}", spec.nodes));
        }
        match (self.max_time_ms, spec.time_limit_ms) {
            (Some(most), Some(asked)) if asked > most => refuse(format!(
                "allows a run time of at most {}, and this job asks for {}",
                format_ms(most),
                format_ms(asked)
            )),
            (Some(most), None) => {
                refuse(format!("allows a run time of at most {}, and this job has no time limit", format_ms(most)))
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
    /// Creates a job from a submission that arrives at `now`. Options that the submission does not set get the defaults of the partition,
    /// then of the cluster.
    #[must_use]
    pub fn complete(&self, mut submission: Submission, now: WallTime) -> JobSpec {
        if submission.partition.is_none() {
            submission.partition.clone_from(&self.partitions.default);
        }
        let has_chosen_time = submission.time_limit_ms.is_some();
        let mut spec = self.settings.complete(submission, now);
        self.partitions.add_demands(&mut spec);
        spec.demand_engine();
        let partition = spec.partition.as_ref().and_then(|name| self.partitions.get(name));
        let Some(partition) = partition.filter(|_| !has_chosen_time) else { return spec };
        let limit = partition.default_time_ms.or(spec.time_limit_ms);
        spec.time_limit_ms = match (limit, partition.max_time_ms) {
            (Some(limit), Some(most)) => Some(limit.min(most)),
            (limit, most) => limit.or(most),
        };
        spec
    }

    /// Iterates over the partitions that a node is in.
    pub fn partitions_of(&self, node: &NodeName) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(|partition| partition.nodes.matches(node))
    }

    /// Returns whether a job may use a node, regardless of the node's size and state.
    #[must_use]
    pub fn may_use(&self, job: &Job, node: &Node) -> bool {
        self.partitions.may_use(self.owner_of(job), &job.spec, node)
    }

    /// Returns the kind of owner for this name in the cluster and this uid, if known.
    pub(in crate::head) fn owner(&self, user: &str, uid: Option<u32>) -> Owner {
        if self.is_name_through_node(user) {
            Owner::ThroughNode
        } else if user == "root" || uid == Some(0) {
            Owner::Root
        } else {
            Owner::User
        }
    }

    pub(in crate::head) fn owner_of(&self, job: &Job) -> Owner {
        self.owner(&job.user, job.uid)
    }

    /// Returns whether the partition and the constraint allow some nodes, but all these nodes refuse jobs of this
    /// owner.
    pub(in crate::head) fn all_refuse(&self, owner: Owner, spec: &JobSpec) -> bool {
        if owner == Owner::User {
            return false;
        }
        let mut its = self.nodes().filter(|node| self.partitions.may_use(Owner::User, spec, node)).peekable();
        its.peek().is_some() && !its.any(|node| owner.runs_on(node))
    }

    /// The nodes that partition and constraint allow and that lack the last of these abilities, but none before it, with
    /// the reasons.
    pub fn nodes_without(&self, spec: &JobSpec, abilities: &[Ability]) -> impl Iterator<Item = (&NodeName, &str)> {
        let can = |node: &Node, ability: &Ability| node.facts.can(*ability);
        self.allowed_without_abilities(spec).filter_map(move |node| {
            let (missing, present) = abilities.split_last()?;
            let is_nearest = present.iter().all(|ability| can(node, ability)) && !can(node, missing);
            is_nearest.then(|| (&node.name, node.facts.why_not(*missing)))
        })
    }

    /// Returns the abilities that the job needs, up to the first one that no node has together with those before it. Empty if
    /// a node has all of them, or if partition and constraint allow no node.
    pub(in crate::head) fn missing_abilities(&self, spec: &JobSpec) -> Vec<Ability> {
        let needed: Vec<Ability> = Ability::ALL.into_iter().filter(|ability| spec.needs(*ability)).collect();
        // How many of them, in this order, the best node has.
        let of_node = |node: &Node| needed.iter().take_while(|ability| node.facts.can(**ability)).count();
        let most = self.allowed_without_abilities(spec).map(of_node).max();
        most.map_or_else(Vec::new, |most| needed.get(..=most).map_or_else(Vec::new, <[_]>::to_vec))
    }

    /// Returns the ability that the job needs and no node has, with a node and the reason.
    pub(in crate::head) fn missing_ability(&self, spec: &JobSpec) -> Option<(Ability, &NodeName, &str)> {
        let abilities = self.missing_abilities(spec);
        let (node, why) = self.nodes_without(spec, &abilities).next()?;
        Some((*abilities.last()?, node, why))
    }

    fn allowed_without_abilities(&self, spec: &JobSpec) -> impl Iterator<Item = &Node> {
        self.nodes().filter(move |node| self.partitions.would_use(Owner::User, spec, node))
    }

    /// Returns a partition that demands another sandbox than the job has, if the job may therefore use no node at all.
    pub(in crate::head) fn needs_sandbox(&self, owner: Owner, spec: &JobSpec) -> Option<&PartitionName> {
        let mut its = self.nodes().filter(|node| self.partitions.would_use(owner, spec, node));
        let first = self.partitions.demanding_sandbox(spec, its.next()?)?;
        its.all(|node| self.partitions.demanding_sandbox(spec, node).is_some()).then_some(&first.name)
    }

    /// Returns a partition that gives no job a node to itself, if the job may therefore use no node at all.
    pub(in crate::head) fn needs_sharing(&self, owner: Owner, spec: &JobSpec) -> Option<&PartitionName> {
        let mut its = self.nodes().filter(|node| self.partitions.would_use(owner, spec, node));
        let first = self.partitions.sharing(spec, its.next()?)?;
        its.all(|node| self.partitions.sharing(spec, node).is_some()).then_some(&first.name)
    }

    /// Returns all features of a node except its name.
    #[must_use]
    pub fn features_of(&self, node: &Node) -> BTreeSet<Feature> {
        let set = self.partitions.traits(&node.name).into_iter().flat_map(|traits| traits.features.iter());
        node.facts.features.iter().chain(set).cloned().collect()
    }

    /// Returns the nodes that a job may use; `None` if it may use all.
    pub(in crate::head) fn allowed_nodes(&self, owner: Owner, spec: &JobSpec) -> Option<Arc<NodeSet>> {
        if self.may_use_all(owner, spec) {
            return None;
        }
        let sets = self.partitions.sets.get(&(owner, Wanted::of(spec))).and_then(|sets| sets.get(&spec.partition));
        match sets.and_then(|sets| sets.get(&spec.constraint)) {
            Some(set) if !self.partitions.is_stale => Some(Arc::clone(set)),
            _ => Some(Arc::new(self.nodes_for(owner, spec))),
        }
    }

    fn nodes_for(&self, owner: Owner, spec: &JobSpec) -> NodeSet {
        let usable = self.nodes().filter(|node| self.partitions.may_use(owner, spec, node));
        usable.map(|node| node.ix).collect()
    }

    /// Adds the nodes that a queued job may use to the cache.
    pub(in crate::head) fn remember_set(&mut self, owner: Owner, spec: &JobSpec) {
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

    /// Recomputes the cached node sets of queued jobs if they are stale.
    pub(in crate::head) fn renew_sets(&mut self) {
        if std::mem::take(&mut self.partitions.is_stale) {
            let mut sets = Sets::new();
            self.queue().for_each(|job| {
                self.add_set(&mut sets, self.owner_of(job), &job.spec);
            });
            self.partitions.sets = sets;
        }
    }

    fn may_use_all(&self, owner: Owner, spec: &JobSpec) -> bool {
        let is_free = !Ability::ALL.into_iter().any(|ability| spec.needs(ability))
            && spec.partition.is_none()
            && spec.constraint.is_none();
        let restricts = |it: &Partition| it.demands_sandbox() || spec.surroundings.exclusive && it.demands_sharing();
        is_free && owner == Owner::User && !self.partitions.iter().any(restricts)
    }

    /// Adds the node set of a job that may not use all nodes; returns whether the set is new.
    fn add_set(&self, sets: &mut Sets, owner: Owner, spec: &JobSpec) -> bool {
        let (partition, constraint) = (&spec.partition, &spec.constraint);
        let sets = sets.entry((owner, Wanted::of(spec))).or_default();
        if self.may_use_all(owner, spec) || sets.get(partition).is_some_and(|sets| sets.contains_key(constraint)) {
            return false;
        }
        let set = Arc::new(self.nodes_for(owner, spec));
        sets.entry(partition.clone()).or_default().insert(constraint.clone(), set);
        true
    }
}

/// Refuses a job that its partition does not accept. A job that does not enter the partition is in it already.
pub(in crate::head) fn admit(state: &State, user: &str, spec: &JobSpec, enters: bool) -> Result<(), Refusal> {
    if let Some(name) = &spec.partition {
        state.partitions.known(name)?.admit(state, user, spec, enters)?;
    }
    Ok(())
}

/// Returns why a job waits: its partition does not start jobs, or no node is allowed.
pub(in crate::head) fn waits_for_partition(state: &State, job: &Job) -> Option<Reason> {
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
    let is_nowhere = state.allowed_nodes(owner, spec).is_some_and(|among| among.is_empty());
    if is_nowhere && let Some(partition) = state.needs_sandbox(owner, spec) {
        return Some(Reason::NeedsSandbox { partition: partition.clone(), for_network: spec.surroundings.sandbox });
    }
    is_nowhere.then(|| Reason::NoNodes {
        partition: spec.partition.clone(),
        constraint: spec.constraint.clone(),
        for_root: state.all_refuse(owner, spec),
        abilities: state.missing_abilities(spec),
    })
}

/// Returns the events that follow from `command`.
pub(in crate::head) fn decide_partitions(
    state: &State,
    command: &PartitionsCommand,
) -> Result<Vec<PartitionsEvent>, Refusal> {
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
                sandbox: SandboxRule::Optional,
                sandbox_network: SandboxNetwork::None,
                exclusive: ExclusiveRule::Optional,
                join_code: None,
            };
            put(partitions, &new, change)
        }
        PartitionsCommand::Change(name, change) => put(partitions, partitions.known(name)?, change),
        PartitionsCommand::Invite(name, code) => {
            let partition = Partition { join_code: Some(*code), ..partitions.known(name)?.clone() };
            let is_default = partitions.default.as_ref() == Some(name);
            Ok(vec![PartitionsEvent::Put { partition, is_default }])
        }
        PartitionsCommand::Remove(name) => {
            partitions.known(name)?;
            let waits = |job: &&Arc<Job>| job.spec.partition.as_ref() == Some(name) && !job.pending.is_empty();
            match state.jobs().filter(waits).count() {
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
            let features = features.clone().unwrap_or_else(|| before.features.clone());
            let traits = NodeTraits { weight, features, ..before.clone() };
            let is_news = traits != before;
            Ok(is_news.then(|| PartitionsEvent::Traits { node: node.clone(), traits }).into_iter().collect())
        }
        PartitionsCommand::SetOffer(name, offer) => {
            let node = state.node(name).ok_or_else(|| Refusal::NoSuchNode(name.clone()))?;
            if offer.cpus == Some(0) {
                return Err(Refusal::BadPartition(format!(
                    "node {name} must offer at least one CPU; `hostler node drain {name}` gives it no work"
                )));
            }
            if let Some(excess) = offer.excess(&node.facts.resources.counts()) {
                return Err(Refusal::BadPartition(format!("node {name} cannot offer {excess}")));
            }
            let before = partitions.traits(name).cloned().unwrap_or_default();
            let traits = NodeTraits { offer: offer.clone(), ..before.clone() };
            let is_news = traits != before;
            Ok(is_news.then(|| PartitionsEvent::Traits { node: name.clone(), traits }).into_iter().collect())
        }
    }
}

/// Returns the events of a change of a partition's values. A limit of zero removes the limit.
fn put(partitions: &Partitions, before: &Partition, change: &PartitionChange) -> Result<Vec<PartitionsEvent>, Refusal> {
    let mut after = before.clone();
    let limit = |limit: u64| Some(limit).filter(|limit| *limit > 0);
    if let Some(nodes) = &change.nodes {
        after.nodes = nodes.clone();
    }
    after.state = change.state.unwrap_or(before.state);
    after.sandbox = change.sandbox.unwrap_or(before.sandbox);
    after.sandbox_network = change.sandbox_network.unwrap_or(before.sandbox_network);
    after.exclusive = change.exclusive.unwrap_or(before.exclusive);
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
    after.join_code = before.join_code.filter(|_| !change.ends_join_code);
    if after.users.len() + after.groups.len() > MAX_NAMES {
        return Err(Refusal::BadPartition(format!("a partition names at most {MAX_NAMES} users and groups")));
    }
    if let (Some(usual), Some(most)) = (after.default_time_ms, after.max_time_ms)
        && usual > most
    {
        return Err(Refusal::BadPartition(
            "a partition's default time limit cannot exceed its longest time limit".to_owned(),
        ));
    }
    let was_default = partitions.default.as_ref() == Some(&before.name);
    let is_default = change.is_default.unwrap_or(was_default);
    let is_news = partitions.get(&before.name) != Some(&after) || is_default != was_default;
    Ok(is_news.then_some(PartitionsEvent::Put { partition: after, is_default }).into_iter().collect())
}

/// Applies one event. Requests a scheduling pass, because waiting jobs may start now.
pub(in crate::head) fn update_partitions(state: &mut State, event: &PartitionsEvent, now: Timestamp) {
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
            state.sync_traits(node);
            // Gossiping nodes also learn the features that operators set.
            state.peers.changed(now);
        }
    }
    state.needs_pass = true;
}

//! The head's state: jobs and nodes, and the indexes derived from them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hostler_model::{
    Dependency, Digest, Epoch, JobId, JobSpec, NodeName, NodeState, PartitionName, Request, RunId, Timestamp, WallTime,
};
use hostler_proto::api::{Capacity, LiveCounts, NodeCounts};
use hostler_proto::link::RunEnd;
use hostler_proto::notify::Alert;
use hostler_sched::{Holding, NodeIx, Pool, Reservation, Share};
use serde::{Deserialize, Serialize};

use super::ids::{ConnectionId, Now, SubmissionKey};
use super::jobs::dependency::{Delay, distinct};
use super::jobs::job::{Active, DeletedJob, Job, Part, Phase, WaitLimit};
use super::jobs::queue::{Ahead, Levels, Queue, Started, Turn, UserIx};
use super::jobs::waiting::{Waiting, WaitingJobs};
use super::nodes::member::Member;
use super::nodes::node::Node;
use super::nodes::partition::{Partition, Partitions};
use super::nodes::peers::Peers;
use super::power::Powers;
use super::settings::{SetBy, Setting, SettingValue, Settings};
use super::users::user::Users;

/// How many recent specifications a new job's specification is compared with. Equal ones share memory.
const RECENT_SPECS: usize = 8;

/// The head's whole state. A serialised state is a snapshot of the log. Skipped fields are derived from stored fields,
/// or end with the process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
    /// How many times a head has started on this store.
    pub epoch: Epoch,
    /// The time of the last event, from which the cluster's clock continues after a restart.
    pub last_event_at: Timestamp,
    /// The time of the last event on the head's wall clock, for display and for times of day.
    #[serde(skip)]
    pub last_event_wall: WallTime,
    /// How many machines were removed, or replaced by another machine of the same name. Each such change creates a new
    /// gossip key, since the removed machine knows the old one.
    #[serde(default)]
    pub expelled: u64,
    /// The number of the last message in the outbox; zero before the first.
    #[serde(default)]
    pub(super) messages: u64,
    /// Alerts that operators know of and that are not over.
    #[serde(default)]
    pub(super) alerts: BTreeSet<Alert>,
    /// The number of the last submitted job; zero before the first.
    last_job: u64,
    /// First and last of each range of numbers that this head never gave to a job, because another copy of it may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<(JobId, JobId)>,
    /// Jobs that have not ended.
    jobs: BTreeMap<JobId, Arc<Job>>,
    pub(super) nodes: BTreeMap<NodeName, Node>,
    /// Nodes that have joined, whether or not their agents have ever connected.
    #[serde(default)]
    pub(super) members: BTreeMap<NodeName, Member>,
    /// The values that operators have set.
    #[serde(default)]
    pub settings: Settings,
    /// Who set each changed setting.
    #[serde(default)]
    pub set_by: BTreeMap<Setting, SetBy>,
    /// Jobs that the head has deleted before anybody had fetched their files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub deleted: BTreeMap<JobId, DeletedJob>,
    /// Users of the cluster, with their quotas, blocks and login tokens.
    #[serde(default)]
    pub users: Users,
    /// Partitions and node traits.
    #[serde(default)]
    pub partitions: Partitions,
    /// Power stages of the nodes.
    #[serde(default)]
    pub power: Powers,
    /// The uid under which the head runs.
    #[serde(default)]
    pub(super) owner: Option<u32>,

    #[serde(skip)]
    pub(super) keys: BTreeMap<SubmissionKey, JobId>,
    #[serde(skip)]
    queue: Queue,
    /// The specifications of the most recent jobs, the latest first.
    #[serde(skip)]
    specs: VecDeque<Arc<JobSpec>>,
    /// The number of waiting tasks of each partition, in the queue or not. Partitions without waiting tasks may be
    /// absent.
    #[serde(skip)]
    pending: BTreeMap<Option<PartitionName>, u64>,
    #[serde(skip)]
    waiting: Waiting,
    /// Jobs with [progress](Job::has_progress).
    #[serde(skip)]
    pub(super) progress: BTreeSet<JobId>,
    #[serde(skip)]
    pub(super) dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    #[serde(skip)]
    pub(super) pool: Pool,
    #[serde(skip)]
    pub(super) names: BTreeMap<NodeIx, NodeName>,
    #[serde(skip)]
    pub(super) connections: BTreeMap<ConnectionId, NodeName>,
    /// Parts of runs, by rank, that this head has launched and the agent has not confirmed. Launches of an earlier head
    /// are excluded: only the node's hello tells which of them arrived.
    #[serde(skip)]
    pub(super) unconfirmed: BTreeSet<(RunId, u32)>,
    /// Nodes by the time at which they pass their next silence limit.
    #[serde(skip)]
    silences: BTreeSet<(Timestamp, NodeName)>,
    #[serde(skip)]
    pub(super) reservations: Vec<Reservation>,
    /// Whether something has changed since the last scheduling pass that may let a task start.
    #[serde(skip)]
    pub(super) needs_pass: bool,
    /// Jobs by the time at which their owners want to know that they still wait.
    #[serde(skip)]
    pub(super) wait_limits: BTreeSet<(Timestamp, JobId)>,
    /// Jobs that wait for their begin time, by this time.
    #[serde(skip)]
    pub(super) begins: BTreeSet<(WallTime, JobId)>,
    /// Jobs with dependencies whose delay runs, by the time at which the next delay ends.
    #[serde(skip)]
    pub(super) delays: BTreeSet<(Timestamp, JobId)>,
    /// The timer for notifying gossiping nodes.
    #[serde(skip)]
    pub(super) peers: Peers,
}

impl State {
    /// Rebuilds the derived fields of a state that was read from a snapshot.
    #[must_use]
    pub fn restored(mut self) -> Self {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        let names: Vec<NodeName> = self.nodes.keys().cloned().collect();
        names.iter().for_each(|name| self.enrol(name));
        for id in jobs {
            self.share_spec(id);
            let job = Arc::clone(&self.jobs[&id]);
            self.keys.insert(job.key, id);
            self.count_pending(&job.spec, 0, job.pending.len());
            self.waiting.add(&job);
            self.wait_limits.extend(job.wait_limit().map(|at| (at, id)));
            self.begins.extend(job.begins_at().map(|at| (at, id)));
            self.delays.extend(job.delayed_until().map(|at| (at, id)));
            for dependency in &job.unmet {
                self.dependents.entry(dependency.job).or_default().insert(id);
            }
            self.index(id);
        }
        let held =
            |(job, active, node): (&Arc<Job>, &Active, &Node)| (Arc::clone(job), node.runs[&active.run].counts());
        let held: Vec<_> = self.placed().map(held).collect();
        held.iter().for_each(|(job, held)| self.queue.hold(job, held, self.last_event_at));
        self
    }

    /// Adds a new node to the pool.
    pub(super) fn enrol(&mut self, name: &NodeName) {
        let node = &self.nodes[name];
        self.names.insert(node.ix, name.clone());
        self.silences.extend(node.next_limit(&self.settings).map(|at| (at, name.clone())));
        self.sync_traits(name);
    }

    /// Updates a node's offer, and its weight in the pool, if the node exists.
    pub(super) fn sync_traits(&mut self, name: &NodeName) {
        let traits = self.partitions.traits(name).cloned().unwrap_or_default();
        if let Some(node) = self.nodes.get_mut(name) {
            node.offer = traits.offer;
            let ix = node.ix;
            self.sync_pool(name);
            self.pool.set_weight(ix, traits.weight);
        }
    }

    /// Returns the pool index for the next new node.
    pub(super) fn next_ix(&self) -> NodeIx {
        self.names.last_key_value().map_or(NodeIx(0), |(last, _)| NodeIx(last.0 + 1))
    }

    /// Removes a node that has no runs and no connection.
    pub(super) fn remove_node(&mut self, name: &NodeName, now: Timestamp) {
        let node = self.nodes.remove(name).expect("the event was decided for a node that is known");
        assert!(node.runs.is_empty() && node.link.is_none(), "node {name} is forgotten while it is in use");
        node.next_limit(&self.settings).map(|at| self.silences.remove(&(at, name.clone())));
        if node.facts.gossip_at.is_some() {
            self.peers.changed(now);
        }
        self.names.remove(&node.ix);
        self.pool.remove(node.ix);
        self.queue.set_all(self.pool.sum());
        self.partitions.forget_sets();
        self.needs_pass = true;
    }

    /// Updates a node's total and free resources in the pool, and whether it is usable. The node must exist.
    pub(super) fn sync_pool(&mut self, name: &NodeName) {
        let node = &self.nodes[name];
        let usable = node.state() == NodeState::Up && self.power.takes_work(name);
        self.power.note_use(name, node.runs.is_empty(), self.last_event_at);
        // An exclusive task holds the whole node, also CPUs or memory that the node has gained since.
        let is_whole = |run: &RunId| self.job(run.task.job).is_some_and(|job| job.spec.surroundings.exclusive);
        let is_taken = node.runs.len() == 1 && node.runs.keys().all(is_whole);
        let free = if is_taken { Request::NOTHING } else { node.free() };
        self.pool.set(node.ix, name, &node.total(), &free, usable);
        self.queue.set_all(self.pool.sum());
        self.needs_pass = true;
    }

    /// Changes a node and updates `silences`. The node must exist. Callers update the pool with [`Self::sync_pool`].
    pub(super) fn change_node<T>(&mut self, name: &NodeName, change: impl FnOnce(&mut Node) -> T) -> T {
        let node = self.nodes.get_mut(name).expect("the event was decided for a node that is known");
        let before = node.next_limit(&self.settings);
        let value = change(node);
        let after = node.next_limit(&self.settings);
        if before != after {
            before.map(|at| self.silences.remove(&(at, name.clone())));
            self.silences.extend(after.map(|at| (at, name.clone())));
        }
        value
    }

    /// Takes over each node's newest connection from the state before a reload. A hello of an older connection may still
    /// arrive, because a closed link first passes on its hello.
    pub(super) fn keep_newest_connections(&mut self, before: &Self) {
        for (name, node) in &mut self.nodes {
            node.newest_connection = before.nodes.get(name).and_then(|before| before.newest_connection);
        }
    }

    /// Changes a setting and recomputes the silence limits. Requests a scheduling pass.
    pub(super) fn change_settings(&mut self, setting: Setting, value: Option<SettingValue>) {
        self.settings = self.settings.with(setting, value);
        let limit = |node: &Node| Some((node.next_limit(&self.settings)?, node.name.clone()));
        self.silences = self.nodes.values().filter_map(limit).collect();
        self.needs_pass = true;
    }

    /// Returns when the passage of time next requires a [`super::Command::Tick`]. The retention of ended jobs is
    /// [separate](Self::kept_until).
    #[must_use]
    pub fn next_deadline(&self, now: Now) -> Option<Timestamp> {
        let silence = self.silences.first().map(|(at, _)| at.plus_ms(1));
        let wait = self.wait_limits.first().map(|(at, _)| *at);
        let begin = self.begins.first().map(|(at, _)| now.at.plus_ms(at.ms_since(now.wall)));
        let delay = self.delays.first().map(|(at, _)| *at);
        let of_jobs = wait.into_iter().chain(begin).chain(delay);
        silence.into_iter().chain(self.peers.due()).chain(self.power.due()).chain(of_jobs).min()
    }

    /// Sets when the owner of a job next wants to know that the job still waits. The job must exist.
    pub(super) fn set_wait_limit(&mut self, id: JobId, limit: Option<Timestamp>) {
        let before = self.change_job(id, |job| {
            let before = job.wait_limit();
            job.wait = job.wait.take().zip(limit).map(|(wait, until)| Box::new(WaitLimit { until, ..*wait }));
            before
        });
        before.map(|at| self.wait_limits.remove(&(at, id)));
        self.wait_limits.extend(limit.map(|at| (at, id)));
    }

    /// Returns nodes that have passed their next silence limit.
    pub(super) fn overdue_nodes(&self, now: Timestamp) -> impl Iterator<Item = &Node> {
        self.silences.iter().take_while(move |(at, _)| *at < now).map(|(_, name)| &self.nodes[name])
    }

    /// Returns the next job's id.
    #[must_use]
    pub fn next_job(&self) -> JobId {
        JobId(self.last_job + 1)
    }

    /// Returns a live job by id; `None` if the job does not exist or has ended.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Arc<Job>> {
        self.jobs.get(&id)
    }

    /// Returns the live job that takes a number: its own id, or the number of an array's task.
    #[must_use]
    pub fn job_with_number(&self, number: JobId) -> Option<&Arc<Job>> {
        let (_, job) = self.jobs.range(..=number).next_back()?;
        (number.0 - job.id.0 < job.spec.numbers()).then_some(job)
    }

    /// Jobs that have not ended, by ascending id.
    pub fn jobs(&self) -> impl DoubleEndedIterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// Returns the number of jobs in the state.
    #[must_use]
    pub fn job_count(&self) -> usize {
        self.jobs.len()
    }

    /// Returns the priority of a job's partition; zero for a job without a partition.
    #[must_use]
    pub fn partition_priority(&self, job: &Job) -> i32 {
        self.partitions.tier(job.spec.partition.as_ref())
    }

    /// Startable jobs in queue order: by priority of the partition, priority of the job, and turn of the user.
    pub fn queue(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.queue.iter(|_| true, self.last_event_at).map(|id| &self.jobs[&id])
    }

    /// Startable jobs of one partition, or of all jobs without a partition, in the order of [`Self::ahead_of`].
    pub fn queue_in(&self, partition: Option<&PartitionName>) -> impl Iterator<Item = &Arc<Job>> {
        self.queue.iter(move |name| name == partition, self.last_event_at).map(|id| &self.jobs[&id])
    }

    /// Iterates over startable jobs in queue order, without those in partitions that start no jobs.
    pub(super) fn startable_queue(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.queue.iter(|partition| self.starts_jobs(partition), self.last_event_at).map(|id| &self.jobs[&id])
    }

    /// Returns the startable jobs by priority and user, without those in partitions that start no jobs.
    pub(super) fn queue_levels(&self, now: Timestamp) -> Levels<'_> {
        self.queue.levels(|partition| self.starts_jobs(partition), now)
    }

    /// Returns whether jobs of a partition, or those without a partition, may start.
    pub(super) fn starts_jobs(&self, partition: Option<&PartitionName>) -> bool {
        partition.is_none_or(|name| self.partitions.get(name).is_some_and(Partition::starts_jobs))
    }

    /// Records that a task of a job has started, and that the user holds this on a node in addition.
    pub(super) fn hold_for(&mut self, job: &Job, held: &Request) {
        self.queue.hold(job, held, self.last_event_at);
    }

    /// Records that a user no longer holds this on a node.
    pub(super) fn release_of(&mut self, user: &str, held: &Request) {
        self.queue.release(user, held);
    }

    /// Returns what a user's placed tasks hold.
    #[must_use]
    pub fn held_by(&self, user: &str) -> Holding {
        self.queue.held_by(user)
    }

    /// Returns the turn of a user whose next job is this, and who holds `more` than now.
    pub(super) fn turn_with(&self, user: UserIx, job: &Job, more: Option<&Started>, now: Timestamp) -> Turn {
        self.queue.turn_with(user, job, more, now)
    }

    /// Returns the share of the cluster that these resources are.
    pub(super) fn share_of(&self, held: &Holding) -> Share {
        self.queue.share_of(held)
    }

    /// Returns the number of startable jobs in a partition.
    #[must_use]
    pub fn waiting_in(&self, partition: &PartitionName) -> u64 {
        self.queue.len_of(partition)
    }

    /// Sets the priority of a partition's jobs relative to other partitions.
    pub(super) fn set_tier(&mut self, partition: &PartitionName, tier: i32) {
        self.queue.set_tier(partition, tier);
    }

    /// Returns how many jobs are ahead of this one in its partition, as if each turn of a user started one whole job.
    #[must_use]
    pub fn ahead_of(&self, job: &Job) -> Ahead {
        self.queue.ahead_of(job, self.last_event_at)
    }

    /// Returns how many jobs of a user wait, and the memory of their specifications.
    #[must_use]
    pub fn waiting_jobs_of(&self, user: &str) -> WaitingJobs {
        self.waiting.of(user)
    }

    /// Iterates over the live parts of placed tasks, node by node. The cost does not depend on waiting jobs.
    pub fn placed(&self) -> impl Iterator<Item = (&Arc<Job>, &Active, &Node)> {
        let runs = self.nodes.values().flat_map(|node| node.runs.keys().map(move |run| (run, node)));
        runs.map(|(run, node)| {
            let job = &self.jobs[&run.task.job];
            (job, &job.active[&run.task.index], node)
        })
    }

    /// Returns the results of ended parts whose runs continue on other nodes. The store's records do not contain these
    /// results yet.
    #[must_use]
    pub fn early_results(&self) -> Vec<Digest> {
        let over = |part: &Part| part.over.as_deref().and_then(RunEnd::manifest);
        self.placed()
            .filter(|(_, active, _)| active.parts.len() > 1)
            .flat_map(|(_, active, _)| &active.parts)
            .filter_map(over)
            .collect()
    }

    /// Returns a run and the node's rank in the run. `None` if the run's task has another current run, or the run has
    /// no part on the node.
    pub(super) fn part_on(&self, node: &NodeName, run: RunId) -> Option<(RunId, u32)> {
        Some((run, self.active(run)?.rank_of(node)?))
    }

    /// Iterates over nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Returns a node by name.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// Returns the node whose agent uses a connection.
    #[must_use]
    pub fn node_of(&self, connection: ConnectionId) -> Option<&Node> {
        self.connections.get(&connection).map(|name| &self.nodes[name])
    }

    /// Returns the live job that was submitted with this key.
    #[must_use]
    pub fn job_of_key(&self, key: SubmissionKey) -> Option<JobId> {
        self.keys.get(&key).copied()
    }

    /// Returns the placed task of a run; `None` if the task has another current run.
    #[must_use]
    pub fn active(&self, run: RunId) -> Option<&Active> {
        self.jobs.get(&run.task.job)?.active.get(&run.task.index).filter(|active| active.run == run)
    }

    /// Returns whether a scheduling pass is needed, because it may find a task to start.
    #[must_use]
    pub fn needs_pass(&self) -> bool {
        self.needs_pass && !self.queue.is_empty() && !self.connections.is_empty()
    }

    /// Returns a node's state, considering its power: a node that the head switched off is off, not down.
    #[must_use]
    pub fn node_state(&self, node: &Node) -> NodeState {
        match self.power.node(&node.name).map(|power| power.stage) {
            Some(super::power::Stage::Off) => NodeState::Off,
            Some(super::power::Stage::Waking) => NodeState::Waking,
            Some(super::power::Stage::Asking | super::power::Stage::Stopping) => NodeState::Stopping,
            _ => node.state(),
        }
    }

    /// Returns the waiting job that keeps a node from jobs that could delay it.
    #[must_use]
    pub fn kept_for(&self, node: &Node) -> Option<JobId> {
        let first = self.reservations.iter().find(|reservation| reservation.nodes.contains(&node.ix))?.job;
        self.job(first).filter(|job| !job.held).map(|job| job.id)
    }

    /// Returns since when a node is in its [state](Self::node_state), if that is known.
    #[must_use]
    pub fn node_since(&self, node: &Node, now: Now) -> Option<WallTime> {
        match (self.node_state(node), self.power.node(&node.name)) {
            (NodeState::Off | NodeState::Waking | NodeState::Stopping, Some(power)) => Some(power.since_wall),
            _ => node.since(now),
        }
    }

    /// Returns the number of nodes in each state.
    #[must_use]
    pub fn node_counts(&self) -> NodeCounts {
        self.nodes.values().fold(NodeCounts::default(), |mut counts, node| {
            match self.node_state(node) {
                NodeState::Up => counts.up += 1,
                NodeState::Suspect => counts.suspect += 1,
                NodeState::Down => counts.down += 1,
                NodeState::Draining => counts.draining += 1,
                NodeState::Drained => counts.drained += 1,
                NodeState::Off => counts.off += 1,
                NodeState::Waking => counts.waking += 1,
                NodeState::Stopping => counts.stopping += 1,
                NodeState::Removed => {}
            }
            counts
        })
    }

    /// Returns the number of live tasks in each stage.
    #[must_use]
    pub fn live_counts(&self) -> LiveCounts {
        self.live_counts_by_partition().into_values().fold(LiveCounts::default(), |sum, counts| LiveCounts {
            pending: sum.pending + counts.pending,
            starting: sum.starting + counts.starting,
            running: sum.running + counts.running,
            completing: sum.completing + counts.completing,
        })
    }

    /// Returns the number of live tasks of each partition in each stage. The cost does not depend on waiting jobs.
    #[must_use]
    pub fn live_counts_by_partition(&self) -> BTreeMap<Option<&PartitionName>, LiveCounts> {
        let pending = self.pending.iter();
        let mut all: BTreeMap<_, _> = pending
            .map(|(partition, &pending)| (partition.as_ref(), LiveCounts { pending, ..LiveCounts::default() }))
            .collect();
        // A task on several nodes appears once per node but counts once.
        let is_first =
            |active: &Active, node: &Node| active.first_live_part().is_some_and(|part| part.node == node.name);
        for (job, active, _) in self.placed().filter(|(_, active, node)| is_first(active, node)) {
            let counts = all.entry(job.spec.partition.as_ref()).or_default();
            match active.phase() {
                Phase::Placed | Phase::Accepted | Phase::Staged | Phase::Ready => counts.starting += 1,
                Phase::Running => counts.running += 1,
                Phase::Completing => counts.completing += 1,
            }
        }
        all
    }

    /// Returns the total resources of the nodes that are up. Totals saturate, because agents may report any number.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        let mut all = Capacity::default();
        for node in self.nodes.values().filter(|node| self.node_state(node) == NodeState::Up) {
            all.add(&node.total(), &node.free());
        }
        all
    }

    /// Gives new jobs numbers after `last`.
    pub(super) fn skip_numbers(&mut self, last: JobId) {
        if last >= self.next_job() {
            let first = self.next_job();
            match self.skipped.last_mut() {
                Some((_, end)) if end.0 + 1 == first.0 => *end = last,
                _ => self.skipped.push((first, last)),
            }
            self.last_job = last.0;
        }
    }

    /// Returns whether this head never gave the job's number. Only another copy of the head's state can have given it.
    pub(super) fn is_unknown(&self, job: JobId) -> bool {
        job >= self.next_job() || self.skipped.iter().any(|&(first, last)| (first..=last).contains(&job))
    }

    /// Adds a new job, whose id must be the next id.
    pub(super) fn insert_job(&mut self, job: Job) {
        assert_eq!(job.id, self.next_job(), "job ids count up");
        self.last_job = job.id.0 + (job.spec.numbers() - 1);
        self.add_to_state(Arc::new(job));
    }

    /// Adds a job to the state: a new job, or an ended job that is changed or requeued.
    pub(super) fn add_to_state(&mut self, job: Arc<Job>) {
        self.keys.insert(job.key, job.id);
        for dependency in &job.unmet {
            self.dependents.entry(dependency.job).or_default().insert(job.id);
        }
        let id = job.id;
        self.count_pending(&job.spec, 0, job.pending.len());
        self.wait_limits.extend(job.wait_limit().map(|at| (at, id)));
        self.begins.extend(job.begins_at().map(|at| (at, id)));
        self.delays.extend(job.delayed_until().map(|at| (at, id)));
        self.waiting.add(&job);
        self.jobs.insert(id, job);
        self.share_spec(id);
        self.index(id);
    }

    /// Makes a job share the memory of an equal recent specification, since consecutive jobs are often alike.
    fn share_spec(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("the job was just inserted");
        if let Some(known) = self.specs.iter().find(|known| **known == job.spec) {
            if !Arc::ptr_eq(known, &job.spec) {
                Arc::make_mut(job).spec = Arc::clone(known);
            }
            return;
        }
        if let Some(last) = self.specs.front() {
            Arc::make_mut(&mut Arc::make_mut(job).spec).share_with(last);
        }
        self.specs.truncate(RECENT_SPECS - 1);
        self.specs.push_front(Arc::clone(&job.spec));
    }

    /// Removes a job, if it is in the state.
    pub(super) fn remove_job(&mut self, id: JobId) -> Option<Arc<Job>> {
        let job = self.jobs.remove(&id)?;
        self.keys.remove(&job.key);
        self.count_pending(&job.spec, job.pending.len(), 0);
        job.wait_limit().map(|at| self.wait_limits.remove(&(at, id)));
        job.begins_at().map(|at| self.begins.remove(&(at, id)));
        job.delayed_until().map(|at| self.delays.remove(&(at, id)));
        if !job.pending.is_empty() {
            self.waiting.remove(&job, Waiting::gaps_of(&job));
        }
        self.queue.remove(&job);
        self.progress.remove(&id);
        job.unmet.iter().for_each(|dependency| self.depends_no_more(id, dependency.job));
        Some(job)
    }

    /// Sets the unmet dependencies of a job, which must be a subset of the current ones, and the delays that run. The job must exist.
    pub(super) fn set_unmet(&mut self, id: JobId, unmet: Box<[Dependency]>, delays: Vec<Delay>) {
        let settled = self.change_job(id, |job| {
            job.change_partly_met(|it| it.delays = delays);
            std::mem::replace(&mut job.unmet, unmet)
        });
        for on in settled.into_iter().map(|dependency| dependency.job) {
            // A job may depend on another in two ways, of which only one is settled.
            if self.jobs[&id].unmet.iter().all(|open| open.job != on) {
                self.depends_no_more(id, on);
            }
        }
    }

    /// Makes a job wait for these dependencies again. Tasks that may start now stay free.
    pub(super) fn wait_for(&mut self, id: JobId, dependencies: &[Dependency]) {
        for dependency in dependencies {
            self.dependents.entry(dependency.job).or_default().insert(id);
        }
        self.change_job(id, |job| {
            let free = job.independent().clone();
            job.change_partly_met(|it| it.freed = free);
            let known = job.unmet.iter().filter(|known| !dependencies.contains(known));
            job.unmet = distinct(known.chain(dependencies).copied());
        });
    }

    fn depends_no_more(&mut self, id: JobId, on: JobId) {
        if let Some(dependents) = self.dependents.get_mut(&on) {
            dependents.remove(&id);
            if dependents.is_empty() {
                self.dependents.remove(&on);
            }
        }
    }

    /// Changes a job and updates the indexes. The job must exist.
    pub(super) fn change_job<T>(&mut self, id: JobId, change: impl FnOnce(&mut Job) -> T) -> T {
        let job = self.jobs.get_mut(&id).expect("the event was decided for a job that exists");
        let waited = job.pending.len();
        let gaps = Waiting::gaps_of(job);
        let times = (job.begins_at(), job.delayed_until());
        let value = change(Arc::make_mut(job));
        if times != (job.begins_at(), job.delayed_until()) {
            times.0.map(|at| self.begins.remove(&(at, id)));
            times.1.map(|at| self.delays.remove(&(at, id)));
            self.begins.extend(job.begins_at().map(|at| (at, id)));
            self.delays.extend(job.delayed_until().map(|at| (at, id)));
        }
        match (waited > 0, job.pending.is_empty()) {
            (true, true) => self.waiting.remove(job, gaps),
            (true, false) => self.waiting.resize(job, gaps),
            (false, false) => self.waiting.add(job),
            (false, true) => {}
        }
        let waits = job.pending.len();
        if waits != waited {
            let spec = Arc::clone(&job.spec);
            self.count_pending(&spec, waited, waits);
        }
        self.index(id);
        value
    }

    /// Updates the number of waiting tasks of a job's partition.
    fn count_pending(&mut self, spec: &JobSpec, before: u64, after: u64) {
        // A lookup avoids copying the partition's name.
        let count = match self.pending.get_mut(&spec.partition) {
            Some(count) => count,
            None => self.pending.entry(spec.partition.clone()).or_default(),
        };
        *count = *count + after - before;
    }

    /// Updates the queue and the counts of waiting tasks for a job.
    fn index(&mut self, id: JobId) {
        self.power.changed();
        let job = &self.jobs[&id];
        match job.has_progress() {
            true => self.progress.insert(id),
            false => self.progress.remove(&id),
        };
        if job.startable() > 0 {
            let (owner, spec, tier) =
                (self.owner_of(job), Arc::clone(&job.spec), self.partitions.tier(job.spec.partition.as_ref()));
            self.needs_pass |= self.queue.insert(job, tier, self.last_event_at);
            self.remember_set(owner, &spec);
        } else {
            self.queue.remove(job);
        }
    }
}

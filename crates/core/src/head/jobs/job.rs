//! A job as the head stores it: compact while its tasks are alike, however many there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_model::{
    Attempt, Dependency, Digest, Ending, Energy, IndexSet, JobId, JobSpec, JobState, NodeName, Request, Resources,
    RunId, TaskId, Timestamp, WallTime, Work,
};
use hostler_proto::accounting::{Consumption, JobUse};
use hostler_proto::link::{EndCause, RunEnd, StepEndpoint, Usage};
use hostler_proto::stages::Stages;
use serde::{Deserialize, Serialize};

use super::dependency::{Delay, PartlyMet, distinct};
use crate::head::ids::{Now, SubmissionKey};

/// How long a job may wait before its owner is told, on the cluster's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitLimit {
    /// When the job was submitted.
    pub submitted: Timestamp,
    /// When the owner is told.
    pub until: Timestamp,
}

/// Tasks of an array that are held, although the whole job is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTasks {
    /// All held tasks.
    pub tasks: IndexSet,
    /// Those that an operator holds, so that the owner cannot release them.
    #[serde(default, skip_serializing_if = "IndexSet::is_empty")]
    pub by_operator: IndexSet,
}

/// A job. Each of its tasks is in exactly one of `pending`, `active` and `endings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The job's id.
    pub id: JobId,
    /// The submission's key.
    pub key: SubmissionKey,
    /// The owner's name.
    pub user: String,
    /// The job's specification, as submitted or as last changed.
    pub spec: Arc<JobSpec>,
    /// When the job was submitted.
    pub submitted_at: WallTime,
    /// When a subscription next wants to know that the job still waits. In a box, because few jobs have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Box<WaitLimit>>,
    /// When the job's first task started. After a requeue of the whole job: when the first task of the last attempt
    /// started.
    pub started_at: Option<WallTime>,
    /// When the last of the tasks that have ended did so: with its process, if one ran. A live job has no end yet: see
    /// [`Job::ended_at`].
    pub ended_at: Option<WallTime>,
    /// When the job's last task ended, on the cluster's clock: the start of the job's retention.
    pub ended: Option<Timestamp>,
    /// Whether the job is on hold.
    pub held: bool,
    /// Whether an operator holds the job, so that its owner cannot release it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_by_operator: bool,
    /// Tasks that are held on their own. In a box, because few jobs have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_tasks: Option<Box<HeldTasks>>,
    /// Dependencies that are not satisfied yet.
    pub unmet: Box<[Dependency]>,
    /// How far the dependencies are satisfied, if partly. In a box, because few jobs have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partly_met: Option<Box<PartlyMet>>,
    /// Indices of tasks that wait.
    pub pending: IndexSet,
    /// Tasks that are placed on nodes, by index.
    pub active: BTreeMap<u32, Active>,
    /// Indices of ended tasks, by final state and exit code.
    pub endings: BTreeMap<Ending, IndexSet>,
    /// The last attempt of tasks that were placed and then requeued.
    pub attempts: BTreeMap<u32, Attempt>,
    /// Whether the job's begin time has not come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_early: bool,
    /// Tasks whose results are on the head.
    pub results: IndexSet,
    /// Tasks whose results a client has fetched.
    pub fetched: IndexSet,
    /// Tasks with an unfetched result of an earlier attempt, by attempt. The store has a row for each. In a box, because few
    /// jobs have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Box<BTreeMap<Attempt, IndexSet>>>,
    /// Results whose files the next attempts of tasks start with. In a box, because few jobs have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_files: Option<Box<KeptFiles>>,
    /// The owner's uid on the submitting machine, if known.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The share of the job in the energy of its nodes, including requeued attempts. Counts only parts that have ended;
    /// `None` if none of the nodes has a power meter. In a box, because waiting jobs have none.
    #[serde(default)]
    pub energy: Option<Box<Energy>>,
    /// What the job has held and used, including requeued attempts. Counts only parts that have ended; `None` until the
    /// first part has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Box<JobUse>>,
    /// The digest of the job's environment variables, which the store keeps. Jobs in older logs keep the variables in
    /// `spec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Digest>,
    /// Whether the job's environment variables were deleted when it completed. Such a job cannot be requeued.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost_environment: bool,
}

/// Hashes of tasks' results, by index, each with the rank of its node.
pub type KeptFiles = BTreeMap<u32, Vec<(u32, Digest)>>;

/// A task that is placed on nodes. The task's run has one part per node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// The task's current run.
    pub run: RunId,
    /// The run's parts, ordered by rank; at least one.
    pub parts: Vec<Part>,
    /// When the run was placed; once the run's processes have started, when they started.
    pub since: Timestamp,
    /// When the run's processes had started on every node.
    pub started_at: Option<WallTime>,
    /// When the run reached each stage on every node.
    pub stages: Stages,
    /// Why the head asked the agents to end the run; `None` if it did not ask.
    pub ending: Option<EndCause>,
    /// Whether the job's time limit has changed since the launch, so that the agents must learn it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_new_limit: bool,
    /// Whether the task's next attempt starts with the files of this one, because a user requeued it so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_files: bool,
    /// The rank of the first part that ended without completing. The ending of this part becomes the task's ending.
    #[serde(default)]
    pub broken_by: Option<u32>,
}

/// The part of a run on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The node that executes the part.
    pub node: NodeName,
    /// The resources that the part holds until it has ended.
    pub resources: Resources,
    /// How far the part has progressed.
    pub phase: Phase,
    /// A port that was free on the node, for communication between the processes; set when a run on several nodes, or of
    /// an allocation without a program, is ready.
    #[serde(default)]
    pub port: Option<u16>,
    /// Port and certificate for steps from the other nodes; set with the port, `None` if the node accepts no steps.
    #[serde(default)]
    pub endpoint: Option<StepEndpoint>,
    /// The reading of the node's energy meter at the placement, if the node has a meter.
    #[serde(default)]
    pub metered: Option<Energy>,
    /// How the part ended; `None` while the part is live.
    #[serde(default)]
    pub over: Option<Box<RunEnd>>,
}

/// The progress of a part of a run. Later phases compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The head has sent the launch; the agent has not confirmed it.
    Placed,
    /// The agent has stored the launch.
    Accepted,
    /// The node has the files of the captured folder and prepares the environment.
    Staged,
    /// The node has prepared the part, which waits for the other nodes.
    Ready,
    /// The part's process runs.
    Running,
    /// The process has ended; the agent collects and uploads the results.
    Completing,
}

impl Phase {
    /// Returns the state of a task in this phase.
    #[must_use]
    pub const fn state(self) -> JobState {
        match self {
            Self::Placed | Self::Accepted | Self::Staged | Self::Ready => JobState::Starting,
            Self::Running => JobState::Running,
            Self::Completing => JobState::Completing,
        }
    }
}

impl Active {
    /// Returns the phase of the run's slowest part. A part that has ended counts as completing.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.parts.iter().map(Part::phase).min().expect("a run has at least one part")
    }

    /// Returns a node's rank in the run.
    #[must_use]
    pub fn rank_of(&self, node: &NodeName) -> Option<u32> {
        (0..).zip(&self.parts).find(|(_, part)| part.node == *node).map(|(rank, _)| rank)
    }

    /// Returns the part on the node with this rank.
    #[must_use]
    pub fn part(&self, rank: u32) -> Option<&Part> {
        self.parts.get(rank as usize)
    }

    /// Returns the live part with the lowest rank. A placed run always has a live part.
    #[must_use]
    pub fn first_live_part(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.over.is_none())
    }

    /// Iterates over the run's nodes by rank.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.parts.iter().map(|part| &part.node)
    }

    /// Returns whether the run's processes may run: on one node once the agent has the launch, on several once all
    /// nodes are ready.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        match self.parts.as_slice() {
            [only] => only.phase >= Phase::Accepted,
            // A part that ends before it is ready keeps the others from starting.
            several => several.iter().all(|part| part.port.is_some()),
        }
    }
}

impl Part {
    /// Returns what the part has held for `held_ms` milliseconds and used.
    pub(in crate::head) fn consumption(&self, held_ms: u64, usage: &Usage) -> JobUse {
        let times = |count: u64| count.saturating_mul(held_ms);
        let mib_ms = |bytes: u64| times(bytes.div_ceil(1 << 20));
        let peak_memory_bytes = usage.memory_peak_bytes.unwrap_or(usage.max_rss_bytes);
        let sums = Consumption {
            cpu_held_ms: times(self.resources.cpus.len().into()),
            cpu_used_ms: usage.user_ms.saturating_add(usage.system_ms),
            gpu_held_ms: times(self.resources.gpus.len() as u64),
            memory_held_mib_ms: mib_ms(self.resources.memory_bytes),
            memory_used_mib_ms: mib_ms(peak_memory_bytes),
            energy_uj: 0,
        };
        JobUse { sums, peak_memory_bytes }
    }

    /// Returns the part's phase; `Completing` once it has ended.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.over.is_some() { Phase::Completing } else { self.phase }
    }
}

/// A job that the head deleted before anybody had fetched its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedJob {
    /// The job's user.
    pub user: String,
    /// When the head deleted the job.
    pub at: WallTime,
}

impl Job {
    /// Lets placed or ended tasks wait again. If no other task is placed or ended, also clears the job's start time,
    /// which the next attempt sets again.
    pub(in crate::head) fn wait_again(&mut self, tasks: &IndexSet) {
        self.pending.add_all(tasks);
        if self.waits_for_others() {
            self.change_partly_met(|it| it.freed.add_all(tasks));
        }
        if self.active.is_empty() && self.endings.values().all(IndexSet::is_empty) {
            (self.started_at, self.ended_at) = (None, None);
        }
    }

    /// The begin time that the job waits for.
    pub(in crate::head) fn begins_at(&self) -> Option<WallTime> {
        self.spec.begin.as_deref().copied().filter(|_| self.too_early)
    }

    /// When the next delay of the job's dependencies ends.
    pub(in crate::head) fn delayed_until(&self) -> Option<Timestamp> {
        self.delays().iter().map(|delay| delay.until).min()
    }

    /// Returns the dependencies whose jobs have begun and whose delays run.
    #[must_use]
    pub fn delays(&self) -> &[Delay] {
        self.partly_met.as_ref().map_or(&[], |it| &it.delays)
    }

    /// Returns the waiting tasks that may start although others wait for a dependency.
    #[must_use]
    pub fn freed(&self) -> &IndexSet {
        self.partly_met.as_ref().map_or(&IndexSet::EMPTY, |it| &it.freed)
    }

    /// Changes how far the dependencies are satisfied.
    pub(in crate::head) fn change_partly_met<T>(&mut self, change: impl FnOnce(&mut PartlyMet) -> T) {
        let mut it = self.partly_met.take().unwrap_or_default();
        change(&mut it);
        self.partly_met = Some(it).filter(|it| !it.delays.is_empty() || !it.freed.is_empty());
    }

    /// Notes that these tasks no longer wait.
    pub(in crate::head) fn no_longer_wait(&mut self, tasks: &IndexSet) {
        self.pending.remove_all(tasks);
        if self.partly_met.is_some() {
            self.change_partly_met(|it| it.freed.remove_all(tasks));
        }
    }

    /// Returns whether a dependency is not satisfied yet, at least for some tasks.
    #[must_use]
    pub fn waits_for_others(&self) -> bool {
        !self.unmet.is_empty() || !self.delays().is_empty()
    }

    /// Iterates over the dependencies that are not satisfied yet, at least for some tasks.
    pub fn open_dependencies(&self) -> impl Iterator<Item = &Dependency> {
        self.unmet.iter().chain(self.delays().iter().map(|delay| &delay.dependency))
    }

    /// Returns the waiting tasks whose dependencies are satisfied.
    #[must_use]
    pub fn independent(&self) -> &IndexSet {
        if self.waits_for_others() { self.freed() } else { &self.pending }
    }

    /// When a subscription next wants to know that the job still waits.
    pub(in crate::head) fn wait_limit(&self) -> Option<Timestamp> {
        self.wait.as_ref().map(|wait| wait.until)
    }

    /// Creates a newly submitted job of this user and uid.
    pub(in crate::head) fn new(
        id: JobId,
        key: SubmissionKey,
        (user, uid): (&str, Option<u32>),
        spec: &Arc<JobSpec>,
        now: Now,
    ) -> Self {
        let mut job = Self {
            id,
            key,
            user: user.to_owned(),
            spec: Arc::clone(spec),
            submitted_at: now.wall,
            wait: spec
                .subscriptions()
                .iter()
                .filter_map(|it| it.wait_ms)
                .min()
                .map(|ms| Box::new(WaitLimit { submitted: now.at, until: now.at.plus_ms(ms) })),
            started_at: None,
            ended_at: None,
            ended: None,
            held: spec.hold,
            held_by_operator: false,
            held_tasks: None,
            unmet: distinct(spec.after.iter().copied()),
            partly_met: None,
            too_early: spec.begin.as_ref().is_some_and(|begin| **begin > now.wall),
            pending: IndexSet::default(),
            active: BTreeMap::new(),
            endings: BTreeMap::new(),
            attempts: BTreeMap::new(),
            results: IndexSet::default(),
            fetched: IndexSet::default(),
            earlier: None,
            kept_files: None,
            uid,
            energy: None,
            used: None,
            environment: None,
            lost_environment: false,
        };
        job.pending = job.indices();
        job
    }

    /// Deletes the job's environment variables if the job has completed, since it then never runs again.
    pub(in crate::head) fn drop_environment_if_completed(&mut self) {
        if self.environment.is_some() && self.is_ended() && self.state() == JobState::Completed {
            self.lost_environment = true;
            self.environment = None;
        }
    }

    /// Returns the array's indices; only `0` for a job without an array.
    #[must_use]
    pub fn indices(&self) -> IndexSet {
        self.spec.array.as_ref().map_or_else(|| IndexSet::one(0), |array| array.indices.clone())
    }

    /// Returns the number of the job's tasks.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.spec.array.as_ref().map_or(1, |array| array.indices.len())
    }

    /// Returns whether the job has no tasks, which never happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns whether all tasks have ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.pending.is_empty() && self.active.is_empty()
    }

    /// Returns when the job's last task ended; `None` while the job is live.
    #[must_use]
    pub fn ended_at(&self) -> Option<WallTime> {
        self.ended_at.filter(|_| self.is_ended())
    }

    /// Returns how many tasks may start now, considering holds, dependencies, the begin time and the array's limit, but not resources.
    #[must_use]
    pub fn startable(&self) -> u64 {
        if self.held || self.too_early {
            return 0;
        }
        match self.spec.array.as_ref().and_then(|array| array.limit) {
            Some(limit) => self.free_len().min(u64::from(limit).saturating_sub(self.active.len() as u64)),
            None => self.free_len(),
        }
    }

    /// Returns the number of the task's next attempt.
    #[must_use]
    pub fn next_attempt(&self, index: u32) -> Attempt {
        Attempt(self.attempts.get(&index).map_or(1, |last| last.0 + 1))
    }

    /// Returns the highest attempt number of the job's tasks; zero before the first placement.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        let active = self.active.values().map(|active| active.run.attempt);
        let ended = Attempt(u32::from(self.endings.keys().any(|ending| ending.exit_code.is_some())));
        active.chain(self.attempts.values().copied()).max().unwrap_or_default().max(ended)
    }

    /// Returns how a task ended; `None` if the task has not ended.
    #[must_use]
    pub fn ending_of(&self, index: u32) -> Option<Ending> {
        self.endings.iter().find(|(_, indices)| indices.contains(index)).map(|(ending, _)| *ending)
    }

    /// Returns whether any task is placed or has ended. False while all tasks wait.
    #[must_use]
    pub fn has_progress(&self) -> bool {
        !self.active.is_empty() || !self.endings.is_empty() || self.pending.is_empty()
    }

    /// Returns the job's state: the state of its most advanced live task, or the worst ending once all tasks have
    /// ended.
    #[must_use]
    pub fn state(&self) -> JobState {
        let phase = |phase| self.active.values().any(|active| active.phase() == phase);
        if phase(Phase::Running) {
            JobState::Running
        } else if phase(Phase::Completing) {
            JobState::Completing
        } else if !self.active.is_empty() {
            JobState::Starting
        } else if !self.pending.is_empty() {
            JobState::Pending
        } else {
            self.worst_ending()
        }
    }

    /// Returns the most severe ending; `Completed` only if every task completed.
    fn worst_ending(&self) -> JobState {
        const WORST_FIRST: [JobState; 6] = [
            JobState::NodeFail,
            JobState::OutOfMemory,
            JobState::Timeout,
            JobState::Failed,
            JobState::Preempted,
            JobState::Cancelled,
        ];
        WORST_FIRST
            .into_iter()
            .find(|state| self.endings.keys().any(|ending| ending.state == *state))
            .unwrap_or(JobState::Completed)
    }

    /// Returns the ended task whose end explains the job's: the first one with the most severe ending, preferably one that
    /// could not start. `None` if no task of an array ended without completing.
    #[must_use]
    pub fn telling_task(&self) -> Option<u32> {
        let worst = self.worst_ending();
        let endings = self.endings.iter().filter(|(ending, _)| ending.state == worst);
        let first = endings.filter_map(|(ending, indices)| Some((ending.exit_code.is_some(), indices.first()?))).min();
        first.filter(|_| self.spec.array.is_none() || worst != JobState::Completed).map(|(_, index)| index)
    }

    /// Returns the highest exit code of the tasks, once all have ended.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        if self.is_ended() { self.endings.keys().filter_map(|ending| ending.exit_code).max() } else { None }
    }

    /// Returns how many tasks completed, and how many ended otherwise.
    #[must_use]
    pub fn ended_counts(&self) -> (u64, u64) {
        let count = |completed: bool| {
            let of_kind = |(ending, _): &(&Ending, &IndexSet)| (ending.state == JobState::Completed) == completed;
            self.endings.iter().filter(of_kind).map(|(_, indices)| indices.len()).sum()
        };
        (count(true), count(false))
    }

    /// Returns the number of tasks by state. A state may occur several times or with no tasks.
    pub fn tasks_by_state(&self) -> impl Iterator<Item = (JobState, u64)> {
        let live = self.active.values().map(|active| (active.phase().state(), 1));
        let ended = self.endings.iter().map(|(ending, indices)| (ending.state, indices.len()));
        std::iter::once((JobState::Pending, self.pending.len())).chain(live).chain(ended)
    }

    /// Returns the indices of the tasks in each state that has tasks.
    #[must_use]
    pub fn indices_by_state(&self) -> BTreeMap<JobState, IndexSet> {
        let mut all: BTreeMap<JobState, IndexSet> = BTreeMap::new();
        for (index, active) in &self.active {
            all.entry(active.phase().state()).or_default().insert(*index);
        }
        let ended = self.endings.iter().map(|(ending, indices)| (ending.state, indices));
        for (state, indices) in ended.chain([(JobState::Pending, &self.pending)]).filter(|(_, set)| !set.is_empty()) {
            all.entry(state).or_default().add_all(indices);
        }
        all
    }

    /// Returns whether any task is in one of these states.
    #[must_use]
    pub fn has_task_in(&self, states: &[JobState]) -> bool {
        self.tasks_by_state().any(|(state, tasks)| tasks > 0 && states.contains(&state))
    }

    /// Returns the tasks with a fetched result that is still on the head. To free disk space, the head drops fetched
    /// results first.
    #[must_use]
    pub fn fetched_results(&self) -> IndexSet {
        self.results.intersection(&self.fetched)
    }

    /// Returns what a task has on each of its nodes. For an exclusive job: what a placed task has on its first node, or the
    /// least that it asks for.
    #[must_use]
    pub fn on_each_node(&self) -> Request {
        let first = self.active.values().flat_map(|active| &active.parts).next();
        match first.filter(|_| self.spec.surroundings.exclusive) {
            Some(part) => part.resources.counts(),
            None => self.spec.request.clone(),
        }
    }

    /// Returns whether results of the job have content: not those of a command whose output goes to a file of its user.
    pub(in crate::head) fn keeps_output(&self) -> bool {
        let is_kept = self.spec.files.as_ref().is_none_or(|files| files.stdout.is_none());
        is_kept || matches!(self.spec.work, Work::Project { .. })
    }

    /// Returns whether the head has any result of the job, also of earlier attempts.
    #[must_use]
    pub fn has_results(&self) -> bool {
        !self.results.is_empty() || self.earlier.is_some()
    }

    /// Returns whether the head has a result of the job that no client has fetched, also of earlier attempts.
    #[must_use]
    pub fn has_unfetched_results(&self) -> bool {
        !self.results.is_subset(&self.fetched) || self.earlier.is_some()
    }

    /// Returns whether files of the job wait on the head until its user fetches them. The output of a command does not: it can
    /// be read without a fetch.
    #[must_use]
    pub fn awaits_fetch(&self) -> bool {
        matches!(self.spec.work, Work::Project { .. }) && self.has_unfetched_results()
    }

    /// Returns whether the head has a result of the task, also of an earlier attempt.
    #[must_use]
    pub fn has_result_of(&self, index: u32) -> bool {
        self.results.contains(index) || self.earlier.iter().flat_map(|it| it.values()).any(|it| it.contains(index))
    }

    /// Returns the number of the task's last attempt. The task has ended.
    pub(in crate::head) fn last_attempt(&self, index: u32) -> Attempt {
        self.attempts.get(&index).copied().unwrap_or(Attempt(1))
    }

    /// Returns the tasks with an unfetched result of this attempt, after which they were requeued.
    #[must_use]
    pub fn earlier_results(&self, attempt: Attempt) -> IndexSet {
        self.earlier.as_ref().and_then(|earlier| earlier.get(&attempt)).cloned().unwrap_or_default()
    }

    /// Returns the tasks with an unfetched result of any earlier attempt.
    #[must_use]
    pub fn tasks_with_earlier_results(&self) -> IndexSet {
        let mut all = IndexSet::default();
        self.earlier.iter().flat_map(|earlier| earlier.values()).for_each(|tasks| all.add_all(tasks));
        all
    }

    /// Changes which results the next attempts of tasks start with.
    pub(in crate::head) fn change_kept_files(&mut self, change: impl FnOnce(&mut KeptFiles)) {
        let mut kept = self.kept_files.take().unwrap_or_default();
        change(&mut kept);
        self.kept_files = Some(kept).filter(|kept| !kept.is_empty());
    }

    /// Returns the result whose files the task's next attempt starts with on the node of this rank.
    pub(in crate::head) fn kept_files_of(&self, index: u32, rank: u32) -> Option<Digest> {
        let kept = self.kept_files.as_ref()?.get(&index)?;
        kept.iter().find(|(at, _)| *at == rank).map(|(_, manifest)| *manifest)
    }

    pub(in crate::head) fn keep_earlier(&mut self, attempt: Attempt, index: u32) {
        self.earlier.get_or_insert_default().entry(attempt).or_default().insert(index);
    }

    pub(in crate::head) fn drop_earlier(&mut self, attempt: Attempt, indices: &IndexSet) {
        if let Some(earlier) = &mut self.earlier {
            earlier.entry(attempt).or_default().remove_all(indices);
            earlier.retain(|_, tasks| !tasks.is_empty());
        }
        self.earlier.take_if(|earlier| earlier.is_empty());
    }

    /// Returns the tasks whose last attempt has an unfetched result. Leaves out commands that write their output to a file of
    /// the user: their results are empty.
    pub fn unfetched_results(&self) -> impl Iterator<Item = u32> {
        let has_content = self.keeps_output();
        self.results.iter().filter(move |index| has_content && !self.fetched.contains(*index))
    }

    /// Returns the id of the task with this index.
    #[must_use]
    pub fn task(&self, index: u32) -> TaskId {
        TaskId { job: self.id, index }
    }

    /// Removes tasks from `endings`.
    pub(in crate::head) fn reopen(&mut self, tasks: &IndexSet) {
        self.endings.retain(|_, indices| {
            indices.remove_all(tasks);
            !indices.is_empty()
        });
    }

    /// The memory of the sets of tasks that have several ranges, in bytes: what tasks with gaps between them cost.
    pub(in crate::head) fn memory_of_sets(&self) -> usize {
        let sets = [&self.pending, self.freed()].into_iter().chain(self.endings.values());
        sets.filter(|set| set.range_count() > 1).map(IndexSet::memory_bytes).sum()
    }
}

//! A job as the head stores it: compact while its tasks are alike, however many there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_model::{
    Attempt, Dependency, Digest, Ending, Energy, IndexSet, JobId, JobSpec, JobState, NodeName, Resources, RunId,
    TaskId, Timestamp, WallTime,
};
use hostler_proto::link::{EndCause, RunEnd, StepDoor};
use serde::{Deserialize, Serialize};

use super::event::SubmissionKey;

/// A job. Each of its tasks is in exactly one of `pending`, `active` and `endings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The job's id.
    pub id: JobId,
    /// The submission's key.
    pub key: SubmissionKey,
    /// The owner.
    pub user: String,
    /// The specification.
    pub spec: Arc<JobSpec>,
    /// When it was submitted.
    pub submitted_at: WallTime,
    /// When its first task started. After a requeue of the whole job: when the first task of the last attempt started.
    pub started_at: Option<WallTime>,
    /// When its last task ended.
    pub ended_at: Option<WallTime>,
    /// When its last task ended, on the cluster's clock: the start of its retention.
    pub ended: Option<Timestamp>,
    /// Whether the job is on hold.
    pub held: bool,
    /// Dependencies not yet satisfied.
    pub unmet: Vec<Dependency>,
    /// Waiting tasks.
    pub pending: IndexSet,
    /// Placed tasks.
    pub active: BTreeMap<u32, Active>,
    /// Ended tasks by ending.
    pub endings: BTreeMap<Ending, IndexSet>,
    /// The last attempt of tasks that were placed and then requeued.
    pub attempts: BTreeMap<u32, Attempt>,
    /// Tasks whose results are on the head.
    pub results: IndexSet,
    /// Tasks whose results a client has fetched.
    pub fetched: IndexSet,
    /// The owner's uid on the submitting machine, if known.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The job's share of the energy of its nodes, including requeued attempts. Counts only parts that have ended; `None` if none of
    /// its nodes has a power meter.
    #[serde(default)]
    pub energy: Option<Energy>,
    /// The digest of its environment variables, which the store has. In jobs of older logs they are in `spec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Digest>,
    /// Whether its environment variables were deleted when it completed: it cannot run again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost_environment: bool,
}

/// A placed task. It runs as one run, with a part on each of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// The run.
    pub run: RunId,
    /// Its parts, ordered by rank; at least one.
    pub parts: Vec<Part>,
    /// When it was placed; once it runs, when it started to run.
    pub since: Timestamp,
    /// When its processes had started on every node.
    pub started_at: Option<WallTime>,
    /// Why the head has asked the agents to end it, if it has.
    pub ending: Option<EndCause>,
    /// The rank of the first part that ended without completing. Its ending becomes the task's ending.
    #[serde(default)]
    pub broken_by: Option<u32>,
}

/// The part of a run on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The node.
    pub node: NodeName,
    /// The resources that it holds until it is over.
    pub resources: Resources,
    /// How far it is.
    pub phase: Phase,
    /// A port that was free on the node, for communication between the processes; set when a run on several nodes is ready.
    #[serde(default)]
    pub port: Option<u16>,
    /// Where the node accepts steps from the other nodes, if it does; set with the port.
    #[serde(default)]
    pub door: Option<StepDoor>,
    /// The reading of the node's meter at the placement, if the node has a meter.
    #[serde(default)]
    pub metered: Option<Energy>,
    /// How it ended, if it has.
    #[serde(default)]
    pub over: Option<Box<RunEnd>>,
}

/// How far a part of a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The launch is on the way to the agent.
    Placed,
    /// The agent has stored the launch.
    Accepted,
    /// The node is ready; the process waits for the other nodes.
    Ready,
    /// The process runs.
    Running,
    /// The process has ended; results are on the way.
    Completing,
}

impl Active {
    /// How far the run is: the phase of its slowest part. A part that is over counts as completing.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.parts.iter().map(Part::phase).min().expect("a run has at least one part")
    }

    /// The rank of a node in the run.
    #[must_use]
    pub fn rank_of(&self, node: &NodeName) -> Option<u32> {
        (0..).zip(&self.parts).find(|(_, part)| part.node == *node).map(|(rank, _)| rank)
    }

    /// A part by its node's rank.
    #[must_use]
    pub fn part(&self, rank: u32) -> Option<&Part> {
        self.parts.get(rank as usize)
    }

    /// The part with the lowest rank that is still live; a current run always has one.
    #[must_use]
    pub fn first_live_part(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.over.is_none())
    }

    /// The nodes, ordered by rank.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.parts.iter().map(|part| &part.node)
    }

    /// Whether its processes may run: on one node once the agent has the launch, on several once all nodes are ready.
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
    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.over.is_some() { Phase::Completing } else { self.phase }
    }
}

impl Job {
    /// Makes a placed or ended task wait again. If no other task is placed or ended, the job's start time is cleared: the next attempt
    /// sets it.
    pub(super) fn wait_again(&mut self, index: u32) {
        self.pending.insert(index);
        if self.active.is_empty() && self.endings.values().all(IndexSet::is_empty) {
            self.started_at = None;
        }
    }

    /// A newly submitted job of this user and uid.
    pub(super) fn new(
        id: JobId,
        key: SubmissionKey,
        (user, uid): (&str, Option<u32>),
        spec: &Arc<JobSpec>,
        submitted_at: WallTime,
    ) -> Self {
        let mut job = Self {
            id,
            key,
            user: user.to_owned(),
            spec: Arc::clone(spec),
            submitted_at,
            started_at: None,
            ended_at: None,
            ended: None,
            held: spec.hold,
            unmet: spec.after.clone(),
            pending: IndexSet::default(),
            active: BTreeMap::new(),
            endings: BTreeMap::new(),
            attempts: BTreeMap::new(),
            results: IndexSet::default(),
            fetched: IndexSet::default(),
            uid,
            energy: None,
            environment: None,
            lost_environment: false,
        };
        job.pending = job.indices();
        job
    }

    /// Deletes the environment variables of a completed job, which will not run again.
    pub(super) fn drop_environment_if_completed(&mut self) {
        let had_one = self.environment.is_some() || !self.spec.environment.is_empty();
        if !had_one || !self.is_ended() || self.state() != JobState::Completed {
            return;
        }
        self.lost_environment = true;
        self.environment = None;
        if !self.spec.environment.is_empty() {
            Arc::make_mut(&mut self.spec).environment.clear();
        }
    }

    /// The indices of its array; `0` for a job without an array.
    #[must_use]
    pub fn indices(&self) -> IndexSet {
        self.spec.array.as_ref().map_or_else(|| IndexSet::one(0), |array| array.indices.clone())
    }

    /// How many tasks it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.spec.array.as_ref().map_or(1, |array| array.indices.len())
    }

    /// Never: a job has at least one task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Whether all tasks have ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.pending.is_empty() && self.active.is_empty()
    }

    /// How many tasks may start now, as far as the job itself is concerned.
    #[must_use]
    pub fn startable(&self) -> u64 {
        if self.held || !self.unmet.is_empty() {
            return 0;
        }
        match self.spec.array.as_ref().and_then(|array| array.limit) {
            Some(limit) => self.pending.len().min(u64::from(limit).saturating_sub(self.active.len() as u64)),
            None => self.pending.len(),
        }
    }

    /// The task's next attempt.
    #[must_use]
    pub fn next_attempt(&self, index: u32) -> Attempt {
        Attempt(self.attempts.get(&index).map_or(1, |last| last.0 + 1))
    }

    /// The highest attempt of its tasks; zero before the first placement.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        let active = self.active.values().map(|active| active.run.attempt);
        let ended = Attempt(u32::from(self.endings.keys().any(|ending| ending.exit_code.is_some())));
        active.chain(self.attempts.values().copied()).max().unwrap_or_default().max(ended)
    }

    /// How a task ended, if it has.
    #[must_use]
    pub fn ending_of(&self, index: u32) -> Option<Ending> {
        self.endings.iter().find(|(_, indices)| indices.contains(index)).map(|(ending, _)| *ending)
    }

    /// The job's state: the state of its most advanced live task, or the worst ending once all tasks have ended.
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

    /// The most severe ending; completed only if every task completed.
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

    /// The highest exit code of its tasks, once all have ended.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        if self.is_ended() { self.endings.keys().filter_map(|ending| ending.exit_code).max() } else { None }
    }

    /// How many tasks completed, and how many ended otherwise.
    #[must_use]
    pub fn ended_counts(&self) -> (u64, u64) {
        let count = |completed: bool| {
            let of_kind = |(ending, _): &(&Ending, &IndexSet)| (ending.state == JobState::Completed) == completed;
            self.endings.iter().filter(of_kind).map(|(_, indices)| indices.len()).sum()
        };
        (count(true), count(false))
    }

    /// How many of the tasks that did not complete were cancelled.
    #[must_use]
    pub fn cancelled_count(&self) -> u64 {
        let cancelled = self.endings.iter().filter(|(ending, _)| ending.state == JobState::Cancelled);
        cancelled.map(|(_, indices)| indices.len()).sum()
    }

    /// Tasks with a fetched result that is still on the head; these results are dropped first to free space.
    #[must_use]
    pub fn fetched_results(&self) -> IndexSet {
        let mut both = IndexSet::default();
        self.results.iter().filter(|index| self.fetched.contains(*index)).for_each(|index| {
            both.insert(index);
        });
        both
    }

    /// The task with this index.
    #[must_use]
    pub fn task(&self, index: u32) -> TaskId {
        TaskId { job: self.id, index }
    }

    /// Takes an ended task out of `endings`; returns whether it was there.
    pub(super) fn reopen(&mut self, index: u32) -> bool {
        let Some(ending) = self.ending_of(index) else { return false };
        let indices = self.endings.get_mut(&ending).expect("it was found above");
        indices.remove(index);
        if indices.is_empty() {
            self.endings.remove(&ending);
        }
        true
    }
}

//! A job as the head keeps it: compact while its tasks are alike, however many they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_model::{
    Attempt, Dependency, Digest, Ending, Energy, IndexSet, JobId, JobSpec, JobState, NodeName, Resources, RunId,
    TaskId, Timestamp, WallTime,
};
use hostler_proto::link::{EndCause, Fate, StepDoor, Usage};
use serde::{Deserialize, Serialize};

use super::event::SubmissionKey;

/// A job. Each of its tasks is in exactly one of `pending`, `active` and `ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The submission's key.
    pub key: SubmissionKey,
    /// Whose it is.
    pub user: String,
    /// What was asked for.
    pub spec: Arc<JobSpec>,
    /// When it was submitted.
    pub submitted_at: WallTime,
    /// When its first task started; of a job that was requeued as a whole, in its last attempt.
    pub started_at: Option<WallTime>,
    /// When its last task ended.
    pub ended_at: Option<WallTime>,
    /// The same on the cluster's clock: retention counts from here.
    pub ended: Option<Timestamp>,
    /// On hold.
    pub held: bool,
    /// Dependencies not yet satisfied.
    pub unmet: Vec<Dependency>,
    /// Tasks that wait.
    pub pending: IndexSet,
    /// Tasks that are placed.
    pub active: BTreeMap<u32, Active>,
    /// Tasks that are over, by how they ended.
    pub endings: BTreeMap<Ending, IndexSet>,
    /// The last attempt of tasks that were placed and then requeued.
    pub attempts: BTreeMap<u32, Attempt>,
    /// Tasks whose result is on the head.
    pub results: IndexSet,
    /// Tasks whose result has reached a client.
    pub fetched: IndexSet,
    /// The uid that its user had where it was submitted, if that is known.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Its share of what its nodes have drawn, attempts that were requeued included, as far as it has let go of them; nothing when no
    /// node of its had a meter.
    #[serde(default)]
    pub energy: Option<Energy>,
    /// Its environment, by content; the store has it. Jobs of older logs have it in `spec`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Digest>,
    /// It had an environment, which went when the job had completed: it cannot run again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost_environment: bool,
}

/// A task that is placed. It runs as one run, with a part on each of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// The run.
    pub run: RunId,
    /// Its parts, in the order of their nodes' ranks; at least one.
    pub parts: Vec<Part>,
    /// When it was placed, and from when on it runs once it does.
    pub since: Timestamp,
    /// When its processes had started on every node.
    pub started_at: Option<WallTime>,
    /// The head has asked the agents to end it.
    pub ending: Option<EndCause>,
    /// The rank of the node whose part was the first to end otherwise than completed: it says how the task ends.
    #[serde(default)]
    pub broken_by: Option<u32>,
}

/// What a run has on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Where.
    pub node: NodeName,
    /// What it holds there until it is over.
    pub resources: Resources,
    /// How far it is.
    pub phase: Phase,
    /// A port that was free on the node, for the processes to meet at; known when they are ready and there are several.
    #[serde(default)]
    pub port: Option<u16>,
    /// Where the node takes the steps of the others, if it does; known with the port.
    #[serde(default)]
    pub door: Option<StepDoor>,
    /// What the node's meter showed when it was placed, if the node has one.
    #[serde(default)]
    pub metered: Option<Energy>,
    /// How it ended, once it has.
    #[serde(default)]
    pub over: Option<Box<PartOver>>,
}

/// The end of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartOver {
    /// What became of it.
    pub fate: Fate,
    /// What a person should know beyond that.
    pub message: Option<String>,
    /// Its result's manifest.
    pub result: Option<Digest>,
    /// What it used.
    pub usage: Usage,
}

impl PartOver {
    /// Whether it is all that could be wished for.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        matches!(self.fate, Fate::Ended(Ending { state: JobState::Completed, .. }))
    }
}

/// How far a part of a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The launch is on its way.
    Placed,
    /// The agent has it.
    Accepted,
    /// All is ready; its process waits for those on the other nodes.
    Ready,
    /// Its process runs.
    Running,
    /// Its process has ended; its results are on their way.
    Completing,
}

impl Active {
    /// How far the run is: as far as the part that is least far. Parts that are over are completing as long as others are not.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.parts.iter().map(Part::phase).min().expect("a run has at least one part")
    }

    /// The rank of a node among those of the run.
    #[must_use]
    pub fn rank_of(&self, node: &NodeName) -> Option<u32> {
        (0..).zip(&self.parts).find(|(_, part)| part.node == *node).map(|(rank, _)| rank)
    }

    /// A part by its node's rank.
    #[must_use]
    pub fn part(&self, rank: u32) -> Option<&Part> {
        self.parts.get(rank as usize)
    }

    /// The part of the lowest rank that is not over; there is one as long as the run is current.
    #[must_use]
    pub fn first_live_part(&self) -> Option<&Part> {
        self.parts.iter().find(|part| part.over.is_none())
    }

    /// Its nodes, in the order of their ranks.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.parts.iter().map(|part| &part.node)
    }

    /// Whether its processes may run: the only one as soon as its agent has it, several once all of them are ready.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        match self.parts.as_slice() {
            [only] => only.phase >= Phase::Accepted,
            // One that has ended before it was ready has kept the others from beginning.
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
    /// A task that was placed or is over waits again. What has started before counts no more once nothing of the job is placed or over:
    /// its times are those of the attempt that comes.
    pub(super) fn wait_again(&mut self, index: u32) {
        self.pending.insert(index);
        if self.active.is_empty() && self.endings.values().all(IndexSet::is_empty) {
            self.started_at = None;
        }
    }

    /// A job that was just submitted, by this user with this uid.
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

    /// Drops the environment of a job that has completed: nothing of it will run again.
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

    /// Its array's indices, `0` for a job that is no array.
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

    /// Whether nothing more will happen to it.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.pending.is_empty() && self.active.is_empty()
    }

    /// How many of its tasks may start now as far as the job itself is concerned.
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

    /// The highest attempt of its tasks, zero before the first placement.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        let active = self.active.values().map(|active| active.run.attempt);
        let ended = Attempt(u32::from(self.endings.keys().any(|ending| ending.exit_code.is_some())));
        active.chain(self.attempts.values().copied()).max().unwrap_or_default().max(ended)
    }

    /// How one task ended, if it has.
    #[must_use]
    pub fn ending_of(&self, index: u32) -> Option<Ending> {
        self.endings.iter().find(|(_, indices)| indices.contains(index)).map(|(ending, _)| *ending)
    }

    /// Where it stands: the stage of its most advanced live task, and when all are over the worst ending.
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

    /// The ending that says most about what went wrong; completed only when every task is.
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

    /// The highest exit code of its tasks once all are over.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        if self.is_ended() { self.endings.keys().filter_map(|ending| ending.exit_code).max() } else { None }
    }

    /// How many tasks have ended with exit code 0, and in any other way.
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

    /// Tasks whose result has reached a client and is still here: the first to go when room is needed.
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

    /// Takes an ended task out of `endings`; says whether it was there.
    pub(super) fn reopen(&mut self, index: u32) -> bool {
        let Some(ending) = self.ending_of(index) else { return false };
        let indices = self.endings.get_mut(&ending).expect("just found");
        indices.remove(index);
        if indices.is_empty() {
            self.endings.remove(&ending);
        }
        true
    }
}

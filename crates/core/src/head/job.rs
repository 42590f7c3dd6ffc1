//! A job as the head keeps it: compact while its tasks are alike, however many they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_model::{
    Attempt, Dependency, Ending, IndexSet, JobId, JobSpec, JobState, NodeName, Resources, RunId, TaskId, Timestamp,
    WallTime,
};
use hostler_proto::link::EndCause;
use serde::{Deserialize, Serialize};

use super::event::SubmissionKey;

/// A job. Each of its tasks is in exactly one of `pending`, `active` and `ended`.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// When its first task started.
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
}

/// A task that is placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// The run.
    pub run: RunId,
    /// Where.
    pub node: NodeName,
    /// What it holds there.
    pub resources: Resources,
    /// How far it is.
    pub phase: Phase,
    /// When it was placed, and from when on it runs once it does.
    pub since: Timestamp,
    /// When its process started.
    pub started_at: Option<WallTime>,
    /// The head has asked the agent to end it.
    pub ending: Option<EndCause>,
}

/// How far a placed task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The launch is on its way.
    Placed,
    /// The agent has it.
    Accepted,
    /// Its process runs.
    Running,
    /// Its process has ended; its results are on their way.
    Completing,
}

impl Job {
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
        let phase = |phase| self.active.values().any(|active| active.phase == phase);
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

//! What the checkers know of one job, its tasks and their runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_model::{Digest, Epoch, JobSpec, JobState, NodeName, Resources, RunId, Timestamp};
use hostler_proto::link::Fate;

pub(super) struct JobAccount {
    pub(super) spec: Arc<JobSpec>,
    /// The specification before any change.
    pub(super) submitted: Arc<JobSpec>,
    pub(super) tasks: BTreeMap<u32, TaskAccount>,
    /// Whether tasks that wait again are held, unless they were released.
    pub(super) is_held: bool,
    /// Tasks whose last hold or release named them, and whether that was a hold.
    pub(super) named_holds: BTreeMap<u32, bool>,
    pub(super) is_forgotten: bool,
    /// Whether a user has requeued the job.
    pub(super) was_requeued: bool,
    pub(super) submitted_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) past: Past,
}

impl JobAccount {
    pub(super) fn hold(&mut self, index: Option<u32>) {
        self.set_held(index, true);
    }

    pub(super) fn release(&mut self, index: Option<u32>) {
        self.set_held(index, false);
    }

    fn set_held(&mut self, index: Option<u32>, is_held: bool) {
        match index.filter(|_| self.spec.array.is_some()) {
            Some(index) => drop(self.named_holds.insert(index, is_held)),
            None => (self.is_held, self.named_holds) = (is_held, BTreeMap::new()),
        }
    }

    pub(super) fn holds(&self, index: u32) -> bool {
        self.named_holds.get(&index).copied().unwrap_or(self.is_held)
    }
}

#[derive(Debug, Clone)]
pub(super) struct TaskAccount {
    pub(super) at: Standing,
    /// Whether the user has cancelled the task and has not requeued it since.
    pub(super) is_cancelled: bool,
    /// Whether the user has requeued the task while it was placed.
    pub(super) is_asked_again: bool,
    /// Whether the user has received the task's result.
    pub(super) is_fetched: bool,
    /// Whether the task's result was dropped to free space.
    pub(super) is_dropped: bool,
    pub(super) past: Past,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Standing {
    Waiting,
    Placed {
        run: RunId,
        parts: Vec<PartAccount>,
        /// The first failure of one of the parts.
        broken: Option<Broken>,
    },
    Ended {
        state: JobState,
        result: Option<Digest>,
    },
}

/// A run's state on one node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PartAccount {
    pub(super) node: NodeName,
    pub(super) resources: Resources,
    /// The epoch of the head that last sent this part to its node.
    pub(super) sent_in: Epoch,
    pub(super) has_arrived: bool,
    pub(super) is_ready: bool,
    pub(super) has_run: bool,
    pub(super) is_over: bool,
}

/// Why a run can no longer complete.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Broken {
    pub(super) fate: Fate,
    /// Whether the part that broke the run certainly never began.
    pub(super) never_began: bool,
}

/// What a job or a task has done at some time; a requeue does not reset it.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    /// When it was first placed or ended. For an array: one of its tasks.
    pub(super) first_seen: Option<Timestamp>,
    /// The same by the time of the world, which goes on while the head is away.
    pub(super) first_seen_in_world: Option<Timestamp>,
    pub(super) first_ended: Option<Timestamp>,
    pub(super) has_started: bool,
    pub(super) has_ended: bool,
    pub(super) has_completed: bool,
    pub(super) has_ended_otherwise: bool,
}

impl Past {
    /// What a task in this standing does.
    pub(super) fn of(at: &Standing) -> Self {
        let (has_started, has_ended) = match at {
            Standing::Placed { parts, .. } => (parts.iter().all(|part| part.has_run || part.is_over), false),
            Standing::Ended { .. } => (true, true),
            Standing::Waiting => (false, false),
        };
        let has_completed = matches!(at, Standing::Ended { state: JobState::Completed, .. });
        let has_ended_otherwise = has_ended && !has_completed;
        Self { has_started, has_ended, has_completed, has_ended_otherwise, ..Self::default() }
    }

    pub(super) fn add(&mut self, is_now: &Self, is_seen: bool, now: Timestamp, in_world: Timestamp) {
        self.first_seen_in_world = self.first_seen_in_world.or(is_seen.then_some(in_world));
        self.first_seen = self.first_seen.or(is_seen.then_some(now));
        self.first_ended = self.first_ended.or(is_now.has_ended.then_some(now));
        self.has_started |= is_now.has_started;
        self.has_ended |= is_now.has_ended;
        self.has_completed |= is_now.has_completed;
        self.has_ended_otherwise |= is_now.has_ended_otherwise;
    }
}

//! The number of a job's tasks in each state.

use hostler_model::JobState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Number of a job's tasks in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskCounts {
    /// Number of all tasks.
    pub total: u64,
    /// Tasks that wait.
    pub pending: u64,
    /// Tasks that are placed and have not ended: the sum of `starting`, `running` and `completing`.
    pub live: u64,
    /// Tasks whose nodes prepare the folder and the environment.
    #[serde(default)]
    pub starting: u64,
    /// Tasks whose process runs.
    #[serde(default)]
    pub running: u64,
    /// Tasks whose process has ended and whose results are not on the head yet.
    #[serde(default)]
    pub completing: u64,
    /// Tasks that ended with exit code 0.
    pub completed: u64,
    /// Tasks that ended with another exit code or by a signal, or could not start.
    pub failed: u64,
    /// Tasks that were cancelled, before or after their start.
    #[serde(default)]
    pub cancelled: u64,
    /// Tasks that reached their time limit.
    #[serde(default)]
    pub timeout: u64,
    /// Tasks that the kernel killed because they exceeded their memory limit.
    #[serde(default)]
    pub out_of_memory: u64,
    /// Tasks whose node was lost.
    #[serde(default)]
    pub node_fail: u64,
    /// Tasks that were ended to free resources for another job.
    #[serde(default)]
    pub preempted: u64,
}

impl TaskCounts {
    /// Counts tasks by state.
    #[must_use]
    pub fn new(tasks: impl IntoIterator<Item = (JobState, u64)>) -> Self {
        let mut counts = Self::default();
        for (state, tasks) in tasks {
            counts.total += tasks;
            *match state {
                JobState::Pending => &mut counts.pending,
                JobState::Starting => &mut counts.starting,
                JobState::Running => &mut counts.running,
                JobState::Completing => &mut counts.completing,
                JobState::Completed => &mut counts.completed,
                JobState::Failed => &mut counts.failed,
                JobState::Cancelled => &mut counts.cancelled,
                JobState::Timeout => &mut counts.timeout,
                JobState::OutOfMemory => &mut counts.out_of_memory,
                JobState::NodeFail => &mut counts.node_fail,
                JobState::Preempted => &mut counts.preempted,
            } += tasks;
        }
        counts.live = counts.starting + counts.running + counts.completing;
        counts
    }

    /// The number of tasks in a state.
    #[must_use]
    pub const fn of(&self, state: JobState) -> u64 {
        match state {
            JobState::Pending => self.pending,
            JobState::Starting => self.starting,
            JobState::Running => self.running,
            JobState::Completing => self.completing,
            JobState::Completed => self.completed,
            JobState::Failed => self.failed,
            JobState::Cancelled => self.cancelled,
            JobState::Timeout => self.timeout,
            JobState::OutOfMemory => self.out_of_memory,
            JobState::NodeFail => self.node_fail,
            JobState::Preempted => self.preempted,
        }
    }

    /// The number of tasks that have ended.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.completed + self.not_completed()
    }

    /// The number of tasks that began, plus the number of those that ended. It changes whenever a task begins or ends.
    #[must_use]
    pub const fn progress(&self) -> u64 {
        self.total - self.pending + self.ended()
    }

    /// The number of ended tasks that did not complete.
    #[must_use]
    pub const fn not_completed(&self) -> u64 {
        let Self { failed, cancelled, timeout, out_of_memory, node_fail, preempted, .. } = *self;
        failed + cancelled + timeout + out_of_memory + node_fail + preempted
    }

    /// The tasks in these states as words, e.g. `2 failed, 1 out_of_memory`. Leaves out states without tasks.
    #[must_use]
    pub fn in_words(&self, states: impl IntoIterator<Item = JobState>) -> String {
        let counts = states.into_iter().map(|state| (self.of(state), state)).filter(|(tasks, _)| *tasks > 0);
        counts.map(|(tasks, state)| format!("{tasks} {state}")).collect::<Vec<_>>().join(", ")
    }
}

/// How fast tasks end at present. The estimate holds if those that wait are like those that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pace {
    /// Number of tasks that ended, but not by being cancelled.
    pub ended: u64,
    /// In this time, in milliseconds: at most a quarter of an hour.
    pub over_ms: u64,
    /// Time until all tasks that wait have ended at this pace, in milliseconds.
    pub through_in_ms: u64,
}

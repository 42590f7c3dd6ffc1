//! Queries for jobs that have ended.

use bytes::Bytes;
use hostler_model::{JobId, JobState};

/// Selects ended jobs.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// The jobs' owner; any user if absent.
    pub user: Option<String>,
    /// The final states; any state if empty.
    pub states: Vec<JobState>,
    /// Whether to also select jobs of which a task has such a final state.
    pub any_task: bool,
    /// Jobs to leave out, even if the store has them.
    pub except: Vec<JobId>,
}

/// One page of selected ended jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedPage {
    /// The newest selected jobs.
    pub jobs: Vec<Bytes>,
    /// The total number of selected jobs.
    pub total: u64,
}

impl JobFilter {
    /// Whether the filter selects a job of this user with this final state, apart from the states of its tasks.
    pub(crate) fn wants(&self, user: &str, state: JobState) -> bool {
        self.user.as_deref().is_none_or(|wanted| wanted == user)
            && (self.states.is_empty() || self.states.contains(&state))
    }
}

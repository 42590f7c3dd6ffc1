//! Queries for jobs that have ended.

use bytes::Bytes;
use hostler_model::{JobId, JobState};

/// Which ended jobs are wanted.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Whose; anybody's when absent.
    pub user: Option<String>,
    /// How they ended; however they did when empty.
    pub states: Vec<JobState>,
    /// These are not, whatever the store has of them.
    pub except: Vec<JobId>,
}

/// Some of the ended jobs that were wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedPage {
    /// The newest of them.
    pub jobs: Vec<Bytes>,
    /// How many there are in all.
    pub total: u64,
}

impl JobFilter {
    /// Whether a job of this user that ended so is wanted.
    pub(crate) fn wants(&self, user: &str, state: JobState) -> bool {
        self.user.as_deref().is_none_or(|wanted| wanted == user)
            && (self.states.is_empty() || self.states.contains(&state))
    }
}

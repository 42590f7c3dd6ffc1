//! Jobs that have ended, as the store keeps them: what they are found by, and bytes that only the caller understands.

use bytes::Bytes;
use hostler_model::{Digest, JobId, JobState, Timestamp};

/// A job that has ended. All but `bytes` is what queries look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedJob {
    /// Its id.
    pub id: JobId,
    /// The key with which it was submitted.
    pub key: u128,
    /// Whose it is.
    pub user: String,
    /// How it ended.
    pub state: JobState,
    /// When, on the cluster's clock.
    pub ended: Timestamp,
    /// The captured folder in which it ran.
    pub snapshot: Option<Digest>,
    /// What there is of its results.
    pub results: KeptResults,
    /// Whether its environment is kept, so that it can run again.
    pub keeps_environment: bool,
    /// All of it, as the caller wrote it.
    pub bytes: Bytes,
}

/// What there is of a job's results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptResults {
    /// The result of some task is kept.
    pub any: bool,
    /// Some of those that are kept have not reached a client.
    pub unfetched: bool,
    /// Some of those that are kept have reached a client.
    pub fetched: bool,
}

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

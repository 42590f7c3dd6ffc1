//! Finds ended jobs, which are in the store or still being moved to the store.
//!
//! The state contains the other jobs. All queries about jobs go through [`crate::job_reads`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hostler_core::head::{EndedJobs, Job, PendingMoves, SubmissionKey, read_ended_job};
use hostler_model::{JobId, JobState, Timestamp};
use hostler_proto::DecodeError;
use hostler_store::{JobFilter, Reader, StoreError};

/// A page ends early when the specifications or command lines of its jobs exceed this size. A single job may have a
/// megabyte.
pub(crate) const LONGEST_PAGE_BYTES: usize = 4 << 20;

/// Ended jobs per read. A single job may have a megabyte of arguments.
pub(crate) const READ_AT_ONCE: usize = 32;

/// Finds ended jobs.
pub(crate) struct Archive {
    history: Reader,
    moves: Mutex<PendingMoves>,
}

/// Why an ended job cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("an ended job cannot be read; a newer release may have written it")]
    Damaged(#[from] DecodeError),
    #[error("reading ended jobs failed: {0}")]
    Thread(#[from] tokio::task::JoinError),
}

impl Archive {
    pub(crate) fn new(history: Reader) -> Self {
        Self { history, moves: Mutex::default() }
    }

    /// Locks and returns the jobs that are being moved between the state and the store. Lock order: the state first,
    /// then this lock.
    pub(crate) fn moves(&self) -> MutexGuard<'_, PendingMoves> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock behind [`Self::moves`], for the engine's loop.
    pub(crate) fn moves_lock(&self) -> &Mutex<PendingMoves> {
        &self.moves
    }

    /// Returns the number of jobs that were deleted since the start because their retention time was over.
    pub(crate) fn forgotten(&self) -> u64 {
        self.moves().forgotten()
    }

    pub(crate) fn history(&self) -> &Reader {
        &self.history
    }
}

/// Finds only ended jobs that are durable.
impl EndedJobs for Archive {
    type Error = ArchiveError;

    fn job(&self, id: JobId) -> Result<Option<Arc<Job>>, ArchiveError> {
        self.history.ended_job(id)?.map(|bytes| read(&bytes)).transpose()
    }

    fn job_of_key(&self, key: SubmissionKey) -> Result<Option<JobId>, ArchiveError> {
        Ok(self.history.job_of_key(key.0)?)
    }

    fn first_ended(&self, limit: usize) -> Result<Vec<(JobId, Timestamp)>, ArchiveError> {
        Ok(self.history.first_ended(limit)?)
    }
}

/// Decodes a stored job.
pub(crate) fn read(bytes: &[u8]) -> Result<Arc<Job>, ArchiveError> {
    Ok(read_ended_job(bytes)?)
}

/// Filter of a job list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Jobs of this user only; of all users when absent.
    pub(crate) user: Option<String>,
    /// Jobs in these states only; in all states when empty.
    pub(crate) states: Vec<JobState>,
}

pub(crate) struct Page {
    pub(crate) jobs: Vec<Arc<Job>>,
    /// Number of all matching jobs.
    pub(crate) total: u64,
    /// Whether the page is shorter than its limit because its jobs are large. There may be more jobs.
    pub(crate) is_truncated: bool,
}

impl Wanted {
    pub(crate) fn wants(&self, job: &Job) -> bool {
        self.user.as_ref().is_none_or(|user| *user == job.user)
            && (self.states.is_empty() || self.states.contains(&job.state()))
    }

    /// Whether ended jobs may match.
    pub(crate) fn wants_ended(&self) -> bool {
        self.states.is_empty() || self.states.iter().any(|state| state.is_ended())
    }
}

/// Reads a page of ended jobs from the store in small batches.
pub(crate) fn read_ended(
    history: &Reader,
    filter: &JobFilter,
    mut before: Option<JobId>,
    limit: usize,
) -> Result<Page, ArchiveError> {
    let mut page = Page { jobs: Vec::new(), total: 0, is_truncated: false };
    let mut bytes = 0;
    loop {
        let some = READ_AT_ONCE.min(limit - page.jobs.len());
        let ended = history.ended_jobs(filter, before, some)?;
        if page.jobs.is_empty() {
            page.total = ended.total;
        }
        for job in &ended.jobs {
            page.jobs.push(read(job)?);
            bytes += job.len();
            if bytes > LONGEST_PAGE_BYTES {
                page.is_truncated = true;
                return Ok(page);
            }
        }
        if ended.jobs.len() < some || page.jobs.len() == limit {
            return Ok(page);
        }
        before = page.jobs.last().map(|job| job.id);
    }
}

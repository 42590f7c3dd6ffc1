//! Finds ended jobs, which are in the store or still being moved to the store.
//!
//! The state contains all other jobs. All queries about jobs go through this module.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hostler_core::head::{EndedJobs, Job, Moves, SubmissionKey, read_ended_job};
use hostler_model::{JobId, JobState, Timestamp};
use hostler_proto::DecodeError;
use hostler_store::{JobFilter, Reader, StoreError};

use crate::api::LONGEST_PAGE_BYTES;
use crate::engine::Engine;

/// Number of ended jobs per read. A single job may have a megabyte of arguments.
const READ_AT_ONCE: usize = 32;

/// Maximum number of retries of a list query, if an ended job was restarted during the query.
const TRIES: usize = 5;

/// Finds ended jobs.
pub(crate) struct Archive {
    history: Reader,
    moves: Mutex<Moves>,
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
    pub(crate) fn moves(&self) -> MutexGuard<'_, Moves> {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock behind [`Self::moves`], for the engine's loop.
    pub(crate) fn moves_lock(&self) -> &Mutex<Moves> {
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
    fn wants(&self, job: &Job) -> bool {
        self.user.as_ref().is_none_or(|user| *user == job.user)
            && (self.states.is_empty() || self.states.contains(&job.state()))
    }

    /// Whether ended jobs may match.
    fn wants_ended(&self) -> bool {
        self.states.is_empty() || self.states.iter().any(|state| state.is_ended())
    }
}

impl Engine {
    /// Returns a job, live or ended.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn job(&self, id: JobId) -> Result<Option<Arc<Job>>, ArchiveError> {
        if let Some(found) = self.job_in_memory(id) {
            return Ok(found);
        }
        let engine = self.clone();
        tokio::task::spawn_blocking(move || engine.find_job(id)).await?
    }

    /// Like [`Self::job`], for threads that may block.
    pub(crate) fn find_job(&self, id: JobId) -> Result<Option<Arc<Job>>, ArchiveError> {
        if let Some(found) = self.job_in_memory(id) {
            return Ok(found);
        }
        if let Some(job) = self.archive().job(id)? {
            return Ok(Some(job));
        }
        // The job may have been reopened since the first lookup, so that it is in the state again.
        Ok(self.job_in_memory(id).flatten())
    }

    /// Looks for a job in memory. Returns `None` if the caller must search the store, and `Some(None)` if the job does
    /// not exist.
    fn job_in_memory(&self, id: JobId) -> Option<Option<Arc<Job>>> {
        let state = self.state();
        match state.job(id) {
            Some(job) => Some(Some(Arc::clone(job))),
            None => self.archive().moves().job(id).map(Option::<&Arc<Job>>::cloned),
        }
    }

    /// Whether an ended job was submitted with this key.
    pub(crate) async fn ended_with_key(&self, key: SubmissionKey) -> Result<bool, ArchiveError> {
        if self.archive().moves().job_of_key(key).is_some() {
            return Ok(true);
        }
        let engine = self.clone();
        tokio::task::spawn_blocking(move || Ok(engine.archive().job_of_key(key)?.is_some())).await?
    }

    /// The newest matching jobs with ids below `before`, at most `limit`. The page ends early when its ended jobs
    /// exceed [`LONGEST_PAGE_BYTES`].
    pub(crate) async fn jobs(&self, wanted: Wanted, before: Option<JobId>, limit: usize) -> Result<Page, ArchiveError> {
        let is_all = wanted.states.is_empty() && wanted.user.is_none();
        let has_begun = |job: &Job| before.is_none_or(|before| job.id < before);
        let mut left = TRIES;
        loop {
            left -= 1;
            let reopened = self.archive().moves().reopened();
            let (mut page, mut total, except) = {
                let state = self.state();
                let moves = self.archive().moves();
                let moving: Vec<&Arc<Job>> = moves.jobs().filter(|job| wanted.wants(job)).collect();
                let live = || state.jobs().rev().filter(|job| wanted.wants(job));
                // Without a filter the total is known without counting.
                let total = if is_all { state.job_count() as u64 } else { live().count() as u64 };
                let live = live().filter(|job| has_begun(job)).take(limit);
                let moved = moving.iter().rev().filter(|job| has_begun(job)).take(limit).copied();
                let page: Vec<Arc<Job>> = live.chain(moved).cloned().collect();
                (page, total + moving.len() as u64, moves.ids().collect())
            };
            let mut is_truncated = false;
            if wanted.wants_ended() {
                let filter = JobFilter { user: wanted.user.clone(), states: wanted.states.clone(), except };
                let history = self.archive().history().clone();
                let read_page = move || read_ended(&history, &filter, before, limit);
                let ended = tokio::task::spawn_blocking(read_page).await??;
                if let Some(last) = ended.jobs.last().filter(|_| ended.is_truncated) {
                    // The page ends at the last ended job that was read. Older live jobs belong on the next page.
                    page.retain(|job| job.id > last.id);
                }
                // A job that is both in the state and in the store was reopened; the page shows the state's version.
                total += ended.total;
                is_truncated = ended.is_truncated;
                page.extend(ended.jobs);
            }
            if self.archive().moves().reopened() == reopened || left == 0 {
                page.sort_unstable_by_key(|job| std::cmp::Reverse(job.id));
                page.dedup_by_key(|job| job.id);
                page.truncate(limit);
                return Ok(Page { jobs: page, total, is_truncated });
            }
        }
    }

    /// Returns about `limit` ids of the user's jobs with a kept result, in order, starting after `after`. If there may
    /// be more such jobs, also returns the last id that was examined. With `unfetched`, returns only jobs with a result
    /// that no client has downloaded.
    pub(crate) async fn jobs_with_results(
        &self,
        user: &str,
        unfetched: bool,
        after: JobId,
        limit: usize,
    ) -> Result<(Vec<JobId>, Option<JobId>), ArchiveError> {
        let is_wanted =
            |job: &Job| if unfetched { !job.results.is_subset(&job.fetched) } else { !job.results.is_empty() };
        let mut jobs: BTreeMap<JobId, bool> = {
            let state = self.state();
            let moves = self.archive().moves();
            // The state has precedence over moving jobs, and both have precedence over the store.
            let live = state.jobs().filter(|job| !job.results.is_empty());
            let theirs = moves.jobs().chain(live).filter(|job| job.user == user && job.id > after);
            theirs.map(|job| (job.id, is_wanted(job))).collect()
        };
        let history = self.archive().history().clone();
        let user = user.to_owned();
        let ended = tokio::task::spawn_blocking(move || -> Result<_, StoreError> {
            let (mut ids, mut after) = (Vec::new(), after);
            while ids.len() < limit {
                let some = READ_AT_ONCE.min(limit - ids.len());
                let page = history.jobs_with_results(Some(&user), unfetched, after, some)?;
                ids.extend(page.iter().map(|(id, _)| *id));
                match page.last() {
                    Some((last, _)) if page.len() == some => after = *last,
                    Some(_) | None => break,
                }
            }
            Ok(ids)
        });
        for id in ended.await?? {
            jobs.entry(id).or_insert(true);
        }
        let next = limit.checked_sub(1).and_then(|last| jobs.keys().nth(last).copied());
        let ids = jobs.into_iter().take(limit).filter(|(_, is_wanted)| *is_wanted).map(|(id, _)| id);
        Ok((ids.collect(), next))
    }
}

/// Reads a page of ended jobs from the store in small batches.
fn read_ended(
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

//! Reads of jobs, wherever they are: in the state, on their way to the store, or in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_core::head::{EndedJobs, Job, State, SubmissionKey};
use hostler_model::JobId;
use hostler_proto::api::JobOrder;
use hostler_store::{JobFilter, StoreError};

use crate::archive::{ArchiveError, Page, READ_AT_ONCE, Wanted, read_ended};
use crate::client_limits::Party;
use crate::engine::Engine;
use crate::head::Head;
use crate::sorted_jobs::sorted;

/// Retries of a list query, if an ended job was restarted during the query.
const TRIES: usize = 5;

impl Engine {
    /// A job, live or ended. Blocks.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) fn find_job(&self, id: JobId) -> Result<Option<Arc<Job>>, ArchiveError> {
        if let Some(found) = self.job_in_memory(id) {
            return Ok(found);
        }
        if let Some(job) = self.archive().job(id)? {
            return Ok(Some(job));
        }
        // The job may have returned to the state in the meantime.
        Ok(self.job_in_memory(id).flatten())
    }

    /// A job in memory. `None` when the store must be asked; `Some(None)` when the job does not exist.
    fn job_in_memory(&self, id: JobId) -> Option<Option<Arc<Job>>> {
        let state = self.state();
        match state.job(id) {
            Some(job) => Some(Some(Arc::clone(job))),
            None => self.archive().moves().job(id).map(Option::<&Arc<Job>>::cloned),
        }
    }

    /// The ended job that was submitted with this key.
    pub(crate) async fn ended_job_of_key(&self, key: SubmissionKey) -> Result<Option<JobId>, ArchiveError> {
        if let Some(job) = self.archive().moves().job_of_key(key) {
            return Ok(Some(job));
        }
        let engine = self.clone();
        tokio::task::spawn_blocking(move || engine.archive().job_of_key(key)).await?
    }

    /// The newest matching jobs in memory with ids below `before`, at most `limit`; the number of all matching jobs in
    /// memory; and the ids of the jobs that are being moved. `wanted` has no text.
    fn page_in_memory(&self, wanted: &Wanted, before: Option<JobId>, limit: usize) -> (Vec<Arc<Job>>, u64, Vec<JobId>) {
        let has_begun = |job: &Job| before.is_none_or(|before| job.id < before);
        let state = self.state();
        let moves = self.archive().moves();
        let moving: Vec<&Arc<Job>> = moves.jobs().filter(|job| wanted.wants(job)).collect();
        let mut page: Vec<Arc<Job>> = Vec::new();
        let counted = count(&state, wanted);
        let mut visited = 0;
        for job in candidates(&state, wanted).rev().filter(|job| wanted.wants(job)) {
            if counted.is_some() && page.len() == limit {
                break;
            }
            visited += 1;
            if page.len() < limit && has_begun(job) {
                page.push(Arc::clone(job));
            }
        }
        let total = counted.unwrap_or(visited);
        page.extend(moving.iter().rev().filter(|job| has_begun(job)).take(limit).map(|job| Arc::clone(job)));
        (page, total + moving.len() as u64, moves.ids().collect())
    }

    /// The jobs in memory that match `wanted` without its text, and the ids of the jobs that are being moved.
    fn unsearched(&self, wanted: &Wanted) -> (Vec<Arc<Job>>, Vec<JobId>) {
        let state = self.state();
        let moves = self.archive().moves();
        let jobs = candidates(&state, wanted).chain(moves.jobs());
        let jobs = jobs.filter(|job| wanted.may_want(job)).cloned().collect();
        (jobs, moves.ids().collect())
    }
}

/// The jobs of the state that may match, by ascending id. Skips the jobs without progress if the filter excludes them.
fn candidates<'a>(state: &'a State, wanted: &Wanted) -> Box<dyn DoubleEndedIterator<Item = &'a Arc<Job>> + 'a> {
    if wanted.wants_waiting() { Box::new(state.jobs()) } else { Box::new(state.jobs_with_progress()) }
}

/// The number of matching jobs in the state, if it is known without visiting all of them.
fn count(state: &State, wanted: &Wanted) -> Option<u64> {
    if !wanted.is_indexed() {
        return None;
    }
    let waiting = if wanted.wants_waiting() { state.jobs_without_progress(wanted.user.as_deref()) } else { 0 };
    Some(waiting + state.jobs_with_progress().filter(|job| wanted.wants(job)).count() as u64)
}

impl Head {
    /// A job, live or ended. Reads an ended job within the client's share of such reads.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn find_job(&self, party: &Party, id: JobId) -> Result<Option<Arc<Job>>, ArchiveError> {
        if let Some(found) = self.engine.job_in_memory(id) {
            return Ok(found);
        }
        let engine = self.engine.clone();
        self.client_limits.read_jobs(party, move || engine.find_job(id)).await?
    }

    /// The job that takes a number: its own id, or the number of an array's task.
    ///
    /// # Errors
    /// See [`Self::find_job`].
    pub(crate) async fn find_job_with_number(
        &self,
        party: &Party,
        number: JobId,
    ) -> Result<Option<Arc<Job>>, ArchiveError> {
        if let Some(job) = self.find_job(party, number).await? {
            return Ok(Some(job));
        }
        let before = JobId(number.0.saturating_add(1));
        let page = self.jobs(party, Wanted::default(), Some(before), 1).await?;
        Ok(page.jobs.into_iter().find(|job| number.0 - job.id.0 < job.spec.numbers()))
    }

    /// The newest matching jobs with ids below `before`, at most `limit`. The page ends early when its ended jobs
    /// exceed [`LONGEST_PAGE_BYTES`](crate::archive::LONGEST_PAGE_BYTES).
    pub(crate) async fn jobs(
        &self,
        party: &Party,
        wanted: Wanted,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Page, ArchiveError> {
        let archive = self.engine.archive();
        let mut left = TRIES;
        loop {
            left -= 1;
            let reopened = archive.moves().reopened();
            let (mut page, mut total, except) = if wanted.text.is_none() {
                self.engine.page_in_memory(&wanted, before, limit)
            } else {
                let (candidates, except) = self.engine.unsearched(&wanted);
                let mut found = self.search(party, &wanted, candidates).await?;
                let total = found.len() as u64;
                found.retain(|job| before.is_none_or(|before| job.id < before));
                (found, total, except)
            };
            let mut examined_to = None;
            if wanted.wants_ended() {
                let (user, states) = (wanted.user.clone(), wanted.states.clone());
                let filter = JobFilter { user, states, any_task: wanted.any_task, except };
                let (history, wanted) = (archive.history().clone(), wanted.clone());
                let read_page = move || read_ended(&history, &wanted, &filter, before, limit);
                let ended = self.client_limits.read_jobs(party, read_page).await??;
                if let Some(last) = ended.examined_to {
                    // Ended jobs that were cut off come before older live jobs.
                    page.retain(|job| job.id > last);
                }
                // A job in both was reopened, so the version in the state counts.
                total += ended.total;
                examined_to = ended.examined_to;
                page.extend(ended.jobs);
            }
            if archive.moves().reopened() == reopened || left == 0 {
                page.sort_unstable_by_key(|job| std::cmp::Reverse(job.id));
                page.dedup_by_key(|job| job.id);
                page.truncate(limit);
                return Ok(Page { jobs: page, total, examined_to });
            }
        }
    }

    /// The matching jobs that have not ended, in this order: those that follow the job `after`, at most `limit`. `None` if the head no
    /// longer knows `after`.
    pub(crate) async fn live_jobs(
        &self,
        party: &Party,
        wanted: &Wanted,
        order: JobOrder,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Option<Page>, ArchiveError> {
        let after = match after {
            Some(id) => match self.find_job(party, id).await? {
                Some(job) => Some(job),
                None => return Ok(None),
            },
            None => None,
        };
        if wanted.text.is_none() {
            let state = self.engine.state();
            let live = candidates(&state, wanted).filter(|job| wanted.wants(job));
            return Ok(Some(sorted(&state, live, order, after.as_deref(), limit)));
        }
        let (candidates, _) = self.engine.unsearched(wanted);
        let found = self.search(party, wanted, candidates).await?;
        Ok(Some(sorted(&self.engine.state(), found.iter(), order, after.as_deref(), limit)))
    }

    /// Returns those of the jobs that contain the wanted text. Searching many jobs takes long, so this function does not
    /// lock the state, and searches on a thread for blocking work.
    async fn search(
        &self,
        party: &Party,
        wanted: &Wanted,
        mut jobs: Vec<Arc<Job>>,
    ) -> Result<Vec<Arc<Job>>, ArchiveError> {
        let Some(text) = wanted.text.clone() else { return Ok(jobs) };
        let search = move || {
            jobs.retain(|job| text.is_in(job));
            jobs
        };
        Ok(self.client_limits.read_jobs(party, search).await?)
    }

    /// Ids of the user's jobs with a kept result, in order: about `limit` ids after `after`. If there may be more, also
    /// the last id that was examined. With `unfetched`, only jobs with a result that no client has downloaded.
    pub(crate) async fn jobs_with_results(
        &self,
        party: &Party,
        user: &str,
        unfetched: bool,
        after: JobId,
        limit: usize,
    ) -> Result<(Vec<JobId>, Option<JobId>), ArchiveError> {
        let is_wanted = |job: &Job| if unfetched { job.has_unfetched_results() } else { job.has_results() };
        let mut jobs: BTreeMap<JobId, bool> = {
            let state = self.engine.state();
            let moves = self.engine.archive().moves();
            // The state has precedence over moving jobs, and both have precedence over the store.
            let live = state.jobs().filter(|job| job.has_results());
            let theirs = moves.jobs().chain(live).filter(|job| job.user == user && job.id > after);
            theirs.map(|job| (job.id, is_wanted(job))).collect()
        };
        let history = self.history.clone();
        let user = user.to_owned();
        let ended = self.client_limits.read_jobs(party, move || -> Result<_, StoreError> {
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

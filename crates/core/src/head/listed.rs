//! Lists and counts of jobs that do not visit every waiting job.

use std::sync::Arc;

use super::jobs::job::Job;
use super::state::State;

impl State {
    /// Jobs with [progress](Job::has_progress), by ascending id.
    pub fn jobs_with_progress(&self) -> impl DoubleEndedIterator<Item = &Arc<Job>> {
        self.progress.iter().filter_map(|id| self.job(*id))
    }

    /// Returns the number of jobs without [progress](Job::has_progress): those of a user, or all. Takes time
    /// in proportion to the number of jobs with progress.
    #[must_use]
    pub fn jobs_without_progress(&self, user: Option<&str>) -> u64 {
        let Some(user) = user else { return (self.job_count() - self.progress.len()) as u64 };
        let begun = self.jobs_with_progress().filter(|job| job.user == user && !job.pending.is_empty());
        self.waiting_jobs_of(user).jobs - begun.count() as u64
    }
}

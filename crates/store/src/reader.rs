//! Queries about ended jobs, history and blobs, from any thread.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use hostler_model::{Attempt, Digest, JobId, TaskId, Timestamp};
use hostler_proto::record::{EndedTask, TaskResult};

use crate::{
    EndedPage, GroupedSums, History, HistoryFilter, JobFilter, MessageKey, StoreError, StoredMessage, SumsFilter,
};

/// A shared view of the committed data. Clones are cheap and refer to the same store.
///
/// Each query sees a consistent state: a batch is visible as a whole, and only after it is durable. Queries block on
/// the disk, so an asynchronous caller runs them on a thread that may block.
#[derive(Clone)]
pub struct Reader(Arc<dyn Records>);

/// The queries of a backend. All methods fail with [`StoreError::Damaged`] if a row is invalid.
#[expect(clippy::missing_errors_doc, reason = "the comment of the trait states the errors")]
pub trait Records: Send + Sync {
    /// The ended tasks of `job` with indices in `indices`, by index, at most `limit`. For the next page, start after
    /// the last index of the current page; every page costs the same.
    fn ended_of(&self, job: JobId, indices: RangeInclusive<u32>, limit: usize) -> Result<Vec<EndedTask>, StoreError>;

    /// The row of one task, if the task has ended.
    fn ended_one(&self, task: TaskId) -> Result<Option<EndedTask>, StoreError>;

    /// The results of tasks of `jobs`, in the order of `jobs` and then by index.
    fn results_of(&self, jobs: &[JobId]) -> Result<Vec<TaskResult>, StoreError>;

    /// Attempts of any jobs that were requeued before their results were fetched: by task and attempt after `after`, at
    /// most `limit`.
    fn earlier_attempts(&self, after: (TaskId, Attempt), limit: usize) -> Result<Vec<EndedTask>, StoreError>;

    /// The encoded job, if it has ended.
    fn ended_job(&self, id: JobId) -> Result<Option<Bytes>, StoreError>;

    /// The ended job that was submitted with this key.
    fn job_of_key(&self, key: u128) -> Result<Option<JobId>, StoreError>;

    /// The newest selected jobs before `before`, at most `limit`, and the total number of selected jobs.
    fn ended_jobs(&self, wanted: &JobFilter, before: Option<JobId>, limit: usize) -> Result<EndedPage, StoreError>;

    /// Sums over ended jobs, also over forgotten ones.
    fn sums(&self, wanted: &SumsFilter) -> Result<GroupedSums, StoreError>;

    /// Ended jobs by the time of their end, the latest first.
    fn history(&self, wanted: &HistoryFilter) -> Result<History, StoreError>;

    /// Ended jobs with a stored result, by id after `after`, at most `limit`. With `unfetched`, only jobs with a
    /// result that has not reached a client; with `user`, only that user's jobs.
    fn jobs_with_results(
        &self,
        user: Option<&str>,
        unfetched: bool,
        after: JobId,
        limit: usize,
    ) -> Result<Vec<(JobId, Bytes)>, StoreError>;

    /// Ended jobs with a stored result that has reached a client, earliest end first, at most `limit`.
    fn jobs_with_fetched_results(&self, limit: usize) -> Result<Vec<Bytes>, StoreError>;

    /// The jobs that ended first and when, at most `limit`: with `awaiting`, those with a captured folder and an
    /// unfetched result, else all others.
    fn first_ended(&self, awaiting: bool, limit: usize) -> Result<Vec<(JobId, Timestamp)>, StoreError>;

    /// The number of a user's ended jobs with a captured folder and an unfetched result, and when the first of them ended.
    fn awaiting_fetch(&self, user: &str) -> Result<(u64, Option<Timestamp>), StoreError>;

    /// The captured folders of ended jobs, each once.
    fn snapshots_of_ended(&self) -> Result<Vec<Digest>, StoreError>;

    /// An environment, if it is stored for a job.
    fn environment(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError>;

    /// A blob, if it is stored.
    fn blob(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError>;

    /// The `digests` without a stored blob, in order.
    fn missing_blobs(&self, digests: &[Digest]) -> Result<Vec<Digest>, StoreError>;

    /// Digests of stored blobs after `after`, in order, at most `limit`. The garbage collection uses this query.
    fn blobs_after(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Digest>, StoreError>;

    /// Messages in the outbox with keys after `after`, in order, at most `limit`.
    fn messages_after(&self, after: &MessageKey, limit: usize) -> Result<Vec<StoredMessage>, StoreError>;

    /// Free space of the store's file system, in bytes. A head stops accepting jobs before the disk is full.
    fn free_bytes(&self) -> Result<u64, StoreError>;
}

impl Reader {
    pub fn new(records: impl Records + 'static) -> Self {
        Self(Arc::new(records))
    }
}

impl std::ops::Deref for Reader {
    type Target = dyn Records;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

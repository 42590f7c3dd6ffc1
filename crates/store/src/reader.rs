//! Queries about ended jobs, history and blobs, from any thread.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use hostler_model::{Digest, JobId, TaskId, Timestamp};
use hostler_proto::record::{EndedTask, TaskResult};

use crate::{EndedPage, JobFilter, StoreError};

/// A shared view of what is committed. Clones are cheap and look at the same store.
///
/// Each query sees one moment: every batch is either wholly visible or not at all, and only after it is durable. Queries block
/// on the disk, so an asynchronous caller makes them where that is allowed.
#[derive(Clone)]
pub struct Reader(Arc<dyn Records>);

/// What a backend answers. All methods fail with [`StoreError::Damaged`] when a row cannot be what was written.
#[expect(clippy::missing_errors_doc, reason = "said once for all methods")]
pub trait Records: Send + Sync {
    /// The ended tasks of `job` whose index is in `indices`, by index, at most `limit`. The next page starts after the last index
    /// of this one, which costs the same on the hundredth page as on the first.
    fn ended_of(&self, job: JobId, indices: RangeInclusive<u32>, limit: usize) -> Result<Vec<EndedTask>, StoreError>;

    /// How one task ended, if it has.
    fn ended_one(&self, task: TaskId) -> Result<Option<EndedTask>, StoreError>;

    /// The results that tasks of `jobs` left, in the order of `jobs` and then by index.
    fn results_of(&self, jobs: &[JobId]) -> Result<Vec<TaskResult>, StoreError>;

    /// A job that has ended.
    fn ended_job(&self, id: JobId) -> Result<Option<Bytes>, StoreError>;

    /// The ended job that was submitted with this key.
    fn job_of_key(&self, key: u128) -> Result<Option<JobId>, StoreError>;

    /// The newest of the ended jobs that are wanted, at most `limit`, from the one before `before` on; and how many are wanted in all.
    fn ended_jobs(&self, wanted: &JobFilter, before: Option<JobId>, limit: usize) -> Result<EndedPage, StoreError>;

    /// Ended jobs of which a result is kept, by id, at most `limit`, from the first one after `after`. With `unfetched` those of which
    /// one has not reached a client; with `user` only theirs.
    fn jobs_with_results(
        &self,
        user: Option<&str>,
        unfetched: bool,
        after: JobId,
        limit: usize,
    ) -> Result<Vec<(JobId, Bytes)>, StoreError>;

    /// Ended jobs of which a result is kept that has reached a client, those first that ended first, at most `limit`.
    fn jobs_with_fetched_results(&self, limit: usize) -> Result<Vec<Bytes>, StoreError>;

    /// The jobs that ended first, and when they did, at most `limit`.
    fn first_ended(&self, limit: usize) -> Result<Vec<(JobId, Timestamp)>, StoreError>;

    /// The captured folders in which ended jobs ran, each once.
    fn snapshots_of_ended(&self) -> Result<Vec<Digest>, StoreError>;

    /// An environment, if it is kept for some job.
    fn environment(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError>;

    /// A blob's bytes, if it is kept.
    fn blob(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError>;

    /// Those of `digests` that are not kept, in their order.
    fn missing_blobs(&self, digests: &[Digest]) -> Result<Vec<Digest>, StoreError>;

    /// Digests of blobs kept, in order, at most `limit`, from the first one after `after`: to find those that nothing needs.
    fn blobs_after(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Digest>, StoreError>;

    /// Bytes that the store's filesystem has left for it; a head that is short stops accepting before it is at zero.
    fn free_bytes(&self) -> Result<u64, StoreError>;
}

impl Reader {
    /// A view through `records`.
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

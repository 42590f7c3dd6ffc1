//! Data that the head's store takes and returns: batches of events and changes, ended jobs, and the log.

use bytes::Bytes;
use hostler_model::{Digest, JobId, JobState, TaskId, Timestamp};

use crate::record::EndedTask;

/// Changes that are stored together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The sequence number of the first event: one more than that of the last stored event. Has no meaning without
    /// events.
    pub first_sequence: u64,
    /// The events, in order.
    pub events: Vec<Vec<u8>>,
    /// Changes to history and blobs, applied in order. A task may end, be reopened and end again in one batch.
    pub changes: Vec<Change>,
}

/// A change to the history or the blobs. Each change is idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A task ended. Replaces the task's row, if it has one.
    Ended(EndedTask),
    /// An ended task will run again. Deletes the task's row.
    Reopened(TaskId),
    /// A job ended, or an ended job changed. Replaces the stored job, if there is one.
    JobEnded(EndedJob),
    /// An ended job will run again. Deletes the stored job, but not the rows of its tasks.
    JobReopened(JobId),
    /// Stores an environment for a job. It is kept until the job is forgotten, or has ended and [does not need
    /// it](EndedJob::keeps_environment). Equal environments are stored once. The store does not check the digest.
    Environment {
        /// The job.
        job: JobId,
        /// The digest of the environment.
        digest: Digest,
        /// The encoded environment.
        bytes: Bytes,
    },
    /// The retention of a job is over. Deletes everything about the job and its tasks.
    Forgotten(JobId),
    /// Stores a blob. An existing blob stays unchanged. The store does not check the digest.
    PutBlob(Digest, Bytes),
    /// Deletes a blob.
    DropBlob(Digest),
}

impl Batch {
    /// A batch with events only.
    #[must_use]
    pub const fn of_events(first_sequence: u64, events: Vec<Vec<u8>>) -> Self {
        Self { first_sequence, events, changes: Vec::new() }
    }

    /// A batch without events, which has no place in the sequence.
    #[must_use]
    pub const fn of_changes(changes: Vec<Change>) -> Self {
        Self { first_sequence: 0, events: Vec::new(), changes }
    }

    /// The sequence number of the last event, if there are events.
    #[must_use]
    pub fn last_sequence(&self) -> Option<u64> {
        let count = u64::try_from(self.events.len()).expect("a length fits 64 bits");
        (count > 0).then(|| self.first_sequence + count - 1)
    }

    /// The approximate memory in bytes, which limits the writer's queue.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let events: usize = self.events.iter().map(Vec::len).sum();
        let changes: usize = self.changes.iter().map(Change::size_bytes).sum();
        size_of::<Self>() + events + changes
    }
}

impl Change {
    /// The approximate memory in bytes.
    fn size_bytes(&self) -> usize {
        let payload = match self {
            Self::Ended(task) => task.message.as_ref().map_or(0, String::len),
            Self::PutBlob(_, bytes) | Self::Environment { bytes, .. } => bytes.len(),
            Self::JobEnded(job) => job.bytes.len() + job.user.len(),
            Self::Reopened(_) | Self::JobReopened(_) | Self::Forgotten(_) | Self::DropBlob(_) => 0,
        };
        size_of::<Self>() + payload
    }
}

/// An ended job. Queries use all fields except `bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedJob {
    /// The job's id.
    pub id: JobId,
    /// The idempotency key of the submission.
    pub key: u128,
    /// The owner.
    pub user: String,
    /// The final state.
    pub state: JobState,
    /// The time of the end, on the cluster's clock.
    pub ended: Timestamp,
    /// The captured folder.
    pub snapshot: Option<Digest>,
    /// Which results are stored.
    pub results: KeptResults,
    /// Whether the environment is stored, so that the job can run again.
    pub keeps_environment: bool,
    /// The complete job, as encoded by the caller.
    pub bytes: Bytes,
}

/// Which results of a job are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptResults {
    /// Whether the result of any task is stored.
    pub any: bool,
    /// Whether some stored results were not fetched by a client.
    pub unfetched: bool,
    /// Whether some stored results were fetched by a client.
    pub fetched: bool,
}

/// The log as read at a start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The latest snapshot, if there is one.
    pub snapshot: Option<Snapshot>,
    /// The events after the snapshot, or all events. The first one has the number [`Loaded::first_sequence`].
    pub events: Vec<Vec<u8>>,
}

/// The state after all events up to a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The number of the last event in the snapshot.
    pub sequence: u64,
    /// The state, as encoded by the caller.
    pub bytes: Vec<u8>,
}

impl Loaded {
    /// The number of the first of [`Loaded::events`]. Numbers start at 1.
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.sequence) + 1
    }

    /// The number of the next event to store.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.first_sequence() + u64::try_from(self.events.len()).expect("a length fits 64 bits")
    }
}

//! Data that the head's store takes and returns: batches of events and changes, ended jobs, and the log.

use std::collections::BTreeSet;

use bytes::Bytes;
use hostler_model::{Attempt, Digest, JobId, JobState, TaskId, Timestamp};

use crate::accounting::EndedUse;
use crate::record::EndedTask;

/// Changes that are stored together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The sequence number of the first event: one more than the number of the last stored event. Ignored if there are
    /// no events.
    pub first_sequence: u64,
    /// The events, in order.
    pub events: Vec<Vec<u8>>,
    /// Changes to the records of jobs and tasks, and to blobs, applied in order. A task may end, be requeued and end
    /// again in one batch.
    pub changes: Vec<Change>,
}

/// A change to the records of jobs and tasks, or to blobs. Each change is idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A task ended. Replaces the task's record, if there is one.
    Ended(EndedTask),
    /// An ended task was requeued. Deletes the task's record.
    Reopened(TaskId),
    /// An ended task was requeued before its result was fetched. Moves the task's record to the earlier attempts.
    SetAside(TaskId),
    /// An attempt was requeued while it ran, and its result arrived. Adds a record to the earlier attempts.
    EarlierEnded(EndedTask),
    /// The result of an earlier attempt was fetched. Deletes the record of the attempt.
    EarlierFetched(TaskId, Attempt),
    /// A job ended, or an ended job changed. Replaces the stored job, if there is one.
    JobEnded(EndedJob),
    /// An ended job was requeued. Deletes the stored job, but not the records of its tasks or of earlier attempts.
    JobReopened(JobId),
    /// Stores the environment variables of a job until the job is forgotten, or has ended and [does not need
    /// them](EndedJob::keeps_environment). Equal environments are stored once. The store does not check the digest.
    Environment {
        /// The job that has the variables.
        job: JobId,
        /// The digest of the encoded variables.
        digest: Digest,
        /// The encoded variables.
        bytes: Bytes,
    },
    /// The retention of a job is over. Deletes everything about the job and its tasks.
    Forgotten(JobId),
    /// Stores a blob. An existing blob stays unchanged. The store does not check the digest.
    PutBlob(Digest, Bytes),
    /// Deletes a blob.
    DropBlob(Digest),
    /// Stores a message in the outbox, or replaces it.
    PutMessage(StoredMessage),
    /// Deletes a message from the outbox, because it was delivered or dropped.
    DropMessage(MessageKey),
}

impl Batch {
    /// Creates a batch with changes only, which needs no sequence number.
    #[must_use]
    pub const fn of_changes(changes: Vec<Change>) -> Self {
        Self { first_sequence: 0, events: Vec::new(), changes }
    }

    /// Returns the sequence number of the last event, if there are events.
    #[must_use]
    pub fn last_sequence(&self) -> Option<u64> {
        let count = u64::try_from(self.events.len()).expect("the number of events fits 64 bits");
        (count > 0).then(|| self.first_sequence + count - 1)
    }

    /// Returns the approximate memory of the batch in bytes, by which the store limits the queue of its writer thread.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let events: usize = self.events.iter().map(Vec::len).sum();
        let changes: usize = self.changes.iter().map(Change::size_bytes).sum();
        size_of::<Self>() + events + changes
    }
}

impl Change {
    /// Returns the approximate memory of the change in bytes.
    fn size_bytes(&self) -> usize {
        let payload = match self {
            Self::Ended(task) | Self::EarlierEnded(task) => task.message.as_ref().map_or(0, String::len),
            Self::PutBlob(_, bytes) | Self::Environment { bytes, .. } => bytes.len(),
            Self::JobEnded(job) => job.bytes.len() + job.user.len() + job.used.name.len(),
            Self::PutMessage(message) => message.bytes.len() + message.key.part.len(),
            Self::DropMessage(key) => key.part.len(),
            Self::Reopened(_)
            | Self::SetAside(_)
            | Self::EarlierFetched(..)
            | Self::JobReopened(_)
            | Self::Forgotten(_)
            | Self::DropBlob(_) => 0,
        };
        size_of::<Self>() + payload
    }
}

/// An ended job. Queries use the separate fields; `bytes` holds the whole job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedJob {
    /// The job's id.
    pub id: JobId,
    /// The idempotency key of the submission.
    pub key: u128,
    /// The name of the user who submitted the job.
    pub user: String,
    /// The final state.
    pub state: JobState,
    /// The final states of an array's tasks that differ from the job's state.
    pub other_states: BTreeSet<JobState>,
    /// When the job ended, on the cluster's clock.
    pub ended: Timestamp,
    /// The hash of the captured folder, if the job has one.
    pub snapshot: Option<Digest>,
    /// What the store adds up, and lists jobs by.
    pub used: EndedUse,
    /// Which of the job's results are stored.
    pub results: KeptResults,
    /// Whether the job's environment variables are stored, so that the job can be requeued.
    pub keeps_environment: bool,
    /// The complete job, as encoded by the caller.
    pub bytes: Bytes,
}

/// The key of a message in the outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageKey {
    /// The message's number. Numbers increase and are never used again.
    pub number: u64,
    /// Empty, or the destination of this copy of a message that goes to several destinations.
    pub part: String,
}

/// A message in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The message's key.
    pub key: MessageKey,
    /// The message, as encoded by the caller.
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

/// What a starting head reads from the store's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The latest snapshot; absent if none was saved.
    pub snapshot: Option<Snapshot>,
    /// The events after the snapshot, or all events without a snapshot. The first one has the number
    /// [`Loaded::first_sequence`].
    pub events: Vec<Vec<u8>>,
}

/// The encoded state of the head after the event with the number `sequence`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The number of the last event in the snapshot.
    pub sequence: u64,
    /// The state, as encoded by the caller.
    pub bytes: Vec<u8>,
}

impl Loaded {
    /// Returns the number of the first of [`Loaded::events`]. Numbers start at 1.
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.sequence) + 1
    }

    /// Returns the number of the next event to store.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.first_sequence() + u64::try_from(self.events.len()).expect("the number of events fits 64 bits")
    }
}

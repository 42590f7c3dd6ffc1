//! What the head's store takes and gives back: batches of events and changes, ended jobs, and the log as it is read.

use bytes::Bytes;
use hostler_model::{Digest, JobId, JobState, TaskId, Timestamp};

use crate::record::EndedTask;

/// Changes that are stored together or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The sequence number of the first event: one more than the last event stored. Means nothing when there are no events.
    pub first_sequence: u64,
    /// The events, in order.
    pub events: Vec<Vec<u8>>,
    /// Changes to history and blobs, applied in order, so that a task may end, be reopened and end again in one batch.
    pub changes: Vec<Change>,
}

/// One change to the history or the blobs. Each is idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A task ended. Replaces the row that the task has, if any.
    Ended(EndedTask),
    /// A task that had ended is to run again: its row goes.
    Reopened(TaskId),
    /// A job has ended, or has changed since. Replaces what is kept of it, if anything.
    JobEnded(EndedJob),
    /// A job that had ended lives again: it goes, and the rows of its tasks stay.
    JobReopened(JobId),
    /// Keep an environment for a job: until the job is forgotten, or has ended and [does not need it](EndedJob::keeps_environment). Equal
    /// environments are kept once. The digest is the caller's name for the bytes and is not checked here.
    Environment {
        /// The job.
        job: JobId,
        /// The environment's name.
        digest: Digest,
        /// The environment.
        bytes: Bytes,
    },
    /// A job's retention is over: all that is kept of it and its tasks goes.
    Forgotten(JobId),
    /// Keep a blob. The digest is the caller's name for the bytes and is not checked here; a blob already kept stays as it is.
    PutBlob(Digest, Bytes),
    /// Nothing needs the blob any more.
    DropBlob(Digest),
}

impl Batch {
    /// A batch of events only.
    #[must_use]
    pub const fn of_events(first_sequence: u64, events: Vec<Vec<u8>>) -> Self {
        Self { first_sequence, events, changes: Vec::new() }
    }

    /// A batch of other changes only, which has no place in the sequence.
    #[must_use]
    pub const fn of_changes(changes: Vec<Change>) -> Self {
        Self { first_sequence: 0, events: Vec::new(), changes }
    }

    /// The sequence number of the last event, if there is any.
    #[must_use]
    pub fn last_sequence(&self) -> Option<u64> {
        let count = u64::try_from(self.events.len()).expect("a length fits 64 bits");
        (count > 0).then(|| self.first_sequence + count - 1)
    }

    /// Roughly how much memory it takes, in bytes; bounds the writer's queue.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let events: usize = self.events.iter().map(Vec::len).sum();
        let changes: usize = self.changes.iter().map(Change::size_bytes).sum();
        size_of::<Self>() + events + changes
    }
}

impl Change {
    /// Roughly how much memory it takes, in bytes.
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

/// The log as it was read back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The latest snapshot, if one was ever saved.
    pub snapshot: Option<Snapshot>,
    /// The events after it, or all events; the first has the number [`Loaded::first_sequence`].
    pub events: Vec<Vec<u8>>,
}

/// The effect of all events up to a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The last event whose effect it holds.
    pub sequence: u64,
    /// What the caller gave.
    pub bytes: Vec<u8>,
}

impl Loaded {
    /// The number of the first of [`Loaded::events`]; events are numbered from 1.
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.sequence) + 1
    }

    /// The number that the next event committed must have.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.first_sequence() + u64::try_from(self.events.len()).expect("a length fits 64 bits")
    }
}

//! Between the state and what the store keeps: a round as a batch, the log as a state, a job as a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hostler_model::{Digest, Work};
use hostler_proto::DecodeError;
use hostler_proto::stored::{Batch, Change, EndedJob, KeptResults, Loaded};

use super::event::{Changes, Event, Now, Record, Stamped};
use super::job::Job;
use super::state::State;
use super::update::update;

/// Why what is stored is no state.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The snapshot cannot be read.
    #[error("the snapshot up to event {sequence} cannot be read; was it written by a newer release?")]
    Snapshot {
        /// Its last event.
        sequence: u64,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// An event cannot be read.
    #[error("event {sequence} cannot be read; was it written by a newer release?")]
    Event {
        /// Its number.
        sequence: u64,
        /// What is wrong with it.
        source: DecodeError,
    },
}

/// Builds the stored state: the latest snapshot, or `first` when there is none, then every event after it. Returns the number of the next
/// event too. The effects and records of past events are dropped, because the earlier head has handled them.
///
/// # Errors
/// When this release does not know a snapshot or an event.
pub fn restore(first: State, loaded: &Loaded) -> Result<(State, u64), RestoreError> {
    let mut state = match &loaded.snapshot {
        Some(snapshot) => hostler_proto::decode::<State>(&snapshot.bytes)
            .map_err(|source| RestoreError::Snapshot { sequence: snapshot.sequence, source })?,
        None => first,
    }
    .restored();
    for (sequence, event) in (loaded.first_sequence()..).zip(&loaded.events) {
        let event: Stamped = hostler_proto::decode(event).map_err(|source| RestoreError::Event { sequence, source })?;
        update(&mut state, &event, &mut Changes::default());
    }
    Ok((state, loaded.next_sequence()))
}

/// The event that begins an epoch of this head on a restored state, before all others. `owner` is the uid that the head runs under.
#[must_use]
pub fn epoch_starts(state: &State, now: Now, owner: Option<u32>) -> Stamped {
    Stamped { now, event: Event::EpochStarted { epoch: state.next_epoch(), archives: true, owner } }
}

/// Applies the first event of an epoch to a state whose log ends before `next_sequence`. Returns the batch to store before any other. It
/// includes the jobs that ended under a release that kept them in the state.
pub fn begin_epoch(state: &mut State, next_sequence: u64, first: &Stamped) -> Batch {
    let mut changes = Changes::default();
    update(state, first, &mut changes);
    batch(next_sequence, std::slice::from_ref(first), changes.records, Vec::new(), &BTreeMap::new())
}

/// A round as the store takes it.
pub(super) fn batch(
    first_sequence: u64,
    events: &[Stamped],
    records: Vec<Record>,
    blobs: Vec<(Digest, Vec<u8>)>,
    environments: &BTreeMap<Digest, Bytes>,
) -> Batch {
    let events = events.iter().map(hostler_proto::encode).collect();
    let blobs = blobs.into_iter().map(|(digest, bytes)| Change::PutBlob(digest, bytes.into()));
    let records = records.into_iter().map(|record| match record {
        Record::Ended(task) => Change::Ended(*task),
        Record::Reopened(task) => Change::Reopened(task),
        Record::JobEnded(job) => Change::JobEnded(as_stored(&job)),
        Record::JobReopened(id) => Change::JobReopened(id),
        Record::Environment { job, digest } => {
            let bytes = environments.get(&digest).cloned().expect("it came with the submission");
            Change::Environment { job, digest, bytes }
        }
        Record::Forgotten(job) => Change::Forgotten(job),
    });
    Batch { first_sequence, events, changes: blobs.chain(records).collect() }
}

/// A job as the store takes it.
fn as_stored(job: &Job) -> EndedJob {
    EndedJob {
        id: job.id,
        key: job.key.0,
        user: job.user.clone(),
        state: job.state(),
        ended: job.ended.unwrap_or_default(),
        snapshot: match &job.spec.work {
            Work::Project { snapshot, .. } => Some(*snapshot),
            Work::Command { .. } => None,
        },
        results: KeptResults {
            any: !job.results.is_empty(),
            unfetched: !job.results.is_subset(&job.fetched),
            fetched: !job.results.is_disjoint(&job.fetched),
        },
        keeps_environment: job.environment.is_some(),
        bytes: hostler_proto::encode(job).into(),
    }
}

/// A job as the store gives it back.
///
/// # Errors
/// When the bytes are no job that this release knows.
pub fn read_ended_job(bytes: &[u8]) -> Result<Arc<Job>, DecodeError> {
    Ok(Arc::new(hostler_proto::decode(bytes)?))
}

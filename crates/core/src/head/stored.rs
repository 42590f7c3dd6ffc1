//! Conversions between the state and the store: a round to a batch, the log to a state, a job to a row and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hostler_model::{Digest, Work};
use hostler_proto::DecodeError;
use hostler_proto::accounting::{Consumption, EndedUse};
use hostler_proto::stored::{Batch, Change, EndedJob, KeptResults, Loaded, MessageKey, StoredMessage};

use super::event::{Changes, Event, Record, Stamped};
use super::ids::Now;
use super::jobs::job::Job;
use super::state::State;
use super::update::update;

/// Why the head cannot restore its state from the store.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The snapshot cannot be read.
    #[error(
        "the snapshot up to event {sequence} cannot be read; a newer release may have written it: start that release"
    )]
    Snapshot {
        /// The number of the last event in the snapshot.
        sequence: u64,
        /// The error of the snapshot's decoder.
        source: DecodeError,
    },
    /// An event cannot be read.
    #[error("event {sequence} cannot be read; a newer release may have written it: start that release")]
    Event {
        /// The number of the event.
        sequence: u64,
        /// The error of the event's decoder.
        source: DecodeError,
    },
}

/// Restores the stored state: the latest snapshot, or `first` without a snapshot, followed by all later events. Also
/// returns the number of the next event. Effects and records of past events are dropped, because an earlier head has
/// handled them.
///
/// # Errors
/// If this release cannot decode the snapshot or an event.
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

/// Returns the first event of a new epoch for a restored state. `owner` is the uid that the head runs under.
#[must_use]
pub fn epoch_starts(state: &State, now: Now, owner: Option<u32>) -> Stamped {
    Stamped { now, event: Event::EpochStarted { epoch: state.next_epoch(), owner } }
}

/// Applies the first event of an epoch to a state whose log ends before `next_sequence`. Returns the batch that must be
/// stored first.
pub fn begin_epoch(state: &mut State, next_sequence: u64, first: &Stamped) -> Batch {
    let mut changes = Changes::default();
    update(state, first, &mut changes);
    batch(next_sequence, std::slice::from_ref(first), changes.records, Vec::new(), &BTreeMap::new())
}

/// Converts a round to a batch for the store.
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
        Record::SetAside(task) => Change::SetAside(task),
        Record::EarlierEnded(task) => Change::EarlierEnded(*task),
        Record::EarlierFetched(task, attempt) => Change::EarlierFetched(task, attempt),
        Record::JobEnded(job) => Change::JobEnded(as_stored(&job)),
        Record::JobReopened(id) => Change::JobReopened(id),
        Record::Environment { job, digest } => {
            let bytes =
                environments.get(&digest).cloned().expect("the submission contains the environment with this digest");
            Change::Environment { job, digest, bytes }
        }
        Record::Forgotten(job) => Change::Forgotten(job),
        Record::Message { number, message } => {
            let key = MessageKey { number, part: String::new() };
            Change::PutMessage(StoredMessage { key, bytes: hostler_proto::encode(&*message).into() })
        }
    });
    Batch { first_sequence, events, changes: blobs.chain(records).collect() }
}

/// Converts an ended job to the store's form.
fn as_stored(job: &Job) -> EndedJob {
    EndedJob {
        id: job.id,
        key: job.key.0,
        user: job.user.clone(),
        state: job.state(),
        other_states: job.endings.keys().map(|ending| ending.state).filter(|state| *state != job.state()).collect(),
        ended: job.ended.unwrap_or_default(),
        snapshot: match &job.spec.work {
            Work::Project { snapshot, .. } => Some(*snapshot),
            Work::Command { .. } => None,
        },
        used: EndedUse {
            name: job.spec.name.to_string(),
            partition: job.spec.partition.clone(),
            ended_at: job.ended_at.unwrap_or_default(),
            sums: Consumption {
                energy_uj: job.energy.as_ref().map_or(0, |energy| energy.drawn_uj),
                ..job.used.as_deref().copied().unwrap_or_default().sums
            },
        },
        results: KeptResults {
            any: job.has_results(),
            unfetched: job.has_unfetched_results(),
            fetched: !job.results.is_disjoint(&job.fetched),
        },
        keeps_environment: job.environment.is_some(),
        bytes: hostler_proto::encode(job).into(),
    }
}

/// Decodes a stored job.
///
/// # Errors
/// If this release cannot decode the bytes.
pub fn read_ended_job(bytes: &[u8]) -> Result<Arc<Job>, DecodeError> {
    Ok(Arc::new(hostler_proto::decode(bytes)?))
}

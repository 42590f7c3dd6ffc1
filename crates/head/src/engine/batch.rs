//! From a round of the loop to what the store takes.

use std::collections::HashMap;

use bytes::Bytes;
use hostler_core::head::{Changes, Event, Now, Record, Stamped, State, update};
use hostler_model::Digest;
use hostler_store::{Batch, Change};

use crate::archive::as_stored;

/// A round as the store takes it.
pub(super) fn batch(
    first_sequence: u64,
    events: &[Stamped],
    records: Vec<Record>,
    blobs: Vec<(Digest, Vec<u8>)>,
    environments: &HashMap<Digest, Bytes>,
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

/// Begins an epoch on a state whose log ends before `next_sequence`: what is to be stored before anything else, with the jobs that ended
/// under a head that kept them in its state.
pub(crate) fn begin_epoch(state: &mut State, next_sequence: u64, now: Now) -> Batch {
    let first = Stamped {
        now,
        event: Event::EpochStarted {
            epoch: state.next_epoch(),
            archives: true,
            owner: Some(nix::unistd::geteuid().as_raw()),
        },
    };
    let mut changes = Changes::default();
    update(state, &first, &mut changes);
    batch(next_sequence, &[first], changes.records, Vec::new(), &HashMap::new())
}

//! From what is stored to a state: the latest snapshot, then every event after it.

use hostler_core::head::{Changes, Stamped, State, update};
use hostler_proto::DecodeError;
use hostler_store::Loaded;

/// Why what is stored is no state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
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

/// The state that is stored, and the number of its next event. Effects and records of the past have long been carried out.
///
/// # Errors
/// When a snapshot or an event is not one that this release knows.
pub(crate) fn restore(loaded: &Loaded) -> Result<(State, u64), RestoreError> {
    let mut state = match &loaded.snapshot {
        Some(snapshot) => hostler_proto::decode::<State>(&snapshot.bytes)
            .map_err(|source| RestoreError::Snapshot { sequence: snapshot.sequence, source })?,
        None => State::default(),
    }
    .restored();
    for (sequence, event) in (loaded.first_sequence()..).zip(&loaded.events) {
        let event: Stamped = hostler_proto::decode(event).map_err(|source| RestoreError::Event { sequence, source })?;
        update(&mut state, &event, &mut Changes::default());
    }
    Ok((state, loaded.next_sequence()))
}

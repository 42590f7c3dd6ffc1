//! The interface of every backend.

use crate::{Batch, Loaded, Reader, StoreError};

/// A durable log with its history and blobs. One thread owns it; see [`crate::Writer`].
pub trait Store: Send {
    /// Reads the log back: the latest snapshot and every event after it, in order.
    ///
    /// Call it before the first commit. After a failed commit, call it again to learn which events are stored.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] with the first damaged or missing event or snapshot.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Stores all `batches`, in order, in one transaction. They are durable when this function returns.
    ///
    /// # Errors
    /// On an error, none of the batches is stored. Exception: after [`StoreError::Sqlite`] and a crash, the next head
    /// may find them. [`StoreError::Sequence`] if events do not continue the stored ones.
    fn commit_all(&mut self, batches: &[Batch]) -> Result<(), StoreError>;

    /// Stores one batch; see [`Store::commit_all`].
    ///
    /// # Errors
    /// The errors of [`Store::commit_all`].
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.commit_all(std::slice::from_ref(batch))
    }

    /// Replaces the snapshot by one that covers every event up to and including `sequence`, and deletes those events.
    /// History and blobs stay.
    ///
    /// # Errors
    /// On an error, the older snapshot and the events stay. [`StoreError::Sequence`] if `sequence` is not stored yet
    /// or precedes the current snapshot.
    fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// Does housekeeping such as checkpoints. The writer calls this function after acknowledging commits, so no caller
    /// waits. Failures are logged.
    fn maintain(&mut self);

    /// A view for queries from other threads, concurrent with this store.
    fn reader(&self) -> Reader;
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        (**self).load()
    }

    fn commit_all(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        (**self).commit_all(batches)
    }

    fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), StoreError> {
        (**self).save_snapshot(sequence, bytes)
    }

    fn maintain(&mut self) {
        (**self).maintain();
    }

    fn reader(&self) -> Reader {
        (**self).reader()
    }
}

/// The end of the log. Both backends check it before they store anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The last event in the snapshot, or zero.
    pub(crate) snapshot: u64,
    /// The last stored event, or zero.
    pub(crate) last: u64,
}

impl Tail {
    pub(crate) fn after(self, batch: &Batch) -> Result<Self, StoreError> {
        match batch.last_sequence() {
            None => Ok(self),
            Some(last) if batch.first_sequence == self.last + 1 => Ok(Self { last, ..self }),
            Some(_) => Err(StoreError::Sequence { expected: self.last + 1, found: batch.first_sequence }),
        }
    }

    /// The tail after a snapshot up to `sequence`.
    pub(crate) fn after_snapshot(self, sequence: u64) -> Result<Self, StoreError> {
        if (self.snapshot..=self.last).contains(&sequence) {
            Ok(Self { snapshot: sequence, ..self })
        } else {
            Err(StoreError::Sequence { expected: self.last, found: sequence })
        }
    }
}

//! What every backend does.

use crate::{Batch, Loaded, Reader, StoreError};

/// A durable log with its history and blobs. One thread owns it; see [`crate::Writer`].
pub trait Store: Send {
    /// Reads the log back: the latest snapshot and every event after it, in order.
    ///
    /// Call it before the first commit, and again after a failed commit to learn what is stored.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the first event or snapshot that is not as it was written, or is missing.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Stores all `batches`, in order, in one transaction. They are durable when it returns.
    ///
    /// # Errors
    /// Then none of them is stored, except that after [`StoreError::Sqlite`] a crash may yet show them to the next head.
    /// [`StoreError::Sequence`] when events do not follow on the last one stored.
    fn commit_all(&mut self, batches: &[Batch]) -> Result<(), StoreError>;

    /// Stores one batch; see [`Store::commit_all`].
    ///
    /// # Errors
    /// As [`Store::commit_all`].
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.commit_all(std::slice::from_ref(batch))
    }

    /// Replaces the snapshot by one that holds the effect of every event up to and including `sequence`, and deletes
    /// those events. History and blobs stay.
    ///
    /// # Errors
    /// Then the older snapshot and the events are still there. [`StoreError::Sequence`] when `sequence` has not been
    /// stored yet or is before the snapshot there is.
    fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// Housekeeping that no caller waits for. The writer calls it after it has acknowledged; failures are logged.
    fn maintain(&mut self);

    /// A view for queries that works beside this store and from other threads.
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

/// Where the log ends: the check that both backends make before they store anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The last event in the snapshot, or zero.
    pub(crate) snapshot: u64,
    /// The last event stored, or zero.
    pub(crate) last: u64,
}

impl Tail {
    /// The tail after `batch`.
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

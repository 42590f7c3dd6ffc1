//! The logic of group commit without the thread: which commits share a transaction, and what a failure stops.
//!
//! [`Queue`] returns the next [`Work`]: one request, or a group of adjacent commits. [`Committer`] executes it on a
//! store. The [`crate::Writer`] drives both on a thread, and the simulator on a virtual clock.
//!
//! A failed commit with events stops all later ones, because their events would be out of order. They fail with
//! [`StoreError::Stopped`] until the head calls [`Committer::reload`] and learns which events are stored. Batches with
//! only blobs depend on nothing, so they neither stop other batches nor are stopped. A failed group is retried batch by
//! batch, so that only the bad batch fails.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{Batch, Change, Loaded, Store, StoreError};

/// The maximum number of queued commits. Only a hanging disk lets the queue grow so long, not a burst of commits.
const QUEUE_COMMITS: usize = 1024;
/// The maximum size of the queue: batches contain blobs, and a stalled disk must not fill the memory.
const QUEUE_BYTES: usize = 64 << 20;
/// The maximum number of commits in one transaction. In measurements, larger groups gain nothing and delay the first
/// commit.
const GROUP_COMMITS: usize = 256;
/// The maximum size of a transaction; a single commit may exceed it.
const GROUP_BYTES: usize = 16 << 20;

/// Requests in order. `D` receives the outcome of a commit or a snapshot, `L` the stored data.
#[derive(Debug)]
pub struct Queue<D, L> {
    requests: VecDeque<Request<D, L>>,
    commits: usize,
    bytes: usize,
}

/// A request to write or read.
#[derive(Debug)]
pub enum Request<D, L> {
    /// Store a batch.
    Commit {
        batch: Batch,
        /// Receives the outcome.
        done: D,
    },
    /// Replace the log up to an event by a snapshot.
    Snapshot {
        /// The last event that the snapshot covers.
        sequence: u64,
        bytes: Vec<u8>,
        /// Receives the outcome.
        done: D,
    },
    /// Read the stored data back, and accept commits again after a failure.
    Reload(L),
}

/// The next work for the [`Committer`].
#[derive(Debug)]
pub enum Work<D, L> {
    /// Commits for one transaction; `dones[i]` belongs to `batches[i]`.
    Commits { batches: Vec<Batch>, dones: Vec<D> },
    /// See [`Request::Snapshot`].
    Snapshot {
        /// The last event that the snapshot covers.
        sequence: u64,
        bytes: Vec<u8>,
        /// Receives the outcome.
        done: D,
    },
    /// See [`Request::Reload`].
    Reload(L),
}

impl<D, L> Default for Queue<D, L> {
    fn default() -> Self {
        Self { requests: VecDeque::new(), commits: 0, bytes: 0 }
    }
}

impl<D, L> Queue<D, L> {
    /// Appends a request.
    pub fn push(&mut self, request: Request<D, L>) {
        if let Request::Commit { batch, .. } = &request {
            self.commits += 1;
            self.bytes += batch.size_bytes();
        }
        self.requests.push_back(request);
    }

    /// Whether a batch of this size fits. An empty queue accepts even the largest commit.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.commits == 0 || (self.commits < QUEUE_COMMITS && self.bytes + bytes <= QUEUE_BYTES)
    }

    /// The number of queued commits.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.commits
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Takes the next request. If it is a commit, also takes the following commits that fit into its transaction.
    pub fn take(&mut self) -> Option<Work<D, L>> {
        self.take_at_most(GROUP_COMMITS)
    }

    /// Like [`Queue::take`], with a limit on the number of commits.
    pub fn take_at_most(&mut self, commits: usize) -> Option<Work<D, L>> {
        let (batch, done) = match self.requests.pop_front()? {
            Request::Commit { batch, done } => (batch, done),
            Request::Snapshot { sequence, bytes, done } => return Some(Work::Snapshot { sequence, bytes, done }),
            Request::Reload(done) => return Some(Work::Reload(done)),
        };
        let mut bytes = batch.size_bytes();
        let (mut batches, mut dones) = (vec![batch], vec![done]);
        while batches.len() < commits
            && let Some(Request::Commit { batch, done }) = self.requests.pop_front_if(
                |next| matches!(next, Request::Commit { batch, .. } if bytes + batch.size_bytes() <= GROUP_BYTES),
            )
        {
            bytes += batch.size_bytes();
            batches.push(batch);
            dones.push(done);
        }
        self.commits -= batches.len();
        self.bytes -= bytes;
        Some(Work::Commits { batches, dones })
    }

    /// Removes all requests and returns them in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Request<D, L>> + use<D, L> {
        (self.commits, self.bytes) = (0, 0);
        std::mem::take(&mut self.requests).into_iter()
    }
}

/// Executes work on a store.
#[derive(Debug)]
pub struct Committer<S> {
    store: S,
    /// The failure of an earlier commit with events, until the head reloads.
    stopped: Option<Arc<StoreError>>,
    transactions: u64,
}

impl<S: Store> Committer<S> {
    pub fn new(store: S) -> Self {
        Self { store, stopped: None, transactions: 0 }
    }

    /// Stores batches in one transaction. If the transaction fails, stores each batch separately. Returns the outcome
    /// of each batch.
    pub fn commit(&mut self, batches: &[Batch]) -> Vec<Result<(), StoreError>> {
        let together = batches.len() > 1 && self.stopped.is_none();
        if together && self.transaction(batches).is_ok() {
            return vec![Ok(()); batches.len()];
        }
        batches.iter().map(|batch| self.commit_alone(batch)).collect()
    }

    fn commit_alone(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if !is_sequenced(batch) {
            return self.transaction(std::slice::from_ref(batch));
        }
        self.check_stopped()?;
        let outcome = self.transaction(std::slice::from_ref(batch));
        if let Err(error) = &outcome {
            tracing::error!(error = error as &dyn std::error::Error, "nothing more is stored until the head reloads");
            self.stopped = Some(Arc::new(error.clone()));
        }
        outcome
    }

    fn transaction(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        self.store.commit_all(batches)?;
        self.transactions += 1;
        Ok(())
    }

    /// Saves a snapshot.
    ///
    /// # Errors
    /// [`StoreError::Stopped`] after a failed commit, because the snapshot may cover events that were not stored; or
    /// the errors of [`Store::save_snapshot`].
    pub fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.check_stopped()?;
        self.store.save_snapshot(sequence, bytes)
    }

    /// Reads the stored data back, and accepts commits again after a failure. If reading fails, commits stay stopped.
    ///
    /// # Errors
    /// The errors of [`Store::load`].
    pub fn reload(&mut self) -> Result<Loaded, StoreError> {
        let loaded = self.store.load()?;
        self.stopped = None;
        Ok(loaded)
    }

    pub fn maintain(&mut self) {
        self.store.maintain();
    }

    /// The number of stored transactions.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    fn check_stopped(&self) -> Result<(), StoreError> {
        match &self.stopped {
            None => Ok(()),
            Some(cause) => Err(StoreError::Stopped { cause: Arc::clone(cause) }),
        }
    }
}

/// Whether the batch must keep its place among the other batches. Batches that contain only blobs or only the outcome
/// of deliveries need not.
fn is_sequenced(batch: &Batch) -> bool {
    let is_free = |change: &Change| {
        matches!(change, Change::PutBlob(..) | Change::DropBlob(_) | Change::PutMessage(_) | Change::DropMessage(_))
    };
    !batch.events.is_empty() || !batch.changes.iter().all(is_free)
}

//! Group commit without its thread: which commits share a transaction, and what a failure stops.
//!
//! [`Queue`] hands out the next [`Work`]: one request, or the commits that stand together at its front. [`Committer`] carries it out on a
//! store. The [`crate::Writer`] drives both on a thread, and the simulator on a virtual clock.
//!
//! A commit in the sequence that fails stops those behind it, since their events would come out of order: they fail with
//! [`StoreError::Stopped`] until [`Committer::reload`] tells the head what is stored. Batches of blobs alone depend on nothing, so
//! they neither stop others nor are stopped. A failed group is tried again batch by batch, so that one bad batch fails alone.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{Batch, Change, Loaded, Store, StoreError};

/// Most commits in the queue. A head that keeps this many unacknowledged has a disk that stands still, not a burst.
const QUEUE_COMMITS: usize = 1024;
/// Most bytes in the queue: blobs ride in batches, and a stalled disk must not fill the memory.
const QUEUE_BYTES: usize = 64 << 20;
/// Most commits in one transaction; measured, larger groups gain nothing and make the first of them wait longer.
const GROUP_COMMITS: usize = 256;
/// Most bytes in one transaction, except that one commit always fits.
const GROUP_BYTES: usize = 16 << 20;

/// What waits to be written, in order. `D` is who wants to know the outcome of a commit or a snapshot, `L` who wants what is stored.
#[derive(Debug)]
pub struct Queue<D, L> {
    requests: VecDeque<Request<D, L>>,
    commits: usize,
    bytes: usize,
}

/// Something to be written or read.
#[derive(Debug)]
pub enum Request<D, L> {
    /// Store a batch.
    Commit {
        /// What to store.
        batch: Batch,
        /// Who wants to know.
        done: D,
    },
    /// Replace the log up to an event by a snapshot.
    Snapshot {
        /// The last event whose effect it holds.
        sequence: u64,
        /// The snapshot.
        bytes: Vec<u8>,
        /// Who wants to know.
        done: D,
    },
    /// Read back what is stored, and take commits again after a failure.
    Reload(L),
}

/// The next thing to do.
#[derive(Debug)]
pub enum Work<D, L> {
    /// Commits for one transaction; `dones[i]` belongs to `batches[i]`.
    Commits {
        /// What to store.
        batches: Vec<Batch>,
        /// Who wants to know.
        dones: Vec<D>,
    },
    /// As [`Request::Snapshot`].
    Snapshot {
        /// The last event whose effect it holds.
        sequence: u64,
        /// The snapshot.
        bytes: Vec<u8>,
        /// Who wants to know.
        done: D,
    },
    /// As [`Request::Reload`].
    Reload(L),
}

impl<D, L> Default for Queue<D, L> {
    fn default() -> Self {
        Self { requests: VecDeque::new(), commits: 0, bytes: 0 }
    }
}

impl<D, L> Queue<D, L> {
    /// Adds a request behind all others.
    pub fn push(&mut self, request: Request<D, L>) {
        if let Request::Commit { batch, .. } = &request {
            self.commits += 1;
            self.bytes += batch.size_bytes();
        }
        self.requests.push_back(request);
    }

    /// Whether there is room for a batch of this size. Even the largest commit gets in when nothing else waits.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.commits == 0 || (self.commits < QUEUE_COMMITS && self.bytes + bytes <= QUEUE_BYTES)
    }

    /// How many commits wait.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.commits
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The next request and, if it is a commit, the commits right behind it that fit into its transaction.
    pub fn take(&mut self) -> Option<Work<D, L>> {
        self.take_at_most(GROUP_COMMITS)
    }

    /// The same with fewer commits in one transaction.
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

    /// Empties the queue, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Request<D, L>> + use<D, L> {
        (self.commits, self.bytes) = (0, 0);
        std::mem::take(&mut self.requests).into_iter()
    }
}

/// Carries out work on a store.
#[derive(Debug)]
pub struct Committer<S> {
    store: S,
    /// Why a commit in the sequence failed, until the head reloads.
    stopped: Option<Arc<StoreError>>,
    transactions: u64,
}

impl<S: Store> Committer<S> {
    /// A committer that owns the store.
    pub fn new(store: S) -> Self {
        Self { store, stopped: None, transactions: 0 }
    }

    /// Stores batches in one transaction if that works, or else each by itself. Returns what became of each.
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
    /// [`StoreError::Stopped`] after a failed commit, since the snapshot may hold events that were not stored; or as
    /// [`Store::save_snapshot`].
    pub fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.check_stopped()?;
        self.store.save_snapshot(sequence, bytes)
    }

    /// Reads back what is stored, and takes commits again after a failure. Should the reading fail, the stop remains.
    ///
    /// # Errors
    /// As [`Store::load`].
    pub fn reload(&mut self) -> Result<Loaded, StoreError> {
        let loaded = self.store.load()?;
        self.stopped = None;
        Ok(loaded)
    }

    /// Does the store's housekeeping.
    pub fn maintain(&mut self) {
        self.store.maintain();
    }

    /// How many transactions were stored.
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

/// Whether other batches depend on this one: all but batches of blobs alone.
fn is_sequenced(batch: &Batch) -> bool {
    let only_blobs = batch.changes.iter().all(|change| matches!(change, Change::PutBlob(..) | Change::DropBlob(_)));
    !batch.events.is_empty() || !only_blobs
}

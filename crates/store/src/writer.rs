//! The one thread that writes: group commit, acknowledgements in order, and a stop after a failure.
//!
//! Commits wait in one bounded queue. The thread takes what has gathered there while the last transaction was being synced, puts
//! it into one transaction and then calls every `done`, in order. Nothing is held back in the hope of more company: under load the
//! queue fills by itself, and without load a commit goes out alone at once.
//!
//! A commit in the sequence that fails stops those behind it, since their events would come out of order: they fail with
//! [`StoreError::Stopped`] until [`Writer::reload`] tells the head what is stored. Batches of blobs alone depend on nothing, so
//! they neither stop others nor are stopped. A failed group is tried again batch by batch, so that one bad batch fails alone.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use crate::{Batch, Change, Loaded, Store, StoreError};

/// Called once, on the writer's thread, when the outcome is known. It must not block: every commit behind it waits.
pub type Done<T = ()> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// Most commits in the queue. A head that keeps this many unacknowledged has a disk that stands still, not a burst.
const QUEUE_COMMITS: usize = 1024;
/// Most bytes in the queue: blobs ride in batches, and a stalled disk must not fill the memory.
const QUEUE_BYTES: usize = 64 << 20;
/// Most commits in one transaction; measured, larger groups gain nothing and make the first of them wait longer.
const GROUP_COMMITS: usize = 256;
/// Most bytes in one transaction, except that one commit always fits.
const GROUP_BYTES: usize = 16 << 20;

/// A handle on the writer thread; clones share it. When the last one is dropped, what is queued is still written.
#[derive(Clone)]
pub struct Writer(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What handles and thread share.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when there is work, or no more will come.
    work: Condvar,
    /// Signalled when there is room, or the queue is closed.
    room: Condvar,
    /// Which thread writes: a callback that commits must not wait for itself.
    thread: OnceLock<ThreadId>,
    commits: AtomicU64,
    transactions: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    commits: usize,
    bytes: usize,
    closed: bool,
}

enum Request {
    Commit(Commit),
    Snapshot { sequence: u64, bytes: Vec<u8>, done: Done },
    Reload(Done<Loaded>),
}

/// A batch and who wants to know.
pub struct Commit {
    /// What to store.
    pub batch: Batch,
    /// Called with the outcome.
    pub done: Done,
}

/// The queue has no room now; here is the commit back.
#[derive(Debug)]
pub struct Full(pub Commit);

/// What the writer has done since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches stored.
    pub commits: u64,
    /// Transactions they took: fewer under load, which is group commit.
    pub transactions: u64,
    /// Batches that failed.
    pub failed: u64,
    /// Batches in the queue at this moment.
    pub queued: usize,
}

impl Writer {
    /// Starts the thread, which owns `store` from now on.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(store: impl Store + 'static) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::default());
        let loop_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || Loop { store, shared: loop_shared, stopped: None }.run())
            .map_err(|error| StoreError::io("start the writer thread of", Path::new("the store"), error))?;
        shared.thread.set(thread.thread().id()).expect("set only here");
        Ok(Self(Arc::new(Handle { shared, thread: Mutex::new(Some(thread)) })))
    }

    /// Queues `batch`. Waits while the queue is full, which takes a stalled disk or 1024 unacknowledged batches: a caller that may
    /// not wait uses [`Writer::try_commit`] or counts its own unacknowledged batches.
    pub fn commit(&self, batch: Batch, done: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        let commit = Commit { batch, done: Box::new(done) };
        let size = commit.batch.size_bytes();
        let mut queue = self.0.shared.lock();
        while !queue.closed && !queue.has_room(size) && !self.0.shared.is_writer() {
            queue = self.0.shared.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        self.0.shared.push(queue, Request::Commit(commit));
    }

    /// Queues `commit` if there is room for it now.
    ///
    /// # Errors
    /// [`Full`] gives it back, `done` not called.
    pub fn try_commit(&self, commit: Commit) -> Result<(), Full> {
        let queue = self.0.shared.lock();
        if !queue.closed && !queue.has_room(commit.batch.size_bytes()) {
            return Err(Full(commit));
        }
        self.0.shared.push(queue, Request::Commit(commit));
        Ok(())
    }

    /// Stores `batch` and waits until it is durable. For callers on threads of their own; never from a callback.
    ///
    /// # Errors
    /// As the store's commit, and [`StoreError::Stopped`] or [`StoreError::Closed`].
    pub fn commit_and_wait(&self, batch: Batch) -> Result<(), StoreError> {
        let (sender, outcome) = std::sync::mpsc::sync_channel(1);
        self.commit(batch, move |result| {
            // Fails only if the receiver is gone, and it waits below.
            let _ = sender.send(result);
        });
        outcome.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Queues a snapshot behind the commits already queued. It may be large, so take one at a time.
    pub fn snapshot(&self, sequence: u64, bytes: Vec<u8>, done: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        let done = Box::new(done);
        self.0.shared.push(self.0.shared.lock(), Request::Snapshot { sequence, bytes, done });
    }

    /// Reads back what is stored, behind the commits already queued, and takes commits again after a failure. Commits queued
    /// later must follow on what this returns. Should the reading fail, the stop remains.
    pub fn reload(&self, done: impl FnOnce(Result<Loaded, StoreError>) + Send + 'static) {
        self.0.shared.push(self.0.shared.lock(), Request::Reload(Box::new(done)));
    }

    /// Takes no more, writes what is queued, closes the store and returns when all that is done. Safe to repeat.
    pub fn shutdown(&self) {
        self.0.shutdown();
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.0.shared;
        Stats {
            commits: shared.commits.load(Relaxed),
            transactions: shared.transactions.load(Relaxed),
            failed: shared.failed.load(Relaxed),
            queued: shared.lock().commits,
        }
    }
}

impl Handle {
    fn shutdown(&self) {
        self.shared.close();
        if self.shared.is_writer() {
            return; // The last handle went with a callback: the thread cannot wait for itself, and ends on its own.
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the store's writer thread panicked");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_writer(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }

    /// Takes the guard so that room found under it is still there.
    fn push(&self, mut queue: MutexGuard<'_, Queue>, request: Request) {
        if queue.closed {
            drop(queue);
            request.refuse(&StoreError::Closed);
            return;
        }
        if let Request::Commit(commit) = &request {
            queue.commits += 1;
            queue.bytes += commit.batch.size_bytes();
        }
        queue.requests.push_back(request);
        self.work.notify_one();
    }

    fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// The next request and, if it is a commit, those right behind it that fit in its group. `None` when closed and drained.
    fn next(&self) -> Option<Work> {
        let mut queue = self.lock();
        while queue.requests.is_empty() && !queue.closed {
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let work = match queue.requests.pop_front()? {
            Request::Commit(first) => Work::Group(queue.group(first)),
            Request::Snapshot { sequence, bytes, done } => Work::Snapshot { sequence, bytes, done },
            Request::Reload(done) => Work::Reload(done),
        };
        self.room.notify_all();
        Some(work)
    }
}

impl Queue {
    /// Even the largest commit gets in when nothing else waits.
    fn has_room(&self, bytes: usize) -> bool {
        self.commits == 0 || (self.commits < QUEUE_COMMITS && self.bytes + bytes <= QUEUE_BYTES)
    }

    fn group(&mut self, first: Commit) -> Group {
        let mut group = Group::default();
        let mut bytes = first.batch.size_bytes();
        group.push(first);
        let fits = |bytes: usize, size: usize| bytes + size <= GROUP_BYTES;
        while group.batches.len() < GROUP_COMMITS
            && let Some(Request::Commit(next)) = self
                .requests
                .pop_front_if(|next| matches!(next, Request::Commit(next) if fits(bytes, next.batch.size_bytes())))
        {
            bytes += next.batch.size_bytes();
            group.push(next);
        }
        self.commits -= group.batches.len();
        self.bytes -= bytes;
        group
    }
}

impl Request {
    fn refuse(self, error: &StoreError) {
        match self {
            Self::Commit(Commit { done, .. }) | Self::Snapshot { done, .. } => done(Err(error.clone())),
            Self::Reload(done) => done(Err(error.clone())),
        }
    }
}

enum Work {
    Group(Group),
    Snapshot { sequence: u64, bytes: Vec<u8>, done: Done },
    Reload(Done<Loaded>),
}

/// Commits for one transaction; `dones[i]` belongs to `batches[i]`.
#[derive(Default)]
struct Group {
    batches: Vec<Batch>,
    dones: Vec<Done>,
}

impl Group {
    fn push(&mut self, Commit { batch, done }: Commit) {
        self.batches.push(batch);
        self.dones.push(done);
    }
}

/// The thread's own state.
struct Loop<S> {
    store: S,
    shared: Arc<Shared>,
    /// Why a commit in the sequence failed, until the head reloads.
    stopped: Option<Arc<StoreError>>,
}

impl<S: Store> Loop<S> {
    fn run(mut self) {
        // However the thread ends, nobody waits for it in vain.
        let _refuse_rest = RefuseRest(Arc::clone(&self.shared));
        while let Some(work) = self.shared.next() {
            match work {
                Work::Group(group) => self.commit(group),
                Work::Snapshot { sequence, bytes, done } => done(self.save_snapshot(sequence, &bytes)),
                Work::Reload(done) => done(self.reload()),
            }
            self.store.maintain();
        }
    }

    fn commit(&mut self, group: Group) {
        let outcomes = self.store_group(&group.batches);
        for (outcome, done) in outcomes.into_iter().zip(group.dones) {
            let counter = if outcome.is_ok() { &self.shared.commits } else { &self.shared.failed };
            counter.fetch_add(1, Relaxed);
            done(outcome);
        }
    }

    fn store_group(&mut self, batches: &[Batch]) -> Vec<Result<(), StoreError>> {
        let together = batches.len() > 1 && self.stopped.is_none();
        if together && self.transaction(batches).is_ok() {
            return vec![Ok(()); batches.len()];
        }
        batches.iter().map(|batch| self.store_alone(batch)).collect()
    }

    fn store_alone(&mut self, batch: &Batch) -> Result<(), StoreError> {
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
        self.shared.transactions.fetch_add(1, Relaxed);
        Ok(())
    }

    fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), StoreError> {
        // What the caller took for the state may hold events that were not stored.
        self.check_stopped()?;
        self.store.save_snapshot(sequence, bytes)
    }

    fn reload(&mut self) -> Result<Loaded, StoreError> {
        let loaded = self.store.load()?;
        self.stopped = None;
        Ok(loaded)
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

/// Closes the queue and answers what is left in it.
struct RefuseRest(Arc<Shared>);

impl Drop for RefuseRest {
    fn drop(&mut self) {
        self.0.close();
        let rest = std::mem::take(&mut self.0.lock().requests);
        for request in rest {
            request.refuse(&StoreError::Closed);
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writer").field(&self.stats()).finish()
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commit").field("batch", &self.batch).finish_non_exhaustive()
    }
}

//! The only thread that writes: group commit and acknowledgements in order.
//!
//! Commits wait in one bounded [`Queue`]. The thread passes the commits that arrived during the last sync to the
//! [`Committer`] as one transaction. It then calls every `done` in order. It never delays a commit to collect a
//! larger group: under load the queue fills by itself, and without load a commit starts at once.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

use crate::commits::{self, Committer};
use crate::{Batch, Loaded, Store, StoreError};

/// Requests with callbacks for their outcomes.
type Request = commits::Request<Done, Done<Loaded>>;
type Work = commits::Work<Done, Done<Loaded>>;

/// Called once with the outcome, on the writer's thread. It must not block, because every later commit waits for it.
pub type Done<T = ()> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// A handle on the writer thread; clones share it. After the last one is dropped, the queue is still written.
#[derive(Clone)]
pub struct Writer(Arc<Handle>);

struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State shared by handles and the thread.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when there is work, or when the queue is closed.
    work: Condvar,
    /// Signalled when the queue has space, or when the queue is closed.
    room: Condvar,
    /// The writing thread's id, to detect a callback that commits: the thread must not wait for itself.
    thread: OnceLock<ThreadId>,
    commits: AtomicU64,
    transactions: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: commits::Queue<Done, Done<Loaded>>,
    closed: bool,
}

/// A batch and its callback.
pub struct Commit {
    pub batch: Batch,
    /// Called with the outcome.
    pub done: Done,
}

/// The queue is full; contains the rejected commit.
#[derive(Debug)]
pub struct Full(pub Commit);

/// Counters of the writer since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches stored.
    pub commits: u64,
    /// Transactions stored; under load, fewer than batches (group commit).
    pub transactions: u64,
    /// Batches that failed.
    pub failed: u64,
    /// Batches currently in the queue.
    pub queued: usize,
}

impl Writer {
    /// Starts the thread, which then owns `store`.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(store: impl Store + 'static) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::default());
        let loop_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || Loop { committer: Committer::new(store), shared: loop_shared }.run())
            .map_err(|error| StoreError::io("start the writer thread of", Path::new("the store"), error))?;
        shared.thread.set(thread.thread().id()).expect("the thread id is set only here");
        Ok(Self(Arc::new(Handle { shared, thread: Mutex::new(Some(thread)) })))
    }

    /// Queues `batch`. Blocks while the queue is full, which means a stalled disk or 1024 unacknowledged batches. A
    /// caller that must not block uses [`Writer::try_commit`] or limits its own unacknowledged batches.
    pub fn commit(&self, batch: Batch, done: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        let size = batch.size_bytes();
        let mut queue = self.0.shared.lock();
        while !queue.closed && !queue.waiting.has_room(size) && !self.0.shared.is_writer() {
            queue = self.0.shared.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        self.0.shared.push(queue, Request::Commit { batch, done: Box::new(done) });
    }

    /// Queues `commit` if the queue has space.
    ///
    /// # Errors
    /// [`Full`] returns the commit; `done` is not called.
    pub fn try_commit(&self, commit: Commit) -> Result<(), Full> {
        let queue = self.0.shared.lock();
        if !queue.closed && !queue.waiting.has_room(commit.batch.size_bytes()) {
            return Err(Full(commit));
        }
        let Commit { batch, done } = commit;
        self.0.shared.push(queue, Request::Commit { batch, done });
        Ok(())
    }

    /// Stores `batch` and waits until it is durable. Never call it from a callback.
    ///
    /// # Errors
    /// The errors of the store's commit, and [`StoreError::Stopped`] or [`StoreError::Closed`].
    pub fn commit_and_wait(&self, batch: Batch) -> Result<(), StoreError> {
        let (sender, outcome) = std::sync::mpsc::sync_channel(1);
        self.commit(batch, move |result| {
            // Sending cannot fail, because the receiver waits below.
            let _ = sender.send(result);
        });
        outcome.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Queues a snapshot behind the queued commits. Queue only one snapshot at a time, because it may be large.
    pub fn snapshot(&self, sequence: u64, bytes: Vec<u8>, done: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        let done = Box::new(done);
        self.0.shared.push(self.0.shared.lock(), Request::Snapshot { sequence, bytes, done });
    }

    /// Reads the stored data back, behind the queued commits, and accepts commits again after a failure. Later
    /// commits must continue the returned events. If reading fails, commits stay stopped.
    pub fn reload(&self, done: impl FnOnce(Result<Loaded, StoreError>) + Send + 'static) {
        self.0.shared.push(self.0.shared.lock(), Request::Reload(Box::new(done)));
    }

    /// Closes the queue, writes its contents and closes the store, then returns. May be called repeatedly.
    pub fn shutdown(&self) {
        self.0.shutdown();
    }

    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.0.shared;
        Stats {
            commits: shared.commits.load(Relaxed),
            transactions: shared.transactions.load(Relaxed),
            failed: shared.failed.load(Relaxed),
            queued: shared.lock().waiting.commits(),
        }
    }
}

impl Handle {
    fn shutdown(&self) {
        self.shared.close();
        if self.shared.is_writer() {
            return; // The last handle was dropped in a callback: the thread cannot wait for itself, and ends on its own.
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

    /// Adds a request to the queue. The caller still holds the lock under which it found space in the queue.
    fn push(&self, mut queue: MutexGuard<'_, Queue>, request: Request) {
        if queue.closed {
            drop(queue);
            refuse(request, &StoreError::Closed);
            return;
        }
        queue.waiting.push(request);
        self.work.notify_one();
    }

    fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// Waits for the next work; `None` once the queue is closed and empty.
    fn next(&self) -> Option<Work> {
        let mut queue = self.lock();
        while queue.waiting.is_empty() && !queue.closed {
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let work = queue.waiting.take()?;
        self.room.notify_all();
        Some(work)
    }
}

fn refuse(request: Request, error: &StoreError) {
    match request {
        Request::Commit { done, .. } | Request::Snapshot { done, .. } => done(Err(error.clone())),
        Request::Reload(done) => done(Err(error.clone())),
    }
}

/// The state of the writer's thread.
struct Loop<S> {
    committer: Committer<S>,
    shared: Arc<Shared>,
}

impl<S: Store> Loop<S> {
    fn run(mut self) {
        // Answers every waiting caller when the thread ends, also after a panic.
        let _refuse_rest = RefuseRest(Arc::clone(&self.shared));
        while let Some(work) = self.shared.next() {
            match work {
                Work::Commits { batches, dones } => self.commit(&batches, dones),
                Work::Snapshot { sequence, bytes, done } => done(self.committer.save_snapshot(sequence, &bytes)),
                Work::Reload(done) => done(self.committer.reload()),
            }
            self.committer.maintain();
        }
    }

    fn commit(&mut self, batches: &[Batch], dones: Vec<Done>) {
        let outcomes = self.committer.commit(batches);
        self.shared.transactions.store(self.committer.transactions(), Relaxed);
        for (outcome, done) in outcomes.into_iter().zip(dones) {
            let counter = if outcome.is_ok() { &self.shared.commits } else { &self.shared.failed };
            counter.fetch_add(1, Relaxed);
            done(outcome);
        }
    }
}

/// On drop, closes the queue and refuses the remaining requests.
struct RefuseRest(Arc<Shared>);

impl Drop for RefuseRest {
    fn drop(&mut self) {
        self.0.close();
        let rest = self.0.lock().waiting.drain();
        for request in rest {
            refuse(request, &StoreError::Closed);
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

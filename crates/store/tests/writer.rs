//! Tests the writer thread: group commit, order, and the effects of a failure.

mod common;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{changes, digest_of, ended, event, events, put, task};
use hostler_store::{
    Batch, Change, Commit, Fault, Full, Loaded, MemoryStore, Reader, SqliteStore, Store, StoreError, Writer,
};

/// Long enough for a slow machine; reached only when something hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// More than any test sends before it receives.
const ROOM: usize = 2048;

type Outcome = Result<(), StoreError>;

/// A store with commits that wait for the test's permission, like a busy disk.
struct Gated {
    store: MemoryStore,
    entered: SyncSender<usize>,
    gate: Receiver<()>,
}

impl Store for Gated {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.store.load()
    }

    fn commit_all(&mut self, batches: &[Batch]) -> Outcome {
        self.entered.send(batches.len()).expect("the test listens");
        self.gate.recv_timeout(DEADLINE).expect("the test opens the gate");
        self.store.commit_all(batches)
    }

    fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Outcome {
        self.store.save_snapshot(sequence, bytes)
    }

    fn maintain(&mut self) {}

    fn reader(&self) -> Reader {
        self.store.reader()
    }
}

struct Bench {
    store: MemoryStore,
    writer: Writer,
    entered: Receiver<usize>,
    gate: SyncSender<()>,
}

fn gated() -> Bench {
    let store = MemoryStore::new();
    let (entered_sender, entered) = sync_channel(ROOM);
    let (gate, gate_receiver) = sync_channel(ROOM);
    let writer =
        Writer::start(Gated { store: store.clone(), entered: entered_sender, gate: gate_receiver }).expect("a thread");
    Bench { store, writer, entered, gate }
}

/// Labelled outcomes in the order of their arrival.
#[derive(Clone)]
struct Outcomes(SyncSender<(u64, Outcome)>);

impl Outcomes {
    fn new() -> (Self, Receiver<(u64, Outcome)>) {
        let (sender, receiver) = sync_channel(ROOM);
        (Self(sender), receiver)
    }

    fn done(&self, label: u64) -> impl FnOnce(Outcome) + Send + 'static {
        let sender = self.0.clone();
        move |outcome| sender.send((label, outcome)).expect("the test listens")
    }
}

fn take(receiver: &Receiver<(u64, Outcome)>, count: usize) -> Vec<(u64, Outcome)> {
    (0..count).map(|_| receiver.recv_timeout(DEADLINE).expect("an outcome")).collect()
}

fn reload(writer: &Writer) -> Loaded {
    let (sender, receiver) = sync_channel(ROOM);
    writer.reload(move |loaded| sender.send(loaded).expect("the test listens"));
    receiver.recv_timeout(DEADLINE).expect("an outcome").expect("the store can be loaded")
}

#[test]
fn commits_during_a_transaction_share_the_next_one() {
    let Bench { store, writer, entered, gate } = gated();
    let (outcomes, told) = Outcomes::new();
    writer.commit(events(1, 1), outcomes.done(1));
    assert_eq!(entered.recv_timeout(DEADLINE), Ok(1), "a single commit does not wait for others");
    for sequence in 2..=51 {
        writer.commit(events(sequence, sequence), outcomes.done(sequence));
    }
    assert_eq!(writer.stats().queued, 50);
    gate.send(()).expect("the writer waits");
    assert_eq!(entered.recv_timeout(DEADLINE), Ok(50), "one transaction has all waiting commits");
    gate.send(()).expect("the writer waits");

    let labels: Vec<u64> =
        take(&told, 51).into_iter().map(|(label, outcome)| outcome.map(|()| label).expect("stored")).collect();
    assert_eq!(labels, (1..=51).collect::<Vec<_>>(), "acknowledged in order");
    assert_eq!(store.transactions(), 2);
    writer.shutdown();
    let stats = writer.stats();
    assert_eq!((stats.commits, stats.transactions, stats.failed, stats.queued), (51, 2, 0, 0));
}

#[test]
fn sixteen_threads_share_the_syncs_of_a_real_disk() {
    const THREADS: u64 = 16;
    const EACH: u64 = 60;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store.db");
    let writer = Writer::start(SqliteStore::open(&path).expect("the store can be opened")).expect("a thread");
    let next = Mutex::new(1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let (sender, outcome) = sync_channel(ROOM);
                    let mut next = next.lock().expect("the lock is not poisoned");
                    writer.commit(events(*next, *next), move |outcome| sender.send(outcome).expect("received"));
                    *next += 1;
                    drop(next);
                    outcome.recv_timeout(DEADLINE).expect("an outcome").expect("stored");
                }
            });
        }
    });
    writer.shutdown();
    let stats = writer.stats();
    assert_eq!(stats.commits, THREADS * EACH);
    assert!(stats.transactions * 2 <= stats.commits, "too few commits per transaction: {stats:?}");
    let loaded = SqliteStore::open(&path).expect("the store can be opened").load().expect("the store can be loaded");
    assert_eq!(loaded.events, (1..=THREADS * EACH).map(event).collect::<Vec<_>>());
}

#[test]
fn failed_commit_stops_later_ones_until_the_head_reloads() {
    let Bench { store, writer, entered, gate } = gated();
    let (outcomes, told) = Outcomes::new();
    let open = |count| (0..count).for_each(|_| gate.send(()).expect("the writer waits"));
    open(1);
    writer.commit(events(1, 3), outcomes.done(0));
    assert!(matches!(take(&told, 1)[..], [(0, Ok(()))]));

    store.set_fault(Some(Fault::DiskFull));
    writer.commit(events(4, 4), outcomes.done(1));
    assert_eq!((entered.recv(), entered.recv_timeout(DEADLINE)), (Ok(1), Ok(1)));
    writer.commit(events(5, 5), outcomes.done(2));
    writer.commit(changes([Change::Ended(ended(1, 0))]), outcomes.done(3));
    writer.snapshot(3, b"state".to_vec(), outcomes.done(4));
    open(1);
    let outcomes_told = take(&told, 4);
    let [(1, Err(full)), (2, Err(event)), (3, Err(change)), (4, Err(snapshot))] = &outcomes_told[..] else {
        panic!("unexpected outcomes: {outcomes_told:?}")
    };
    assert!(matches!(full, StoreError::DiskFull { .. }), "{full}");
    for stopped in [event, change, snapshot] {
        assert!(matches!(stopped, StoreError::Stopped { .. }) && stopped.is_disk_full(), "{stopped}");
    }

    // Free space alone is not enough: the head must first learn which events are stored. Blobs depend on nothing.
    store.set_fault(None);
    open(1);
    writer.commit(events(6, 6), outcomes.done(5));
    writer.commit(changes([put(1)]), outcomes.done(6));
    let outcomes_told = take(&told, 2);
    assert!(matches!(outcomes_told[..], [(5, Err(StoreError::Stopped { .. })), (6, Ok(()))]), "{outcomes_told:?}");

    assert_eq!(reload(&writer).next_sequence(), 4);
    open(1);
    writer.commit(events(4, 4), outcomes.done(7));
    assert!(matches!(take(&told, 1)[..], [(7, Ok(()))]));
    assert_eq!(
        store.clone().load().expect("the store can be loaded").events,
        (1..=4).map(event_of).collect::<Vec<_>>()
    );
    assert_eq!(store.reader().ended_one(task(1, 0)).expect("the store can be read"), None);
}

fn event_of(sequence: u64) -> Vec<u8> {
    event(sequence)
}

#[test]
fn bad_batch_of_a_group_stops_only_later_batches() {
    let Bench { store, writer, entered, gate } = gated();
    let (outcomes, told) = Outcomes::new();
    writer.commit(events(1, 1), outcomes.done(0));
    entered.recv_timeout(DEADLINE).expect("the writer is busy");
    writer.commit(events(2, 2), outcomes.done(1));
    writer.commit(events(9, 9), outcomes.done(2));
    writer.commit(events(3, 3), outcomes.done(3));
    writer.commit(changes([put(1)]), outcomes.done(4));
    // The first commit, the group, then separately: the good batch, the bad batch and the blob.
    (0..5).for_each(|_| gate.send(()).expect("the writer waits"));
    let told = take(&told, 5);
    let [(0, Ok(())), (1, Ok(())), (2, Err(bad)), (3, Err(behind)), (4, Ok(()))] = &told[..] else {
        panic!("unexpected outcomes: {told:?}")
    };
    assert!(matches!(bad, StoreError::Sequence { expected: 3, found: 9 }), "{bad}");
    assert!(matches!(behind, StoreError::Stopped { .. }), "{behind}");
    assert_eq!(store.clone().load().expect("the store can be loaded").next_sequence(), 3);
    writer.shutdown();
}

#[test]
fn failed_blob_stops_no_later_commit() {
    let store = MemoryStore::new();
    let writer = Writer::start(store.clone()).expect("a thread");
    store.set_fault(Some(Fault::Io));
    writer.commit_and_wait(changes([put(1)])).expect_err("the disk fails");
    store.set_fault(None);
    writer.commit_and_wait(events(1, 1)).expect("the event does not depend on the blob");
    assert_eq!(store.reader().blob(&digest_of(&[1])).expect("the store can be read"), None);
}

#[test]
fn full_queue_returns_the_commit_or_blocks() {
    let Bench { writer, entered, gate, .. } = gated();
    let (outcomes, told) = Outcomes::new();
    writer.commit(events(1, 1), outcomes.done(1));
    entered.recv_timeout(DEADLINE).expect("the writer is busy");
    let mut sequence = 1;
    let refused = loop {
        sequence += 1;
        let commit = Commit { batch: events(sequence, sequence), done: Box::new(outcomes.done(sequence)) };
        if let Err(Full(commit)) = writer.try_commit(commit) {
            break commit;
        }
    };
    assert_eq!(writer.stats().queued, 1024);
    let waiting = writer.clone();
    let waiter = std::thread::spawn(move || waiting.commit(refused.batch, refused.done));
    // Groups of at most 256: the first commit, four groups, and the waiting commit, alone or in the last group.
    (0..6).for_each(|_| gate.send(()).expect("the writer waits"));
    let labels: Vec<u64> =
        take(&told, 1026).into_iter().map(|(label, outcome)| outcome.map(|()| label).expect("stored")).collect();
    assert_eq!(labels, (1..=1026).collect::<Vec<_>>());
    waiter.join().expect("the waiting commit was queued");
    assert!(entered.try_iter().all(|group| group <= 256));
}

#[test]
fn large_batches_fill_the_queue_by_their_size() {
    let Bench { writer, entered, gate, .. } = gated();
    let large = || Batch::of_changes(vec![Change::PutBlob(digest_of(&[1]), vec![0; 80 << 20].into())]);
    let commit = || Commit { batch: large(), done: Box::new(|_| {}) };
    writer.try_commit(commit()).expect("the commit starts at once");
    entered.recv_timeout(DEADLINE).expect("the writer is busy");
    writer.try_commit(commit()).expect("an empty queue accepts the largest commit");
    writer.try_commit(commit()).expect_err("two exceed the queue size");
    (0..2).for_each(|_| gate.send(()).expect("the writer waits"));
    writer.shutdown();
}

#[test]
fn shutdown_writes_queued_commits_and_refuses_later_ones() {
    let Bench { store, writer, entered, gate } = gated();
    let (outcomes, told) = Outcomes::new();
    writer.commit(events(1, 1), outcomes.done(1));
    entered.recv_timeout(DEADLINE).expect("the writer is busy");
    writer.commit(events(2, 2), outcomes.done(2));
    writer.snapshot(2, b"state".to_vec(), outcomes.done(3));
    writer.commit(events(3, 3), outcomes.done(4));
    (0..3).for_each(|_| gate.send(()).expect("the writer waits"));
    writer.shutdown();
    assert!(take(&told, 4).iter().all(|(_, outcome)| outcome.is_ok()));
    let loaded = store.clone().load().expect("the store can be loaded");
    assert_eq!((loaded.first_sequence(), loaded.next_sequence()), (3, 4));

    let error = writer.commit_and_wait(events(4, 4)).expect_err("the writer is closed");
    assert!(matches!(error, StoreError::Closed), "{error}");
    writer.shutdown();
}

#[test]
fn shutdown_releases_the_store_for_the_next_head() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store.db");
    let writer = Writer::start(SqliteStore::open(&path).expect("the store can be opened")).expect("a thread");
    writer.commit_and_wait(events(1, 5)).expect("stored");
    writer.shutdown();
    let mut store = SqliteStore::open(&path).expect("the store is closed although a handle exists");
    assert_eq!(store.load().expect("the store can be loaded").next_sequence(), 6);
    assert!(writer.commit_and_wait(events(6, 6)).is_err());
}

#[test]
fn a_callback_may_commit_and_may_hold_the_last_handle() {
    let store = MemoryStore::new();
    let writer = Writer::start(store.clone()).expect("a thread");
    let (outcomes, told) = Outcomes::new();
    let last = Arc::new(writer.clone());
    let done = outcomes.done(2);
    writer.commit(events(1, 1), move |outcome| {
        outcome.expect("stored");
        last.commit(events(2, 2), done);
    });
    drop(writer);
    assert!(matches!(take(&told, 1)[..], [(2, Ok(()))]));
    assert_eq!(store.clone().load().expect("the store can be loaded").next_sequence(), 3);
}

#[test]
fn commits_fail_after_the_writer_has_panicked() {
    struct Broken;
    impl Store for Broken {
        fn load(&mut self) -> Result<Loaded, StoreError> {
            Ok(Loaded::default())
        }

        fn commit_all(&mut self, _: &[Batch]) -> Outcome {
            panic!("panic for the test")
        }

        fn save_snapshot(&mut self, _: u64, _: &[u8]) -> Outcome {
            Ok(())
        }

        fn maintain(&mut self) {}

        fn reader(&self) -> Reader {
            MemoryStore::new().reader()
        }
    }
    let writer = Writer::start(Broken).expect("a thread");
    for _ in 0..3 {
        let error = writer.commit_and_wait(events(1, 1)).expect_err("the thread is gone");
        assert!(matches!(error, StoreError::Closed), "{error}");
    }
}

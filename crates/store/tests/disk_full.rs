//! Tests a full disk: commits fail with a clear error, stored data stays, and work continues once there is space.
//!
//! Needs root, to mount a small file system. The mount is in the mount namespace of the test's own thread, so it ends
//! with the thread.

mod common;

use std::path::Path;
use std::sync::mpsc::sync_channel;

use common::{digest_of, event, events};
use hostler_store::{Batch, Change, SqliteStore, Store, StoreError, Writer};
use hostler_testkit::{SmallDisk, fill_disk, mount_for_this_thread};

fn blob(number: u64) -> Change {
    Change::PutBlob(digest_of(&[number]), vec![0xA5; 100_000].into())
}

#[test]
fn commits_fail_on_a_full_disk_and_succeed_once_there_is_space() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    mount_for_this_thread(directory.path(), 8 << 20);
    let path = directory.path().join("store.db");
    let ballast = directory.path().join("ballast");
    let mut store = SqliteStore::open(&path).expect("the store can be opened");
    store.commit(&events(1, 10)).expect("the disk has space");

    fill_disk(&ballast, 0);
    let mut failures = 0;
    let mut next = 11;
    // The log's preallocated space may still accept a few commits.
    for _ in 0..200 {
        let batch = Batch { first_sequence: next, events: vec![event(next)], changes: vec![blob(next)] };
        match store.commit(&batch) {
            Ok(()) => next += 1,
            Err(error) => {
                assert!(matches!(&error, StoreError::DiskFull { free_bytes, .. } if *free_bytes < 200_000), "{error}");
                failures += 1;
            }
        }
        store.maintain();
    }
    assert!(failures > 190, "only {failures} of 200 commits failed on the full disk");
    let loaded = store.load().expect("stored data can be read");
    assert_eq!(loaded.next_sequence(), next, "failed commits store no events");
    assert!(store.reader().blob(&digest_of(&[next])).expect("the store can be read").is_none());
    assert!(store.reader().free_bytes().expect("the file system reports it") < 200_000);

    std::fs::remove_file(&ballast).expect("the file can be removed");
    store.commit(&events(next, next + 4)).expect("the next commit succeeds, without a restart");
    store.save_snapshot(next, b"state").expect("a snapshot succeeds too");
    drop(store);
    let loaded = SqliteStore::open(&path).expect("the store can be opened").load().expect("the store can be loaded");
    assert_eq!(loaded.events, (next + 1..=next + 4).map(event).collect::<Vec<_>>());
}

#[test]
fn small_commits_succeed_on_a_full_disk() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    mount_for_this_thread(directory.path(), 80 << 20);
    store_on_full_disk(directory.path(), true);
}

#[test]
fn full_copy_on_write_disk_ends_no_process() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Only this thread sees the mount, which ends with the thread.
    mount_for_this_thread(directory.path(), 200 << 20);
    let mounted = directory.path().join("mounted");
    let disk = SmallDisk::of_kind("btrfs", &mounted, 120 << 20);
    // Opening a store allocates a new block, for which a head keeps a reserve.
    store_on_full_disk(&mounted, false);
    drop(disk);
}

fn store_on_full_disk(directory: &Path, opens_there: bool) {
    let path = directory.join("store.db");
    let mut store = SqliteStore::open(&path).expect("the store can be opened");
    let mut next = 1;
    let mut store_some = |store: &mut SqliteStore, count: u64| {
        for _ in 0..count {
            store.commit(&events(next, next)).unwrap_or_else(|error| panic!("event {next}: {error}"));
            store.maintain();
            next += 1;
        }
    };
    // Several rounds cover different positions in the log's cycle.
    for round in 0..if opens_there { 5 } else { 1 } {
        store_some(&mut store, 150);
        let ballast = directory.join(format!("ballast {round}"));
        fill_disk(&ballast, 0);
        store_some(&mut store, 100);
        if opens_there {
            drop(store);
            store = SqliteStore::open(&path).expect("a store can be opened on a full disk");
            store_some(&mut store, 1);
        }
        std::fs::remove_file(&ballast).expect("the file can be removed");
    }
    assert_eq!(store.load().expect("the store can be loaded").next_sequence(), next);
}

#[test]
fn writer_continues_after_a_reload() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    mount_for_this_thread(directory.path(), 8 << 20);
    let ballast = directory.path().join("ballast");
    let store = SqliteStore::open(&directory.path().join("store.db")).expect("the store can be opened");
    let reader = store.reader();
    let writer = Writer::start(store).expect("a thread");
    fill_disk(&ballast, 0);
    let mut next = 1;
    let error = loop {
        assert!(next < 200, "commits succeed on a full disk");
        let batch = Batch { first_sequence: next, events: vec![event(next)], changes: vec![blob(next)] };
        match writer.commit_and_wait(batch) {
            Ok(()) => next += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_disk_full(), "{error}");
    let behind = writer.commit_and_wait(events(next + 1, next + 1)).expect_err("later commits are stopped");
    assert!(matches!(behind, StoreError::Stopped { .. }) && behind.is_disk_full(), "{behind}");

    std::fs::remove_file(&ballast).expect("the file can be removed");
    assert!(reader.free_bytes().expect("the file system reports it") > 1 << 20);
    let (sender, loaded) = sync_channel(1);
    writer.reload(move |loaded| sender.send(loaded).expect("the receiver exists"));
    assert_eq!(loaded.recv().expect("an outcome").expect("the store can be loaded").next_sequence(), next);
    writer.commit_and_wait(events(next, next)).expect("the writer continues");
    writer.shutdown();
}

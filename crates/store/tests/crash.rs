//! Kills a committing process and checks that everything it acknowledged is stored, in order and complete.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;

use common::{digest_of, ended, event, put, task};
use hostler_store::{Batch, Change, Loaded, SqliteStore, Store, Writer};

/// The store's path, set for the process to be killed.
const STORE: &str = "HOSTLER_TEST_CRASH_STORE";

const ROUNDS: u64 = 24;

/// Commits in flight: enough to form groups and to lose some with the process.
const IN_FLIGHT: usize = 6;

#[test]
fn acknowledged_commits_survive_kill_9() {
    if let Some(path) = std::env::var_os(STORE) {
        commit_until_killed(Path::new(&path));
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store.db");
    let mut acknowledged = 0;
    let mut beyond = 0;
    for round in 0..ROUNDS {
        let last = kill_after(&path, 1 + round * round % 97);
        assert!(last > acknowledged, "round {round} acknowledged no commit");
        acknowledged = last;
        let stored = check(&path, acknowledged);
        beyond += stored - acknowledged;
        acknowledged = stored;
    }
    assert!(
        acknowledged > ROUNDS * 20,
        "{acknowledged} events, {beyond} stored just before the kill took their answer"
    );
}

/// Starts a committing process, kills it after `count` acknowledged events, and returns the last acknowledged number.
fn kill_after(path: &Path, count: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "acknowledged_commits_survive_kill_9", "--nocapture"])
        .env(STORE, path)
        .stdout(Stdio::piped())
        .spawn()
        .map(KilledOnDrop)
        .expect("the process starts");
    let output = child.0.stdout.take().expect("stdout is a pipe");
    let acknowledgements = BufReader::new(output)
        .lines()
        .filter_map(|line| line.expect("text").strip_prefix("acknowledged ")?.parse::<u64>().ok());
    let mut last = 0;
    for (number, sequence) in (1..).zip(acknowledgements) {
        assert!(sequence > last, "acknowledged in order: {last}, then {sequence}");
        last = sequence;
        if number == count {
            child.0.kill().expect("the process is running");
        }
    }
    assert!(!child.0.wait().expect("the child can be waited for").success(), "the child was killed");
    last
}

/// Reopens the store, checks its contents and returns the last stored event.
fn check(path: &Path, acknowledged: u64) -> u64 {
    let mut store = SqliteStore::open(path).expect("a killed head's store opens");
    let loaded = store.load().expect("a killed head's store loads");
    let last = loaded.next_sequence() - 1;
    assert!(last >= acknowledged, "event {acknowledged} was acknowledged, {last} is the last stored");
    assert!(last <= acknowledged + IN_FLIGHT as u64, "the store has only committed events");
    if let Some(snapshot) = &loaded.snapshot {
        assert_eq!(snapshot.bytes, snapshot.sequence.to_le_bytes());
    }
    for (sequence, found) in (loaded.first_sequence()..).zip(&loaded.events) {
        assert_eq!(found, &event(sequence), "event {sequence}");
    }
    let reader = store.reader();
    for sequence in 1..=last {
        // Changes of the same batch are stored too; later ones are not.
        let index = u32::try_from(sequence).expect("the index fits into 32 bits");
        assert_eq!(
            reader.ended_one(task(1, index)).expect("the store can be read"),
            Some(ended(1, index)),
            "history {sequence}"
        );
        assert!(reader.blob(&digest_of(&[sequence])).expect("the store can be read").is_some(), "blob {sequence}");
    }
    let index = u32::try_from(last + 1).expect("the index fits into 32 bits");
    assert_eq!(reader.ended_one(task(1, index)).expect("the store can be read"), None);
    last
}

/// The process to be killed: commits events with several in flight, and occasional snapshots.
fn commit_until_killed(path: &Path) -> ! {
    let mut store = SqliteStore::open(path).expect("the store opens");
    let mut sequence = Loaded::next_sequence(&store.load().expect("the store can be loaded"));
    let writer = Writer::start(store).expect("a thread");
    let (slots, free) = sync_channel(IN_FLIGHT);
    (0..IN_FLIGHT).for_each(|_| slots.send(()).expect("the receiver exists"));
    loop {
        free.recv().expect("the slot of an acknowledged commit is free again");
        let batch = Batch {
            first_sequence: sequence,
            events: vec![event(sequence)],
            changes: vec![
                Change::Ended(ended(1, u32::try_from(sequence).expect("the index fits into 32 bits"))),
                put(sequence),
            ],
        };
        let slots = slots.clone();
        writer.commit(batch, move |outcome| {
            outcome.expect("stored");
            // A single write that bypasses the test harness, so that the kill leaves no partial line. Exits if the
            // parent is gone.
            let line = format!("acknowledged {sequence}\n");
            std::io::stdout().lock().write_all(line.as_bytes()).unwrap_or_else(|_| std::process::exit(1));
            slots.send(()).expect("the receiver exists");
        });
        if sequence.is_multiple_of(50) {
            writer.snapshot(sequence, sequence.to_le_bytes().to_vec(), |outcome| outcome.expect("stored"));
        }
        sequence += 1;
    }
}

/// Kills the child on drop, also after a failed assertion.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Fails only if the child has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! Measures commits per second on this disk: from one thread, and from 16 threads with group commit.
//!
//! `cargo run --release -p hostler-store --example commit_rate [DIRECTORY]`. For comparison, it also prints the
//! disk's own rate: small appends to a file, each synced.
#![expect(clippy::print_stdout, reason = "the program prints its results")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use hostler_model::{Attempt, Ending, JobId, TaskState, WallTime};
use hostler_proto::link::Usage;
use hostler_proto::record::EndedTask;
use hostler_store::{Batch, Change, SqliteStore, Writer};

const PERIOD: Duration = Duration::from_secs(4);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = match std::env::args_os().nth(1) {
        Some(parent) => tempfile::tempdir_in(parent)?,
        None => tempfile::tempdir()?,
    };
    let syncs = synced_appends(&directory.path().join("appends"))?;
    println!("synced appends      {syncs:>8.0} /s");
    for threads in [1, 16, 256] {
        let path = directory.path().join(format!("store-{threads}.db"));
        let writer = Writer::start(SqliteStore::open(&path)?)?;
        let rate = commits(&writer, threads);
        writer.shutdown();
        let stats = writer.stats();
        let group = stats.commits as f64 / stats.transactions as f64;
        println!(
            "{threads:>3} committing      {rate:>8.0} /s   {:>5.2} of a synced append, {group:.1} a transaction",
            rate / syncs
        );
    }
    Ok(())
}

/// The disk's own rate: one write and one fdatasync per append.
fn synced_appends(path: &Path) -> std::io::Result<f64> {
    let mut file = File::create(path)?;
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < PERIOD {
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// Commits per second of threads that each wait for their commit before the next: an event and a history row each.
fn commits(writer: &Writer, threads: u32) -> f64 {
    let next = Mutex::new(1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while start.elapsed() < PERIOD {
                    let (sender, outcome) = sync_channel(1);
                    let mut next = next.lock().expect("no thread panics");
                    writer.commit(batch(*next), move |outcome| sender.send(outcome).expect("the thread waits"));
                    *next += 1;
                    drop(next);
                    outcome.recv().expect("an outcome").expect("stored");
                }
            });
        }
    });
    let count = *next.lock().expect("no thread panics") - 1;
    count as f64 / start.elapsed().as_secs_f64()
}

fn batch(sequence: u64) -> Batch {
    let ended = EndedTask {
        job: JobId(1),
        index: u32::try_from(sequence).expect("the index fits into 32 bits"),
        attempt: Attempt(1),
        ending: Ending { state: TaskState::Completed, exit_code: Some(0) },
        message: None,
        node: "node-1".parse().ok(),
        started_at: Some(WallTime(1_790_000_000_000)),
        ended_at: WallTime(1_790_000_000_900),
        stages: hostler_proto::stages::Stages::default(),
        result: None,
        usage: Usage { wall_ms: 900, user_ms: 800, system_ms: 20, max_rss_bytes: 1 << 26, ..Usage::default() },
        steps: Vec::new(),
        certificate: None,
        parts: Vec::new(),
    };
    Batch { first_sequence: sequence, events: vec![vec![7; 200]], changes: vec![Change::Ended(ended)] }
}

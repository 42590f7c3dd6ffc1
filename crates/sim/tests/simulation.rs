//! Simulates a thousand clusters in a world where everything fails, and proves that the checks notice a broken rule.
//!
//! `HOSTLER_SEED=N cargo test -p hostler-sim --test simulation` runs one world only and prints its whole trace on
//! failure; `hostler sim --seed N` does the same. `HOSTLER_SEEDS=N` sets the number of worlds.
//! `HOSTLER_FRESH_SECONDS=N` sets the time for new worlds, and `HOSTLER_FRESH_FROM=N` their first seed.

use std::ops::{ControlFlow, Range};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use hostler_sim::cluster::{Failure, Options, Report, Rule, run, run_many};

/// The default number of worlds.
const SEEDS: u64 = 1_000;

/// The default time for new worlds. Continuous integration uses more.
const FRESH_SECONDS: u64 = 10;

/// A broken rule must be noticed within this number of worlds.
const SEEDS_TO_NOTICE: u64 = 3_000;

#[test]
fn a_thousand_clusters_survive_everything() {
    if let Some(seed) = number_from("HOSTLER_SEED") {
        if let Err(failure) = run(seed, &Options { whole_trace: true, ..Options::default() }) {
            panic!("{failure}");
        }
        return;
    }
    let reports = match every_seed(0..number_from("HOSTLER_SEEDS").unwrap_or(SEEDS), &Options::default()) {
        Ok(reports) => reports,
        Err(failure) => panic!("{failure}"),
    };
    // Worlds with few events prove little.
    let total = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>() / reports.len() as u64;
    assert!(total(|report| report.processes) >= 10, "too few jobs run");
    assert!(total(|report| report.head_starts) >= 2, "too few heads crash");
    assert!(total(|report| report.agent_starts) >= 3, "too few agents crash");
}

/// Each commit uses its own worlds, so that over time many worlds are tested. Only the time is bounded.
#[test]
#[expect(clippy::print_stdout, reason = "the build log shows the tried seeds")]
fn new_seeds_break_no_rule() {
    let commit = commit().unwrap_or_default();
    let first = commit
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The first seed is short enough to type, and never one of the default thousand.
    let first = number_from("HOSTLER_FRESH_FROM").unwrap_or(SEEDS + first % 1_000_000_000_000);
    let seconds = number_from("HOSTLER_FRESH_SECONDS").unwrap_or(FRESH_SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    println!("fresh seeds from {first} on, for {seconds} s (commit {commit:?})");
    match until(first..u64::MAX, &Options::default(), Some(end)) {
        Ok(reports) => println!("{} worlds", reports.len()),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let mut hashes = Vec::new();
    for seed in 0..20 {
        let [first, second] =
            [(); 2].map(|()| run(seed, &Options::default()).unwrap_or_else(|failure| panic!("{failure}")));
        assert_eq!(first, second, "seed {seed} gives two different traces");
        hashes.push(first.trace_hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 20, "different seeds give different traces");
}

#[test]
fn every_broken_rule_is_noticed() {
    for rule in Rule::ALL {
        let options = Options { break_rule: Some(rule), ..Options::default() };
        match every_seed(0..SEEDS_TO_NOTICE, &options) {
            Ok(_) => panic!("no check failed in {SEEDS_TO_NOTICE} worlds without the rule {rule:?}"),
            Err(failure) => assert!(!failure.trace.is_empty() && failure.to_string().contains("--seed"), "{failure}"),
        }
    }
}

/// Runs the worlds of these seeds on every processor; stops at the first failure.
fn every_seed(seeds: Range<u64>, options: &Options) -> Result<Vec<Report>, Failure> {
    until(seeds, options, None)
}

/// Like `every_seed`, but stops at `end`.
fn until(seeds: Range<u64>, options: &Options, end: Option<Instant>) -> Result<Vec<Report>, Failure> {
    let outcome = Mutex::new(Ok(Vec::new()));
    let threads = thread::available_parallelism().map_or(2, usize::from);
    run_many(seeds, threads, options, |world| {
        let mut outcome = outcome.lock().expect("the lock is not poisoned");
        match (world, &mut *outcome) {
            (Ok(report), Ok(reports)) => reports.push(report),
            (Err(failure), Ok(_)) => *outcome = Err(failure),
            // Another thread has already failed.
            (_, Err(_)) => {}
        }
        let is_over = outcome.is_err() || end.is_some_and(|end| end <= Instant::now());
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    outcome.into_inner().expect("the lock is not poisoned")
}

/// The commit of this checkout, if there is one.
fn commit() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A number from the environment.
fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} should be a number, not {text:?}")))
}

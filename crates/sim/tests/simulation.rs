//! A thousand clusters in a world where everything breaks, and proof that the checkers would notice a broken rule.
//!
//! `HOSTLER_SEED=N cargo test -p hostler-sim --test simulation` lives through one world only and prints its whole story if it fails.
//! `HOSTLER_SEEDS=N` asks for another number of worlds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use hostler_sim::cluster::{Failure, Options, Report, Rule, run};

/// How many worlds are tried unless told otherwise.
const SEEDS: u64 = 1_000;

/// Within how many worlds a broken rule must be noticed.
const SEEDS_TO_NOTICE: u64 = 3_000;

#[test]
fn a_thousand_clusters_survive_everything() {
    if let Some(seed) = number_from("HOSTLER_SEED") {
        if let Err(failure) = run(seed, &Options { whole_trace: true, ..Options::default() }) {
            panic!("{failure}");
        }
        return;
    }
    let reports = match every_seed(number_from("HOSTLER_SEEDS").unwrap_or(SEEDS), &Options::default()) {
        Ok(reports) => reports,
        Err(failure) => panic!("{failure}"),
    };
    // Worlds in which little happens would prove little.
    let total = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>() / reports.len() as u64;
    assert!(total(|report| report.processes) >= 10, "jobs run");
    assert!(total(|report| report.head_starts) >= 2, "heads crash");
    assert!(total(|report| report.agent_starts) >= 3, "agents crash");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let mut hashes = Vec::new();
    for seed in 0..20 {
        let [first, second] =
            [(); 2].map(|()| run(seed, &Options::default()).unwrap_or_else(|failure| panic!("{failure}")));
        assert_eq!(first, second, "seed {seed} tells two stories");
        hashes.push(first.trace_hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 20, "every seed tells its own story");
}

#[test]
fn every_broken_rule_is_noticed() {
    for rule in Rule::ALL {
        let options = Options { break_rule: Some(rule), ..Options::default() };
        match every_seed(SEEDS_TO_NOTICE, &options) {
            Ok(_) => panic!("nothing was noticed in {SEEDS_TO_NOTICE} worlds without {rule:?}"),
            Err(failure) => assert!(!failure.trace.is_empty() && failure.to_string().contains("--seed"), "{failure}"),
        }
    }
}

/// Lives through the worlds of the seeds from zero on, on every processor; stops at the first failure.
fn every_seed(count: u64, options: &Options) -> Result<Vec<Report>, Failure> {
    let next = AtomicU64::new(0);
    let worker = || {
        let mut reports = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count {
                return Ok(reports);
            }
            match run(seed, options) {
                Ok(report) => reports.push(report),
                Err(failure) => {
                    next.store(count, Ordering::Relaxed);
                    return Err(failure);
                }
            }
        }
    };
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let mut all = Vec::new();
        for handle in handles {
            all.extend(handle.join().expect("failures are returned, not panicked")?);
        }
        Ok(all)
    })
}

/// A number from the environment.
fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} should be a number, not {text:?}")))
}

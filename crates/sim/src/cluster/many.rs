//! Runs many worlds on all processors.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::outcome::{Failure, Report};
use super::rules::Options;
use super::run::run;

/// Runs the worlds of these seeds on several threads until `each` returns [`ControlFlow::Break`]. A thread calls `each`
/// after every world.
pub fn run_many(
    seeds: impl Iterator<Item = u64> + Send,
    threads: usize,
    options: &Options,
    each: impl Fn(Result<Report, Failure>) -> ControlFlow<()> + Sync,
) {
    let seeds = Mutex::new(seeds);
    let is_over = AtomicBool::new(false);
    let worker = || {
        while !is_over.load(Ordering::Relaxed) {
            // A panic in `next` cannot leave the iterator half advanced.
            let seed = seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(seed) = seed else { return };
            if each(run(seed, options)).is_break() {
                is_over.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| (0..threads.max(1)).for_each(|_| _ = scope.spawn(worker)));
}

//! Runs a cluster under combined load and faults, for any length of time. Twenty users submit, cancel, hold, requeue
//! and fetch. Daemons are killed and stopped, disks fill up, and clients send nothing or invalid data. At the end, no
//! job may be lost, run twice or leak resources.
//!
//! `cargo xtask soak` builds and runs it. It needs root. The users are accounts in a mount namespace that ends with
//! the program.

#![expect(clippy::print_stdout, reason = "people run the program and read its report")]

mod trouble;
mod users;
mod verdict;
mod watch;
mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hostler_testkit::Random;
use users::Ledger;
use world::World;

const USAGE: &str = "usage: soak EXECUTABLE [SECONDS] [SEED]";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let executable: PathBuf = arguments.next().expect(USAGE).into();
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().expect(USAGE));
    let (seconds, seed) = (number(1_800), number(1));
    println!("soak: {seconds} s, seed {seed}");

    let world = Arc::new(World::up(&executable));
    let watch = watch::Watch::start(&world);
    let before = verdict::Held::now();
    let over = Arc::new(AtomicBool::new(false));
    let calm = Arc::new(AtomicBool::new(false));

    let users: Vec<_> = (0..world::USERS)
        .map(|user| {
            let (world, over) = (Arc::clone(&world), Arc::clone(&over));
            thread::spawn(move || users::live(&world, user, Random::new(seed ^ (u64::from(user) << 32)), &over))
        })
        .collect();
    let trouble = {
        let (world, over, calm) = (Arc::clone(&world), Arc::clone(&over), Arc::clone(&calm));
        thread::spawn(move || trouble::make(&world, Random::new(!seed), &over, &calm))
    };

    // The head is not restarted in the last third of the time, because a restart would hide growing memory.
    let begun = Instant::now();
    pass(begun, seconds * 2 / 3, &world);
    calm.store(true, Ordering::Relaxed);
    watch.mark();
    pass(begun, seconds, &world);
    over.store(true, Ordering::Relaxed);

    let ledgers: Vec<Ledger> = users.into_iter().map(|user| user.join().expect("no user thread panics")).collect();
    let troubles = trouble.join().expect("the trouble thread does not panic");
    let memory = watch.stop();
    println!("troubles: {troubles}");
    let faults = verdict::judge(&world, &ledgers, &memory, &before);
    for fault in &faults {
        println!("FAULT: {fault}");
    }
    println!("{} faults", faults.len());
    std::process::exit(i32::from(!faults.is_empty()));
}

/// Waits `seconds`, and prints the state of the cluster every minute.
fn pass(begun: Instant, seconds: u64, world: &World) {
    let mut next = begun.elapsed() + Duration::from_secs(60);
    while begun.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_millis(200));
        if begun.elapsed() >= next {
            next += Duration::from_secs(60);
            println!("{:>5} s  {}", begun.elapsed().as_secs(), world.at_a_glance());
        }
    }
}

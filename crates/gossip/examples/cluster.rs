//! Simulates whole clusters and measures the cost and speed of gossip.
//!
//! `cargo run --release -p hostler-gossip --example cluster [-- NODES...]`

#![expect(
    clippy::print_stdout,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    dead_code,
    reason = "the program measures times and prints them"
)]

use std::time::Instant;

use hostler_gossip::{Pace, Presence, Settings};

#[path = "../tests/simulation/world.rs"]
mod world;

use world::{World, load};

fn main() {
    let runs: Vec<(usize, u64)> = std::env::args().skip(1).map(|run| parsed(&run)).collect();
    let runs = if runs.is_empty() { vec![(5, 0), (50, 0), (500, 0), (5, 200), (50, 200), (500, 200)] } else { runs };
    for (size, lost) in runs {
        measure(size, lost);
    }
}

fn parsed(run: &str) -> (usize, u64) {
    let (size, lost) = run.split_once(':').unwrap_or((run, "0"));
    (size.parse().expect("a number of nodes"), lost.parse().expect("lost datagrams of a thousand"))
}

fn measure(size: usize, lost: u64) {
    let begin = Instant::now();
    let settings = Settings::default();
    let pace = Pace::of(&settings, size);
    println!("{size} nodes, {lost} of 1000 datagrams lost; {pace:?}");
    let mut world = World::running(size, settings, 1);
    world.network.lost = lost;
    world.network.doubled = 10;
    let sample: Vec<usize> = (0..size).step_by(1 + size / 100).collect();
    starting(&mut world, &sample);
    let expired = world.sum(|counters| counters.expired);
    world.run_for(pace.silence_ms);
    steady(&mut world, &sample);
    println!(
        "  wrongly declared silent: {expired} while starting, {} after",
        world.sum(|counters| counters.expired) - expired
    );
    println!("  not sent because of the budget: {}", world.sum(|counters| counters.over_budget));
    changing(&mut world);
    println!("  simulated {} s in {:.1} s\n", world.now / 1000, begin.elapsed().as_secs_f64());
}

/// Starts all nodes within a second. Prints at what times which share of the loads is known.
fn starting(world: &mut World, sample: &[usize]) {
    let size = world.nodes.len();
    let known = |world: &World| {
        let of = |observer: &usize| (0..size).filter(|node| world.load_at(*observer, *node).is_some()).count();
        sample.iter().map(of).sum::<usize>() as f64 / (sample.len() * size) as f64
    };
    world.run_for(1000);
    let mut shares = [0.5, 0.9, 0.99].into_iter().peekable();
    while let Some(share) = shares.peek() {
        if known(world) >= *share {
            println!("  {:.0} % of the loads known after {:.1} s", share * 100.0, world.now as f64 / 1e3);
            shares.next();
        } else {
            world.run_for(1000);
        }
    }
}

/// Measures half a minute without changes.
fn steady(world: &mut World, sample: &[usize]) {
    let size = world.nodes.len();
    let (bytes, at) = (world.sum(|counters| counters.sent_bytes), world.now);
    let mut silences: Vec<u64> = Vec::new();
    for _ in 0..10 {
        world.run_for(3000);
        for &observer in sample {
            let nodes = world.table_of(observer);
            silences.extend(nodes.filter(|node| !node.is_local).map(|node| node.silent_ms));
        }
    }
    silences.sort_unstable();
    let of_thousand = |share: usize| silences[silences.len() * share / 1000];
    println!(
        "  last sign of life, in ms ago: median {}, 99 % {}, 99.9 % {}, most {}",
        of_thousand(500),
        of_thousand(990),
        of_thousand(999),
        silences[silences.len() - 1]
    );
    let bytes = (world.sum(|counters| counters.sent_bytes) - bytes) * 1000 / (world.now - at) / size as u64;
    let peak = world.nodes.iter().map(|host| host.peak_bytes).max().expect("the world has nodes");
    let memory = world.nodes[0].gossip.as_ref().expect("the node runs").memory_bytes();
    println!("  {bytes} bytes/s a node, {peak} at most in any second; {} KiB of table", memory / 1024);
}

/// Counts the nodes that have noticed a change.
type Count<'a> = &'a dyn Fn(&World) -> usize;

/// The loads of two nodes change, one much and one a little; a third node dies and returns.
fn changing(world: &mut World) {
    let size = world.nodes.len();
    world.nodes[1].load = Some(load(6400, 10_000));
    world.nodes[3].load = Some(load(101, 10_000));
    world.kill(2);
    let begin = world.now;
    let knows = |node: usize, average: u32| {
        move |world: &World| world.up().filter(|other| world.load_at(*other, node) == Some(average)).count()
    };
    let (great, small) = (knows(1, 6400), knows(3, 101));
    let gone = |world: &World| world.observers(2, Presence::Silent);
    let watched: [(&str, Count<'_>); 3] = [
        ("large change of a load known", &great),
        ("small change of a load known", &small),
        ("dead node noticed", &gone),
    ];
    let shares = [500, 990, 1000];
    let mut took = [[None; 3]; 3];
    while took.iter().flatten().any(Option::is_none) && world.now - begin < 200_000 {
        world.run_for(200);
        for ((_, count), took) in watched.iter().zip(&mut took) {
            let have = count(world) * 1000;
            for (share, took) in shares.iter().zip(took) {
                if have >= (size - 1) * share && took.is_none() {
                    *took = Some((world.now - begin) as f64 / 1e3);
                }
            }
        }
    }
    for ((what, _), took) in watched.iter().zip(took) {
        println!("  {what} to 50 %, 99 %, all after {took:?} s");
    }
    world.start(2);
    let back = world.run_until(300_000, |world| world.observers(2, Presence::Live) == size - 1);
    println!("  restarted node live everywhere after {:.1} s", back.unwrap_or(u64::MAX) as f64 / 1e3);
}

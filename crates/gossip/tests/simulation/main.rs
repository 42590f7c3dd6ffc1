//! Whole clusters on a virtual network. The tests print figures: `cargo nextest run -p hostler-gossip --test simulation --no-capture`.
//!
//! Simulations of thousands of nodes, which take minutes, are in `examples/cluster.rs`.

#![expect(clippy::print_stdout, reason = "the tests report figures")]

mod world;

use hostler_gossip::{Pace, Presence, Settings};
use world::{World, load};

const BUDGET: usize = 32 << 10;

fn pace(size: usize) -> Pace {
    Pace::of(&Settings::default(), size)
}

/// A cluster in which every node knows every load.
fn settled(size: usize, lost: u64, seed: u64) -> World {
    let mut world = World::running(size, Settings::default(), seed);
    world.network.lost = lost;
    world.network.doubled = 20;
    world.network.delay_ms = 50;
    let took = world.run_until(60_000, |world| world.all_see(0..size)).expect("every node knows every load eventually");
    println!(
        "{size} nodes, {lost} of 1000 datagrams lost: every node knows every load after {:.1} s",
        took as f64 / 1e3
    );
    assert!(took <= if lost == 0 { 8000 } else { 15_000 });
    world
}

fn assert_within_budget(world: &World) {
    let peak = world.nodes.iter().map(|host| host.peak_bytes).max().expect("the world has nodes");
    let seconds = world.now as usize / 1000;
    let mean = world.sum(|counters| counters.sent_bytes) as usize / world.nodes.len() / seconds;
    println!("  {mean} bytes/s a node, {peak} at most in any second");
    assert!(peak <= BUDGET);
}

/// Kills and restarts a node; returns the time until the last node has noticed the death.
fn death_and_return(world: &mut World, node: usize) -> u64 {
    let others = world.up().count() - 1;
    let most_ms = pace(world.nodes.len()).silence_ms;
    let expired = world.sum(|counters| counters.expired);
    world.kill(node);
    let first = world
        .run_until(60_000, |world| world.observers(node, Presence::Silent) > 0)
        .expect("the other nodes notice the death");
    let all = world.run_until(60_000, |world| world.observers(node, Presence::Silent) == others);
    let all = first + all.expect("all nodes notice the death");
    println!("  a dead node is noticed after {:.1} s, everywhere after {:.1} s", first as f64 / 1e3, all as f64 / 1e3);
    assert!((most_ms / 2..=most_ms * 2 + 2000).contains(&first) && all <= most_ms * 2 + 2000);
    // Neither forwarded news nor answers revive it.
    world.run_for(10_000);
    assert_eq!(world.observers(node, Presence::Silent), others);
    assert_eq!(world.sum(|counters| counters.expired), expired + others as u64, "no other node was declared silent");
    world.start(node);
    let back = world
        .run_until(30_000, |world| world.observers(node, Presence::Live) == others)
        .expect("the node is visible again");
    println!("  and live again everywhere after {:.1} s", back as f64 / 1e3);
    all
}

#[test]
fn five_nodes() {
    for lost in [0, 200] {
        for seed in 0..20 {
            let mut world = settled(5, lost, seed);
            world.run_for(60_000);
            assert_eq!(world.sum(|counters| counters.expired), 0, "seed {seed}");
            let all = death_and_return(&mut world, 2);
            assert!(all <= 10_000, "seed {seed}");
            assert_within_budget(&world);
        }
    }
}

#[test]
fn fifty_nodes() {
    for lost in [0, 200] {
        let mut world = settled(50, lost, 1);
        world.run_for(300_000);
        assert_eq!(world.sum(|counters| counters.expired), 0, "300 s of 50 nodes watching 49 others");
        world.nodes[1].load = Some(load(6400, 100));
        let knows = |world: &World| world.up().filter(|node| world.load_at(*node, 1) == Some(6400)).count();
        let took = world.run_until(20_000, |world| knows(world) == 50).expect("all nodes know the new load");
        println!("  a change of load is known everywhere after {:.1} s", took as f64 / 1e3);
        assert!(took <= 8000);
        death_and_return(&mut world, 2);
        assert_within_budget(&world);
    }
}

/// A sixth of four thousand nodes with a sixth of their budget, so that the pace and the use of the budget are the
/// same. Only the paths are one or two hops shorter, and headers are a larger share of the bytes. `examples/cluster.rs`
/// runs all four thousand.
#[test]
fn cluster_at_the_pace_of_4000_nodes() {
    let size = 640;
    let settings = Settings { budget_bytes: 5243, ..Settings::default() };
    let (scaled, real) = (Pace::of(&settings, size), pace(4000));
    assert!(scaled.beat_ms.abs_diff(real.beat_ms) < 10 && scaled.load_ms.abs_diff(real.load_ms) < 100);
    let mut world = World::running(size, settings, 3);
    world.network.lost = 200;
    let sample = || (0..size).step_by(20);
    let live =
        |world: &World| sample().all(|observer| (0..size).all(|node| world.sees(observer, node) == Presence::Live));
    let took = world.run_until(60_000, live).expect("all nodes know all nodes");
    println!(
        "at the pace of 4000 nodes, 200 of 1000 datagrams lost: all nodes are known after {:.1} s",
        took as f64 / 1e3
    );
    world.run_for(10_000);
    let wrong = world.sum(|counters| counters.expired);
    assert_eq!(wrong, 0, "nodes wrongly declared silent, of {} pairs", size * (size - 1));
    world.kill(7);
    let gone = |world: &World| world.observers(7, Presence::Silent) == size - 1;
    let took = world.run_until(80_000, gone).expect("the other nodes notice the death");
    println!("  a dead node is noticed everywhere after {:.1} s", took as f64 / 1e3);
    assert!(took <= 2 * scaled.silence_ms);
    let others = world.sum(|counters| counters.expired) - wrong - (size as u64 - 1);
    assert!(others <= 20, "{others} other nodes were declared silent");
    let peak = world.nodes.iter().map(|host| host.peak_bytes).max().expect("the world has nodes");
    let mean = world.sum(|counters| counters.sent_bytes) / size as u64 / (world.now / 1000);
    println!("  {mean} bytes/s a node of 5243, {peak} at most in any second");
    assert!(peak <= 5243);
}

#[test]
fn nodes_with_late_rounds_are_not_declared_silent() {
    for size in [5, 50] {
        let mut world = settled(size, 50, 9);
        for node in (0..size).step_by(3) {
            world.nodes[node].late_ms = 3000;
        }
        // It takes time until they report the delay and others know it.
        world.run_for(20_000);
        let unprepared = world.sum(|counters| counters.expired);
        assert!(unprepared <= size as u64 / 10, "{unprepared}");
        world.run_for(300_000);
        let after = world.sum(|counters| counters.expired) - unprepared;
        println!(
            "  a third is late: {unprepared} wrongly declared silent before the delay is known, {after} afterwards"
        );
        assert_eq!(after, 0);
        assert!(world.all_see(0..size));
    }
}

#[test]
fn suspended_node_declares_no_one_silent_and_returns() {
    let mut world = settled(20, 0, 4);
    world.stall(5, 60_000);
    world.run_for(59_000);
    assert_eq!(world.observers(5, Presence::Silent), 19);
    let took = world.run_until(20_000, |world| world.all_see(0..20)).expect("the node is visible again");
    println!("  suspended for a minute, live again {:.1} s after", took as f64 / 1e3 - 1.0);
    let itself = world.nodes[5].gossip.as_ref().expect("the node runs").counters();
    assert!(itself.expired == 0 && itself.away_ms > 55_000, "{itself:?}");
}

#[test]
fn divided_network_reunites() {
    let mut world = settled(50, 50, 5);
    (0..20).for_each(|node| world.network.part[node] = 1);
    let apart = |world: &World| {
        (0..50).all(|one| (0..50).all(|other| (one < 20) == (other < 20) || world.sees(one, other) == Presence::Silent))
    };
    let took = world.run_until(60_000, apart).expect("each part declares the other silent");
    println!("  divided: each half alone after {:.1} s", took as f64 / 1e3);
    // A node dies where the other part cannot see it, and old news must not revive it.
    world.run_for(120_000);
    world.kill(3);
    world.run_for(60_000);
    world.network.part = vec![0; 50];
    let others = || (0..50).filter(|node| *node != 3);
    let took = world.run_until(60_000, |world| world.all_see(others())).expect("the parts reunite");
    println!("  together again after {:.1} s", took as f64 / 1e3);
    assert_eq!(world.observers(3, Presence::Live), 0);
}

#[test]
fn nodes_with_some_broken_links_stay_live() {
    let mut world = settled(20, 0, 6);
    // Each node has lost the direct link to a third of the others.
    world.network.cut = (0..20).flat_map(|one| (one..20).map(move |other| (one, other))).collect();
    world.network.cut.retain(|(one, other)| (one * 7 + other) % 3 == 0);
    world.run_for(300_000);
    assert_eq!(world.sum(|counters| counters.expired), 0);
}

#[test]
fn cluster_recovers_from_crashes_and_lost_disks() {
    let mut world = settled(20, 100, 7);
    for round in 0..30_usize {
        let node = round * 13 % 20;
        world.kill(node);
        world.run_for(100 * (round as u64 * 37 % 120));
        if round % 3 == 0 {
            world.wipe(node);
        }
        world.start(node);
        world.run_for(700);
    }
    let took = world.run_until(60_000, |world| world.all_see(0..20)).expect("all nodes are visible again");
    println!("  after 30 restarts, ten of them with an empty disk, all is well after {:.1} s", took as f64 / 1e3);
}

#[test]
fn same_seed_gives_the_same_history() {
    let history = |seed| {
        let mut world = settled(10, 300, seed);
        world.kill(3);
        world.run_for(30_000);
        (0..10)
            .filter(|node| *node != 3)
            .map(|node| format!("{:?}", world.table_of(node).collect::<Vec<_>>()))
            .collect()
    };
    let (one, again, other): (Vec<_>, Vec<_>, Vec<_>) = (history(1), history(1), history(2));
    assert_eq!(one, again);
    assert_ne!(one, other);
}

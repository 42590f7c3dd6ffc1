//! Measures how long the choice of a node takes in clusters of several sizes.
//!
//! `cargo run --release -p hostler-gossip --example choose`

#![expect(clippy::print_stdout, clippy::disallowed_types, reason = "the program measures times and prints them")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

use hostler_gossip::{
    Calls, Gossip, Incarnation, Key, Load, Member, MemberId, Members, Needs, Policy, Settings, choose, explain,
};
use hostler_model::Timestamp;

const NOW: Timestamp = Timestamp(1_000);

fn main() {
    println!("{:>6} {:>14} {:>14} {:>16}", "nodes", "choose, µs", "explain, µs", "node takes, ns");
    for size in [5, 50, 500, 4000] {
        let (table, taken_ns) = table(size);
        let (needs, policy) = (Needs { memory_bytes: 1 << 30, ..Needs::default() }, Policy::default());
        let mut calls = Calls::default();
        (0..size).step_by(3).for_each(|node| _ = calls.send(MemberId(node), NOW));
        let chosen = micros(|random| choose(table.nodes(NOW), &needs, &policy, &calls, NOW, random).len());
        let explained = micros(|random| explain(table.nodes(NOW), &needs, &policy, &calls, NOW, random).unfit.len());
        println!("{size:>6} {chosen:>14.1} {explained:>14.1} {taken_ns:>16.0}");
    }
}

/// The median time of many runs.
fn micros(run: impl Fn(u64) -> usize) -> f64 {
    let time = |random| {
        let begin = Instant::now();
        black_box(run(random));
        begin.elapsed().as_secs_f64() * 1e6
    };
    let mut times: Vec<f64> = (0..501).map(time).collect();
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A node that knows the loads of all others, and its mean time to process a datagram.
fn table(size: u32) -> (Gossip, f64) {
    let member = |id: u32| Member {
        id: MemberId(id),
        name: format!("n{id}").parse().expect("a name"),
        address: (std::net::Ipv4Addr::from(0x0A00_0000 + id), 7706).into(),
        features: BTreeSet::new(),
    };
    let begun = |id: u32, members: Members| {
        let mut node = Gossip::new(MemberId(id), Incarnation(1), Key::new(&[7; 32]), Settings::default(), NOW);
        node.set_members(members.into(), NOW);
        let load = Load::idle(64, 256 << 10, ([10, 0, 0, 1], 7707).into());
        node.publish(Load { runnable: id % 80, ..load });
        node
    };
    let mut node = begun(0, Members::new((0..size).map(member)));
    node.round(NOW, 1);
    let others = (1..size).map(|id| (id, begun(id, Members::new([member(0), member(id)])).round(NOW, 1)));
    let others: Vec<_> = others.collect();
    let begin = Instant::now();
    for (id, sent) in &others {
        sent.iter().for_each(|datagram| _ = node.receive(member(*id).address, &datagram.bytes, NOW));
    }
    (node, begin.elapsed().as_secs_f64() * 1e9 / f64::from(size - 1))
}

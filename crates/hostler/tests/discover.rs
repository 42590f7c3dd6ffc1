//! `hostler node discover`, on the test machine and on a captured one.

use hostler_testkit::Cluster;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

#[test]
fn discover_respects_cpu_affinity_and_needs_no_cluster() {
    let nowhere = Cluster::none(HOSTLER);
    let mine = sched_getaffinity(Pid::from_raw(0)).expect("Linux says");
    let first = (0..CpuSet::count()).find(|id| mine.is_set(*id) == Ok(true)).expect("this test runs somewhere");
    let mut only = CpuSet::new();
    only.set(first).expect("the CPU id was read from a set");
    // Affects this thread, and so its child processes.
    sched_setaffinity(Pid::from_raw(0), &only).expect("less is always allowed");
    let machine = nowhere.json(&["node", "discover"]);
    assert_eq!(machine["usable"], first.to_string(), "{machine}");
    assert!(machine["memory"]["usable_bytes"].as_u64() > Some(0), "{machine}");
    let text = nowhere.ok(&["node", "discover"]);
    let begins = |key: &str| text.lines().any(|line| line.starts_with(key));
    assert!(["cpus ", "layout ", "memory ", "gpus "].into_iter().all(begins), "{text}");
}

#[test]
fn captured_machine_is_shown_again() {
    let nowhere = Cluster::none(HOSTLER);
    let captured = nowhere.write("machine.toml", nowhere.ok(&["node", "discover", "--capture"]));
    let path = captured.to_str().expect("UTF-8");
    assert_eq!(nowhere.json(&["node", "discover", "--from", path]), nowhere.json(&["node", "discover"]));

    let garbage = nowhere.write("garbage.toml", "machine = 3");
    let refusal = nowhere.fails(&["node", "discover", "--from", garbage.to_str().expect("UTF-8")]);
    assert!(refusal.contains("is not a captured machine") && refusal.contains("hint: "), "{refusal}");
}

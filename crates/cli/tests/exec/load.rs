//! What is not Hostler's counts as well: a node that is kept busy by something else is passed over while it is, and what comes there waits its turn.

use std::fs;
use std::process::{Child, Command};
use std::time::Instant;

use hostler_testkit::wait_until;
use serde_json::Value;

use crate::machines::Machines;

/// Programs that only keep a CPU busy, and end with this.
struct Busy(Vec<Child>);

impl Busy {
    /// So many on one CPU.
    fn on(cpu: &str, count: usize) -> Self {
        let busy = || {
            Command::new("taskset").args(["-c", cpu, "sh", "-c", "while :; do :; done"]).spawn().expect("util-linux")
        };
        Self((0..count).map(|_| busy()).collect())
    }

    /// More than all of so many CPUs can run at once.
    fn everywhere(cpus: u32) -> Self {
        let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let all = Self((0..cpus + 4).map(|_| busy()).collect());
        let running = || {
            let load = fs::read_to_string("/proc/loadavg").expect("Linux");
            load.split([' ', '/']).nth(3)?.parse().ok().filter(|count: &u32| *count >= cpus + 4)
        };
        wait_until("all to be busy", 30, running);
        all
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Where ten commands ran.
fn ran_on(machines: &Machines) -> String {
    machines.ok(
        0,
        "for i in 1 2 3 4 5 6 7 8 9 10; do dsh --not n1 sh -c 'echo $HOSTLER_NODE'; done | sort -u | tr '\\n' ' '",
    )
}

/// Nobody who waits for a CPU gives up sooner; less is the system's doing.
const A_WAIT_US: u64 = 10_000;

#[test]
fn a_short_command_waits_its_turn_and_not_for_what_goes_on_for_ever() {
    let online = Command::new("getconf").arg("_NPROCESSORS_ONLN").output().expect("libc-bin");
    let cpus: u32 = String::from_utf8_lossy(&online.stdout).trim().parse().expect("a number");
    // A node that gives fewer than there are does not know when they are taken.
    let flags: &[_] = Box::leak(Box::new(["--cpus", format!("0-{}", cpus - 1).leak()]));
    let machines = Machines::prepared(1, |_| flags);
    // How long it waited, in microseconds.
    let waited = || {
        let outcome = machines.run(0, "dsh --where --json sh -c 'for i in $(seq 100000); do :; done'");
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let told: Value = serde_json::from_str(&outcome.stderr).expect("JSON");
        told["ended"]["waited_us"].as_u64().expect("a number")
    };
    assert_eq!(waited(), 0, "the first of its kind, which nobody knows to be short");
    let _load = Busy::everywhere(cpus);
    let us = wait_until("a call that waits", 60, || Some(waited()).filter(|us| *us > A_WAIT_US));
    assert!(us < 2_500_000, "{us}");
    let again = (0..10).filter(|_| waited() > A_WAIT_US).count();
    assert!(again <= 7, "it is of no use, and {again} of 10 waited");
}

/// The machine is this test's alone, see .config/nextest.toml: its hosts are told apart by the CPU that each has.
#[test]
fn a_node_that_something_else_keeps_busy_is_passed_over() {
    let machines = Machines::prepared(3, |host| match host.name() {
        "n2" => &["--cpus", "0"],
        "n3" => &["--cpus", "1"],
        _ => &["--cpus", "0-1"],
    });
    for (cpu, busy, idle) in [("1", "n3", "n2"), ("0", "n2", "n3")] {
        wait_until("both to be chosen", 60, || (ran_on(&machines).trim() == "n2 n3").then_some(()));
        let began = Instant::now();
        let load = Busy::on(cpu, 3);
        wait_until(&format!("{busy} to be passed over"), 30, || (ran_on(&machines).trim() == idle).then_some(()));
        let noticed = began.elapsed();
        drop(load);
        let began = Instant::now();
        wait_until(&format!("{busy} to be chosen again"), 60, || ran_on(&machines).contains(busy).then_some(()));
        let again = began.elapsed();
        #[expect(clippy::print_stdout, reason = "for who wants to know how long it takes")]
        {
            println!("{busy}: passed over after {noticed:?}, chosen again after {again:?}");
        }
    }
}

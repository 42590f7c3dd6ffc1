//! Load by other programs: busy nodes are avoided, and commands there wait for a free CPU.

use std::fs;
use std::process::{Child, Command};
use std::time::Instant;

use hostler_testkit::wait_until;
use serde_json::Value;

use crate::machines::Machines;

/// Processes that only use CPU time; killed on drop.
struct Busy(Vec<Child>);

impl Busy {
    /// Starts `count` processes bound to one CPU.
    fn on(cpu: &str, count: usize) -> Self {
        let busy = || {
            Command::new("taskset").args(["-c", cpu, "sh", "-c", "while :; do :; done"]).spawn().expect("util-linux")
        };
        Self((0..count).map(|_| busy()).collect())
    }

    /// Starts more processes than `cpus` CPUs can run at once.
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

/// The nodes that ran ten commands.
fn ran_on(machines: &Machines) -> String {
    machines.ok(
        0,
        "for i in 1 2 3 4 5 6 7 8 9 10; do dsh --not n1 sh -c 'echo $HOSTLER_NODE'; done | sort -u | tr '\\n' ' '",
    )
}

/// Waits for a CPU last at least this long; shorter delays are noise.
const A_WAIT_US: u64 = 10_000;

#[test]
fn short_command_waits_its_turn_but_not_for_endless_load() {
    let online = Command::new("getconf").arg("_NPROCESSORS_ONLN").output().expect("libc-bin");
    let cpus: u32 = String::from_utf8_lossy(&online.stdout).trim().parse().expect("a number");
    // A node that offers fewer CPUs than the machine has cannot tell when they are busy.
    let flags: &[_] = Box::leak(Box::new(["--cpus", format!("0-{}", cpus - 1).leak()]));
    let machines = Machines::prepared(1, |_| flags);
    // How long the command waited, in microseconds.
    let waited = || {
        let outcome = machines.run(0, "dsh --where --json sh -c 'for i in $(seq 100000); do :; done'");
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let told: Value = serde_json::from_str(&outcome.stderr).expect("JSON");
        told["ended"]["waited_us"].as_u64().expect("a number")
    };
    assert_eq!(waited(), 0, "the first command of its kind is not known to be short");
    let _load = Busy::everywhere(cpus);
    let us = wait_until("a call that waits", 60, || Some(waited()).filter(|us| *us > A_WAIT_US));
    assert!(us < 2_500_000, "{us}");
    let again = (0..10).filter(|_| waited() > A_WAIT_US).count();
    assert!(again <= 7, "waiting is useless, but {again} of 10 waited");
}

/// This test has the machine to itself (see .config/nextest.toml), since each host is identified by its CPU.
#[test]
fn node_that_something_else_keeps_busy_is_avoided() {
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
        #[expect(clippy::print_stdout, reason = "shows the measured times")]
        {
            println!("{busy}: passed over after {noticed:?}, chosen again after {again:?}");
        }
    }
}

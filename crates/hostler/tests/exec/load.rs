//! Load by other programs: commands avoid busy nodes.

use std::process::{Child, Command};
use std::time::Instant;

use hostler_testkit::wait_until;

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
        "for i in 1 2 3 4 5 6 7 8 9 10; do dsh --exclude n1 sh -c 'echo $HOSTLER_NODE'; done | sort -u | tr '\\n' ' '",
    )
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
        wait_until("both nodes to be chosen", 60, || (ran_on(&machines).trim() == "n2 n3").then_some(()));
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

//! Memory use of a shepherd while its job runs.

#![expect(clippy::print_stdout, reason = "the test prints its measurement")]

use std::fs;

use hostler_shepherd::Cause;

use crate::common::{directory, finish, pid_in, script, start_run};

#[test]
fn shepherd_uses_little_private_memory() {
    let dir = directory();
    let mut launch = script(dir.path(), "echo $$ > me; exec sleep 600");
    launch.env.extend((0..8).map(|n| (format!("BIG{n}").into(), "x".repeat(100_000).into())));
    let mut shepherd = start_run(&launch);
    pid_in(dir.path(), "me");
    shepherd.status().expect("the shepherd runs");
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", shepherd.pid())).expect("ours");
    let kilobytes = |key: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("the file has a line for each key");
        line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
    };
    let private = kilobytes("Private_Clean:") + kilobytes("Private_Dirty:");
    println!("private memory of a shepherd: {private} kB (resident: {} kB)", kilobytes("Rss:"));
    assert!(private < 1536, "{private} kB:\n{text}");
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    finish(&mut shepherd, dir.path());
}

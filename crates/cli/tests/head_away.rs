//! Commands that wait for a head that is away say so, and can be interrupted.

use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use hostler_testkit::{Cluster, Outcome, Size, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const SMALL: Size = Size { nodes: 1, cpus: 2, memory: "1G" };

/// Stops the head's process, so that its socket takes connections and nothing answers; lets it go on at the end.
struct Frozen(Pid);

impl Frozen {
    fn head(cluster: &Cluster) -> Self {
        let head = Pid::from_raw(i32::try_from(cluster.head_pid()).expect("a pid"));
        kill(head, Signal::SIGSTOP).expect("the head runs");
        Self(head)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

fn start(cluster: &Cluster, arguments: &[&str]) -> Child {
    let mut command = cluster.command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

fn end(child: Child, signal: Signal) -> Outcome {
    kill(Pid::from_raw(i32::try_from(child.id()).expect("a pid")), signal).expect("it runs");
    Outcome::of(&child.wait_with_output().expect("it ends"))
}

#[test]
fn run_is_interrupted_before_the_head_confirms_the_job() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let frozen = Frozen::head(&cluster);
        let run = start(&cluster, &["run", "-m", "16M", "--", "sleep", "600"]);
        sleep(Duration::from_secs(1));
        let outcome = end(run, signal);
        drop(frozen);
        assert_eq!(outcome.code, code, "{outcome:?}");
        let key = outcome.stderr.split("`hostler jobs --key ").nth(1).and_then(|rest| rest.split('`').next());
        let key = key.unwrap_or_else(|| panic!("{outcome:?}"));
        // The request may have waited in the socket of the head, which then took it.
        let jobs = cluster.json(&["jobs", "--key", key]);
        for job in jobs["jobs"].as_array().expect("a list") {
            cluster.ok(&["cancel", &job["id"].to_string()]);
        }
    }
}

#[test]
fn cancellation_is_interrupted_by_the_second_signal() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let run = start(&cluster, &["run", "-m", "16M", "--", "sleep", "600"]);
    wait_until("the job to be submitted", 30, || (cluster.run(&["job", "1"]).code == 0).then_some(()));
    cluster.wait_for_state("1", "running");
    let frozen = Frozen::head(&cluster);
    let pid = Pid::from_raw(i32::try_from(run.id()).expect("a pid"));
    kill(pid, Signal::SIGINT).expect("it runs");
    sleep(Duration::from_secs(1));
    let outcome = end(run, Signal::SIGINT);
    drop(frozen);
    assert!(outcome.code == 130 && outcome.stderr.contains("`hostler cancel 1` cancels job 1"), "{outcome:?}");
    // The first request may have arrived all the same.
    let _ = cluster.run(&["cancel", "1"]);
    cluster.wait_for_state("1", "cancelled");
}

#[test]
fn waiting_for_the_head_is_said_without_a_terminal_and_is_limited() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let waiting = start(&cluster, &["wait", &cluster.ok(&["run", "--detach", "-m", "16M", "--", "sleep", "600"])]);
    sleep(Duration::from_secs(1));
    cluster.kill_9(cluster.head_pid());
    sleep(Duration::from_secs(2));
    let outcome = end(waiting, Signal::SIGTERM);
    assert!(outcome.stderr.contains("; retrying"), "{outcome:?}");
    let refused = cluster.run(&["--wait-for-head", "0s", "jobs"]);
    assert!(refused.code != 0 && !refused.stderr.contains("retrying"), "{refused:?}");
    let limited = cluster.run(&["run", "--wait-for-head", "2s", "-m", "16M", "--", "true"]);
    assert!(limited.code == 125 && limited.stderr.contains("the head is unreachable; retrying"), "{limited:?}");
    cluster.start(SMALL);
}

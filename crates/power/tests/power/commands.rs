//! Commands of the operator, well-behaved and faulty.

use std::fs;
use std::time::{Duration, Instant};

use hostler_power::{Answer, Controller, FaultKind, Supply, Verb};
use hostler_testkit::{is_alive, wait_until};
use tempfile::TempDir;

use crate::common::{controller, site};

/// Scripts that run in their own directory.
struct Plug {
    directory: TempDir,
    controller: Controller,
}

fn plug(status: &str, on: &str, more: &str) -> Plug {
    plug_within("20s", status, on, more)
}

fn plug_within(limit: &str, status: &str, on: &str, more: &str) -> Plug {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path().display();
    let command = |script: &str| format!("['sh', '-c', '''cd {here}; {script}''']");
    let text = format!(
        "kind = 'command'\nstatus = {}\non = {}\noff = {}\ntime_limit = '{limit}'\nenvironment = {{ PLUG = 'seven' }}\n{}",
        command(status),
        command(on),
        command("echo off > state"),
        more.replace("HERE", &here.to_string()),
    );
    let controller = controller(&site(), &text);
    Plug { controller, directory }
}

impl Plug {
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    fn has(&self, name: &str) -> bool {
        self.directory.path().join(name).exists()
    }
}

#[tokio::test]
async fn commands_get_node_and_verb_as_variables() {
    let on = "echo on > state; echo $HOSTLER_NODE $HOSTLER_VERB $PLUG > told";
    let plug = plug(
        "cat state 2>/dev/null || echo off",
        on,
        "force_off = ['sh', '-c', 'echo off > HERE/state']\nwatts = ['echo', '87.5']",
    );
    assert_eq!(plug.controller.act(Verb::On).await, Ok(Answer::Accepted));
    assert_eq!(plug.read("told"), "r1 on seven\n");
    assert_eq!(plug.controller.act(Verb::On).await, Ok(Answer::Confirmed(Supply::On)));
    assert_eq!(plug.controller.watts().await, Ok(Some(87.5)));
    assert_eq!(plug.controller.act(Verb::OffGracefully).await, Ok(Answer::Accepted));
    assert_eq!(plug.controller.act(Verb::Status).await, Ok(Answer::Confirmed(Supply::Off)));
    plug.controller.act(Verb::On).await.expect("the controller works");
    assert_eq!(plug.controller.act(Verb::OffByForce).await, Ok(Answer::Accepted));
}

#[tokio::test]
async fn forced_off_needs_a_command() {
    let plug = plug("echo on", "true", "");
    let fault = plug.controller.act(Verb::OffByForce).await.expect_err("not supported");
    assert_eq!(fault.kind(), FaultKind::Unsupported);
    assert!(!plug.has("state"), "no graceful shutdown instead");
}

#[tokio::test]
async fn invalid_output_is_not_a_state() {
    for status in [
        "",
        "echo unknown",
        "echo on; echo off",
        "head -c 1000000 /dev/urandom",
        "yes | head -c 10000000",
        "echo on >&2",
    ] {
        let plug = plug(status, "touch done", "");
        let fault = plug.controller.act(Verb::On).await.expect_err(status);
        assert_eq!(fault.kind(), FaultKind::Confused, "{status}: {fault}");
        assert!(!plug.has("done"), "{status}");
    }
}

#[tokio::test]
async fn exit_code_has_precedence_over_output() {
    for (status, kind) in [
        ("echo on; echo the plug is gone >&2; exit 3", FaultKind::Confused),
        ("echo on; echo come back later >&2; exit 75", FaultKind::Busy),
        ("echo on; kill -9 $$", FaultKind::Confused),
    ] {
        let plug = plug(status, "touch done", "");
        let fault = plug.controller.act(Verb::On).await.expect_err(status);
        assert_eq!(fault.kind(), kind);
        assert!(!plug.has("done"), "{status}");
    }
    let fault = plug("echo the plug is gone >&2; exit 3", "", "").controller.act(Verb::Status).await;
    let fault = fault.expect_err("the command fails");
    assert!(fault.why().contains("exited with 3: the plug is gone"), "{fault}");
}

#[tokio::test]
async fn missing_program_is_named() {
    let text = "kind = 'command'\nstatus = ['no-such-plug']\non = ['true']\noff = ['true']";
    let fault = controller(&site(), text).act(Verb::Status).await.expect_err("the program is missing");
    assert!(fault.kind() == FaultKind::Unprepared && fault.why().contains("`no-such-plug`"), "{fault}");
    let text = "kind = 'command'\nstatus = ['true']\non = []\noff = ['true']";
    assert!(crate::common::try_controller(&site(), text).is_err());
}

/// Asserts that the processes in the script's pid file have ended.
fn all_gone(plug: &Plug, count: usize) {
    let pids: Vec<u32> = plug.read("pids").lines().map(|pid| pid.parse().expect("a pid")).collect();
    assert_eq!(pids.len(), count, "{pids:?}");
    wait_until("killed processes to be gone", 5, || (!pids.iter().any(|pid| is_alive(*pid))).then_some(()));
}

#[tokio::test]
async fn hanging_program_is_killed_with_all_its_processes() {
    // A child, a process in its own session, and an orphan in its own session that ignores signals.
    let children = "echo $$ >> pids; sleep 100 & echo $! >> pids; \
        setsid sh -c \"echo \\$\\$ >> pids; exec sleep 101\" & \
        setsid sh -c \"trap \\\"\\\" TERM HUP INT; (sh -c \\\"echo \\\\\\$\\\\\\$ >> pids; exec sleep 102\\\" &) ; exit\"; \
        while [ $(wc -l < pids) -lt 4 ]; do sleep 0.05; done; touch ready; sleep 103";
    let plug = plug_within("3s", children, "touch done", "");
    let begun = Instant::now();
    let fault = plug.controller.act(Verb::On).await.expect_err("the program hangs");
    assert_eq!(fault.kind(), FaultKind::Unreachable, "{fault}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(plug.has("ready") && !plug.has("done"));
    all_gone(&plug, 4);
}

#[tokio::test]
async fn program_is_killed_when_its_future_is_dropped() {
    let plug = plug("echo $$ >> pids; sleep 100 & echo $! >> pids; touch ready; wait", "true", "");
    {
        let act = plug.controller.act(Verb::Status);
        tokio::pin!(act);
        let ready = async {
            while !plug.has("ready") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            result = &mut act => panic!("the hanging program gave a result: {result:?}"),
            () = ready => {}
        }
    }
    all_gone(&plug, 2);
}

#[tokio::test]
async fn daemon_of_a_command_keeps_running_and_is_not_waited_for() {
    let daemon = "setsid sh -c \"echo \\$\\$ >> pids; exec sleep 100\" & while ! [ -s pids ]; do sleep 0.02; done; echo on > state";
    let plug = plug("cat state 2>/dev/null || echo off", daemon, "");
    let begun = Instant::now();
    assert_eq!(plug.controller.act(Verb::On).await, Ok(Answer::Accepted));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let daemon: u32 = plug.read("pids").trim().parse().expect("a pid");
    assert!(is_alive(daemon));
    hostler_testkit::kill(daemon, nix::sys::signal::Signal::SIGKILL);
}

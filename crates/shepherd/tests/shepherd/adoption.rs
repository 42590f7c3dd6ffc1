//! Tests of adoption: a run survives its agent, and ends with its shepherd.

use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostler_shepherd::journal::{JournalContent, begin};
use hostler_shepherd::{
    AdoptError, Adopted, Cause, LaunchError, Lost, LostReason, Shepherd, Status, adopt, end_unstarted,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{
    Leaves, command, directory, ends, eventually, finish, is_alive, launcher, pid_in, run, script, start_agent,
    start_run, stdout,
};

fn running(directory: &Path) -> Shepherd {
    match adopt(directory).expect("readable") {
        Adopted::Running(shepherd) => shepherd,
        other => panic!("{other:?}"),
    }
}

fn lost(directory: &Path) -> Lost {
    match adopt(directory).expect("readable") {
        Adopted::Lost(lost) => lost,
        other => panic!("{other:?}"),
    }
}

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).expect("the process belongs to this test");
}

fn children_of(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("the process runs");
    text.split_ascii_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
}

#[test]
fn run_survives_its_agent_and_the_launcher() {
    let dir = directory();
    let text = "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after; exit 8";
    let mut agent = start_agent(dir.path(), text, None);
    let launchers = children_of(agent.id());
    assert_eq!(launchers.len(), 1, "the agent's only child is the launcher process");
    send(launchers[0], Signal::SIGKILL);
    agent.kill().expect("ours");
    agent.wait().expect("ours");

    let mut shepherd = running(dir.path());
    let status = shepherd.status().expect("the shepherd runs");
    assert_eq!(status.identity, "of the first agent");
    assert!(is_alive(status.child.expect("still running")));
    fs::write(dir.path().join("go"), "").expect("writes");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!((record.status, record.cause), (Status::Exited { code: 8 }, None));
    assert_eq!(stdout(dir.path()), "before\nafter\n");
    let Adopted::Ended(again) = adopt(dir.path()).expect("readable") else { panic!("ended") };
    assert_eq!(again.stdout_bytes, 13);
}

#[test]
fn launcher_ends_with_its_agent() {
    let dir = directory();
    let mut agent = start_agent(dir.path(), "exec sleep 600", None);
    let launchers = children_of(agent.id());
    agent.kill().expect("ours");
    agent.wait().expect("ours");
    eventually("the launcher process ends", || !is_alive(launchers[0]));
    let mut shepherd = running(dir.path());
    shepherd.kill(Cause::NodeShutdown).expect("the shepherd runs");
    assert_eq!(finish(&mut shepherd, dir.path()).cause, Some(Cause::NodeShutdown));
}

#[test]
fn time_limit_is_enforced_without_an_agent() {
    let dir = directory();
    let mut launch = script(dir.path(), "exec sleep 600");
    launch.options.time_limit = Some(Duration::from_millis(200));
    let shepherd = start_run(&launch);
    drop(shepherd);
    eventually("it ends by itself", || JournalContent::read(dir.path()).expect("readable").ended.is_some());
    let Adopted::Ended(record) = adopt(dir.path()).expect("readable") else { panic!("ended") };
    assert_eq!(record.cause, Some(Cause::TimeLimit));
}

#[test]
fn shepherd_ignores_all_signals_except_kill() {
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "exec sleep 600"));
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGPIPE, Signal::SIGTSTP] {
        send(shepherd.pid(), signal);
    }
    shepherd.status().expect("the shepherd still runs");
    shepherd.kill(Cause::Cancelled).expect("the shepherd still runs");
    finish(&mut shepherd, dir.path());
}

/// Command of `fcntl` that chooses the signal for a lease; the libc crate lacks it.
const F_SETSIG: libc::c_int = 10;

/// A program that cannot be opened while the returned file is open: this process holds a lease on it.
fn program_that_cannot_be_opened(directory: &Path) -> (PathBuf, File) {
    let path = directory.join("program");
    fs::write(&path, "#!/bin/sh\ntouch ran\n").expect("writes");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("the file is ours");
    let file = File::open(&path).expect("the file exists");
    // When somebody opens the file, the kernel sends this signal to the holder of the lease. Its default action is to do nothing.
    // SAFETY: the call takes plain integers.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) }, 0);
    // Children of other tests may hold the written file until they execute their programs.
    // SAFETY: the call takes plain integers.
    let take = || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } == 0;
    eventually("a lease on the program", take);
    (path, file)
}

#[test]
fn run_whose_program_cannot_be_opened_is_ended_without_its_shepherd() {
    let dir = directory();
    let (program, lease) = program_that_cannot_be_opened(dir.path());
    let _starting = launcher().begin(&command(dir.path(), [program]), &[]).expect("the launcher runs");
    let mut record = None;
    eventually("the run is ended", || {
        record = match JournalContent::read(dir.path()).expect("readable").taken {
            Some(_) => end_unstarted(dir.path(), Cause::TimeLimit).expect("the shepherd can be killed"),
            None => None,
        };
        record.is_some()
    });
    assert!(!is_alive(record.expect("just checked").shepherd.pid), "the shepherd was killed");
    let Adopted::Ended(record) = adopt(dir.path()).expect("readable") else { panic!("ended") };
    assert_eq!((record.cause, record.unkillable), (Some(Cause::TimeLimit), vec![]));
    assert!(matches!(&record.status, Status::StartFailed { code: 126, .. }), "{:?}", record.status);
    drop(lease);
    assert!(!dir.path().join("ran").exists(), "the program never runs");
    assert_eq!(end_unstarted(dir.path(), Cause::Cancelled).expect("readable"), None, "the run has ended");
}

#[test]
fn run_whose_program_has_started_is_not_ended_without_its_shepherd() {
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "exec sleep 600"));
    assert_eq!(end_unstarted(dir.path(), Cause::Cancelled).expect("readable"), None);
    shepherd.status().expect("the shepherd still runs");
    shepherd.kill(Cause::Cancelled).expect("the shepherd still runs");
    finish(&mut shepherd, dir.path());
}

#[test]
fn job_does_not_outlive_a_killed_shepherd() {
    let (dir, leaves) = (directory(), Leaves::new());
    let text = "(setsid sh -c 'echo $$ > daemon; exec sleep 600' &) ; echo $$ > me; exec sleep 600";
    let mut launch = script(dir.path(), text);
    launch.options.leaf = Some(leaves.leaf("7.1"));
    let shepherd = start_run(&launch);
    let (me, daemon) = (pid_in(dir.path(), "me"), pid_in(dir.path(), "daemon"));
    send(shepherd.pid(), Signal::SIGKILL);
    assert!(ends(&shepherd));
    eventually("the main process ends too", || !is_alive(me));

    let lost = lost(dir.path());
    assert_eq!(lost.reason, LostReason::ShepherdGone);
    let record = lost.record.expect("the journal was written at the start");
    assert_eq!((record.child, record.leaf), (Some(me), Some(leaves.leaf("7.1").path)));

    assert!(is_alive(daemon), "the daemon still runs");
    let live = HashSet::from(["7.1".to_owned()]);
    assert_eq!(leaves.tree.sweep("7.", &live).expect("lists").removed, Vec::<String>::new());
    assert!(is_alive(daemon), "live leaves are not swept");
    assert_eq!(leaves.tree.sweep("7.", &HashSet::new()).expect("lists").removed, ["7.1"]);
    eventually("the daemon ends", || !is_alive(daemon));
}

#[test]
fn reused_pid_is_not_adopted() {
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "exec sleep 600"));
    let path = dir.path().join("journal");
    let honest = fs::read_to_string(&path).expect("the file exists");
    let mut record = taken(&honest);
    record["shepherd"]["start_time"] = 1.into();
    fs::write(&path, journal_with(&record)).expect("writes");
    assert_eq!(lost(dir.path()).reason, LostReason::PidReused);
    record["boot_id"] = "another boot".into();
    fs::write(&path, journal_with(&record)).expect("writes");
    assert_eq!(lost(dir.path()).reason, LostReason::Rebooted);

    fs::write(&path, honest).expect("writes");
    assert!(running(dir.path()).status().is_ok(), "the shepherd still responds");
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    finish(&mut shepherd, dir.path());
}

#[test]
fn socket_name_of_another_process_is_refused() {
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "exec sleep 600"));
    let address = SocketAddr::from_abstract_name(format!("hostler-test-{}", std::process::id())).expect("short");
    let _imposter = UnixListener::bind_addr(&address).expect("free");
    let path = dir.path().join("journal");
    let mut record = taken(&fs::read_to_string(&path).expect("the file exists"));
    record["socket"] = format!("hostler-test-{}", std::process::id()).into();
    fs::write(&path, journal_with(&record)).expect("writes");
    let refused = adopt(dir.path()).expect_err("the socket belongs to another process");
    assert!(matches!(refused, AdoptError::Unreachable { pid, .. } if pid == shepherd.pid()), "{refused}");
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    finish(&mut shepherd, dir.path());
}

#[test]
fn requests_of_another_user_are_ignored() {
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "exec sleep 600"));
    let record = taken(&fs::read_to_string(dir.path().join("journal")).expect("the file exists"));
    let name = record["socket"].as_str().expect("a name");
    let address = SocketAddr::from_abstract_name(name).expect("short");
    let answer = std::thread::spawn(move || {
        // SAFETY: the system call takes plain integers. It changes the user of this thread only, which ends right after.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(changed, 0, "becoming another user needs root");
        let mut stream = UnixStream::connect_addr(&address).expect("every user can connect");
        // A frame of kind 3 requests the end of the run.
        let body = [b"\x03".as_slice(), br#"{"cause":"cancelled","grace":{"secs":0,"nanos":0}}"#].concat();
        let sent = stream.write_all(&[&(body.len() as u32).to_le_bytes()[..], &body].concat());
        let mut answer = Vec::new();
        // Closed without an answer, maybe before the frame was read.
        let received = stream.read_to_end(&mut answer);
        (sent.is_err() || received.is_err() || answer.is_empty(), answer)
    });
    let (closed, answer) = answer.join().expect("the thread does not panic");
    assert!(closed && answer.is_empty(), "{answer:?}");
    assert_eq!(shepherd.status().expect("the shepherd runs").cause, None);
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    finish(&mut shepherd, dir.path());
}

#[test]
fn voided_run_cannot_start_late() {
    let dir = directory();
    assert_eq!(lost(dir.path()).reason, LostReason::NeverStarted);
    assert_eq!(lost(dir.path()).reason, LostReason::NeverStarted, "the result is final");
    let refused = launcher().launch(&command(dir.path(), ["touch", "ran"])).expect_err("void");
    assert!(matches!(refused, LaunchError::Refused(_)), "{refused}");
    assert!(!dir.path().join("ran").exists());
}

#[test]
fn damaged_journal_makes_the_run_lost() {
    let dir = directory();
    fs::write(dir.path().join("journal"), "{\"taken\":{\"sheph").expect("writes");
    assert_eq!(lost(dir.path()).reason, LostReason::Damaged);
    let refused = launcher().launch(&command(dir.path(), ["true"])).expect_err("the owner is unknown");
    assert!(refused.to_string().contains("the run's journal is damaged"), "{refused}");
}

#[test]
fn launch_in_the_directory_of_another_run_is_refused() {
    let dir = directory();
    begin(dir.path(), "8.1", &"a note").expect("writes");
    let mut launch = command(dir.path(), ["touch", "ran"]);
    launch.options.identity = "7.1".into();
    let refused = launcher().launch(&launch).expect_err("the directory belongs to another run");
    assert!(refused.to_string().contains("the directory belongs to another run"), "{refused}");
    assert!(!dir.path().join("ran").exists());

    launch.options.identity = "8.1".into();
    let record = run(&launch);
    assert_eq!((record.identity.as_str(), record.status), ("8.1", Status::Exited { code: 0 }));
    assert_eq!(JournalContent::read(dir.path()).expect("readable").note::<String>().expect("text"), "a note");
}

/// The `taken` entry of a journal.
fn taken(journal: &str) -> serde_json::Value {
    let lines = journal.lines().filter(|line| !line.is_empty());
    let values = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON"));
    values
        .into_iter()
        .find_map(|mut value| value.get_mut("taken").map(serde_json::Value::take))
        .expect("the journal has a `taken` entry")
}

/// A journal with only this entry.
fn journal_with(taken: &serde_json::Value) -> String {
    format!("{}\n", serde_json::json!({ "taken": taken }))
}

#[test]
fn adopting_an_ended_run_returns_its_record() {
    let dir = directory();
    let record = run(&script(dir.path(), "exit 3"));
    let Adopted::Ended(found) = adopt(dir.path()).expect("readable") else { panic!("ended") };
    assert_eq!(*found, record);
}

#[test]
fn adopting_an_ending_run_returns_a_shepherd_or_a_record() {
    for _ in 0..40 {
        let dir = directory();
        let _shepherd = start_run(&command(dir.path(), ["true"]));
        match adopt(dir.path()).expect("readable") {
            Adopted::Running(mut shepherd) => {
                assert_eq!(shepherd.wait().expect("the shepherd reports the end").status, Status::Exited { code: 0 });
                assert!(matches!(adopt(dir.path()).expect("readable"), Adopted::Ended(_)));
            }
            Adopted::Ended(record) => assert_eq!(record.status, Status::Exited { code: 0 }),
            Adopted::Lost(lost) => panic!("{lost:?}"),
        }
    }
}

#[test]
fn shepherd_ends_if_its_directory_is_removed() {
    let dir = directory();
    let shepherd = start_run(&script(dir.path(), "echo $$ > me; exec sleep 600"));
    pid_in(dir.path(), "me");
    drop(dir);
    shepherd.kill(Cause::Superseded).expect("still connected");
    assert!(ends(&shepherd));
}

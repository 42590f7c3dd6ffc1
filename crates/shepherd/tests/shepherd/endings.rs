//! Tests of how runs are ended, and that no processes remain.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hostler_shepherd::{Cause, Containment, Members, Phase, RunSignal, Status};

use crate::common::{Leaves, directory, eventually, finish, is_alive, pid_in, run, script, start_run, stdout};

/// A script that leaves a daemon behind, with its own session and without a parent. The daemon first executes `first`.
fn with_daemon(first: &str, rest: &str) -> String {
    format!("(setsid sh -c '{first}; echo $$ > daemon; exec sleep 600' &)\n{rest}")
}

const DAEMON_IS_UP: &str = "while ! grep -q . daemon 2>/dev/null; do sleep 0.01; done";

#[test]
fn time_limit_kills_processes_that_ignore_term() {
    let dir = directory();
    let mut launch = script(dir.path(), "trap 'echo term' TERM; while :; do sleep 0.05; done");
    launch.options.time_limit = Some(Duration::from_millis(300));
    launch.options.grace = Duration::from_millis(400);
    let began = Instant::now();
    let record = run(&launch);
    assert_eq!(record.status, Status::Signaled { signal: libc::SIGKILL, core_dumped: false });
    assert_eq!(record.cause, Some(Cause::TimeLimit));
    assert!(record.wall_time >= Duration::from_millis(700), "{:?}", record.wall_time);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(stdout(dir.path()), "term\n", "TERM was sent first, once");
}

#[test]
fn signal_before_the_time_limit_is_sent_again_before_a_later_limit() {
    let dir = directory();
    let before = Duration::from_secs(3600);
    let mut launch = script(dir.path(), "trap 'echo signal >> got' USR1; touch ready; while :; do sleep 0.05; done");
    let signal = RunSignal { signal: libc::SIGUSR1, to: Members::Program };
    launch.options.time_limit = Some(before + Duration::from_secs(2));
    launch.options.limit_signal = Some((signal, before));
    let began = Instant::now();
    let mut shepherd = start_run(&launch);
    let got = || fs::read_to_string(dir.path().join("got")).unwrap_or_default().lines().count();
    eventually("the signal comes", || got() == 1);
    for lines in [2, 3] {
        shepherd.change_limit(Some(before + began.elapsed() + Duration::from_secs(2))).expect("the shepherd runs");
        eventually("the signal comes again", || got() == lines);
    }
    shepherd.change_limit(Some(before + Duration::from_millis(1))).expect("the shepherd runs");
    shepherd.terminate(Cause::Cancelled, Duration::ZERO).expect("the shepherd runs");
    finish(&mut shepherd, dir.path());
    assert_eq!(got(), 3, "a lower limit repeats no signal");
}

#[test]
fn signal_that_is_due_at_the_start_finds_a_program_that_handles_it() {
    let dir = directory();
    let mut launch = script(dir.path(), "sleep 0.3; trap 'echo signal; exit 4' USR1; while :; do sleep 0.05; done");
    let signal = RunSignal { signal: libc::SIGUSR1, to: Members::Program };
    launch.options.time_limit = Some(Duration::from_secs(60));
    launch.options.limit_signal = Some((signal, Duration::from_secs(60)));
    assert_eq!(run(&launch).status, Status::Exited { code: 4 });
    assert_eq!(stdout(dir.path()), "signal\n");
}

#[test]
fn signal_before_a_step_host_has_started_the_program_reaches_the_program() {
    let dir = directory();
    // The shell stands for a host that takes long to start, since it starts nothing before the file exists.
    let host = ": > up; until [ -e go ]; do :; done; sh -c 'echo program; exec sleep 600'; echo host";
    let mut launch = script(dir.path(), host);
    launch.options.has_steps = true;
    let mut shepherd = start_run(&launch);
    eventually("the host runs", || dir.path().join("up").exists());
    for to in [Members::Program, Members::Steps] {
        shepherd.signal_run(&RunSignal { signal: libc::SIGTERM, to }).expect("the shepherd runs");
    }
    shepherd.status().expect("the shepherd has read the signals");
    fs::write(dir.path().join("go"), "").expect("the directory is writable");
    assert_eq!(finish(&mut shepherd, dir.path()).status, Status::Exited { code: 0 });
    assert!(["program\nhost\n", "host\n"].contains(&stdout(dir.path()).as_str()), "{}", stdout(dir.path()));
}

#[test]
fn job_that_handles_term_keeps_its_exit_code() {
    let dir = directory();
    let mut launch = script(dir.path(), "trap 'echo saved; exit 5' TERM; while :; do sleep 0.05; done");
    launch.options.time_limit = Some(Duration::from_millis(300));
    launch.options.grace = Duration::from_secs(60);
    let record = run(&launch);
    assert_eq!((record.status, record.cause), (Status::Exited { code: 5 }, Some(Cause::TimeLimit)));
    assert_eq!(stdout(dir.path()), "saved\n");
}

#[test]
fn cancelling_records_its_cause_and_ends_every_process() {
    let dir = directory();
    // The shell handles TERM only after its child has ended; the child gets TERM too.
    let mut shepherd = start_run(&script(dir.path(), "sh -c 'echo $$ > inner; exec sleep 600'; exit 9"));
    let inner = pid_in(dir.path(), "inner");
    shepherd.terminate(Cause::Cancelled, Duration::from_secs(60)).expect("the shepherd runs");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!(record.cause, Some(Cause::Cancelled));
    assert!(!is_alive(inner));
    assert!(record.wall_time < Duration::from_secs(30));
}

#[test]
fn stopped_job_can_be_cancelled() {
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "echo $$ > me; kill -STOP $$; sleep 600"));
    let me = pid_in(dir.path(), "me");
    eventually("the job stops", || {
        fs::read_to_string(format!("/proc/{me}/stat")).is_ok_and(|stat| stat.contains(") T "))
    });
    shepherd.terminate(Cause::Cancelled, Duration::from_secs(60)).expect("the shepherd runs");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!(record.status, Status::Signaled { signal: libc::SIGTERM, core_dumped: false });
}

#[test]
fn first_cause_is_kept_and_a_shorter_grace_applies() {
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "trap '' TERM; echo $$ > me; while :; do sleep 0.05; done"));
    pid_in(dir.path(), "me");
    shepherd.terminate(Cause::Preempted, Duration::from_secs(600)).expect("the shepherd runs");
    let status = shepherd.status().expect("the shepherd runs");
    assert_eq!((status.phase, status.cause), (Phase::Terminating, Some(Cause::Preempted)));
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!(record.cause, Some(Cause::Preempted));
    assert_eq!(record.status.exit_code(), 137);
}

#[test]
fn output_above_the_limit_uses_no_disk_space_and_the_run_continues() {
    use std::os::unix::fs::MetadataExt;
    const LIMIT: u64 = 2_000_000;
    let dir = directory();
    let write = "yes | head -c 9000000; yes | head -c 1000000 >&2; touch written; exec sleep 600";
    let mut launch = script(dir.path(), write);
    launch.cwd = dir.path().to_owned();
    launch.options.output_limit_bytes = Some(LIMIT);
    let mut shepherd = start_run(&launch);
    eventually("the job has written its output", || dir.path().join("written").exists());
    let stdout = || fs::metadata(dir.path().join("stdout")).expect("the file exists");
    eventually("output above the limit is dropped", || stdout().blocks() * 512 < LIMIT + 100_000);
    assert_eq!(stdout().len(), 9_000_000);
    let kept = fs::read(dir.path().join("stdout")).expect("the file exists");
    assert!(kept[..LIMIT as usize].chunks(2).all(|line| line == b"y\n"));
    assert_eq!(fs::read(dir.path().join("stderr")).expect("the file exists").len(), 1_000_000);
    shepherd.terminate(Cause::Cancelled, Duration::from_secs(60)).expect("the shepherd runs");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!((record.cause, record.stdout_bytes), (Some(Cause::Cancelled), 9_000_000));
}

#[test]
fn leftover_daemon_is_killed_without_a_leaf() {
    let dir = directory();
    let record = run(&script(dir.path(), &with_daemon(":", &format!("{DAEMON_IS_UP}; exit 4"))));
    assert_eq!(record.status, Status::Exited { code: 4 }, "the daemon does not change how the run ended");
    assert_eq!((record.leftovers, record.unkillable.len(), record.cause), (1, 0, None));
    assert!(!is_alive(pid_in(dir.path(), "daemon")));
    assert!(record.wall_time < Duration::from_secs(2), "killing the daemon does not count as run time");
}

#[test]
fn leftover_daemon_is_killed_with_its_leaf() {
    let (dir, leaves) = (directory(), Leaves::new());
    let mut launch = script(dir.path(), &with_daemon("trap \"\" TERM", &format!("{DAEMON_IS_UP}; exit 4")));
    launch.options.leaf = Some(leaves.leaf("daemon"));
    let mut shepherd = start_run(&launch);
    let daemon = pid_in(dir.path(), "daemon");
    let record = finish(&mut shepherd, dir.path());
    let path = leaves.leaf("daemon").path;
    assert_eq!(record.containment, Containment::Leaf { path: path.clone() });
    assert_eq!((record.status, record.leftovers), (Status::Exited { code: 4 }, 1));
    assert!(!is_alive(daemon));
    assert!(!path.exists(), "the leaf is removed too");
}

#[test]
fn shepherd_stays_outside_the_leaf() {
    let (dir, leaves) = (directory(), Leaves::new());
    let mut launch = script(dir.path(), "echo $$ > me; sleep 600");
    launch.options.leaf = Some(leaves.leaf("outside"));
    let mut shepherd = start_run(&launch);
    let me = pid_in(dir.path(), "me");
    let procs = leaves.leaf("outside").path.join("cgroup.procs");
    let members = || fs::read_to_string(&procs).expect("the leaf is there");
    eventually("sleep is in the leaf too", || members().lines().count() == 2);
    assert!(members().lines().any(|pid| pid == me.to_string()));
    assert!(members().lines().all(|pid| pid != shepherd.pid().to_string()));
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!(record.cause, Some(Cause::Cancelled));
}

#[test]
fn groups_created_by_a_job_are_removed_with_its_leaf() {
    let (dir, leaves) = (directory(), Leaves::new());
    let path = leaves.leaf("nested").path;
    let text = format!(
        "mkdir -p {0}/a/b && (echo 0 > {0}/a/b/cgroup.procs; trap '' TERM; exec sleep 600) & sleep 0.2",
        path.display()
    );
    let mut launch = script(dir.path(), &text);
    launch.options.leaf = Some(leaves.leaf("nested"));
    assert!(run(&launch).unkillable.is_empty());
    assert!(!path.exists());
}

#[test]
fn process_tree_that_ignores_term_is_killed_without_a_leaf() {
    let dir = directory();
    let text = "trap '' TERM HUP; tree() { if [ $1 -gt 0 ]; then (tree $(($1-1))) & (tree $(($1-1))) & fi; \
                echo x >> count; while :; do sleep 1; done; }; tree 4";
    let mut launch = script(dir.path(), text);
    launch.options.grace = Duration::from_millis(50);
    let mut shepherd = start_run(&launch);
    let count = || fs::read(dir.path().join("count")).map_or(0, |text| text.len() / 2);
    eventually("all processes run", || count() == 31);
    assert!(shepherd.status().expect("the shepherd runs").processes >= 31);
    shepherd.terminate(Cause::Cancelled, Duration::from_millis(50)).expect("the shepherd runs");
    let record = finish(&mut shepherd, dir.path());
    assert!(record.unkillable.is_empty());
    let cwd = fs::canonicalize(dir.path()).expect("the directory exists");
    assert_eq!(processes_in(&cwd), Vec::<String>::new(), "no process is left");
}

fn processes_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("mounted").filter_map(Result::ok);
    let here = entries.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == directory));
    here.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn other_processes_are_not_affected() {
    // Same session, program and user as the test: only descent distinguishes them.
    let mut bystander = Command::new("sleep").arg("600").spawn().expect("sleep exists");
    let dir = directory();
    let mut shepherd = start_run(&script(dir.path(), "trap '' TERM; sleep 600 & sleep 600"));
    shepherd.kill(Cause::Cancelled).expect("the shepherd runs");
    finish(&mut shepherd, dir.path());
    let alive = bystander.try_wait().expect("ours").is_none();
    bystander.kill().expect("ours");
    bystander.wait().expect("ours");
    assert!(alive);
}

#[test]
fn job_that_fills_the_disk_still_gets_its_record() {
    let dir = directory();
    let disk = SmallDisk::mount(dir.path());
    // The job fills the disk with its own output.
    let mut shepherd = start_run(&script(dir.path(), "head -c 1000000 /dev/zero; exit 6"));
    let record = finish(&mut shepherd, dir.path());
    assert_eq!(record.status, Status::Exited { code: 6 });
    drop(disk);
}

#[test]
fn record_waits_for_disk_space() {
    let dir = directory();
    let disk = SmallDisk::mount(dir.path());
    // The job removes the reserved space.
    let journal = dir.path().join("journal").display().to_string();
    let text =
        format!("until grep -q started '{journal}'; do :; done; : > '{journal}'; head -c 1000000 /dev/zero; exit 6");
    let mut shepherd = start_run(&script(dir.path(), &text));
    eventually("the shepherd waits for disk space", || {
        shepherd.status().expect("the shepherd runs").phase == Phase::Recording
    });
    fs::write(dir.path().join("stdout"), "").expect("truncates");
    let record = finish(&mut shepherd, dir.path());
    assert_eq!(record.status, Status::Exited { code: 6 });
    drop(disk);
}

/// A file system of 64 KiB, mounted during a test.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn mount(path: &Path) -> SmallDisk<'_> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(path).status();
        assert!(mounted.is_ok_and(|status| status.success()), "mounting a small disk needs root");
        SmallDisk(path)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

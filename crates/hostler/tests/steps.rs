//! Steps with several processes, and allocations that a command on the user's machine holds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use hostler_testkit::{Cluster, Outcome, Size, processes_with, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

fn two_nodes() -> Cluster {
    Cluster::up(HOSTLER, Size { nodes: 2, cpus: 2, ..Size::default() })
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Runs a shell script as a program of a job on both nodes. `$step` starts a step.
fn in_a_job(cluster: &Cluster, script: &str) -> Outcome {
    cluster.write("script.sh", format!("step='{HOSTLER} step'\n{script}"));
    cluster.run(&["run", "--first-node", "-N", "2", "-n", "2", "-m", "64M", "sh", "script.sh"])
}

#[test]
fn three_processes_run_on_two_nodes() {
    let cluster = two_nodes();
    let nodes = in_a_job(&cluster, "echo $HOSTLER_NODE_LIST").stdout;
    let (first, second) = nodes.trim().split_once(',').expect("two nodes");

    // The first node gets one process more than the second.
    let outcome = in_a_job(
        &cluster,
        "$step -n 3 sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK $HOSTLER_NODE'\n$step -N 1 sh -c 'echo alone $RANK/$WORLD_SIZE'",
    );
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let expected =
        [format!("0/3 0 {first}"), format!("1/3 1 {first}"), format!("2/3 0 {second}"), "alone 0/1".to_owned()];
    assert_eq!(sorted(&outcome.stdout), expected);

    // All processes get all of the input, and the rank is before each line of both outputs.
    let outcome = in_a_job(&cluster, "printf 'one\\ntwo' | $step -n 3 --label sh -c 'cat; echo; echo oops >&2'");
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert_eq!(sorted(&outcome.stdout), ["0: one", "0: two", "1: one", "1: two", "2: one", "2: two"]);
    for rank in 0..3 {
        assert!(outcome.stderr.lines().any(|line| line == format!("{rank}: oops")), "{}", outcome.stderr);
    }

    // The largest exit code is that of the step.
    let outcome = in_a_job(&cluster, "$step -n 3 sh -c 'exit $((20 - RANK * RANK))'");
    assert_eq!(outcome.code, 20, "{}", outcome.stderr);
    for line in [
        format!("task 0 on node {first}: exit code 20"),
        format!("task 1 on node {first}: exit code 19"),
        format!("task 2 on node {second}: exit code 16"),
    ] {
        assert!(outcome.stderr.contains(&line), "{}", outcome.stderr);
    }

    let outcome = in_a_job(&cluster, "$step -N 3 true");
    assert_ne!(outcome.code, 0);
    assert!(outcome.stderr.contains("--nodes 3: the job has 2"), "{}", outcome.stderr);
}

#[test]
fn steps_stay_within_the_limits_of_their_job() {
    let cluster = two_nodes();
    // The kernel applies the limits of a cgroup to all processes in it.
    cluster.write(
        "limits.sh",
        "cat /proc/self/cgroup; nproc\n\
         pids=$(sed -n 's|^[0-9]*:pids:|/sys/fs/cgroup/pids|p' /proc/self/cgroup)\n\
         cat ${pids:-/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)}/pids.max\n",
    );
    let here = in_a_job(&cluster, "sh limits.sh >own; $step 0 sh limits.sh >step; diff own step && cat own");
    assert_eq!(here.code, 0, "{here:?}");
    let limits: Vec<&str> = here.stdout.lines().rev().take(2).collect();
    assert!(here.stdout.contains("/hostler/") && limits[1] == "1", "one CPU in the cgroup of the job: {here:?}");
    // With cgroups of version 1, the shepherd counts as well.
    assert!(["8192", "8193"].contains(&limits[0]), "a limit of processes: {here:?}");
    // A step on another node is in the cgroup of the job there, which has the job's CPUs and memory.
    let hungry = "$step 1 python3 -c 'print(len(bytearray(300 << 20)))'";
    let elsewhere = in_a_job(&cluster, &format!("$step 1 nproc; {hungry}; echo code $?"));
    let lines: Vec<&str> = elsewhere.stdout.lines().collect();
    assert!(lines == ["1", "code 137"], "{elsewhere:?}");

    // The limit must end the job while a step runs. On a busy machine, the step begins later.
    let script = format!("{HOSTLER} step 1 sh -c 'touch begun; exec sleep 98762'");
    let began = ["3s", "10s", "30s"].into_iter().any(|time| {
        let arguments = ["run", "--first-node", "-N", "2", "-m", "64M", "-t", time, "--", "sh", "-c", &script];
        let outcome = cluster.run(&arguments);
        assert!(outcome.code != 0 && outcome.stderr.contains("time limit"), "{outcome:?}");
        cluster.path("begun").exists()
    });
    assert!(began, "a step begins within 30 s");
    wait_until("no process is left", 30, || processes_with("sleep\098762\0").is_empty().then_some(()));
}

#[test]
fn jobs_find_hostler_last_on_their_path() {
    let cluster = two_nodes();
    let script = "hostler step --all sh -c 'command -v hostler; echo ${PATH##*:}'";
    cluster.write("project/main.sh", script);
    let directory = Path::new(HOSTLER).parent().expect("a directory").to_string_lossy().into_owned();
    let expected: Vec<String> =
        [HOSTLER, &directory].into_iter().flat_map(|line| [line.to_owned(), line.to_owned()]).collect();
    let flags = ["--first-node", "-N", "2", "-m", "64M"];
    for arguments in [
        [&["run"], &flags[..], &["sh", "-c", script]].concat(),
        [&["submit", "project", "main.sh", "--follow"], &flags[..]].concat(),
    ] {
        let mut command = cluster.command(&arguments);
        let outcome = Outcome::of(&command.env("PATH", "/usr/bin:/bin").output().expect("the program starts"));
        let mut found: Vec<&str> =
            outcome.stdout.lines().filter_map(|line| line.split_once(": ")).map(|it| it.1).collect();
        found.sort_unstable();
        let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{outcome:?}");
    }
}

#[test]
fn missing_interpreter_of_a_step_or_process_is_named() {
    let cluster = two_nodes();
    let script = cluster.write("dos.sh", "#!/bin/sh\r\necho never\r\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("just written");
    let script = script.to_string_lossy().into_owned();
    let step = in_a_job(&cluster, &format!("$step 1 {script}"));
    let ranks = cluster.run(&["run", "-n", "2", "-m", "64M", "--", &script]);
    let first = cluster.run(&["run", "--first-node", "-N", "2", "-m", "64M", "--", &script]);
    for outcome in [step, ranks, first] {
        assert_ne!(outcome.code, 0);
        let why = "its first line ends in a carriage return, so its interpreter `/bin/sh\\r` does not exist";
        assert!(outcome.stderr.contains(why), "{outcome:?}");
    }
}

#[test]
fn failure_ends_the_other_processes_on_request() {
    let cluster = two_nodes();
    let begun = Instant::now();
    let outcome =
        in_a_job(&cluster, "$step -n 2 --kill-on-failure sh -c 'if [ $RANK = 1 ]; then exit 9; fi; exec sleep 600'");
    assert!(begun.elapsed() < Duration::from_secs(60), "the other process is ended");
    assert_eq!(outcome.code, 143, "SIGTERM gives the largest exit code: {}", outcome.stderr);
}

#[test]
fn allocation_ends_with_its_command() {
    let cluster = two_nodes();
    let script = format!("echo $HOSTLER_NODES; {HOSTLER} step -n 3 -l sh -c 'echo $WORLD_SIZE'; exit 5");
    let outcome = cluster.run(&["alloc", "-N", "2", "-n", "2", "-m", "64M", "--", "sh", "-c", &script]);
    assert_eq!(outcome.code, 5, "{}{}", outcome.stderr, cluster.logs());
    assert_eq!(sorted(&outcome.stdout), ["0: 3", "1: 3", "2", "2: 3"]);
    let job = cluster.json(&["job", "1"]);
    assert_eq!((job["state"].as_str(), job["allocation"].as_bool()), (Some("failed"), Some(true)), "{job}");
    assert_eq!(job["tasks_shown"][0]["exit_code"], 5, "{job}");

    // A single node also gives its port to the client.
    let script = format!("{HOSTLER} step 0 sh -c 'echo $HOSTLER_NODE $HOSTLER_JOB_ID'");
    let outcome = cluster.run(&["alloc", "-m", "64M", "--", "sh", "-c", &script]);
    assert_eq!(outcome.code, 0, "{}{}", outcome.stderr, cluster.logs());
    assert!(outcome.stdout.ends_with(" 2\n"), "{}", outcome.stdout);
    assert_eq!(cluster.state("2"), "completed");
    assert!(!cluster.path("run/hostler/allocations/2").exists(), "the key of the allocation is left");
}

#[test]
fn allocation_ends_after_its_client_is_lost() {
    let cluster = two_nodes();
    let script = format!("{HOSTLER} step 1 sleep 98761; true");
    let mut client = cluster
        .command(&["alloc", "-N", "2", "-m", "64M", "--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the client starts");
    let step = [HOSTLER, "step", "1", "sleep", "98761"].join("\0");
    let process = "sleep\098761\0";
    wait_until("the step runs", 30, || {
        (!processes_with(&step).is_empty() && processes_with(process).len() >= 2).then_some(())
    });
    client.kill().expect("the client runs");
    client.wait().expect("the client has ended");
    let lost = Instant::now();
    assert_eq!(cluster.state("1"), "running", "the client has time to come back");
    wait_until("the job ends", 60, || (cluster.state("1") == "failed").then_some(()));
    assert!(lost.elapsed() > Duration::from_secs(20), "the job ended after {:?}", lost.elapsed());
    let job = cluster.ok(&["job", "1"]);
    assert!(job.contains("exit code 1"), "{job}");
    wait_until("no process is left", 30, || processes_with(process).is_empty().then_some(()));
}

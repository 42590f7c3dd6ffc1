//! No job is lost or run twice, whichever process is killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use hostler_testkit::{Cluster, Size, listening_name, processes_with, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A cluster with room for several hundred short jobs.
const WIDE: Size = Size { nodes: 4, cpus: 4, memory: "1G" };

/// How often each line occurs in a file to which jobs append.
fn counts(cluster: &Cluster, name: &str) -> BTreeMap<String, u32> {
    let text = fs::read_to_string(cluster.path(name)).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// A shell command that writes its job id to `log` after `seconds`.
fn noting(cluster: &Cluster, log: &str, seconds: &str) -> String {
    format!("sleep {seconds}; echo $HOSTLER_JOB_ID.$HOSTLER_ARRAY_INDEX >> {}", cluster.path(log).display())
}

#[test]
fn tasks_run_once_if_the_head_is_killed_with_a_full_queue() {
    let cluster = Cluster::up(HOSTLER, WIDE);
    let work = noting(&cluster, "log", "0.05");
    let array = cluster.ok(&["run", "--detach", "-a", "0-199", "-m", "16M", "--", "sh", "-c", &work]);
    let single: Vec<String> =
        (0..40).map(|_| cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", &work])).collect();
    wait_until("some tasks have ended", 60, || (counts(&cluster, "log").len() > 20).then_some(()));

    cluster.kill_9(cluster.head_pid());
    cluster.start(WIDE);
    // Kill the head again while the agents reconnect.
    cluster.kill_9(cluster.head_pid());
    cluster.start(WIDE);

    cluster.ok(&["wait", &array]);
    for id in &single {
        cluster.ok(&["wait", id]);
    }
    let counts = counts(&cluster, "log");
    assert_eq!(counts.len(), 240, "every task has run");
    assert!(counts.values().all(|count| *count == 1), "every task has run exactly once: {counts:?}");
}

#[test]
fn jobs_and_their_output_survive_killed_agents() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let script = "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.05; done";
    let id = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", script]);
    cluster.wait_for_state(&id, "running");
    for pid in cluster.agent_pids() {
        cluster.kill_9(pid);
    }
    cluster.start(Size::default());
    cluster.ok(&["wait", &id]);
    let expected: Vec<String> = (0..60).map(|i| format!("line {i}")).collect();
    assert_eq!(cluster.ok(&["logs", &id]), expected.join("\n"));
    assert_eq!(cluster.json(&["job", &id])["attempt"], 1, "the agent adopts the running job, without a second attempt");
}

/// Fills the connection queue of a process's listening socket, as any user of the machine can.
fn fill_connection_queue(pid: u32) {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
    let address = UnixAddr::new_abstract(listening_name(pid).as_bytes()).expect("a short name");
    // A client that has closed its end still takes a place.
    loop {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let client = socket(AddressFamily::Unix, SockType::Stream, flags, None).expect("a descriptor is free");
        match connect(std::os::fd::AsRawFd::as_raw_fd(&client), &address) {
            Ok(()) => {}
            Err(nix::errno::Errno::EAGAIN) => return,
            Err(error) => panic!("cannot connect to the shepherd: {error}"),
        }
    }
}

#[test]
fn shepherds_that_do_not_answer_delay_only_their_own_runs_when_agents_restart() {
    let size = Size { nodes: 1, cpus: 4, ..Size::default() };
    let cluster = Cluster::up(HOSTLER, size);
    let begin = |name: &str| {
        let (shepherd, go) = (cluster.path(&format!("{name}.shepherd")), cluster.path("go"));
        let work = format!(
            "echo $PPID > {0}.new; mv {0}.new {0}; until [ -e {1} ]; do sleep 0.05; done; echo end",
            shepherd.display(),
            go.display()
        );
        let id = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", &work]);
        let pid = wait_until("the job to begin", 30, || fs::read_to_string(&shepherd).ok()?.trim().parse::<u32>().ok());
        (id, pid)
    };
    let (stopped, full, cancelled, other) = (begin("stopped"), begin("full"), begin("cancelled"), begin("other"));
    for (_, pid) in [&stopped, &full, &cancelled] {
        hostler_testkit::kill(*pid, nix::sys::signal::Signal::SIGSTOP);
    }
    fill_connection_queue(full.1);
    fill_connection_queue(cancelled.1);
    for pid in cluster.agent_pids() {
        cluster.kill_9(pid);
    }
    cluster.start(size);

    cluster.write("go", "");
    cluster.ok(&["wait", &other.0]);
    assert_eq!(cluster.ok(&["logs", &other.0]), "end");
    assert_eq!(cluster.ok(&["run", "-m", "16M", "--", "echo", "new"]), "new");
    for (id, _) in [&stopped, &full, &cancelled] {
        assert_eq!(cluster.state(id), "running", "its shepherd lives");
    }
    cluster.ok(&["cancel", &cancelled.0]);

    // Ends the shepherds' pause. Their runs go on where they were.
    for (_, pid) in [&stopped, &full, &cancelled] {
        hostler_testkit::kill(*pid, nix::sys::signal::Signal::SIGCONT);
    }
    for (id, _) in [&stopped, &full] {
        cluster.ok(&["wait", id]);
        assert_eq!(cluster.ok(&["logs", id]), "end");
        assert_eq!(cluster.json(&["job", id])["attempt"], 1);
    }
    wait_until("the cancelled job to be over", 30, || {
        ["cancelled", "completed"].contains(&cluster.state(&cancelled.0).as_str()).then_some(())
    });
}

#[test]
fn jobs_of_a_dead_node_fail_or_are_requeued_as_requested() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 2, ..Size::default() });
    let marker = cluster.path("second-try");
    let script = format!("if [ -e {0} ]; then echo again; else touch {0}; sleep 600; fi", marker.display());
    let again = cluster.ok(&["run", "--detach", "--requeue", "-m", "16M", "--", "sh", "-c", &script]);
    let lost = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sleep", "600"]);
    cluster.wait_for_state(&again, "running");
    cluster.wait_for_state(&lost, "running");
    wait_until("the job has begun", 10, || marker.exists().then_some(()));

    // Kill the agent and all its processes, as in a power cut. Kill the agent first, so that it cannot report the end
    // of the others.
    let node = cluster.path("state/hostler/nodes/n1").to_string_lossy().into_owned();
    let head = cluster.head_pid();
    let victims: Vec<u32> =
        cluster.agent_pids().into_iter().chain(processes_with(&node)).filter(|pid| *pid != head).collect();
    assert!(!victims.is_empty());
    let kill = |pid: u32| hostler_testkit::kill(pid, nix::sys::signal::Signal::SIGKILL);
    victims.into_iter().for_each(kill);
    // Processes that were started meanwhile.
    processes_with(&node).into_iter().filter(|pid| *pid != head).for_each(kill);
    cluster.start(Size { nodes: 1, cpus: 2, ..Size::default() });

    cluster.ok(&["wait", &again]);
    assert_eq!(cluster.ok(&["logs", &again]), "again");
    assert_eq!(cluster.json(&["job", &again])["attempt"], 2);
    cluster.wait_for_state(&lost, "node_fail");
}

#[test]
fn fifty_concurrent_submissions_are_neither_lost_nor_duplicated() {
    let cluster = Cluster::up(HOSTLER, WIDE);
    cluster.write("model/main.sh", "echo $HOSTLER_JOB_ID\n");
    let folder = cluster.path("model").to_string_lossy().into_owned();
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let mut command = cluster.command(&["submit", &folder, "main.sh", "-m", "16M"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client starts")
        })
        .collect();
    let mut ids: Vec<String> = clients
        .into_iter()
        .map(|client| {
            let output = client.wait_with_output().expect("a client ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("an id").trim().to_owned()
        })
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 50);
    for id in &ids {
        cluster.ok(&["wait", id]);
        assert_eq!(&cluster.ok(&["logs", id]), id);
    }
    assert_eq!(cluster.json(&["jobs", "--all", "--limit", "100"])["total"], 50);
}

#[test]
fn killed_upload_leaves_no_data_on_the_head() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    // Random bytes, so that compression does not shorten the upload.
    let mut noise = Vec::new();
    let mut state = 1_u64;
    while noise.len() < 48 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend(state.to_le_bytes());
    }
    cluster.write("big/noise", noise);
    cluster.write("big/main.sh", "wc -c < noise\n");
    let folder = cluster.path("big").to_string_lossy().into_owned();
    for delay_ms in [20, 60, 120] {
        let mut client = cluster.command(&["submit", &folder, "main.sh", "-m", "64M"]);
        let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a client starts");
        std::thread::sleep(Duration::from_millis(delay_ms));
        let _ = client.kill();
        let _ = client.wait();
    }
    let id = cluster.ok(&["submit", &folder, "main.sh", "-m", "64M"]);
    cluster.ok(&["wait", &id]);
    assert_eq!(cluster.ok(&["logs", &id]), (48 << 20).to_string());
    // A client may have been killed just after its submission. Ids are consecutive, so no job is missing.
    assert_eq!(cluster.json(&["jobs", "--all"])["total"].to_string(), id);
}

#[test]
fn interrupted_fetch_can_be_continued() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    cluster.write("big/main.sh", "head -c 60000000 /dev/urandom > noise; sha256sum < noise > sum\n");
    let folder = cluster.path("big").to_string_lossy().into_owned();
    let id = cluster.ok(&["submit", &folder, "main.sh", "-m", "64M"]);
    cluster.ok(&["wait", &id]);
    for delay_ms in [30, 80, 150] {
        let mut client = cluster.command(&["fetch", &id, "--to", "home"]);
        let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a client starts");
        std::thread::sleep(Duration::from_millis(delay_ms));
        let _ = client.kill();
        let _ = client.wait();
        let noise = cluster.path(&format!("home/{id}/noise"));
        assert!(
            !noise.exists() || fs::metadata(&noise).expect("there").len() == 60_000_000,
            "files are written atomically"
        );
    }
    cluster.ok(&["fetch", &id, "--to", "home"]);
    let check = "cd home/$0 && sha256sum < noise | cmp - sum";
    let mut shell = std::process::Command::new("sh");
    let same = shell.args(["-c", check, &id]).current_dir(cluster.home()).status().expect("a shell");
    assert!(same.success());
    let left = fs::read_dir(cluster.path(&format!("home/{id}"))).expect("there").flatten();
    let names: Vec<_> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    // Hidden files other than the results marker are leftovers of the transfer.
    let is_left_over = |name: &&String| name.starts_with('.') && *name != ".hostler-results";
    assert_eq!(names.iter().find(is_left_over), None, "no leftovers: {names:?}");
}

#[test]
fn logs_follow_continues_across_a_restart_of_the_head() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let script = "i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); sleep 0.05; done";
    let id = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", script]);
    cluster.wait_for_state(&id, "running");
    let mut follower = cluster.command(&["logs", "-f", &id]);
    let mut follower = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut printed = BufReader::new(follower.stdout.take().expect("the stream is piped"));
    let mut text = String::new();
    printed.read_line(&mut text).expect("the stream is readable");
    cluster.kill_9(cluster.head_pid());
    cluster.start(Size::default());
    printed.read_to_string(&mut text).expect("the stream is readable");
    let output = follower.wait_with_output().expect("the process ends");
    let expected: String = (0..40).map(|i| format!("line {i}\n")).collect();
    assert_eq!(text, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

//! Each failure gives a clear error or state and does not affect anything else.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;

use hostler_testkit::{Cluster, RealCluster, Size, SmallDisk, fill_disk, is_alive, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

fn folder(cluster: &Cluster, files: &[(&str, &str)]) -> String {
    for (name, content) in files {
        cluster.write(&format!("project/{name}"), content);
    }
    cluster.path("project").to_string_lossy().into_owned()
}

/// Checks that the cluster still runs jobs.
fn still_works(cluster: &Cluster) {
    assert_eq!(cluster.ok(&["run", "-m", "16M", "--", "echo", "fine"]), "fine");
}

#[test]
fn folder_is_not_read_without_a_head() {
    let cluster = Cluster::none(HOSTLER);
    let project = folder(&cluster, &[("main.py", "print(1)")]);
    // If the folder were read, the error would name the socket in it.
    let _socket = UnixListener::bind(cluster.path("project/socket")).expect("a socket");
    let error = cluster.fails(&["--head", "unix:/nowhere/head.sock", "submit", &project, "main.py"]);
    assert!(error.contains("cannot reach the head") && !error.contains("project/socket"), "{error}");
    let error = cluster.fails(&["--head", "unix:/nowhere/head.sock", "submit", &project, "missing.py"]);
    assert!(error.contains("the entry point missing.py is not in"), "mistakes are reported first: {error}");
}

#[test]
fn directory_of_another_user_is_not_used() {
    let cluster = Cluster::none(HOSTLER);
    let said = |variable: &str, path: &Path| {
        let mut command = cluster.command(&["jobs"]);
        let output = command.env_remove("XDG_CONFIG_HOME").env(variable, path).output().expect("starts");
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let open = cluster.path("open");
    fs::create_dir(&open).expect("writable");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("ours");
    let file = cluster.write("file", "");
    for (path, why) in [
        (cluster.path("missing"), "which does not exist"),
        (file, "which is not a directory"),
        (open, "which other users can write to"),
    ] {
        let stderr = said("XDG_RUNTIME_DIR", &path);
        let note = format!("note: XDG_RUNTIME_DIR is {}, {why}; using /tmp/hostler-", path.display());
        assert!(stderr.starts_with(&note), "{stderr}");
    }
    assert!(!cluster.path("missing").exists(), "it is not created");
    // Only root can leave files in a directory of another user.
    if nix::unistd::geteuid().is_root() {
        let theirs = cluster.path("theirs");
        fs::create_dir(&theirs).expect("writable");
        std::os::unix::fs::chown(&theirs, Some(65534), None).expect("root has permission");
        for (variable, instead) in
            [("XDG_RUNTIME_DIR", "/tmp/hostler-0"), ("XDG_STATE_HOME", ""), ("XDG_CONFIG_HOME", ""), ("HOME", "/")]
        {
            let stderr = said(variable, &theirs);
            let note =
                format!("note: {variable} is {}, which belongs to another user; using {instead}", theirs.display());
            assert!(stderr.starts_with(&note), "{stderr}");
        }
    }
}

#[test]
fn jobs_get_bytes_that_are_not_text() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let cafe = OsStr::from_bytes(b"caf\xe9");
    let directory = cluster.home().join(cafe);
    fs::create_dir(&directory).expect("writable");
    let seen = "printf '%s\\n' \"$1\" \"$LATIN\" \"$(printenv -0 N$'\\351' | tr -d '\\0')\" \"$(pwd)\"";
    let expected = [&b"caf\xe9\ncaf\xe9\ncaf\xe9\n"[..], directory.as_os_str().as_bytes(), b"\n"].concat();
    let in_bash = ["--", "bash", "-c", seen, "bash"];
    for flags in [&["run", "-m", "16M"][..], &["run", "-m", "16M", "-n", "2"], &["alloc", "-m", "16M"]] {
        let mut command = cluster.command(&[flags, &in_bash].concat());
        command.arg(cafe).env("LATIN", cafe).env(OsStr::from_bytes(b"N\xe9"), cafe).current_dir(&directory);
        let output = command.output().expect("starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{flags:?}: {stderr}");
        let expected = if flags.contains(&"-n") { expected.repeat(2) } else { expected.clone() };
        assert_eq!(output.stdout.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{flags:?}");
    }
    let script = b"#!/bin/sh\n# caf\xe9\nprintf '\xe9'\n";
    fs::write(directory.join("latin.sh"), script).expect("writable");
    let in_there = |arguments: &[&str]| {
        let output = cluster.command(arguments).current_dir(&directory).output().expect("starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert_eq!(in_there(&["run", "-m", "16M", "--script", "latin.sh"]), b"\xe9");
    let held = String::from_utf8(in_there(&["run", "-m", "16M", "--detach", "--hold", "--script", "latin.sh"]));
    assert_eq!(in_there(&["job", held.expect("an id").trim(), "--script"]), script);
    let all = cluster.ok(&["job", "1"]);
    assert!(all.contains(r"caf\xe9") && !all.contains('\u{efe9}'), "{all}");
}

#[test]
fn run_prints_what_a_command_wrote_before_its_terminal_was_reached() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    for code in [0, 5] {
        let pair = nix::pty::openpty(None, None).expect("there are terminals");
        let slave = || Stdio::from(pair.slave.try_clone().expect("the terminal is open"));
        let mut command = cluster.command(&["run", "--pty", "-m", "16M", "--", "sh", "-c"]);
        command.arg(format!("seq 1 300; exit {code}")).stdin(slave()).stdout(slave()).stderr(slave());
        let mut child = command.spawn().expect("the program starts");
        drop((command, pair.slave));
        let mut seen = Vec::new();
        // Ends with an error when the program has closed the terminal.
        let _ = fs::File::from(pair.master).read_to_end(&mut seen);
        assert_eq!(child.wait().expect("the program ends").code(), Some(code));
        let seen = String::from_utf8_lossy(&seen);
        let numbers: Vec<u32> = seen.lines().filter_map(|line| line.trim().parse().ok()).collect();
        assert_eq!(numbers, (1..=300).collect::<Vec<_>>(), "{seen}");
    }
}

#[test]
fn run_says_why_it_waits() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    let first = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sleep", "600"]);
    let mut command = cluster.command(&["run", "-m", "16M", "--", "echo", "done"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    stderr.read_line(&mut said).expect("text");
    assert!(said.starts_with("note: job 2 is pending: no node has enough free now"), "{said}");
    cluster.ok(&["cancel", &first]);
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"done\n"[..]));
}

#[test]
fn node_works_after_its_agent_was_killed() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    let deaf = "trap '' TERM; while :; do sleep 0.1; done";
    let killed = cluster.run(&["run", "-t", "300ms", "--grace", "100ms", "-m", "16M", "--", "sh", "-c", deaf]);
    assert_eq!(killed.code, 124, "{killed:?}");
    for _ in 0..3 {
        assert_eq!(cluster.ok(&["run", "-m", "16M", "--", "echo", "fine"]), "fine");
    }
}

#[test]
fn failed_programs_report_their_error() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let project = folder(&cluster, &[("main.py", "print(1)\nthis is no python\n")]);
    let id = cluster.ok(&["submit", &project, "main.py", "-m", "64M"]);
    assert_ne!(cluster.run(&["wait", &id]).code, 0);
    assert_eq!(cluster.state(&id), "failed");
    assert!(cluster.run(&["logs", &id]).stderr.contains("SyntaxError"));

    assert_eq!(cluster.run(&["run", "-m", "16M", "--", "sh", "-c", "exit 7"]).code, 7);
    assert_eq!(cluster.run(&["run", "-m", "16M", "--", "sh", "-c", "kill -9 $$"]).code, 137);
    let missing = cluster.run(&["run", "-m", "16M", "--", "no-such-program-at-all"]);
    assert_eq!(missing.code, 127);
    assert!(missing.stderr.contains("no-such-program-at-all"), "{missing:?}");
}

#[test]
fn job_that_ignores_term_is_killed_and_timeouts_are_reported() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let deaf = "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done";
    let id = cluster.ok(&["run", "--detach", "-m", "16M", "--grace", "300ms", "--", "sh", "-c", deaf]);
    cluster.wait_for_state(&id, "running");
    let pid: u32 =
        wait_until("the pid of the process", 10, || fs::read_to_string(cluster.path("pid")).ok()?.trim().parse().ok());
    cluster.ok(&["cancel", &id]);
    cluster.wait_for_state(&id, "cancelled");
    assert!(!is_alive(pid));

    let late = cluster.ok(&["run", "--detach", "-m", "16M", "-t", "1s", "--grace", "300ms", "--", "sh", "-c", deaf]);
    cluster.wait_for_state(&late, "timeout");
    still_works(&cluster);
}

#[test]
fn daemon_process_ends_with_its_job() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let script = "setsid sh -c 'echo $$ > daemon; exec sleep 600' </dev/null >/dev/null 2>&1 & while [ ! -s daemon ]; do sleep 0.02; done";
    cluster.ok(&["run", "-m", "16M", "--", "sh", "-c", script]);
    let pid: u32 =
        fs::read_to_string(cluster.path("daemon")).expect("the daemon wrote its pid").trim().parse().expect("a pid");
    assert!(!is_alive(pid), "no process outlives its job");
}

#[test]
fn job_over_its_memory_limit_ends_and_other_jobs_continue() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let neighbour = cluster.ok(&["run", "--detach", "-m", "64M", "--", "sh", "-c", "sleep 1; echo fine"]);
    // `tail` keeps the last line in memory, and this input is one long line.
    let hog = "head -c 300000000 /dev/zero | tail > /dev/null";
    let id = cluster.ok(&["run", "--detach", "-m", "64M", "--", "sh", "-c", hog]);
    cluster.wait_for_state(&id, "out_of_memory");
    let job = cluster.json(&["job", &id]).to_string();
    assert!(job.contains("the job exceeded its memory limit of 64M; request more with --memory"), "{job}");

    // The job survives the kill of its child, so something else decides how it ends.
    let survivor = format!("{hog}; exit 3");
    let survivor = cluster.ok(&["run", "--detach", "-m", "64M", "--", "sh", "-c", &survivor]);
    let late = format!("{hog}; exec sleep 600");
    let late = cluster.ok(&["run", "--detach", "-m", "64M", "-t", "3s", "--", "sh", "-c", &late]);
    cluster.wait_for_state(&survivor, "failed");
    let job = cluster.json(&["job", &survivor]);
    assert_eq!(job["exit_code"], 3, "{job}");
    let remark =
        "the memory limit of 64M was exceeded, and a process of the job was killed; request more with --memory";
    assert!(job.to_string().contains(remark), "{job}");
    cluster.wait_for_state(&late, "timeout");

    let limits = cluster.json(&["job", &neighbour])["limits"].clone();
    let holds = |name: &str| {
        limits.as_array().expect("a list").iter().any(|it| it["name"] == name && it["enforcement"] == "enforced")
    };
    assert!(holds("cpus") && holds("memory"), "{limits}");
    cluster.ok(&["wait", &neighbour]);
    assert_eq!(cluster.ok(&["logs", &neighbour]), "fine");
    still_works(&cluster);
}

#[test]
fn binary_and_large_output_is_not_changed() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let binary = cluster.run(&["run", "-m", "16M", "--", "sh", "-c", "printf 'no newline'; printf '\\001\\002' >&2"]);
    assert_eq!((binary.stdout.as_str(), binary.stderr.as_str()), ("no newline", "\u{1}\u{2}"));

    let id = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", "head -c 1000000000 /dev/zero"]);
    cluster.ok(&["wait", &id]);
    let mut logs = cluster.command(&["logs", &id]).stdout(Stdio::piped()).spawn().expect("logs");
    let length = std::io::copy(&mut logs.stdout.take().expect("piped"), &mut std::io::sink()).expect("readable");
    assert_eq!((length, logs.wait().expect("ours").code()), (1_000_000_000, Some(0)));
    still_works(&cluster);
}

#[test]
fn daemons_keep_running_if_their_log_cannot_be_written() {
    let cluster = RealCluster::start(HOSTLER);
    cluster.kill_head();
    let full = || fs::File::options().write(true).open("/dev/full").expect("the kernel has it");
    let run = |arguments: &[&str]| {
        let mut command = cluster.home.command(arguments);
        command.env("HOSTLER_LOG", "trace").stdout(full()).stderr(full()).spawn().expect("the program starts")
    };
    fs::remove_file(cluster.home.path("head/head.json")).expect("the killed head has left the file");
    let mut head = run(&["head", "run", "--directory", &cluster.path("head")]);
    wait_until("the head to be ready", 30, || cluster.home.path("head/head.json").exists().then_some(()));
    let code = cluster.ok(&["node", "invite", "n1"]);
    let joined = cluster.join("n1", &code, &[], |_| {});
    assert_eq!(joined.code, 0, "{joined:?}");
    let mut agent = run(&["agent", "run", "--directory", &cluster.path("n1"), "--root-jobs"]);
    cluster.wait_for_node("n1", "up");
    assert_eq!(cluster.ok(&["run", "-m", "16M", "--", "echo", "fine"]), "fine");
    for daemon in [&mut agent, &mut head] {
        assert!(daemon.try_wait().expect("the process is not reaped").is_none(), "it still runs");
        daemon.kill().expect("the process is not reaped");
        daemon.wait().expect("the process is not reaped");
    }
}

#[test]
fn daemons_and_commands_survive_a_full_disk() {
    let cluster = Cluster::none(HOSTLER);
    let disk = SmallDisk::mount(&cluster.path("state"), 40 << 20);
    cluster.start(Size { nodes: 3, cpus: 1, memory: "256M" });
    let sizes = || {
        let nodes = cluster.json(&["nodes"]);
        let of = |node: &serde_json::Value| (node["cpus"].clone(), node["memory_bytes"].clone());
        nodes.as_array().expect("a list of nodes").iter().map(of).collect::<Vec<_>>()
    };
    let before = sizes();
    let sleeper = || cluster.ok(&["run", "--detach", "-m", "16M", "--", "sleep", "600"]);
    let (first, second, third) = (sleeper(), sleeper(), sleeper());
    [&first, &second, &third].into_iter().for_each(|id| cluster.wait_for_state(id, "running"));
    let head = cluster.head_pid();

    // The job writes until the disk is full and then keeps trying, so the disk stays full.
    cluster.ok(&["cancel", &third]);
    cluster.wait_for_state(&third, "cancelled");
    let ballast = cluster.path("state/ballast").display().to_string();
    let greedy = format!("while :; do head -c 50000000 /dev/zero >> {ballast}; sleep 0.02; done");
    // On a disk in memory, the files count as the job's memory.
    let greedy = cluster.ok(&["run", "--detach", "-m", "200M", "--", "sh", "-c", &greedy]);
    wait_until("the disk to be full", 60, || cluster.json(&["info"])["head"]["refusing"].as_str().map(str::to_owned));
    let refused = cluster.fails(&["run", "-m", "16M", "--", "true"]);
    assert!(refused.contains("nearly full"), "{refused}");
    cluster.ok(&["cancel", &first]);
    cluster.wait_for_state(&first, "cancelled");
    cluster.ok(&["cancel", &greedy]);
    cluster.wait_for_state(&greedy, "cancelled");
    assert_eq!(cluster.state(&second), "running");
    assert_eq!(cluster.head_pid(), head, "the head was not restarted");

    // No byte is free. After a crash and a start on the full disk, nodes and the running job are the same.
    fs::remove_file(&ballast).expect("the file exists");
    fill_disk(ballast.as_ref(), 0);
    cluster.ok(&["cancel", &second]);
    cluster.wait_for_state(&second, "cancelled");
    let agents = cluster.agent_pids();
    cluster.kill_9(head);
    agents.into_iter().for_each(|agent| cluster.kill_9(agent));
    cluster.ok(&["up"]);
    assert_eq!(sizes(), before);
    cluster.ok(&["down"]);

    // Free some space.
    fs::remove_file(&ballast).expect("the file exists");
    cluster.ok(&["up"]);
    assert_eq!(sizes(), before);
    wait_until("every node to be up", 30, || cluster.ok(&["nodes"]).contains("up").then_some(()));
    still_works(&cluster);
    cluster.ok(&["down", "--cancel"]);
    drop(disk);
}

#[test]
fn full_disk_on_a_node_fails_only_the_job_that_filled_it() {
    let cluster = Cluster::none(HOSTLER);
    let disk = SmallDisk::mount(&cluster.path("state/hostler/nodes/n1"), 8 << 20);
    let size = Size { nodes: 1, cpus: 2, ..Size::default() };
    cluster.start(size);
    let greedy = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", "head -c 50000000 /dev/zero"]);
    cluster.wait_for_state(&greedy, "failed");
    let job = cluster.json(&["job", &greedy]).to_string();
    assert!(job.contains("the disk of node n1 is full"), "{job}");
    // The program has not noticed, and its results are collected although no byte is free.
    let careless = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", "head -c 50000000 /dev/zero; true"]);
    cluster.wait_for_state(&careless, "completed");
    let job = cluster.json(&["job", &careless]).to_string();
    assert!(job.contains("the disk of node n1 is full, so output or files may be missing"), "{job}");
    still_works(&cluster);

    let mut noise = Vec::new();
    let mut state = 7_u64;
    while noise.len() < 12 << 20 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.push((state >> 33) as u8);
    }
    cluster.write("big/noise", noise);
    cluster.write("big/main.sh", "true\n");
    let big = cluster.ok(&["submit", &cluster.path("big").to_string_lossy(), "main.sh", "-m", "16M"]);
    cluster.wait_for_state(&big, "failed");
    let job = cluster.json(&["job", &big]).to_string();
    assert!(job.contains("no space left"), "{job}");
    still_works(&cluster);
    cluster.ok(&["down", "--cancel"]);
    drop(disk);
}

#[test]
fn job_that_deletes_its_work_directory_harms_nothing_else() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let project = folder(&cluster, &[("main.sh", "rm -rf \"$PWD\"; echo done\n")]);
    let id = cluster.ok(&["submit", &project, "main.sh", "-m", "16M"]);
    let waited = cluster.run(&["wait", &id]);
    assert!(waited.code <= 1, "{waited:?}");
    assert_eq!(cluster.ok(&["logs", &id]), "done");
    assert!(
        cluster.json(&["job", &id])["state"].as_str().is_some_and(|state| state == "completed" || state == "failed")
    );
    still_works(&cluster);
}

#[test]
fn up_and_down_can_be_repeated() {
    let size = Size::default();
    let cluster = Cluster::up(HOSTLER, size);
    let head = cluster.head_pid();
    cluster.start(size);
    assert_eq!(cluster.head_pid(), head, "a second `up` changes nothing");

    let id = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sleep", "600"]);
    cluster.wait_for_state(&id, "running");
    let error = cluster.fails(&["down"]);
    assert!(error.contains("--cancel") && error.contains("--keep"), "{error}");

    cluster.ok(&["down", "--keep"]);
    wait_until("the head has stopped", 10, || (!is_alive(head)).then_some(()));
    cluster.start(size);
    assert_eq!(cluster.state(&id), "running", "it continued without the cluster");
    cluster.ok(&["down", "--cancel"]);
    cluster.start(size);
    assert_eq!(cluster.state(&id), "cancelled");
}

#[test]
fn stale_socket_is_replaced() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    for pid in cluster.agent_pids().into_iter().chain([cluster.head_pid()]) {
        cluster.kill_9(pid);
    }
    cluster.start(Size::default());
    still_works(&cluster);
}

#[test]
fn clients_with_another_protocol_do_not_disturb_the_head() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let info = cluster.json(&["info"]);
    let address = info["head"]["address"].as_str().expect("an address");
    for greeting in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\0\0\0\0"] {
        let mut stream = TcpStream::connect(address).expect("the port is open");
        stream.write_all(greeting.as_bytes()).expect("the connection is open");
        // The head may have closed the connection already.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
    }
    let socket = cluster.path("run/hostler/head.sock");
    let mut stream = UnixStream::connect(socket).expect("the socket is open");
    stream
        .write_all(b"GET /api/v1/info HTTP/1.1\r\nhost: x\r\nhostler-api: 99\r\nconnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("api_version"), "{answer}");
    still_works(&cluster);
}

#[test]
fn waiting_job_has_a_reason() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 2, memory: "1G" });
    let running = cluster.ok(&["run", "--detach", "-c", "2", "-m", "16M", "-t", "10m", "--", "sleep", "600"]);
    cluster.wait_for_state(&running, "running");
    let first = cluster.ok(&["run", "--detach", "-c", "1", "-m", "16M", "--", "true"]);
    let second = cluster.ok(&["run", "--detach", "-c", "1", "-m", "16M", "--", "true"]);
    let held = cluster.ok(&["run", "--detach", "--hold", "-m", "16M", "--", "true"]);
    let after = cluster.ok(&["run", "--detach", "--after", &format!("afterok:{held}"), "-m", "16M", "--", "true"]);

    assert!(cluster.ok(&["why", &first]).contains("n1"));
    assert!(cluster.ok(&["why", &second]).contains("ahead"));
    assert!(cluster.ok(&["why", &held]).contains("held"));
    assert!(cluster.ok(&["why", &after]).contains(&format!("job {held}")));
    for id in [&first, &second, &held, &after] {
        assert!(cluster.json(&["job", id])["reason"].is_string(), "every waiting job has a reason");
    }
    cluster.ok(&["cancel", &running]);
    cluster.ok(&["wait", &first]);
    cluster.ok(&["wait", &second]);
    cluster.ok(&["release", &held]);
    cluster.ok(&["wait", &after]);
}

#[test]
fn dependents_of_a_failed_job_are_cancelled() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let bad = cluster.ok(&["run", "--detach", "-m", "16M", "--", "false"]);
    let never = cluster.ok(&["run", "--detach", "--after", &format!("afterok:{bad}"), "-m", "16M", "--", "true"]);
    let always = cluster.ok(&["run", "--detach", "--after", &format!("afternotok:{bad}"), "-m", "16M", "--", "true"]);
    cluster.ok(&["wait", &always]);
    cluster.wait_for_state(&never, "cancelled");
    let job = cluster.json(&["job", &never]);
    assert!(job.to_string().contains("can never be satisfied"), "{job}");
}

#[test]
fn terminal_can_be_detached_and_attached_again() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let id = cluster.ok(&["run", "--detach", "--pty", "-m", "16M", "--", "sh", "-c", "tty; read line; echo got $line"]);
    cluster.wait_for_state(&id, "running");
    wait_until("the job to have a terminal", 10, || cluster.ok(&["logs", &id]).contains("/dev/pts/").then_some(()));
    let mut attached = cluster.command(&["attach", &id]);
    let mut attached = attached
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("attach starts");
    attached.stdin.take().expect("piped").write_all(b"something\n").expect("the program reads its input");
    cluster.wait_for_state(&id, "completed");
    let _ = attached.wait();
    assert!(cluster.ok(&["logs", &id]).contains("got something"));
}

#[test]
fn long_paste_arrives_whole_and_unread_input_blocks_no_user() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let attach = |id: &str| {
        let mut command = cluster.command(&["attach", id]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("attach starts")
    };
    let run = |script: &str| {
        let id = cluster.ok(&["run", "--detach", "--pty", "-m", "16M", "--", "sh", "-c", script]);
        wait_until("the job to be ready", 20, || cluster.ok(&["logs", &id]).contains("ready").then_some(()));
        id
    };
    let id = run("stty raw -echo; echo ready; head -c 600000 | wc -c");
    let mut attached = attach(&id);
    attached.stdin.take().expect("piped").write_all(&[b'x'; 600_000]).expect("the program reads its input");
    cluster.wait_for_state(&id, "completed");
    attached.wait().expect("the program ends with the job");
    assert!(cluster.ok(&["logs", &id]).contains("600000"), "{}", cluster.ok(&["logs", &id]));

    // Open more connections than a shepherd allows at once, one after another. Each sends more input than the job
    // reads, and disconnects.
    let id = run("stty raw -echo; echo ready; exec sleep 600");
    for number in 0..70 {
        let mut attached = attach(&id);
        let mut seen = [0; 5];
        attached
            .stdout
            .as_mut()
            .expect("piped")
            .read_exact(&mut seen)
            .unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(&seen, b"ready", "{number}: what was printed before is shown");
        let mut keys = attached.stdin.take().expect("piped");
        let typist = std::thread::spawn(move || drop(keys.write_all(&[b'x'; 400_000])));
        std::thread::sleep(std::time::Duration::from_millis(20));
        attached.kill().expect("the process is not reaped");
        attached.wait().expect("the process is not reaped");
        typist.join().expect("the pipe is closed");
    }
    cluster.ok(&["cancel", &id]);
    still_works(&cluster);
}

#[test]
fn endless_output_is_cut_at_the_limit() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    cluster.ok(&["configure", "setting", "output-cap", "1M"]);
    // A sparse file of ten terabytes.
    let sparse = "echo begin; truncate -s 10T /proc/self/fd/1; echo end >&2";
    let id = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", sparse]);
    still_works(&cluster);
    cluster.wait_for_state(&id, "completed");
    let notice = "hostler: the rest of this output was cut: 1M are kept (setting output-cap)";
    let logs = cluster.ok(&["logs", &id]);
    assert!(logs.starts_with("begin\n") && logs.contains(notice), "{} bytes", logs.len());
    assert!(logs.len() < (1 << 20) + 500, "{} bytes", logs.len());
    let message = cluster.ok(&["job", &id]);
    assert!(message.contains("the job's stdout was cut: 1M of 10T are kept"), "{message}");
    // A user who follows the output gets the same, while the job continues.
    let endless = ["run", "-m", "16M", "-t", "6s", "--", "sh", "-c", "yes | head -c 3000000; exec sleep 600"];
    let followed = cluster.run(&endless);
    assert_eq!(followed.code, 124, "{}", followed.stderr);
    assert!(
        followed.stdout.starts_with("y\ny\n") && followed.stdout.contains(notice),
        "{} bytes",
        followed.stdout.len()
    );
    assert!(followed.stdout.len() < (1 << 20) + 500, "{} bytes", followed.stdout.len());
    still_works(&cluster);
}

#[test]
fn unusual_job_results_do_not_stop_the_agent() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let links = "import os\nfor n in range(17_500): os.symlink('x' * 4000, str(n))\nprint('made')";
    let deep = "import os\nfor n in range(18_000):\n    os.mkdir('d')\n    os.chdir('d')\nprint('made')";
    let long = "import os\nos.truncate(os.open('sparse', os.O_CREAT | os.O_WRONLY), 10 << 40)\nprint('made')";
    let project = folder(&cluster, &[("links.py", links), ("deep.py", deep), ("long.py", long)]);
    for (entry, state, expected) in [
        ("deep.py", "completed", "nested more than 512 directories deep"),
        ("links.py", "failed", "too large: the list of paths, link targets and chunks takes more than 64M"),
        ("long.py", "failed", "too large: its files have more than 512G together"),
    ] {
        let id = cluster.ok(&["submit", &project, entry, "-m", "256M"]);
        cluster.wait_for_state(&id, state);
        let message = cluster.ok(&["job", &id]);
        assert!(message.contains(expected), "{entry}: {message}");
        assert!(cluster.ok(&["logs", &id]).contains("made"), "{entry}: its output is kept");
        still_works(&cluster);
    }
}

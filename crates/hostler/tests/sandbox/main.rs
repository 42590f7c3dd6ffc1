//! Sandboxed jobs, on real clusters with an agent of root, and of an ordinary user. Needs root, and accounts that every Debian has.

mod engines;
mod environments;
mod escapes;
mod guests;
mod images;
mod job_network;
mod partitions;
mod registry;
mod steps;
mod unprivileged;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use hostler_testkit::{Outcome, SharedCluster, is_alive, kill, processes_with, program, wait_until};
use nix::sys::signal::Signal;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Two accounts without processes of their own.
const ADA: &str = "games";
const BOB: &str = "news";

fn ids(user: &str) -> (u32, u32) {
    let user = nix::unistd::User::from_name(user).expect("readable").expect("on every Debian");
    (user.uid.as_raw(), user.gid.as_raw())
}

/// Runs a shell script of a user as a sandboxed job.
fn run(cluster: &SharedCluster, options: &[&str], script: &str) -> Outcome {
    cluster.run(ADA, &[&["run", "--sandbox", "-m", "100M"], options, &["--", "sh", "-c", script]].concat())
}

/// Starts such a job in the background. Returns its id.
fn start(cluster: &SharedCluster, options: &[&str], script: &str) -> String {
    let arguments = [&["run", "--sandbox", "--detach", "-m", "100M"], options, &["--", "sh", "-c", script]].concat();
    cluster.ok(ADA, &arguments)
}

/// The mounts of this machine at or below a folder. Others come and go with other tests.
fn mounts_at(folder: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    mounts.lines().filter(|line| line.contains(&*folder.to_string_lossy())).map(str::to_owned).collect()
}

#[test]
fn job_has_its_user_folder_environment_and_exit_code() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let (uid, gid) = ids(ADA);
    let told = run(
        &cluster,
        &[],
        "id -u; id -g; id -un; umask; pwd; echo $HOME $TMPDIR $USER $HOSTLER_NODE; touch here $HOME/h /tmp/t /dev/shm/s; \
         ls -A /tmp/home; hostname; python3 -c 'import socket, ssl; s = socket.create_server((\"127.0.0.1\", 0)); print(\"served\")'; \
         echo text >&2; exit 7",
    );
    let home = cluster.home_of(ADA);
    let expected =
        format!("{uid}\n{gid}\n{ADA}\n0022\n{}\n/tmp/home /tmp {ADA} n1\nh\nsandbox\nserved\n", home.display());
    assert_eq!((told.stdout.as_str(), told.code), (expected.as_str(), 7), "{}", told.stderr);
    assert!(told.stderr.contains("text"), "{}", told.stderr);
    assert!(home.join("here").exists(), "the folder is the user's own");
    assert!(cluster.ok(ADA, &["job", "1"]).contains("sandbox    yes"));

    let killed = run(&cluster, &[], "kill -USR1 $$");
    assert_eq!(killed.code, 138, "{killed:?}");
    assert!(cluster.ok(ADA, &["job", "2"]).contains("signal 10"), "{}", cluster.ok(ADA, &["job", "2"]));
    assert_eq!(run(&cluster, &[], "no-such-program").code, 127);
    let missing = cluster.run(ADA, &["run", "--sandbox", "-m", "32M", "--", "no-such-program"]);
    assert_eq!(missing.code, 127, "{missing:?}");
}

#[test]
fn results_of_a_project_come_home_and_links_in_them_are_not_followed() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let secret = cluster.path("secret");
    fs::write(&secret, "secret of root").expect("writable");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("ours");
    let script = format!(
        "read line < data; echo $line > result; rm data; ln -s {0} data; mkdir sub; ln -s {0} sub/link; rm -r gone; ln -s /etc gone; \
         umask; id -u",
        secret.display()
    );
    cluster.write(ADA, "folder/main.sh", script);
    cluster.write(ADA, "folder/data", "original\n");
    cluster.write(ADA, "folder/gone/file", "original\n");
    let folder = cluster.home_of(ADA).join("folder");
    let id = cluster.ok(ADA, &["submit", "--sandbox", "-c", "1", "-m", "64M", &folder.to_string_lossy(), "main.sh"]);
    cluster.ok(ADA, &["wait", &id]);
    assert_eq!(cluster.ok(ADA, &["logs", &id]), format!("0022\n{}", ids(ADA).0));
    cluster.ok(ADA, &["fetch", &id, "--to", "results"]);
    let results = cluster.home_of(ADA).join("results").join(&id);
    assert_eq!(fs::read_to_string(results.join("result")).expect("fetched"), "original\n");
    for link in ["data", "sub/link", "gone"] {
        if let Ok(metadata) = fs::symlink_metadata(results.join(link)) {
            assert!(metadata.is_symlink(), "{link} is not what it pointed to");
        }
    }
}

#[test]
fn limits_of_time_memory_processes_and_files_in_memory_hold() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    // On a busy machine, the shell sets its trap later.
    let asked = ["1s", "5s", "20s"].into_iter().any(|time| {
        let late = run(&cluster, &["-t", time], "trap 'echo asked; exit 3' TERM; while :; do sleep 0.05; done");
        assert!(late.stderr.contains("time limit"), "{late:?}");
        assert!(["", "asked\n"].contains(&&*late.stdout), "the program gets the signal once: {late:?}");
        !late.stdout.is_empty()
    });
    assert!(asked, "the program gets the signal");

    let large = start(&cluster, &[], "python3 -c 'x = bytearray(200 << 20)'");
    assert_ne!(cluster.run(ADA, &["wait", &large]).code, 0);
    assert_eq!(cluster.job(&large)["state"], "out_of_memory");

    let full =
        run(&cluster, &[], "dd if=/dev/zero of=/tmp/file bs=1M count=90 2>&1; dd if=/dev/zero of=/root-file 2>&1");
    assert!(full.stdout.contains("No space left on device"), "{full:?}");
    assert!(full.stdout.contains("Read-only file system"), "{full:?}");
    let charged = run(
        &cluster,
        &[],
        "dd if=/dev/zero of=/tmp/a bs=1M count=49; dd if=/dev/zero of=/dev/shm/b bs=1M count=49; \
        dd if=/dev/zero of=here bs=1M count=1; python3 -c 'x = bytearray(30 << 20)'; echo survived",
    );
    assert_ne!(charged.stdout, "survived\n", "files in memory count for the job's memory: {charged:?}");

    let marker = format!("hostler-bomb-{}", std::process::id());
    let bomb = start(&cluster, &["-t", "2s"], &format!("echo {marker}; b() {{ b | b & }}; b; sleep 100"));
    assert_ne!(cluster.run(ADA, &["wait", &bomb]).code, 0);
    wait_until("all processes to end", 30, || processes_with(&marker).is_empty().then_some(()));
    assert_eq!(run(&cluster, &[], "echo next").stdout, "next\n", "the node is unharmed");
}

#[test]
fn cancelled_job_leaves_no_process_and_no_mount() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let marker = format!("hostler-sandbox-{}", std::process::id());
    // A background process that ignores signals and has left the session.
    let script = format!(
        "(setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done # {marker}' &); touch ready; echo got > got; \
         trap 'echo term >> got' TERM; while :; do sleep 0.05; done"
    );
    let id = start(&cluster, &["--grace", "1s"], &script);
    let home = cluster.home_of(ADA);
    wait_until("the job to run", 30, || home.join("ready").exists().then_some(()));
    assert!(!processes_with(&marker).is_empty());
    assert_eq!(mounts_at(&home), [""; 0], "mounts of the sandbox are not visible outside");
    cluster.ok(ADA, &["signal", &id, "TERM"]);
    wait_until("the signal to arrive", 30, || {
        fs::read_to_string(home.join("got")).is_ok_and(|got| got == "got\nterm\n").then_some(())
    });
    cluster.ok(ADA, &["cancel", &id]);
    assert_ne!(cluster.run(ADA, &["wait", &id]).code, 0);
    assert!(processes_with(&marker).is_empty(), "{:?}", processes_with(&marker));
    assert_eq!(mounts_at(&home), [""; 0]);
}

#[test]
fn job_survives_its_agent_and_not_its_shepherd() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let marker = format!("hostler-sandbox-shepherd-{}", std::process::id());
    let script = format!(
        "touch $0; (setsid sh -c 'sleep 300; : {marker}' &); until [ -e $0-go ]; do sleep 0.05; done; echo done; exit 5 # {marker}"
    );
    let home = cluster.home_of(ADA);
    let begin = |cluster: &SharedCluster, name: &str| {
        let id = cluster.ok(ADA, &["run", "--sandbox", "--detach", "-m", "64M", "--", "sh", "-c", &script, name]);
        wait_until("the job to run", 30, || home.join(name).exists().then_some(()));
        id
    };
    let first = begin(&cluster, "first");
    cluster.kill_agent();
    cluster.start_agent();
    fs::write(home.join("first-go"), "").expect("writable");
    assert_ne!(cluster.run(ADA, &["wait", &first]).code, 0);
    assert!(cluster.ok(ADA, &["job", &first]).contains("exit code 5"), "{}", cluster.ok(ADA, &["job", &first]));
    assert_eq!(cluster.ok(ADA, &["logs", &first]), "done");

    let second = begin(&cluster, "second");
    let shell = *processes_with(&marker).first().expect("the job runs");
    // The program's parent is init, whose parent is the shepherd.
    let shepherd = parent_of(parent_of(shell));
    let init = parent_of(shell);
    kill(shepherd, Signal::SIGKILL);
    wait_until("the sandbox to end", 30, || (!is_alive(init) && processes_with(&marker).is_empty()).then_some(()));
    assert_ne!(cluster.run(ADA, &["wait", &second]).code, 0);
}

fn parent_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).expect("every process has one");
    parent.parse().expect("a number")
}

#[test]
fn job_on_a_terminal_has_it_inside_and_takes_input() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let line = format!(
        "stty rows 33 columns 77; HOSTLER_HEAD=unix:{0}/head.sock exec {0}/hostler run --sandbox --pty -m 64M -- \
         sh -c 'test -t 0 && tty; stty size; touch ready; read line; echo got $line'",
        cluster.path("").display()
    );
    let home = cluster.home_of(ADA);
    // `script` gives the client a terminal.
    let (uid, gid) = ids(ADA);
    let mut client = Command::new(program("script", "install Debian's package bsdutils"));
    client.args(["-qec", &line, "/dev/null"]).uid(uid).gid(gid).env("HOME", &home).current_dir(&home);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
    wait_until("the job to run", 30, || home.join("ready").exists().then_some(()));
    let mut input = client.stdin.take().expect("a pipe");
    input.write_all(b"hello\n").expect("the client runs");
    let output = client.wait_with_output().expect("readable");
    assert!(output.status.success(), "{output:?}");
    let logs = cluster.ok(ADA, &["logs", "1"]);
    let lines: Vec<&str> = logs.lines().map(str::trim_end).collect();
    assert_eq!(lines, ["/dev/console", "33 77", "hello", "got hello"]);
}

#[test]
fn what_a_sandbox_cannot_do_yet_is_refused_with_a_reason() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let several = run(&cluster, &["-N", "2"], "true");
    assert!(several.code != 0 && several.stderr.contains("a sandboxed job has one node"), "{several:?}");
    let root = cluster.run("root", &["run", "--sandbox", "-m", "32M", "--", "true"]);
    assert!(root.code != 0 && root.stderr.contains("cannot belong to root"), "{}", root.stderr);

    // A folder of somebody else must not become writable.
    let shared = cluster.path("shared");
    fs::create_dir(&shared).expect("writable");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("ours");
    for place in [shared.as_path(), "/".as_ref(), "/tmp".as_ref(), "/usr".as_ref()] {
        let mut command = cluster.command(ADA, &["run", "--sandbox", "-m", "32M", "--", "true"]);
        let outcome = Outcome::of(&command.current_dir(place).output().expect("starts"));
        assert_eq!(outcome.code, 126, "{outcome:?}");
        let told = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(told.contains("it does not belong to user games"), "{}: {told}", place.display());
    }
}

#[test]
fn performance_counters_are_for_jobs_that_are_alone_where_the_admin_allows_them() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    // Counts the context switches of all processes on CPU 0, also in the kernel.
    let count = "import ctypes, struct\n\
                 it = bytearray(128); it[0:16] = struct.pack('IIQ', 1, 128, 3)\n\
                 number = 298 if __import__('platform').machine() == 'x86_64' else 241\n\
                 call = ctypes.CDLL(None, use_errno=True).syscall\n\
                 fd = call(number, (ctypes.c_char * 128).from_buffer(it), -1, 0, -1, 8)\n\
                 print(fd > 2, ctypes.get_errno())";
    let counts = |cluster: &SharedCluster, options: &[&str]| {
        run(cluster, options, &format!("python3 -c \"{count}\"; grep -E '^Cap(Eff|Bnd)' /proc/self/status")).stdout
    };
    let none = "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n";
    let refused = format!("False {}\n{none}", nix::libc::EPERM);
    assert_eq!(counts(&cluster, &["--exclusive"]), refused, "the admin has not allowed it");
    fs::write(cluster.path("agent/agent.toml"), "[sandbox]\nperformance_counters = true\n").expect("root may");
    cluster.kill_agent();
    cluster.start_agent();
    assert_eq!(counts(&cluster, &[]), refused, "others may run beside it");
    let only = format!("{:016x}", 1_u64 << 38);
    let with = format!("CapEff:\t{only}\nCapBnd:\t{only}\n");
    assert_eq!(counts(&cluster, &["--exclusive"]), format!("True 0\n{with}"));
}

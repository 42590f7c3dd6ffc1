//! A job whose program lies on a file system that never answers disturbs no other user and can be ended. Daemons get no files that
//! users could make them close. Needs root and FUSE.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hostler_sys::known_owner_of_directory;
use hostler_testkit::{HangingDisk, SharedCluster, listening_name, wait_until};
use nix::unistd::User;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Two accounts without processes of their own.
const ADA: &str = "games";
const BOB: &str = "news";

fn assert_another_user_is_served(cluster: &SharedCluster, beside: &str) {
    let mut other = cluster.command(BOB, &["run", "-c", "1", "-m", "32M", "--", "echo", "fine"]);
    let mut other = other.stdout(Stdio::piped()).spawn().expect("the program starts");
    wait_until(&format!("another user's job beside {beside}"), 15, || other.try_wait().expect("a child"));
    let output = other.wait_with_output().expect("it has ended");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n", "{output:?}");
    let nodes: serde_json::Value = serde_json::from_str(&cluster.ok("root", &["nodes", "--json"])).expect("valid JSON");
    assert_eq!(nodes[0]["state"], "up", "{nodes}");
}

#[test]
fn program_on_a_hanging_disk_delays_no_other_user() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    for request in ["lookup", "open", "read"] {
        let at = cluster.path(request);
        fs::create_dir(&at).expect("new");
        let disk = HangingDisk::mount(Command::new("python3"), &at, request);
        let stuck = cluster.ok(ADA, &["run", "--detach", "-c", "1", "-m", "32M", "--", &disk.program()]);
        wait_until("the job to be placed", 30, || (cluster.job(&stuck)["state"] == "starting").then_some(()));
        assert_another_user_is_served(&cluster, &format!("a hanging {request}"));
        drop(disk);
        assert_ne!(cluster.run(ADA, &["wait", &stuck]).code, 0, "its program cannot be read");
    }
}

/// Waits until a shepherd has claimed a run. Soon afterwards, it waits for the start of the program.
fn wait_for_claim(cluster: &SharedCluster) {
    wait_until("a shepherd to claim the run", 30, || {
        let runs = fs::read_dir(cluster.path("agent/runs")).ok()?;
        let mut journals = runs.flatten().filter_map(|run| fs::read_to_string(run.path().join("journal")).ok());
        journals.any(|journal| journal.contains("\"taken\"") && !journal.contains("\"ended\"")).then_some(())
    });
}

#[test]
fn job_whose_program_never_opens_ends_when_it_is_cancelled_or_reaches_its_time_limit() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let at = cluster.path("disk");
    fs::create_dir(&at).expect("new");
    let disk = HangingDisk::mount(Command::new("python3"), &at, "open");
    let cancelled = cluster.ok(ADA, &["run", "--detach", "-c", "1", "-m", "32M", "--", &disk.program()]);
    wait_for_claim(&cluster);
    cluster.ok(ADA, &["cancel", &cancelled]);
    let limited = cluster.ok(ADA, &["run", "--detach", "-t", "1s", "-c", "1", "-m", "32M", "--", &disk.program()]);
    for (job, state) in [(&cancelled, "cancelled"), (&limited, "timeout")] {
        wait_until(&format!("the job to be {state}"), 30, || (cluster.job(job)["state"] == state).then_some(()));
    }
    assert_another_user_is_served(&cluster, "jobs that have ended while their disk hangs");
    drop(disk);
}

#[test]
fn sandboxed_job_whose_folder_never_answers_ends_when_it_is_cancelled_or_reaches_its_time_limit() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let (_, folder) = (cluster.write(ADA, "folder/file", "text"), cluster.home_of(ADA).join("folder"));
    let run = |time: &str| {
        let arguments = ["run", "--sandbox", "--detach", "--hold", "-t", time, "-c", "1", "-m", "64M", "--", "true"];
        let output = cluster.command(ADA, &arguments).current_dir(&folder).output().expect("the program starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let (cancelled, limited) = (run("1h"), run("1s"));
    let disk = HangingDisk::mount(Command::new("python3"), &folder, "getattr");
    cluster.ok(ADA, &["release", &cancelled]);
    wait_for_claim(&cluster);
    cluster.ok(ADA, &["cancel", &cancelled]);
    cluster.ok(ADA, &["release", &limited]);
    for (job, state) in [(&cancelled, "cancelled"), (&limited, "timeout")] {
        wait_until(&format!("the job to be {state}"), 30, || (cluster.job(job)["state"] == state).then_some(()));
    }
    assert_another_user_is_served(&cluster, "sandboxed jobs that have ended while their folder hangs");
    drop(disk);
}

#[test]
fn restarted_agent_ends_a_job_whose_program_never_opens() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let at = cluster.path("disk");
    fs::create_dir(&at).expect("new");
    let disk = HangingDisk::mount(Command::new("python3"), &at, "open");
    let job = cluster.ok(ADA, &["run", "--detach", "-t", "1s", "-c", "1", "-m", "32M", "--", &disk.program()]);
    wait_for_claim(&cluster);
    cluster.kill_agent();
    cluster.start_agent();
    wait_until("the time limit", 30, || (cluster.job(&job)["state"] == "timeout").then_some(()));
    drop(disk);
}

#[test]
fn hanging_disk_over_the_records_of_steps_delays_no_other_user() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let run = ["run", "--detach", "--first-node", "-c", "1", "-m", "32M", "--", "sleep", "600"];
    let job = cluster.ok(ADA, &run);
    wait_until("the job to run", 30, || (cluster.job(&job)["state"] == "running").then_some(()));
    let runs = fs::read_dir(cluster.path("agent/runs")).expect("the agent's directory");
    let steps = runs.flatten().map(|run| run.path().join("steps")).find(|steps| steps.is_dir());
    // The directory belongs to the user, who can mount a file system there.
    let disk = HangingDisk::mount(Command::new("python3"), &steps.expect("the job launches steps"), "lookup");
    // Each of these asks for the steps that run, and gives up soon.
    let asking: Vec<_> = (0..8)
        .map(|_| cluster.command(ADA, &["job", &job]).stdout(Stdio::null()).spawn().expect("it starts"))
        .collect();
    assert_another_user_is_served(&cluster, "requests for a list of steps that hangs");
    for mut request in asking {
        assert!(request.wait().expect("a child").success(), "a job is shown without its steps");
    }
    cluster.ok(ADA, &["cancel", &job]);
    assert_another_user_is_served(&cluster, "the end of a job whose records hang");
    drop(disk);
    wait_until("the job's end", 30, || (cluster.job(&job)["state"] == "cancelled").then_some(()));
}

/// Submits a user's project, in a folder with the name `environment`. It needs a package with the same name, so projects with
/// different names need different environments.
fn submit_project(cluster: &SharedCluster, user: &str, program: &str, environment: &str) -> String {
    let main = cluster.write(user, &format!("{environment}/main.py"), program);
    cluster.write(user, &format!("{environment}/requirements.txt"), format!("./{environment}\n"));
    cluster.write(
        user,
        &format!("{environment}/{environment}/setup.py"),
        format!("from setuptools import setup\nsetup(name='{environment}', version='1')\n"),
    );
    let folder = main.parent().expect("a folder").display().to_string();
    cluster.ok(user, &["submit", &folder, "main.py", "-c", "1", "-m", "300M"])
}

#[test]
fn hanging_disk_over_a_project_or_its_results_delays_no_other_user() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let main = cluster.write(ADA, "project/main.sh", "#!/bin/sh\nmkdir below\necho ready > ready\nexec sleep 600\n");
    let folder = main.parent().expect("a folder").display().to_string();
    for (request, place) in
        [("lookup", ""), ("getattr", ""), ("getattr", "below"), ("open", "below"), ("read", "below")]
    {
        let before = runs_of(&cluster);
        let job = cluster.ok(ADA, &["submit", &folder, "main.sh", "-c", "1", "-m", "32M"]);
        let work = wait_until("the job's folder", 30, || {
            let run = runs_of(&cluster).into_iter().find(|run| !before.contains(run))?;
            run.join("work/ready").exists().then(|| run.join("work"))
        });
        let disk = HangingDisk::mount(Command::new("python3"), &work.join(place), request);
        // The agent looks for the files that the job has left.
        cluster.ok(ADA, &["cancel", &job]);
        assert_another_user_is_served(&cluster, &format!("a hanging {request} in results"));
        drop(disk);
        wait_until("the job's end", 30, || (cluster.job(&job)["state"] == "cancelled").then_some(()));
    }
}

#[test]
fn mounts_that_a_killed_program_leaves_are_detached_with_its_folder() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let main = cluster.write(ADA, "project/main.sh", "#!/bin/sh\nmkdir -p below/deeper\nexec sleep 600\n");
    let folder = main.parent().expect("a folder").display().to_string();
    let job = cluster.ok(ADA, &["submit", &folder, "main.sh", "-c", "1", "-m", "32M"]);
    let run = wait_until("the job's folder", 30, || {
        runs_of(&cluster).into_iter().find(|run| run.join("work/below/deeper").exists())
    });
    // As if the job had mounted it, and the program behind it had died with the job.
    let disk = HangingDisk::mount(Command::new("python3"), &run.join("work/below/deeper"), "nothing");
    cluster.ok(ADA, &["cancel", &job]);
    wait_until("the folder to be removed", 30, || (!run.exists()).then_some(()));
    drop(disk);
}

fn runs_of(cluster: &SharedCluster) -> Vec<PathBuf> {
    fs::read_dir(cluster.path("agent/runs")).into_iter().flatten().flatten().map(|run| run.path()).collect()
}

#[test]
fn hanging_disk_over_a_cache_of_environments_delays_no_other_user() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let first = submit_project(&cluster, ADA, "print('fine')", "first");
    assert_eq!(cluster.run(ADA, &["wait", &first]).code, 0, "{}", cluster.job(&first));
    let uid = User::from_name(ADA).expect("readable").expect("every Debian has this user").uid;
    // These directories belong to the user, who can mount a file system there.
    let cache = cluster.path(&format!("agent/environments/users/{uid}"));
    let downloads = cache.join("downloads");
    let environment = fs::read_dir(cache.join("envs")).expect("built").flatten().next().expect("built").path();
    let attempts = fs::read_dir(environment).expect("built").flatten().map(|entry| entry.path());
    let attempt = attempts.into_iter().find(|path| path.join("venv").exists()).expect("built");
    for (round, (request, place)) in
        [("getattr", &downloads), ("lookup", &downloads), ("lookup", &attempt)].iter().enumerate()
    {
        let disk = HangingDisk::mount(Command::new("python3"), place, request);
        // The agent opens the caches of all users.
        cluster.kill_agent();
        cluster.start_agent();
        assert_another_user_is_served(&cluster, &format!("a cache with a hanging {request}"));
        let old = submit_project(&cluster, ADA, "print('fine')", "first");
        let new = submit_project(&cluster, ADA, "print('fine')", &format!("next{round}"));
        // Only the directory of the downloads concerns the new environment.
        wait_until("a job to reach its environment", 30, || (cluster.job(&new)["state"] != "pending").then_some(()));
        let other = submit_project(&cluster, BOB, "print('fine')", "first");
        assert_eq!(
            cluster.run(BOB, &["wait", &other]).code,
            0,
            "another user's environment beside a hanging {request}"
        );
        assert_another_user_is_served(&cluster, &format!("a build with a hanging {request}"));
        drop(disk);
        for job in [old, new] {
            let ended = |state: &str| ["completed", "failed"].contains(&state).then_some(());
            wait_until("the jobs to end", 60, || ended(cluster.job(&job)["state"].as_str()?));
        }
    }
}

/// Opens files, and takes a read lease on each as soon as nobody writes to it. Holds the leases until its input ends.
const TAKE_LEASES: &str = "\
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
files = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
print('open', flush=True)
for file in files:
    while True:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            break
        except BlockingIOError:
            os.sched_yield()
sys.stdin.read()
";

#[test]
fn leases_on_the_outputs_of_an_ended_job_delay_no_other_user() {
    let cluster = SharedCluster::up(HOSTLER, &[]);
    let job = cluster.ok(ADA, &["run", "--detach", "-c", "1", "-m", "32M", "--", "sleep", "600"]);
    wait_until("the job to run", 30, || (cluster.job(&job)["state"] == "running").then_some(()));
    let runs = fs::read_dir(cluster.path("agent/runs")).expect("the agent's directory");
    let run = runs.flatten().find(|run| run.path().join("stderr").exists()).expect("the job runs").path();
    let mut holder = Command::new("python3")
        .args(["-c", TAKE_LEASES])
        .args([run.join("stdout"), run.join("stderr")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python 3 is installed");
    let mut line = String::new();
    let stdout = holder.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("the script prints text");
    assert_eq!(line, "open\n");
    cluster.ok(ADA, &["cancel", &job]);
    wait_until("the job's end", 30, || (cluster.job(&job)["state"] == "cancelled").then_some(()));
    assert_another_user_is_served(&cluster, "leases on the outputs of a job");
    drop(holder.stdin.take());
    assert!(holder.wait().expect("a child").success());
}

#[test]
fn owner_of_a_directory_on_a_hanging_disk_is_known_without_a_request() {
    let directory = tempfile::tempdir().expect("a directory");
    assert_eq!(known_owner_of_directory(directory.path()), Some(0));
    assert_eq!(known_owner_of_directory(Path::new("/etc/passwd")), None);
    let disk = HangingDisk::mount(Command::new("python3"), directory.path(), "getattr");
    let (tell, told) = mpsc::sync_channel(1);
    let path = directory.path().to_owned();
    let asks = thread::spawn(move || tell.send(fs::metadata(path).is_ok()).is_ok());
    assert_eq!(told.recv_timeout(Duration::from_millis(300)), Err(mpsc::RecvTimeoutError::Timeout), "stat hangs");
    assert_eq!(known_owner_of_directory(directory.path()), Some(0));
    drop(disk);
    asks.join().expect("the request has ended");
}

/// Sends a descriptor to a socket, given by its path or its abstract name. Prints whether the kernel refuses it, and whether
/// it can.
const SEND_DESCRIPTOR: &str = "\
import array, socket, sys
to = socket.socket(socket.AF_UNIX)
to.connect(sys.argv[1].replace('@', '\\0'))
try:
    to.getsockopt(socket.SOL_SOCKET, 83)
    can = True
except OSError:
    can = False
try:
    to.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])
    refused = False
except PermissionError:
    refused = True
print(refused, can)
";

#[test]
fn head_agent_and_shepherds_get_no_descriptors_from_users() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let of_agent = directory.path().join("agent.sock").display().to_string();
    let cluster = SharedCluster::up(HOSTLER, &["--socket", &of_agent]);
    let of_head = cluster.path("head.sock").display().to_string();
    let job = cluster.ok(ADA, &["run", "--detach", "-c", "1", "-m", "32M", "--", "sh", "-c", "echo $PPID; sleep 600"]);
    let shepherd =
        wait_until("the job's output", 30, || cluster.run(ADA, &["logs", &job]).stdout.trim().parse::<u32>().ok());
    for socket in [of_head, of_agent, format!("@{}", listening_name(shepherd))] {
        let sent =
            Command::new("python3").args(["-c", SEND_DESCRIPTOR, &socket]).output().expect("Python 3 is installed");
        let text = String::from_utf8_lossy(&sent.stdout);
        assert!(["True True\n", "False False\n"].contains(&&*text), "{socket}: {sent:?}");
    }
    cluster.ok(ADA, &["cancel", &job]);
}

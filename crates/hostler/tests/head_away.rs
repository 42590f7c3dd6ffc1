//! Commands and nodes while the head is away, and after it has moved.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use hostler_testkit::{Cluster, Outcome, RealCluster, Size, end as kill_child, free_port, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

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
    // The head may have received the first request.
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

#[test]
fn everything_on_a_node_follows_a_moved_head() {
    let real = RealCluster::start(HOSTLER);
    let agent = real.add_node("n1");
    // A job that uploads large results while the head moves.
    let project = real.home.path("project");
    fs::create_dir(&project).expect("a new directory");
    let wait = format!("until [ -e {} ]; do sleep 0.1; done", real.path("go"));
    fs::write(project.join("main.sh"), format!("{wait}; head -c 3000000 /dev/urandom > big"))
        .expect("the directory exists");
    let project = project.display().to_string();
    let submit = || real.ok(&["submit", "-q", "-m", "16M", &project, "sh", "--", "main.sh"]);
    let before = submit();
    real.wait_for_job(&before, "running");
    real.kill_head();
    let settings = fs::read_to_string(real.home.path("head/head.toml")).expect("the head has settings");
    let old = settings.split('"').find(|text| text.starts_with("127.0.0.1:")).expect("an address").to_owned();
    let moved = settings.replace(&old, &format!("127.0.0.1:{}", free_port()));
    fs::write(real.home.path("head/head.toml"), moved).expect("the test owns the file");
    // The old address takes connections, and nothing answers.
    let _old = TcpListener::bind(&old).expect("the head is gone");
    real.run_head();
    let joined = real.join("n1", &real.ok(&["node", "invite", "n1"]), &[], |_| {});
    assert_eq!(joined.code, 0, "{joined:?}");
    real.wait_for_node("n1", "up");
    real.home.write("go", "");
    let after = submit();
    for job in [before, after] {
        real.wait_for_job(&job, "completed");
        real.ok(&["fetch", &job, "--to", &real.path("results")]);
        assert!(real.home.path("results").join(job).join("big").exists());
    }
    let node = format!("unix:{}", real.path("n1/agent.sock"));
    assert!(real.home.ok(&["--head", &node, "nodes"]).contains("n1"));
    kill_child(agent);
}

#[test]
fn job_that_ended_while_the_head_was_away_has_the_times_of_its_node() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    // The times must not depend on whether the head knew that the job runs.
    let job = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sleep", "4"]);
    cluster.wait_for_state(&job, "running");
    cluster.kill_9(cluster.head_pid());
    sleep(Duration::from_secs(12));
    cluster.start(SMALL);
    cluster.wait_for_state(&job, "completed");
    let shown = cluster.json(&["job", &job]);
    let ms = |name: &str| shown[name].as_i64().unwrap_or_else(|| panic!("{shown}"));
    let ran = ms("ended_at") - ms("started_at");
    assert!((3_900..5_500).contains(&ran), "{ran} ms: {shown}");
    let mut head = UnixStream::connect(cluster.path("run/hostler/head.sock")).expect("the head listens");
    let request = "GET /api/v1/accounting?by=user HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    head.write_all(request.as_bytes()).expect("the head reads");
    let answer = std::io::read_to_string(head).expect("the head answers");
    let body = answer.split("\r\n\r\n").nth(1).expect("a body");
    let sums: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    let hours = sums["total"]["core_hours"].as_f64().unwrap_or_else(|| panic!("{sums}"));
    assert!((3.9..5.5).contains(&(hours * 3600.0)), "{sums}");
}

#[test]
fn restored_head_uses_no_id_again_and_keeps_runs_that_it_does_not_know() {
    let real = RealCluster::start(HOSTLER);
    let agent = real.add_node("n1");
    let project = real.home.path("project");
    fs::create_dir(&project).expect("a new directory");
    let copy = |from: &str, to: &str| {
        let copied = Command::new("cp").args(["-a", &real.path(from), &real.path(to)]).status().expect("cp starts");
        assert!(copied.success());
    };
    let results = real.path("results");
    let run = |text: &str| {
        fs::write(project.join("main.sh"), format!("echo {text} > model.txt")).expect("the directory exists");
        let project = project.display().to_string();
        let job = real.ok(&["submit", "-q", "-m", "16M", &project, "sh", "--", "main.sh"]);
        real.wait_for_job(&job, "completed");
        job
    };
    real.kill_head();
    copy("head", "backup");
    real.run_head();
    real.wait_for_node("n1", "up");
    let first = run("precious");
    real.ok(&["fetch", &first, "--to", &results]);
    let restore = |state: &str| {
        real.kill_head();
        hostler_snapshot::remove_tree(&real.home.path("head")).expect("the head has ended");
        copy("backup", "head");
        real.run_head();
        real.wait_for_node("n1", state);
    };
    restore("up");
    let number = |job: &str| job.parse::<u64>().expect("a number");
    assert!(number(&run("other")) > number(&first), "the node still knows that the first job had its number");
    assert!(real.fails(&["fetch", &first, "--to", &results]).contains("no job"));
    let model = real.home.path("results").join(&first).join("model.txt");
    assert_eq!(fs::read_to_string(model).expect("it stays"), "precious\n");

    // A node still runs a job that the restored head does not know.
    let done = real.home.path("done");
    let script = format!("while [ ! -e {0}.go ]; do sleep 0.1; done; touch {0}; sleep 600", done.display());
    let running = real.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", &script]);
    real.wait_for_job(&running, "running");
    restore("drained");
    real.wait_for_log("head", "goes on, and the node gets no other jobs until it is resumed");
    fs::write(done.with_extension("go"), "").expect("the directory exists");
    wait_until("the unknown job to go on", 30, || done.exists().then_some(()));
    let node: Value = serde_json::from_str(&real.ok(&["node", "show", "n1", "--json"])).expect("JSON");
    assert_eq!(node["state"], "drained", "{node:#}");
    let why = node["drain"]["reason"].as_str().unwrap_or_else(|| panic!("{node:#}"));
    assert!(why.contains(&running) && why.contains("`hostler node resume n1` ends"), "{why}");
    // An operator has looked at it.
    let resumed = real.home.run(&["--head", &real.address, "node", "resume", "n1"]);
    assert!(resumed.code == 0 && resumed.stderr.contains(why), "{resumed:?}");
    real.wait_for_log("n1", "the head does not know this run");
    assert!(number(&run("third")) > number(&running), "the number of the unknown job is not used again");
    kill_child(agent);
}

/// Ends a loop when it goes, also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nothing_is_lost_or_doubled_when_the_program_and_the_address_change_under_load() {
    let programs = tempfile::tempdir().expect("a temporary directory");
    let program = programs.path().join("hostler");
    fs::copy(HOSTLER, &program).expect("the program can be copied");
    let real = RealCluster::start(&program.display().to_string());
    let mut agents = ["n1", "n2"].map(|node| (node, real.add_node(node)));
    let (tasks, singles) = (real.path("tasks"), real.path("singles"));
    let noting = format!("echo $HOSTLER_ARRAY_INDEX >> {tasks}; sleep 1");
    let array = real.ok(&["run", "--detach", "-m", "16M", "--array", "0-19", "--", "sh", "-c", &noting]);
    let noting = format!("echo $HOSTLER_JOB_ID >> {singles}; sleep 1");
    let is_over = AtomicBool::new(false);
    let (home, address) = (&real.home, real.address.as_str());
    let submit = || {
        sleep(Duration::from_millis(200));
        let to_head = ["--head", address, "--wait-for-head", "2m"];
        let run = ["run", "--detach", "-m", "16M", "--priority", "1", "--", "sh", "-c", &noting];
        home.ok(&[&to_head[..], &run].concat())
    };
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let submitting = scope.spawn(|| {
            let until_over = || (!is_over.load(Ordering::Relaxed)).then(submit);
            std::iter::from_fn(until_over).collect()
        });
        let over = Over(&is_over);
        let away = Duration::from_secs(6);

        // A package manager puts the new program in the place of the old one.
        let replacement = programs.path().join("new");
        fs::copy(HOSTLER, &replacement).expect("the program can be copied");
        File::options().append(true).open(&replacement).expect("it exists").write_all(b"new").expect("writable");
        fs::rename(&replacement, &program).expect("the test owns both");
        real.kill_head();
        sleep(away);
        real.run_head();
        for (node, agent) in &mut agents {
            agent.kill().expect("it runs");
            agent.wait().expect("it ends");
            *agent = real.run_agent(node);
        }
        agents.iter().for_each(|(node, _)| real.wait_for_node(node, "up"));

        // The head moves, and the nodes join again.
        real.kill_head();
        let settings = fs::read_to_string(real.home.path("head/head.toml")).expect("the head has settings");
        let old = settings.split('"').find(|text| text.starts_with("127.0.0.1:")).expect("an address");
        let moved = settings.replace(old, &format!("127.0.0.1:{}", free_port()));
        fs::write(real.home.path("head/head.toml"), moved).expect("the test owns the file");
        sleep(away);
        real.run_head();
        for (node, _) in &agents {
            let joined = real.join(node, &real.ok(&["node", "invite", node]), &[], |_| {});
            assert_eq!(joined.code, 0, "{joined:?}");
            real.wait_for_node(node, "up");
        }
        drop(over);
        submitting.join().expect("each submission is acknowledged")
    });
    assert!(acknowledged.len() > 5, "{acknowledged:?}");
    for job in acknowledged.iter().chain([&array]) {
        assert_eq!(real.home.run(&["--head", address, "wait", job]).code, 0, "job {job}");
    }
    let lines = |path: &str| {
        let text = fs::read_to_string(path).expect("jobs have written");
        let mut all: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(lines(&tasks), (0..20).collect::<Vec<_>>(), "each task has run once");
    let mut expected: Vec<u64> = acknowledged.iter().map(|id| id.parse().expect("a number")).collect();
    expected.sort_unstable();
    assert_eq!(lines(&singles), expected, "each acknowledged job has run once, and no other job");
    for job in &acknowledged {
        let shown = real.json(&["job", job]);
        assert_eq!(shown["started_at"], shown["tasks_shown"][0]["started_at"], "{shown}");
        let ms = |name: &str| shown[name].as_i64().unwrap_or_else(|| panic!("{shown}"));
        let ran = ms("ended_at") - ms("started_at");
        assert!((950..5_000).contains(&ran), "{ran} ms without the time of the head's absence: {shown}");
    }
    for (_, agent) in agents {
        kill_child(agent);
    }
}

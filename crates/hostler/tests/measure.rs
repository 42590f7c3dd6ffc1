//! Measurement certificates of exclusive jobs, `hostler measure`, and machines that are made quiet.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hostler_testkit::{Cluster, RealCluster, Size, end, kill, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A process outside of Hostler that uses as much CPU time as it gets, until it is dropped.
struct Noise(Child);

impl Noise {
    fn start() -> Self {
        let mut command = Command::new("sh");
        Self(command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().expect("there is a shell"))
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        // It is a child of this process, so nothing else has its pid.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that uses some CPU time, so that the counters of the kernel mean something.
const BUSY: &str = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\n";

fn certificate(cluster: &Cluster, job: &str) -> Value {
    cluster.json(&["job", job])["tasks_shown"][0]["certificate"].clone()
}

#[test]
fn exclusive_job_names_the_noise_beside_it() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let project = cluster.path("project");
    fs::create_dir(&project).expect("the test owns the directory");
    let program = format!("open('measurement.json', 'w').write('of the job')\n{BUSY}");
    fs::write(project.join("main.py"), program).expect("the test owns the directory");
    let noise = Noise::start();
    let job =
        cluster.ok(&["submit", "--exclusive", "-m", "100M", project.to_str().expect("text"), "main.py", "--wait"]);
    let job = job.trim();
    drop(noise);

    let made = certificate(&cluster, job);
    assert_eq!(made["verdict"], "noisy", "{made:#}");
    let others = made["reasons"].as_array().expect("a list").iter().filter_map(Value::as_str);
    assert!(others.clone().any(|reason| reason.starts_with("other processes used")), "{made:#}");
    assert!(
        made["run"]["cpu_us"].as_u64() > Some(100_000) && made["run"]["minor_faults"].as_u64() > Some(0),
        "{made:#}"
    );
    assert!(made["machine"]["kernel"].is_string() && made["before"]["probe"]["duration_us"].is_u64(), "{made:#}");
    // Every figure is known or listed as unknown.
    let unknown = made["unknown"].as_array().expect("a list");
    for (figure, name) in
        [(&made["after"]["temperature_mc"], "temperature"), (&made["machine"]["governor"], "frequency governor")]
    {
        assert_eq!(figure.is_null(), unknown.iter().any(|it| it == name), "{name}: {made:#}");
    }
    assert!(cluster.ok(&["job", job]).contains("measured   noisy: other processes used"));

    let out = cluster.path("out");
    cluster.ok(&["fetch", job, "--to", out.to_str().expect("text")]);
    let read = |name: &str| fs::read_to_string(out.join(job).join(name)).expect(name);
    assert_eq!(read("measurement.json"), "of the job", "the job's own file keeps its name");
    let delivered: Value = serde_json::from_str(&read("hostler-measurement.json")).expect("JSON");
    assert_eq!(delivered, made);

    let job = cluster.ok(&["run", "--detach", "-m", "100M", "--", "true"]);
    cluster.wait_for_state(job.trim(), "completed");
    assert!(certificate(&cluster, job.trim()).is_null(), "only exclusive jobs are measured");
}

/// A command line that measures six runs.
fn measure<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&["measure", "-n", "6", "--warmup", "1", "-m", "100M"], options].concat()
}

#[test]
fn commands_are_measured_compared_and_their_failures_shown() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, memory: "400M", ..Size::default() });
    let text = cluster.ok(&measure(&["--", "sh", "-c", "echo to nobody"]));
    for part in ["6 runs after 1 warm-up on node n1, job 1\n", "median  ", "spread  ", "used  ", "\nmeasured  "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("to nobody"), "{text}");

    // The option `--json` belongs before the command.
    let made = cluster.ok(&measure(&["--json", "--seed", "3", "--against", "sleep '0.05'", "--", "true"]));
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let [one, other] = [0, 1].map(|at| made["commands"][at]["runs"].as_array().expect("a list").len());
    assert_eq!((one, other, &made["seed"]), (6, 6, &Value::from(3)), "{made:#}");
    assert_eq!(made["commands"][1]["command"], json!(["sleep", "0.05"]));
    assert!(made["commands"][1]["summary"]["median_s"].as_f64() >= Some(0.05), "{made:#}");
    assert_eq!(made["comparison"]["shows_difference"], true, "{made:#}");
    assert!(made["certificate"]["verdict"].is_string(), "{made:#}");

    let shown = cluster.run(&measure(&["--show-output", "--", "echo", "to everybody"]));
    assert_eq!((shown.code, shown.stderr.matches("to everybody").count()), (0, 7), "{shown:?}");
    let failed = cluster.fails(&measure(&["--", "sh", "-c", "echo oops; exit 3"]));
    assert!(
        failed.contains("warm-up run 1 of 1 of `sh -c 'echo oops; exit 3'` failed: exit code 3")
            && failed.contains("oops"),
        "{failed}"
    );
    // More output than the job has memory. Then the third measured run fails, beside the other command.
    let counted = cluster.path("counted");
    let chatty = format!(
        "head -c 600M /dev/zero; echo >> {0}; [ $(wc -l < {0}) -ne 4 ] || {{ echo flaky; exit 3; }}",
        counted.display()
    );
    let flaky = cluster.run(&measure(&["--json", "--against", "true", "--", "sh", "-c", &chatty]));
    assert!(flaky.stderr.contains("run 3 of 6 of `sh -c") && flaky.stderr.contains("failed: exit code 3"), "{flaky:?}");
    let made: Value = serde_json::from_str(&flaky.stdout).expect("JSON");
    let failed = &made["failed"];
    assert_eq!((&failed["command"], &failed["run"], &failed["warmup"]), (&json!(0), &json!(3), &json!(false)));
    assert!(failed["output"].as_str().expect("text").ends_with("flaky"), "{made:#}");
    assert_eq!(made["commands"][0]["runs"].as_array().map(Vec::len), Some(2), "{made:#}");
    assert!(cluster.fails(&measure(&["--against", "it's", "--", "true"])).contains("the quote ' does not end"));

    let noise = Noise::start();
    let busy = format!("python3 -c '{BUSY}'");
    let noisy =
        cluster.run(&["measure", "-n", "1", "--warmup", "0", "--require-quiet", "1", "-m", "100M", "sh", "-c", &busy]);
    drop(noise);
    assert_eq!(noisy.code, 1, "{noisy:?}");
    assert!(noisy.stderr.contains("measuring again") && noisy.stdout.contains("median"), "{noisy:?}");
    assert!(noisy.stderr.contains("node n1 was not quiet in 2 measurements: noisy: other processes used"), "{noisy:?}");
}

#[test]
fn nodes_of_one_model_are_compared_and_drawn() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 2, ..Size::default() });
    let file = cluster.path("times.svg");
    let plot = file.to_str().expect("text");
    let made = cluster.ok(&measure(&["--json", "--on-each", "n[1-9]", "--plot", plot, "--", "sleep", "0.01"]));
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let nodes: Vec<&Value> = made["measurements"].as_array().expect("a list").iter().map(|it| &it["node"]).collect();
    assert_eq!(nodes, ["n1", "n2"], "{made:#}");
    // Both nodes are this machine.
    let model = &made["models"][0];
    assert_eq!((&model["nodes"], &model["differs"]), (&json!(["n1", "n2"]), &json!({})), "{made:#}");
    assert!(model["comparison"]["result"].is_string(), "{made:#}");
    assert!(fs::read_to_string(&file).expect("the plot").starts_with("<svg "));

    let text = cluster.ok(&measure(&["--on-each", "*", "--tolerance", "100%", "--", "sleep", "0.01"]));
    for part in ["6 runs after 1 warm-up on each node\n", "\nn2  ", "\nresults   "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // A failure on one node ends the jobs on the others.
    let program = "case $HOSTLER_NODE in n1) exit 3;; esac; exec sleep 3600";
    let failed = cluster.fails(&measure(&["--on-each", "*", "--", "sh", "-c", program]));
    assert!(failed.contains("failed: exit code 3") && failed.contains("cancelling job"), "{failed}");
    // A job that is killed shows the times so far, too.
    let counted = cluster.path("counted");
    let deadly = format!("echo >> {0}; [ $(wc -l < {0}) -ne 4 ] || kill -9 $PPID", counted.display());
    let killed = cluster.run(&measure(&["--", "sh", "-c", &deadly]));
    assert!(killed.code == 1 && killed.stdout.contains("of 6 runs after 1 warm-up on node n1"), "{killed:?}");
    assert!(cluster.fails(&measure(&["--on-each", "x*", "--", "true"])).contains("no node matches x*"));
}

/// Settings of a made-up machine: path, value before, value during a job.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "schedutil", "performance"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "madvise", "never"),
    ("proc/sys/vm/stat_interval", "1", "10"),
];

fn values(tree: &Path) -> [String; 3] {
    SETTINGS.map(|(path, ..)| fs::read_to_string(tree.join(path)).expect("it exists").trim().to_owned())
}

/// Starts the agent with this table `quiet_machine`, and waits until the head knows.
fn start_agent(cluster: &RealCluster, quiet_machine: &str) -> Child {
    let settings = format!("[quiet_machine]\n{quiet_machine}\n");
    fs::write(cluster.path("n1/agent.toml"), settings).expect("the test owns the directory");
    let agent = cluster.run_agent("n1");
    wait_until("the agent to connect", 30, || {
        let nodes = cluster.json(&["nodes"]);
        let node = nodes.as_array()?.first()?;
        (node["agent_pid"] == agent.id() && node["state"] == "up").then_some(())
    });
    agent
}

#[test]
fn machine_is_quiet_during_a_job_and_as_before_after_it_and_after_crashes() {
    assert!(nix::unistd::geteuid().is_root(), "only agents of root change settings of their machine");
    let cluster = RealCluster::start(HOSTLER);
    let tree = cluster.home.path("tree");
    for (path, before, _) in SETTINGS.into_iter().chain([("dev/cpu_dma_latency", "", "")]) {
        fs::create_dir_all(tree.join(path).parent().expect("a parent")).expect("the test owns the directory");
        fs::write(tree.join(path), format!("{before}\n")).expect("the test owns the directory");
    }
    let (before, during) = (SETTINGS.map(|it| it.1), SETTINGS.map(|it| it.2));
    let job = ["run", "--exclusive", "--quiet-machine", "-m", "64M"];
    let first = cluster.add_node("n1");
    let refused = cluster.fails(&[&job[..], &["--", "true"]].concat());
    assert!(
        refused
            .contains("node n1: it lists nothing that jobs may ask for; an admin of the node adds `[quiet_machine]`"),
        "{refused}"
    );
    end(first);
    let knobs = format!(
        "root = {:?}\nknobs = [\"vm-stat\", \"governor\", \"huge-pages\", \"boost\", \"idle-states\"]",
        tree.display().to_string()
    );
    let mut agent = start_agent(&cluster, &knobs);

    // The program begins with a quiet machine.
    let cat = format!("cd {}; cat {}", tree.display(), SETTINGS.map(|it| it.0).join(" "));
    let seen = cluster.ok(&[&job[..], &["--", "sh", "-c", &cat]].concat());
    assert_eq!(seen.lines().collect::<Vec<_>>(), during);
    assert_eq!(values(&tree), before, "its end is told after the settings are restored");
    let text = cluster.ok(&["job", "1"]);
    assert!(
        text.contains("machine    changed governor, huge-pages, idle-states, vm-stat; not offered: boost"),
        "{text}"
    );
    let made = cluster.json(&["job", "1"])["tasks_shown"][0]["certificate"].clone();
    let changes = made["quiet_machine"]["changes"].as_array().expect("a list");
    let governor = serde_json::json!({
        "knob": "governor", "path": format!("/{}", SETTINGS[0].0), "files": 1, "before": "schedutil",
        "during": "performance",
    });
    assert_eq!((&changes[0], changes.len()), (&governor, 4), "{made:#}");
    assert_eq!(made["quiet_machine"]["not_restored"], serde_json::json!([]), "{made:#}");

    let begin = |name: &str| {
        let started = cluster.home.path(name);
        let script = format!(
            "echo $PPID > {0}.new; mv {0}.new {0}; until [ -e {0}-go ]; do sleep 0.05; done",
            started.display()
        );
        let id = cluster.ok(&[&job[..], &["--detach", "--", "sh", "-c", &script]].concat());
        let shepherd =
            wait_until("the job to run", 30, || fs::read_to_string(&started).ok()?.trim().parse::<u32>().ok());
        assert_eq!(values(&tree), during);
        (id.trim().to_owned(), shepherd)
    };
    let restored = || wait_until("the settings to be restored", 30, || (values(&tree) == before).then_some(()));

    // The agent is killed. The job goes on, and so does its quiet machine, until the next agent sees its end.
    let (id, _) = begin("agent");
    end(agent);
    agent = start_agent(&cluster, &knobs);
    assert_eq!(values(&tree), during);
    fs::write(cluster.home.path("agent-go"), "").expect("the test owns the directory");
    cluster.wait_for_job(&id, "completed");
    assert_eq!(values(&tree), before);
    let made = cluster.json(&["job", &id])["tasks_shown"][0]["certificate"].clone();
    assert_eq!(made["verdict"], "unknown", "{made:#}");
    assert_eq!(made["quiet_machine"]["changes"].as_array().map(Vec::len), Some(4), "{made:#}");

    // The shepherd is killed, and then both, the agent first. Somebody else changes a setting, which stays.
    let (id, shepherd) = begin("shepherd");
    kill(shepherd, Signal::SIGKILL);
    restored();
    cluster.wait_for_job(&id, "node_fail");
    let (_, shepherd) = begin("both");
    end(agent);
    kill(shepherd, Signal::SIGKILL);
    fs::write(tree.join(SETTINGS[0].0), "powersave\n").expect("the test owns the directory");
    assert_eq!(values(&tree)[1..], during[1..]);
    agent = start_agent(&cluster, &knobs);
    assert_eq!(values(&tree), ["powersave", before[1], before[2]], "restored before the agent connects");
    assert!(!Path::new(&cluster.path("n1/quiet.json")).exists());

    // The real machine, with a setting that nothing else on it changes.
    end(agent);
    agent = start_agent(&cluster, "knobs = [\"vm-stat\"]");
    let real = "/proc/sys/vm/stat_interval";
    let old = fs::read_to_string(real).expect("Linux has it");
    let seen = cluster.ok(&[&job[..], &["--", "cat", real]].concat());
    let is_writable = fs::OpenOptions::new().write(true).open(real).is_ok();
    assert_eq!(seen.trim(), if is_writable { "10" } else { old.trim() });
    assert_eq!(fs::read_to_string(real).expect("Linux has it"), old);
    end(agent);
}

//! Measurement certificates of exclusive jobs, and `hostler measure`.

use std::fs;
use std::process::{Child, Command, Stdio};

use hostler_testkit::{Cluster, Size};
use serde_json::Value;

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
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
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
    assert_eq!(made["commands"][1]["command"], serde_json::json!(["sleep", "0.05"]));
    assert!(made["commands"][1]["summary"]["median_s"].as_f64() >= Some(0.05), "{made:#}");
    assert_eq!(made["comparison"]["shows_difference"], true, "{made:#}");
    assert!(made["certificate"]["verdict"].is_string(), "{made:#}");

    let shown = cluster.run(&measure(&["--show-output", "--", "echo", "to everybody"]));
    assert_eq!((shown.code, shown.stderr.matches("to everybody").count()), (0, 7), "{shown:?}");
    let failed = cluster.fails(&measure(&["--", "sh", "-c", "echo oops; exit 3"]));
    assert!(
        failed.contains("a run of `sh -c 'echo oops; exit 3'` failed: exit code 3") && failed.contains("oops"),
        "{failed}"
    );
    assert!(cluster.fails(&measure(&["--against", "it's", "--", "true"])).contains("the quote ' does not end"));

    let noise = Noise::start();
    let busy = format!("python3 -c '{BUSY}'");
    let noisy =
        cluster.run(&["measure", "-n", "1", "--warmup", "0", "--require-quiet", "1", "-m", "100M", "sh", "-c", &busy]);
    drop(noise);
    assert_eq!(noisy.code, 1, "{noisy:?}");
    assert!(noisy.stderr.contains("measuring again") && noisy.stdout.contains("median"), "{noisy:?}");
    assert!(
        noisy.stderr.contains("the node was not quiet in 2 measurements: noisy: other processes used"),
        "{noisy:?}"
    );
}

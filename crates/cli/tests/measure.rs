//! Measurement certificates of exclusive jobs.

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

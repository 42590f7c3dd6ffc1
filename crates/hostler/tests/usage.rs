//! Figures over time of real jobs and nodes. Needs root, and accounts that every Debian has.

use std::os::unix::process::CommandExt;
use std::process::Command;

use hostler_testkit::{Cluster, SharedCluster, Size, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Two accounts without processes of their own.
const ADA: &str = "games";
const BOB: &str = "news";

/// Figures arrive within a minute, with a random delay.
const ARRIVAL_SECONDS: u64 = 150;

/// Takes memory and burns one CPU.
const PROGRAM: &str =
    "import time\nblock = bytearray(150 << 20)\nend = time.monotonic() + 25\nwhile time.monotonic() < end:\n    pass\n";

/// Asks the head on a socket as a user. Returns the HTTP status and the body.
fn ask(socket: &std::path::Path, uid: u32, path: &str) -> (u16, Value) {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "-w", "\n%{http_code}", "--unix-socket"]).arg(socket);
    command.arg(format!("http://hostler/api/v1{path}")).uid(uid).gid(uid).current_dir("/");
    let output = command.output().expect("curl is installed");
    let text = String::from_utf8(output.stdout).expect("text");
    let (body, status) = text.rsplit_once('\n').expect("a status");
    (status.parse().expect("a status"), serde_json::from_str(body).unwrap_or_default())
}

/// The series of a metric.
fn series<'a>(usage: &'a Value, name: &str) -> Option<&'a Value> {
    usage["series"].as_array()?.iter().find(|series| series["name"] == name)
}

/// The highest value of a metric.
fn highest(usage: &Value, name: &str) -> f64 {
    let values = series(usage, name).and_then(|series| series["max"].as_array()).into_iter().flatten();
    values.filter_map(Value::as_f64).fold(0.0, f64::max)
}

#[test]
fn curve_of_a_job_shows_what_it_used_to_its_owner_only() {
    let uid = |user: &str| nix::unistd::User::from_name(user).expect("readable").expect("on every Debian").uid.as_raw();
    let cluster = SharedCluster::up(HOSTLER, &[]);
    cluster.write(ADA, "burn/main.py", PROGRAM);
    let folder = cluster.home_of(ADA).join("burn");
    let id = cluster.ok(ADA, &["submit", &folder.to_string_lossy(), "main.py", "-c", "1", "-m", "300M"]);
    let socket = cluster.path("head.sock");
    let path = format!("/jobs/{id}/tasks/0/usage");
    let as_user = |user: &str, path: &str| ask(&socket, uid(user), path);

    wait_until("the job to run", 60, || (cluster.job(&id)["state"] == "running").then_some(()));
    let live = Command::new("curl")
        .args(["-sN", "--max-time", "5", "--unix-socket"])
        .arg(&socket)
        .arg(format!("http://hostler/api/v1{path}/live"))
        .output()
        .expect("curl is installed");
    let live = String::from_utf8(live.stdout).expect("text");
    let readings: Vec<Value> =
        live.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert!(readings.len() >= 2, "one reading per second: {live}");
    assert!(readings.last().is_some_and(|last| last["values"]["cpu"].as_f64() > Some(0.05)), "{live}");

    let usage = wait_until("the job's curve", ARRIVAL_SECONDS, || {
        let (status, usage) = as_user(ADA, &path);
        assert_eq!(status, 200, "{usage}");
        (highest(&usage, "memory") >= 140e6 && highest(&usage, "cpu") > 0.05).then_some(usage)
    });
    assert!(highest(&usage, "memory") <= 310e6 && highest(&usage, "cpu") <= 2.0, "{usage}");
    assert_eq!(
        series(&usage, "memory").map(|series| series["limit"].clone()),
        Some(Value::from(300_u64 << 20).as_f64().into())
    );
    assert_eq!(series(&usage, "cpu").map(|series| series["unit"].clone()), Some("cpus".into()));
    cluster.ok(ADA, &["wait", &id]);
    for path in [path.clone(), format!("{path}/live")] {
        let (status, refusal) = as_user(BOB, &path);
        assert_eq!((status, refusal["code"].as_str()), (403, Some("not_yours")), "{path}: {refusal}");
    }
    let (status, refusal) = as_user(ADA, &format!("{path}/live"));
    assert_eq!((status, refusal["code"].as_str()), (409, Some("not_running")));

    // The pages draw the same curve.
    let page = |user: &str, page: &str| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--unix-socket"]).arg(&socket).arg(format!("http://hostler{page}"));
        let output = command.uid(uid(user)).gid(uid(user)).current_dir("/").output().expect("curl is installed");
        String::from_utf8(output.stdout).expect("text")
    };
    let drawn = page(ADA, &path);
    assert!(drawn.contains("<svg") && drawn.contains("limit 300 MiB") && !drawn.contains("style="), "{drawn}");
    assert!(!page(BOB, &path).contains("<svg"));
}

#[test]
fn curves_survive_restarts_of_agents_and_head() {
    let size = Size { nodes: 1, ..Size::default() };
    let cluster = Cluster::up(HOSTLER, size);
    let socket = cluster.path("run/hostler/head.sock");
    let measured = || {
        let (_, usage) = ask(&socket, 0, "/nodes/n1/usage");
        let means = series(&usage, "memory").and_then(|series| series["mean"].as_array()).into_iter().flatten();
        means.filter(|mean| mean.is_number()).count()
    };
    let more =
        |than: usize| wait_until("another minute", ARRIVAL_SECONDS, || Some(measured()).filter(|now| *now > than));
    let first = more(0);
    for pid in cluster.agent_pids() {
        cluster.kill_9(pid);
    }
    cluster.kill_9(cluster.head_pid());
    cluster.start(size);
    wait_until("the head to answer", 30, || (measured() >= first).then_some(()));
    more(first);
}

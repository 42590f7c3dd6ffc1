//! Nodes that are switched on for waiting jobs and off when idle: real agents and a real head.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use hostler_testkit::{Cluster, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A cluster of nodes with one CPU each. All have connected once and are off.
fn asleep(nodes: usize) -> Cluster {
    let cluster = Cluster::none(HOSTLER);
    up(&cluster, nodes);
    wait_until("all nodes to be off", 60, || (power(&cluster).values().all(|power| power == "off")).then_some(()));
    cluster
}

fn up(cluster: &Cluster, nodes: usize) {
    cluster.ok(&["up", "--elastic", "--nodes", &nodes.to_string(), "--cpus", "1", "--memory", "256M"]);
    // Shorter than users want to watch. The head reads changes at once.
    let policy = cluster.path("state/hostler/head/power.toml");
    let text = fs::read_to_string(&policy).expect("the command has written it").replace("\"10s\"", "\"3s\"");
    fs::write(policy, text).expect("it is ours");
}

/// The power state of each node.
fn power(cluster: &Cluster) -> BTreeMap<String, String> {
    let nodes = cluster.json(&["nodes"]);
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    nodes.as_array().expect("a list").iter().map(|node| (text(&node["name"]), text(&node["power"]))).collect()
}

fn starts(cluster: &Cluster) -> BTreeMap<String, u64> {
    let energy = cluster.json(&["info", "--energy"]);
    let nodes = energy["nodes"].as_object().expect("by node");
    nodes.iter().map(|(name, power)| (name.clone(), power["starts"].as_u64().expect("a number"))).collect()
}

fn sleeper(cluster: &Cluster, seconds: &str) -> String {
    cluster.ok(&["run", "--detach", "-c", "1", "-m", "16M", "--", "sh", "-c", &format!("sleep {seconds}; echo done")])
}

#[test]
fn as_many_nodes_start_as_the_queue_needs_and_all_stop_again() {
    let cluster = asleep(3);
    let first = sleeper(&cluster, "2");
    // At once, because a virtual node starts within a second.
    wait_until("the reason for the wait", 30, || {
        let why = cluster.ok(&["why", &first]);
        (why.contains("waking n1") && why.contains("so far")).then_some(())
    });
    let jobs = [first, sleeper(&cluster, "2")];
    for job in &jobs {
        assert_eq!(cluster.ok(&["wait", job]), "");
        assert_eq!(cluster.ok(&["logs", job]), "done");
    }
    assert_eq!(starts(&cluster).into_values().collect::<Vec<_>>(), [1, 1, 0], "only as many as needed");
    wait_until("all nodes to be off again", 60, || {
        (power(&cluster).values().all(|power| power == "off")).then_some(())
    });
    let nodes = cluster.json(&["nodes"]);
    let states: Vec<_> = nodes.as_array().expect("a list").iter().map(|node| &node["state"]).collect();
    assert_eq!(states, ["off"; 3], "switched off, not lost");
    assert_eq!(
        (cluster.json(&["info"])["nodes"]["off"].as_u64(), cluster.json(&["info"])["nodes"]["down"].as_u64()),
        (Some(3), Some(0))
    );
    // `up` changes nothing in a running cluster whose nodes are off.
    cluster.ok(&["up"]);
    assert!(power(&cluster).len() == 3 && power(&cluster).values().all(|power| power == "off"));
    // By now the boot times are known, and `info --energy` shows savings. All nodes are needed, since a slow one
    // could be avoided.
    let job = cluster.ok(&["run", "--detach", "-N", "3", "-m", "16M", "--", "true"]);
    let why = cluster.ok(&["why", &job]);
    assert!(why.contains("usually ready in"), "{why}");
    cluster.ok(&["wait", &job]);
    let energy = cluster.ok(&["info", "--energy"]);
    assert!(energy.contains("power.toml has no `watts`"), "{energy}");
    assert_eq!(cluster.json(&["info", "--energy"])["cost"], Value::Null, "without a price, nothing costs anything");
    let policy = cluster.path("state/hostler/head/power.toml");
    let text = fs::read_to_string(&policy).expect("it is ours");
    fs::write(&policy, format!("price = 310\ncurrency = \"EUR\"\n{text}")).expect("it is ours");
    wait_until("the head to read the price", 10, || {
        cluster.ok(&["info", "--energy"]).contains(" EUR drawn, ").then_some(())
    });
    let history = cluster.ok(&["history"]);
    assert!(history.contains("ENERGY COST") && history.contains(" EUR"), "{history}");
    let energy = cluster.json(&["info", "--energy"]);
    let rows = energy["nodes"].as_object().expect("by node");
    for figure in ["watts", "watt_hours", "measured_watt_hours"] {
        let sum: u64 = rows.values().map(|row| row[figure].as_u64().expect("a number")).sum();
        assert_eq!(energy[figure].as_u64(), Some(sum), "{figure} adds up: {energy}");
    }
}

#[test]
fn no_job_is_lost_and_no_busy_node_stops_when_the_head_is_killed() {
    let cluster = asleep(3);
    let log = cluster.path("log");
    let work = |n: u32| format!("sleep {}; echo {n} >> {}", 1 + n % 3, log.display());
    let jobs: Vec<String> =
        (0..9).map(|n| cluster.ok(&["run", "--detach", "-c", "1", "-m", "16M", "--", "sh", "-c", &work(n)])).collect();
    for round in 0..10_u64 {
        std::thread::sleep(Duration::from_millis(200 + 370 * (round * 7 % 5)));
        cluster.kill_9(cluster.head_pid());
        up(&cluster, 3);
    }
    for job in &jobs {
        cluster.ok(&["wait", job]);
        assert_eq!(cluster.state(job), "completed");
    }
    let mut lines: Vec<u32> = fs::read_to_string(&log)
        .expect("the jobs wrote the log")
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, (0..9).collect::<Vec<_>>(), "each task has run once");
    wait_until("all nodes to be off again", 90, || {
        (power(&cluster).values().all(|power| power == "off")).then_some(())
    });
    let starts = starts(&cluster);
    assert!(starts.values().all(|starts| *starts <= 3), "none flaps: {starts:?}");
}

#[test]
fn manual_power_off_is_refused_while_a_task_runs() {
    let cluster = asleep(2);
    let on = cluster.json(&["node", "power", "n1", "on"]);
    assert!(["up", "idle"].contains(&on["power"].as_str().expect("a word")), "{on}");
    let script = "while [ ! -e release ]; do sleep 0.05; done";
    let job = cluster.ok(&["run", "--detach", "-c", "1", "-m", "16M", "--", "sh", "-c", script]);
    cluster.wait_for_state(&job, "running");
    for force in [&["node", "power", "n1", "off"][..], &["node", "power", "n1", "off", "--force"]] {
        let refusal = cluster.fails(force);
        assert!(refusal.contains("has 1 task"), "{refusal}");
    }
    cluster.write("release", "");
    cluster.ok(&["wait", &job]);
    let began = Instant::now();
    assert_eq!(cluster.json(&["node", "power", "n1", "off"])["power"], "off");
    assert!(began.elapsed() < Duration::from_secs(20));
    let test = cluster.json(&["node", "power-test", "n2"]);
    assert_eq!(
        (test["boot_ms"].as_array().map(Vec::len), test["stop_ms"].as_array().map(Vec::len)),
        (Some(2), Some(2))
    );
    let refusal = cluster.fails(&["node", "forget", "n2"]);
    assert!(refusal.contains("power.toml"), "{refusal}");
}

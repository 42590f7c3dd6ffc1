//! Countable resources from the configuration, e.g. licences and cameras. The second test needs root.

use std::fs;

use hostler_testkit::{Cluster, SharedCluster, Size, wait_until};
use serde_json::json;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

#[test]
fn jobs_reserve_countable_resources() {
    let cluster = Cluster::none(HOSTLER);
    let sizes = ["up", "--nodes", "2", "--cpus", "4", "--memory", "1G"];
    cluster.ok(&[&sizes[..], &["--resource", "license=2,camera"]].concat());
    let node = &cluster.json(&["nodes"])[0];
    assert_eq!((&node["counted"], &node["counted_free"]), (&json!({"camera": 1, "license": 2}), &node["counted"]));
    assert!(cluster.ok(&["nodes"]).contains("RESOURCES") && cluster.ok(&["nodes"]).contains("camera 1/1,license 2/2"));
    assert!(cluster.ok(&["info"]).contains("camera 2 of 2 free, license 4 of 4 free"));

    // A job knows its resources, and `job` shows them.
    let run = ["run", "-m", "16M", "--resource", "license=2", "--resource", "camera", "--"];
    let held = cluster.ok(&[&run[..], &["sh", "-c", "echo $HOSTLER_RESOURCES"]].concat());
    assert_eq!(held, "camera=1,license=2");
    let job = cluster.json(&["job", "1"]);
    assert_eq!(job["counted"], json!({"camera": 1, "license": 2}));
    let limit = job["limits"].as_array().expect("a list").iter().find(|limit| limit["name"] == "license");
    assert_eq!(limit.expect("the resource is a limit")["enforcement"], "advisory", "only the count is enforced");
    let shown = cluster.ok(&["job", "1"]);
    assert!(shown.contains("1 CPU, 16M of memory, camera=1 and license=2"), "{shown}");

    // The number of running tasks never exceeds the resource.
    ["now", "all"].iter().for_each(|name| fs::create_dir(cluster.path(name)).expect("ours"));
    // Each of the first four tasks waits until four run.
    let script = "touch now/$HOSTLER_ARRAY_INDEX all/$HOSTLER_ARRAY_INDEX; while [ $(ls all | wc -l) -lt 4 ]; do sleep 0.05; done; \
                  ls now | wc -l; sleep 0.1; rm now/$HOSTLER_ARRAY_INDEX";
    let array = ["run", "--detach", "-a", "0-19", "-m", "16M", "--resource", "license", "--", "sh", "-c", script];
    let id = cluster.ok(&array);
    cluster.ok(&["wait", &id]);
    let seen: Vec<u32> = (0..20)
        .map(|index| cluster.ok(&["logs", &format!("{id}_{index}")]).trim().parse().expect("a number"))
        .collect();
    assert!(seen.iter().all(|at_once| *at_once <= 4), "{seen:?}");

    // `why` names the missing resource, and `node show` the amount in use.
    let hold = ["run", "--detach", "-m", "16M", "--resource", "camera", "--"];
    let script = "while [ ! -e release ]; do sleep 0.05; done";
    let holders: Vec<String> = (0..2).map(|_| cluster.ok(&[&hold[..], &["sh", "-c", script]].concat())).collect();
    holders.iter().for_each(|id| cluster.wait_for_state(id, "running"));
    let waits = cluster.ok(&[&hold[..], &["true"]].concat());
    let why = cluster.ok(&["why", &waits]);
    for part in ["which lacks camera=1", "A task asks for 1 CPU, 16M of memory and camera=1.", "0 of 1 camera"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let node = cluster.ok(&["node", "show", "n1"]);
    assert!(node.contains("camera 0 of 1 free, license 2 of 2 free") && node.contains("and camera=1"), "{node}");
    cluster.write("release", "");
    cluster.ok(&["wait", &waits]);

    for (asked, part) in [
        ("license=3", ", which has license=2"),
        ("robot", "asks for robot=1; no node has any"),
        ("gpus=1", "`gpus` is reserved for other uses"),
        ("license=x", "not of the form NAME=COUNT"),
    ] {
        let refusal = cluster.fails(&["run", "--resource", asked, "--", "true"]);
        assert!(refusal.contains(part), "{asked}: {refusal}");
    }

    // The nodes keep their resources after a restart.
    cluster.ok(&["down", "--keep"]);
    cluster.start(Size { nodes: 2, cpus: 4, ..Size::default() });
    assert_eq!(cluster.json(&["nodes"])[0]["counted"], json!({}), "unless other sizes are asked for");
}

#[test]
fn agent_reads_resources_from_its_settings() {
    let mut cluster = SharedCluster::up(HOSTLER, &[]);
    let counted = |cluster: &SharedCluster| {
        let node = cluster.ok("root", &["node", "show", "n1", "--json"]);
        serde_json::from_str::<serde_json::Value>(&node).expect("JSON")["counted"].clone()
    };
    assert_eq!(counted(&cluster), json!({}));
    let settings = cluster.path("agent").join("agent.toml");
    fs::write(&settings, "[resources]\nlicense-matlab = 10\ncamera = 1\n").expect("ours");
    let held = ["run", "--detach", "-m", "16M", "--resource", "license-matlab=7", "--"];
    let waits = cluster.run("games", &[&held[..], &["sleep", "600"]].concat());
    assert!(waits.stderr.contains("no node has any"), "{}", waits.stderr);
    cluster.kill_agent();
    cluster.start_agent();
    assert_eq!(counted(&cluster), json!({"camera": 1, "license-matlab": 10}));
    let id = cluster.ok("games", &[&held[..], &["sleep", "600"]].concat());
    let is_running = |cluster: &SharedCluster| (cluster.job(&id)["state"] == "running").then_some(());
    wait_until("the job to run", 30, || is_running(&cluster));

    // After a reduction below the amount in use, the job continues and no other job starts.
    cluster.kill_agent();
    fs::write(&settings, "resources = { license-matlab = 5 }\n").expect("ours");
    cluster.start_agent();
    assert_eq!(counted(&cluster), json!({"license-matlab": 5}));
    assert!(is_running(&cluster).is_some());
    let waits = cluster.ok("games", &["run", "--detach", "-m", "16M", "--resource", "license-matlab", "--", "true"]);
    let why = cluster.ok("games", &["why", &waits]);
    assert!(why.contains("which lacks license-matlab=1"), "{why}");
    cluster.ok("games", &["cancel", &id]);
    cluster.ok("games", &["wait", &waits]);
}

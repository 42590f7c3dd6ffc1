//! Partitions, features and weights, as operators set them and users use them.

use hostler_testkit::{Cluster, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

fn three_nodes() -> Cluster {
    Cluster::up(HOSTLER, Size { nodes: 3, cpus: 2, ..Size::default() })
}

fn done(cluster: &Cluster, arguments: &[&str]) -> String {
    let outcome = cluster.run(arguments);
    assert_eq!(outcome.code, 0, "{arguments:?}: {}", outcome.stderr);
    outcome.stdout
}

fn refused(cluster: &Cluster, arguments: &[&str]) -> String {
    let outcome = cluster.run(arguments);
    assert_ne!(outcome.code, 0, "{arguments:?} is refused: {}", outcome.stdout);
    outcome.stderr
}

#[test]
fn partition_can_be_added_used_changed_and_removed() {
    let cluster = three_nodes();
    let add = ["configure", "partition", "add", "fast", "--nodes", "n[2-3]", "--default", "--max-time", "1h"];
    assert!(cluster.run(&add).stderr.contains("partition fast has 2 nodes, 2 up"));
    let where_am_i = "echo $HOSTLER_NODE $HOSTLER_PARTITION";
    for _ in 0..3 {
        let said = done(&cluster, &["run", "-m", "64M", "sh", "-c", where_am_i]);
        assert!(["n2 fast\n", "n3 fast\n"].contains(&said.as_str()), "the job is in the default partition: {said}");
    }
    assert_eq!(cluster.json(&["job", "1"])["partition"], "fast");
    assert_eq!(cluster.json(&["node", "show", "n2"])["partitions"], serde_json::json!(["fast"]));
    let listed = cluster.json(&["configure", "partition", "list"]);
    assert_eq!(
        (&listed[0]["node_count"], &listed[0]["cpus"], &listed[0]["is_default"]),
        (&2.into(), &4.into(), &true.into())
    );
    assert!(done(&cluster, &["info"]).contains("\nfast*"), "everybody sees the partitions");

    let said = refused(&cluster, &["run", "-t", "2h", "true"]);
    assert!(said.contains("partition fast allows a run time of at most 1h00m, and this job asks for 2h00m"), "{said}");
    let said = refused(&cluster, &["run", "-p", "slow", "true"]);
    assert!(said.contains("there is no partition slow") && said.contains("existing partitions: fast"), "{said}");
    let said = refused(&cluster, &["run", "-p", "a b", "true"]);
    assert!(said.contains("not the name of a partition"), "{said}");
    let said = refused(&cluster, &["configure", "partition", "add", "x", "--nodes", "n[3-1]"]);
    assert!(said.contains("not a list of nodes such as n1,n3 or n[1-4,7]"), "{said}");
    let said = refused(&cluster, &["configure", "partition", "add", "fast", "--nodes", "*"]);
    assert!(said.contains("there is a partition fast already") && said.contains("partition set fast"), "{said}");

    done(&cluster, &["configure", "partition", "set", "fast", "--state", "paused"]);
    done(&cluster, &["run", "--detach", "-m", "64M", "true"]);
    let jobs = cluster.json(&["jobs"]);
    let id = jobs["jobs"][0]["id"].to_string();
    assert!(done(&cluster, &["why", &id]).contains("partition fast is paused"));
    let said = refused(&cluster, &["configure", "partition", "remove", "fast"]);
    assert!(
        said.contains("cannot remove partition fast: 1 job waits in it") && said.contains("--state closed"),
        "{said}"
    );
    done(
        &cluster,
        &["configure", "partition", "set", "fast", "--state", "open", "--default", "no", "--max-time", "none"],
    );
    wait_until("the waiting job to complete", 30, || {
        (cluster.json(&["job", &id])["state"] == "completed").then_some(())
    });
    done(&cluster, &["configure", "partition", "remove", "fast"]);
    assert_eq!(cluster.json(&["configure", "partition", "list"]), serde_json::json!([]));
}

#[test]
fn features_are_set_and_requested() {
    let cluster = three_nodes();
    let on = |cluster: &Cluster, arguments: &[&str]| {
        done(cluster, &[&["run", "-m", "64M"], arguments, &["sh", "-c", "echo $HOSTLER_NODE"]].concat())
    };
    // Among equal nodes, the one that connected first is chosen, which may be any of them.
    done(&cluster, &["node", "set", "n3", "--features", "ssd,rack-2", "--weight", "5"]);
    done(&cluster, &["node", "set", "n1", "--weight", "10"]);
    assert_eq!(on(&cluster, &["--constraint", "ssd&!old"]), "n3\n");
    assert_eq!(on(&cluster, &["--constraint", "n1"]), "n1\n", "a name is a feature");
    assert_eq!(on(&cluster, &[]), "n2\n");
    let arch = std::env::consts::ARCH;
    assert_eq!(on(&cluster, &["--constraint", &format!("{arch}&rack-2")]), "n3\n");
    let said = refused(&cluster, &["run", "--constraint", "tape", "true"]);
    assert!(said.contains("no node that has tape is in the cluster"), "{said}");
    let said = refused(&cluster, &["run", "--constraint", "a&", "true"]);
    assert!(said.contains("not a constraint on the features of nodes"), "{said}");
    let said = refused(&cluster, &["node", "set", "n3"]);
    assert!(said.contains("no change is given"), "{said}");
    let listed = done(&cluster, &["nodes"]);
    assert!(listed.lines().next().is_some_and(|line| line.ends_with("FEATURES")), "{listed}");
    let show = done(&cluster, &["node", "show", "n1"]);
    assert!(show.contains("weight") && show.contains("10"), "{show}");
    // The settings survive a restart of the head.
    done(&cluster, &["down"]);
    done(&cluster, &["up"]);
    assert_eq!(on(&cluster, &["--constraint", "ssd"]), "n3\n");
}

#[test]
fn node_offers_less_until_an_operator_gives_it_back() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 2, ..Size::default() });
    let run = || done(&cluster, &["run", "--detach", "-m", "16M", "--", "sleep", "600"]).trim().to_owned();
    let (first, second) = (run(), run());
    [&first, &second].iter().for_each(|id| cluster.wait_for_state(id, "running"));
    let said = cluster.run(&["node", "set", "n1", "--cpus", "1"]).stderr;
    assert!(said.contains("node n1 offers 1 CPU and "), "{said}");
    let shown = done(&cluster, &["node", "show", "n1"]);
    assert!(shown.contains("offers     at most 1 CPU, as an operator has set"), "{shown}");
    assert_eq!(cluster.json(&["node", "show", "n1"])["offer"], serde_json::json!({"cpus": 1}));
    done(&cluster, &["cancel", &first]);
    let third = run();
    wait_until("the job to wait for a CPU", 10, || {
        done(&cluster, &["why", &third]).contains("lacks 1 CPU").then_some(())
    });
    assert_eq!(cluster.state(&second), "running", "a running job keeps its CPU");
    let said = refused(&cluster, &["run", "-c", "2", "true"]);
    assert!(said.contains("the largest node, n1, has 1 CPU"), "{said}");

    done(&cluster, &["node", "set", "n1", "--cpus", "all"]);
    cluster.wait_for_state(&third, "running");
    let said = refused(&cluster, &["node", "set", "n1", "--cpus", "3"]);
    assert!(said.contains("node n1 cannot offer 3 CPUs, and the node has 2"), "{said}");
    let said = refused(&cluster, &["node", "set", "n1", "--cpus", "few"]);
    assert!(said.contains("`all` offers all that the node has"), "{said}");
    let said = refused(&cluster, &["node", "set", "n1"]);
    assert!(said.contains("no change is given") && said.contains("--cpus"), "{said}");
}

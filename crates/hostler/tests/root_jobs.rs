//! Jobs of root in a cluster where only some nodes accept them. Needs root.

use hostler_testkit::{Host, Network, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

fn states(head: &Host) -> Vec<(String, String)> {
    let nodes = head.json(&["hostler", "nodes"]);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    nodes.as_array().into_iter().flatten().map(|node| (text(&node["name"]), text(&node["state"]))).collect()
}

#[test]
fn jobs_of_root_run_only_on_nodes_that_accept_them() {
    let network = Network::new(HOSTLER);
    let (head, _runs) = network.head();
    let (n1, n2) = (network.host("n1"), network.host("n2"));
    n1.write("/etc/hostler/agent.toml", "cpus = \"0\"\n");
    n2.write("/etc/hostler/agent.toml", "cpus = \"0\"\nroot_jobs = true\n");
    let _agents = [&n1, &n2].map(|node| {
        node.join(&head);
        node.daemon("agent", &["hostler", "agent", "run"])
    });
    let are = |first: &str, second: &str| {
        let wanted = [("n1", first), ("n2", second)].map(|(name, state)| (name.to_owned(), state.to_owned()));
        wait_until("the nodes", 60, || (states(&head) == wanted).then_some(()));
    };
    are("up", "up");

    // Sequentially, while both nodes are free.
    for _ in 0..4 {
        assert_eq!(head.ok(&["hostler", "run", "-m", "64M", "--", "uname", "-n"]), "n2");
    }
    // In parallel: the other node is free but not used.
    let detached = |more: &[&str]| head.ok(&[&["hostler", "run", "--detach", "-m", "64M"], more].concat());
    let all = detached(&["-a", "0-3", "--", "uname", "-n"]);
    assert_eq!(head.run(&["hostler", "wait", &all]).code, 0, "{}", head.ok(&["hostler", "job", &all, "--json"]));
    // A request for the other node is refused.
    let refused = head.run(&["hostler", "run", "--constraint", "n1", "--", "true"]);
    assert!(refused.stderr.contains("no node that this job may use runs jobs of root"), "{refused:?}");

    // If the node is busy, the job waits, and `why` names the node.
    let long = detached(&["--", "sleep", "86400"]);
    let waiting = detached(&["--", "uname", "-n"]);
    let why = head.ok(&["hostler", "why", &waiting]);
    assert!(why.contains("closest is n2, which lacks 1 CPU") && !why.contains("n1"), "{why}");
    // The job also waits, with a reason, if the node is down.
    n2.freeze();
    are("up", "down");
    let why = head.ok(&["hostler", "why", &waiting]);
    assert!(why.contains("n2") && why.contains("down") && !why.contains("n1"), "{why}");
    // Once the node is up and free, the job runs there.
    n2.thaw();
    are("up", "up");
    head.ok(&["hostler", "cancel", &long]);
    assert_eq!(
        head.run(&["hostler", "wait", &waiting]).code,
        0,
        "{}",
        head.ok(&["hostler", "job", &waiting, "--json"])
    );
    assert_eq!(head.ok(&["hostler", "logs", &waiting]), "n2");
}

//! Which node a command runs on.

use std::collections::BTreeMap;

use hostler_testkit::wait_until;
use serde_json::Value;

use crate::machines::{Machines, end_of};

fn counts(text: &str) -> BTreeMap<&str, usize> {
    text.lines().fold(BTreeMap::new(), |mut counts, line| {
        *counts.entry(line).or_default() += 1;
        counts
    })
}

#[test]
fn commands_spread_over_nodes_with_and_without_the_head() {
    let mut machines = Machines::prepared(4, |host| {
        // All hosts share one kernel, but nodes report its load at different moments. With this setting, n1 treats the
        // resulting differences as equal.
        if host.name() == "n1" {
            host.write("/etc/hostler/agent.toml", "[dsh]\ntie = 6000\n");
        }
        // With this setting, n2 weights commands that it has sent more than any load of this machine.
        if host.name() == "n2" {
            host.write("/etc/hostler/agent.toml", "[dsh]\ncall_load = 10000\ncall_ms = 60000\n");
        }
        &[]
    });

    // Among equal nodes the choice is random: of 150 commands on three nodes, each gets about 50; 20 are five
    // standard deviations below.
    let calls =
        machines.start(0, "for i in $(seq 150); do dsh --exclude n1 sh -c 'echo $HOSTLER_NODE' | tee -a ran; done");
    let wait_for = |machines: &Machines, count: usize| {
        wait_until("the commands to run", 60, || (machines.read("ran").lines().count() >= count).then_some(()));
    };
    wait_for(&machines, 50);
    machines.head_daemon.take().expect("the daemon runs").kill_9();
    wait_for(&machines, 100);
    machines.head_daemon = Some(machines.head.daemon("head", &["hostler", "head", "run"]));
    let (outcome, _) = end_of(calls);
    assert!(outcome.code == 0 && outcome.stderr.is_empty(), "{outcome:?}");
    let ran = counts(&outcome.stdout);
    assert_eq!(ran.values().sum::<usize>(), 150, "{ran:?}");
    assert!(["n2", "n3", "n4"].iter().all(|node| ran.get(node) >= Some(&20)), "{ran:?}");

    // Commands that were just sent are counted by their sender before loads show them.
    let ran =
        machines.ok(1, "for i in $(seq 20); do dsh --exclude n2 sh -c 'echo $HOSTLER_NODE; sleep 2' & done; wait");
    let ran = counts(&ran);
    assert_eq!(ran.values().sum::<usize>(), 20, "{ran:?}");
    assert!(ran.len() == 3 && ran.values().all(|count| *count <= 12), "{ran:?}");
}

#[test]
fn node_can_gossip_without_accepting_commands() {
    let mut machines = Machines::of(3);
    machines.kill_agent(1);
    machines.start_agent(1, &["--no-remote-commands"]);
    let load = wait_until("n2 to report the load", 60, || {
        let load = machines.nodes[0].run(&["hostler", "nodes", "--load"]).stdout;
        load.lines().any(|line| line.starts_with("n2 ") && line.contains("live, no commands")).then_some(load)
    });
    assert!(load.lines().any(|line| line.starts_with("n3 ") && !line.contains("no commands")), "{load}");
    let told = machines.ok(0, "dsh --explain true");
    assert!(told.contains("n2") && told.contains("the node's agent accepts no commands"), "{told}");
    let ran = machines.ok(0, "for i in $(seq 20); do dsh sh -c 'echo $HOSTLER_NODE'; done");
    assert!(!ran.contains("n2"), "{ran}");
    let named = machines.run(0, "dsh --node n2 true");
    assert!(named.code == 125 && named.stderr.contains("the node's agent accepts no commands"), "{named:?}");
    let from_there = machines.run(1, "dsh true");
    assert!(
        from_there.stderr.contains("no agent on this machine accepts remote commands; running the command here"),
        "{from_there:?}"
    );

    // Turn remote commands off in the settings file instead, then on again.
    machines.kill_agent(1);
    machines.nodes[1].write("/etc/hostler/agent.toml", "remote_commands = false\n");
    machines.start_agent(1, &[]);
    // Other nodes may still repeat what the previous agent said.
    wait_until("n2 to be live again", 60, || {
        let load = machines.nodes[1].run(&["hostler", "nodes", "--load"]).stdout;
        load.lines().any(|line| line.starts_with("n2*") && line.contains("no commands")).then_some(())
    });
    machines.kill_agent(1);
    machines.nodes[1].write("/etc/hostler/agent.toml", "");
    machines.start_agent(1, &[]);
    // Other nodes learn by gossip that the node accepts commands, and from the head its key; either may come first.
    wait_until("n2 to accept commands again", 60, || {
        let ran = machines.run(0, "dsh --node n2 sh -c 'echo $HOSTLER_NODE'");
        assert!(ran.code == 0 || ran.code == 125, "{ran:?}");
        (ran.stdout == "n2\n").then_some(())
    });
}

#[test]
fn explain_and_where_report_the_choice_of_a_node() {
    let machines = Machines::of(3);
    let told = machines.ok(0, "dsh --explain --exclude n3 gcc -c x.c");
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("NODE") && lines[0].contains("SCORE"), "{told}");
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("n1 (here) ") || line.starts_with("n2 ")).count(),
        2,
        "{told}"
    );
    assert!(lines.contains(&"n3: the node is excluded"), "{told}");
    let choice: Value = serde_json::from_str(&machines.ok(0, "dsh --explain --exclude n3 --json")).expect("JSON");
    assert_eq!(choice["candidates"].as_array().map(Vec::len), Some(2), "{choice}");
    assert_eq!(choice["unfit"][0], serde_json::json!(["n3", "the node is excluded"]), "{choice}");
    assert!(choice["candidates"][0]["score"].as_u64().is_some_and(|score| score >= 1000), "{choice}");

    let ranked = machines.ok(0, "dsh --explain --json --rank 'cpus + 7 * cpus / cpus'");
    let ranked: Value = serde_json::from_str(&ranked).expect("JSON");
    let one = &ranked["candidates"][0];
    assert!(one["score"].as_u64().is_some_and(|score| score >= 8000 && score % 1000 == 0), "{ranked}");
    let negative = machines.run(0, "dsh --rank '-cpus' --node n2 true");
    assert_eq!(negative.code, 125, "{negative:?}");
    assert!(negative.stderr.contains("is negative or not a number"), "{negative:?}");
    let wrong = machines.run(0, "dsh --rank 'lod' true");
    assert!(wrong.code == 2 && wrong.stderr.contains("not lod"), "{wrong:?}");

    for (node, place) in [("n1", "here, score"), ("n2", "(score")] {
        let outcome = machines.run(0, &format!("dsh --report --node {node} sh -c 'echo out; exit 3'"));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "out\n"), "{outcome:?}");
        assert!(outcome.stderr.contains(&format!("ran on {node}")) && outcome.stderr.contains(place), "{outcome:?}");
        let outcome = machines.run(0, &format!("dsh --json --report --node {node} sh -c 'exit 3'"));
        let told: Value = serde_json::from_str(&outcome.stderr).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        assert_eq!((&told["placed"]["node"], &told["ended"]["code"]), (&node.into(), &3.into()), "{told}");
    }
}

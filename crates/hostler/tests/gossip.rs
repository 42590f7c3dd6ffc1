//! Nodes exchange their load by gossip, with and without the head. Hosts in network namespaces; needs root.

use hostler_testkit::{Daemon, Host, Network, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A head and three nodes.
struct Machines {
    head: Host,
    nodes: Vec<Host>,
    agents: Vec<Option<Daemon>>,
    head_daemon: Option<Daemon>,
    // Last: the daemons must end before their hosts.
    _network: Network,
}

impl Machines {
    fn new() -> Self {
        let network = Network::new(HOSTLER);
        let (head, daemon) = network.head();
        let head_daemon = Some(daemon);
        let mut machines = Self { head, nodes: Vec::new(), agents: Vec::new(), head_daemon, _network: network };
        for number in 1..=3 {
            let host = machines._network.host(&format!("n{number}"));
            host.join(&machines.head);
            machines.nodes.push(host);
            machines.agents.push(None);
            machines.start_agent(number - 1);
        }
        machines
    }

    fn start_agent(&mut self, node: usize) {
        self.agents[node] = Some(self.nodes[node].daemon("agent", &["hostler", "agent", "run", "--cpus", "0-1"]));
    }

    /// The loads that a node has received, by name.
    fn heard_by(&self, node: usize) -> Vec<Value> {
        let outcome = self.nodes[node].run(&["hostler", "nodes", "--load", "--json"]);
        let table: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
        table["nodes"].as_array().cloned().unwrap_or_default()
    }

    /// The state of the node `name` as the node `by` sees it: `live`, `gone`, `unheard`; empty if `name` is not a
    /// member.
    fn standing(&self, by: usize, name: &str) -> String {
        let of_name = |node: &&Value| node["name"] == name;
        let word = |node: &Value| node["presence"].as_str().unwrap_or_default().to_owned();
        self.heard_by(by).iter().find(of_name).map_or_else(String::new, word)
    }

    fn wait_for(&self, by: usize, name: &str, standing: &str) {
        wait_until(&format!("{name} to be {standing:?} to n{}", by + 1), 60, || {
            (self.standing(by, name) == standing).then_some(())
        });
    }

    fn wait_for_all(&self) {
        for by in 0..3 {
            ["n1", "n2", "n3"].iter().for_each(|name| self.wait_for(by, name, "live"));
        }
    }
}

#[test]
fn nodes_know_all_loads_with_and_without_the_head() {
    let mut machines = Machines::new();
    machines.wait_for_all();
    let table = machines.nodes[0].ok(&["hostler", "nodes", "--load"]);
    assert!(table.starts_with("NODE") && table.contains("n1*") && table.contains("n3 "), "{table}");

    // Resources that a job reserves on one node are known on another.
    let free = |machines: &Machines| {
        machines
            .heard_by(0)
            .iter()
            .find(|node| node["name"] == "n2")
            .map(|node| node["load"]["cpus_unallocated"].clone())
    };
    wait_until("n1 to know that n2 is free", 30, || (free(&machines) == Some(2.into())).then_some(()));
    machines.head.ok(&["sh", "-c", "mkdir -p /home/games && chown games /home/games"]);
    let user = ["setpriv", "--reuid", "games", "--regid", "games", "--init-groups", "hostler"];
    let run = ["run", "--detach", "--constraint", "n2", "-c", "2", "-m", "64M", "--", "sleep", "600"];
    let id = machines.head.ok(&[&user[..], &run].concat());
    wait_until("n1 to know that n2 is in use", 30, || (free(&machines) == Some(0.into())).then_some(()));
    machines.head.ok(&["hostler", "cancel", id.trim()]);
    wait_until("n1 to know that n2 is free", 30, || (free(&machines) == Some(2.into())).then_some(()));

    // Without the head, members still exchange their load. A silent node becomes `gone`, and returns with the members
    // stored on its disk.
    machines.head_daemon.take().expect("the daemon runs").kill_9();
    machines.agents[2].take().expect("the daemon runs").kill_9();
    machines.wait_for(0, "n3", "gone");
    machines.wait_for(1, "n3", "gone");
    machines.wait_for(0, "n2", "live");
    machines.start_agent(2);
    machines.wait_for_all();

    // Packets of strangers change nothing.
    let port = 7761;
    let flood =
        format!("exec 3<>/dev/udp/n1/{port}; for i in $(seq 300); do head -c $((i % 1400 + 1)) /dev/urandom >&3; done");
    let refused = |machines: &Machines| {
        let table = machines.nodes[0].json(&["hostler", "nodes", "--load"]);
        (table["refused"].as_u64().expect("a count"), table["accepted"].as_u64().expect("a count"))
    };
    let before = refused(&machines);
    // A busy machine may lose packets, so they are sent until enough have arrived.
    wait_until("the packets to be refused", 30, || {
        machines.head.ok(&["bash", "-c", &flood]);
        (refused(&machines).0 >= before.0 + 200).then_some(())
    });
    wait_until("packets of members to be accepted", 30, || (refused(&machines).1 > before.1 + 5).then_some(()));
    machines.wait_for_all();

    // A removed node is no longer a member.
    machines.head_daemon = Some(machines.head.daemon("head", &["hostler", "head", "run"]));
    wait_until("the head to answer", 30, || (machines.head.run(&["hostler", "info"]).code == 0).then_some(()));
    wait_until("the nodes to be linked", 60, || {
        let nodes = machines.head.json(&["hostler", "nodes"]);
        nodes.as_array()?.iter().all(|node| node["state"] == "up").then_some(())
    });
    let shared = |machines: &Machines, node: usize| {
        let kept = machines.nodes[node].read("/var/lib/hostler/agent/peers.json");
        serde_json::from_str::<Value>(&kept).expect("JSON")["secret"].clone()
    };
    let before = shared(&machines, 0);
    machines.head.ok(&["hostler", "node", "remove", "n3", "--yes"]);
    machines.wait_for(0, "n3", "");
    machines.wait_for(1, "n3", "");
    // The agent of the removed node still runs and knows the old secret; the other nodes have a new secret.
    assert_eq!(shared(&machines, 2), before);
    wait_until("the other nodes to have a new secret", 30, || {
        (shared(&machines, 0) != before && shared(&machines, 0) == shared(&machines, 1)).then_some(())
    });
    machines.wait_for(0, "n2", "live");
    machines.wait_for(1, "n1", "live");
}

#[test]
fn agent_without_gossip_reports_that() {
    let mut machines = Machines::new();
    machines.agents[0].take().expect("the daemon runs").kill_9();
    machines.agents[0] = Some(machines.nodes[0].daemon("agent", &["hostler", "agent", "run", "--gossip", "none"]));
    let said = wait_until("the agent to answer", 30, || {
        let said = machines.nodes[0].run(&["hostler", "nodes", "--load"]);
        said.stderr.contains("does not gossip").then_some(said)
    });
    assert!(said.code != 0 && said.stderr.contains("--gossip none"), "{said:?}");
    machines.wait_for(1, "n1", "");
    machines.wait_for(1, "n3", "live");
    let said = machines.head.run(&["hostler", "nodes", "--load"]);
    assert!(said.code != 0 && said.stderr.contains("no agent runs on this machine"), "{said:?}");
}

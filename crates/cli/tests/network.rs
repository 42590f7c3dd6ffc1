//! Machines that share nothing but a network: a head and four nodes, brought up as the guide says, whose links fail.

use std::time::Duration;

use hostler_testkit::{Daemon, Host, Network, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A head and its nodes, each on a host of its own.
struct Machines {
    head_daemon: Daemon,
    head: Host,
    nodes: Vec<Host>,
    // Last: its hosts go first.
    network: Network,
}

impl Machines {
    /// By the commands of `docs/guides/real-machines.md`, as they stand there.
    fn new(nodes: usize) -> Self {
        let network = Network::new(HOSTLER);
        let head = network.host("head");
        head.ok(&["hostler", "head", "init", "--advertise", "head"]);
        let head_daemon = head.daemon("head", &["hostler", "head", "run"]);
        wait_until("the head's socket", 30, || head.path("/run/hostler/head.sock").exists().then_some(()));
        let mut machines = Self { head_daemon, head, nodes: Vec::new(), network };
        for number in 1..=nodes {
            machines.add_node(&format!("n{number}"));
        }
        machines
    }

    fn add_node(&mut self, name: &str) {
        let host = self.network.host(name);
        let code = self.head.ok(&["hostler", "node", "invite", name]);
        let joined = host.run_with_input(&["hostler", "agent", "join", "-"], &format!("{code}\n"));
        assert_eq!(joined.code, 0, "{joined:?}");
        drop(host.daemon("agent", &["hostler", "agent", "run"]));
        self.nodes.push(host);
        self.wait_for_node(name, "up", 30);
    }

    /// A client's command on the head's host.
    fn ok(&self, arguments: &[&str]) -> String {
        self.head.ok(&[&["hostler"], arguments].concat())
    }

    fn node_state(&self, name: &str) -> String {
        let nodes = self.head.json(&["hostler", "nodes"]);
        let found = nodes.as_array().expect("a list").iter().find(|node| node["name"] == name);
        found.map_or_else(String::new, |node| node["state"].as_str().unwrap_or_default().to_owned())
    }

    fn wait_for_node(&self, name: &str, state: &str, seconds: u64) {
        wait_until(&format!("node {name} {state}"), seconds, || (self.node_state(name) == state).then_some(()));
    }
}

#[test]
fn five_machines_by_the_documented_commands() {
    let machines = Machines::new(4);
    for node in &machines.nodes {
        let said = machines.ok(&["run", "-m", "16M", "--on", node.name(), "--", "uname", "-n"]);
        assert_eq!(said, node.name());
    }
    let _ = (&machines.head_daemon, Duration::ZERO);
}

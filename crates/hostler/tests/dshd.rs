//! `dshd` and the plain-text ports of agents, on hosts in network namespaces. Needs root.

use std::collections::BTreeMap;

use hostler_testkit::{Daemon, Host, Network, Outcome, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A bash script that prints what a port sends.
const READ: &str = "exec 3<>/dev/tcp/127.0.0.1/$0 && cat <&3";

/// A head, and nodes that have joined.
struct Machines {
    nodes: Vec<Host>,
    agents: Vec<Daemon>,
    _head: (Host, Daemon),
    // Last: the daemons must end before their hosts.
    _network: Network,
}

impl Machines {
    fn of(count: usize) -> Self {
        let network = Network::new(HOSTLER);
        let head = network.head();
        let nodes: Vec<_> = (1..=count).map(|number| network.host(&format!("n{number}"))).collect();
        for node in &nodes {
            node.join(&head.0);
            node.ok(&["ln", "-s", "hostler", "/run/bin/dshd"]);
        }
        Self { nodes, agents: Vec::new(), _head: head, _network: network }
    }

    fn start_agent(&mut self, node: usize, flags: &[&str]) {
        let agent = ["hostler", "agent", "run", "--cpus", "0-1", "--memory", "512M"];
        self.agents.push(self.nodes[node].daemon("agent", &[&agent[..], flags].concat()));
    }

    /// The words of each line that a port sends; `None` if the connection is refused.
    fn lines(&self, node: usize, port: u16) -> Option<Vec<Vec<String>>> {
        let said = self.nodes[node].run(&["timeout", "20", "bash", "-c", READ, &port.to_string()]);
        let words = |line: &str| line.split(' ').map(str::to_owned).collect();
        (said.code == 0).then(|| said.stdout.lines().map(words).collect())
    }

    /// Waits until the table has these names, all with a score.
    fn wait_for_names(&self, node: usize, port: u16, expected: &[&str]) {
        wait_until(&format!("the table of n{} to be of {expected:?}", node + 1), 60, || {
            let lines = self.lines(node, port)?;
            let are_candidates = lines.iter().all(|line| line[3] != "-");
            (are_candidates && lines.iter().map(|line| line[0].as_str()).eq(expected.iter().copied())).then_some(())
        });
    }

    fn wait_until_live(&self, by: usize, count: usize) {
        wait_until("all to be live", 60, || {
            let said = self.nodes[by].run(&["hostler", "nodes", "--load", "--json"]);
            let table: Value = serde_json::from_str(&said.stdout).ok()?;
            let is_live = |node: &&Value| node["presence"] == "live" && !node["load"].is_null();
            (table["nodes"].as_array()?.iter().filter(is_live).count() == count).then_some(())
        });
    }

    /// The sockets that listen at TCP ports of the node.
    fn listening(&self, node: usize) -> String {
        let script = "awk '$4 == \"0A\" { print $2 }' /proc/net/tcp /proc/net/tcp6";
        self.nodes[node].ok(&["sh", "-c", script])
    }

    fn dshd(&self, node: usize, flags: &[&str]) -> Outcome {
        self.nodes[node].run(&[&["timeout", "60", "dshd"], flags].concat())
    }

    /// Ends the daemon with this process id by SIGTERM and waits for its end.
    fn terminate(&self, node: usize, pid: &str) {
        self.nodes[node].ok(&["kill", pid]);
        wait_until("the daemon to end", 30, || (self.nodes[node].run(&["kill", "-0", pid]).code != 0).then_some(()));
    }
}

#[test]
fn ports_list_all_nodes_and_the_best_one() {
    let mut machines = Machines::of(3);
    machines.nodes[0].write(
        "/etc/hostler/agent.toml",
        "load_weight = 1.5\nmemory_weight = 2\n[status]\ntable = 8181\nbest = \"127.0.0.1:8282\"\n[dsh]\ncall_ms = 60000\n\
         call_load = 10000\nremote_margin = 0\n",
    );
    machines.start_agent(0, &[]);
    machines.start_agent(1, &["--load-weight", "1.5", "--memory-weight", "2"]);
    machines.start_agent(2, &["--load-weight", "1.5"]);
    machines.wait_for_names(0, 8181, &["n1", "n2", "n3"]);

    for line in machines.lines(0, 8181).expect("the port is open") {
        let number = |column: usize| line[column].parse::<f64>().unwrap_or_else(|_| panic!("{column} of {line:?}"));
        assert_eq!(line.len(), 10, "{line:?}");
        (1..10).for_each(|column| assert!(number(column) >= 0.0));
        assert_eq!((number(4), number(6), number(7)), (2.0, 512.0, 1.5), "{line:?}");
        assert_eq!(number(8), if line[0] == "n3" { 1.0 } else { 2.0 }, "{line:?}");
    }
    machines.wait_until_live(2, 3);
    let table = machines.nodes[2].ok(&["hostler", "nodes", "--load"]);
    assert!(table.lines().next().is_some_and(|head| head.ends_with("WEIGHTS")) && table.contains("1.5/2"), "{table}");

    // Twenty queries in a row get different nodes, and each answer counts as load for a while.
    let score = |machines: &Machines, name: &str| -> u64 {
        let lines = machines.lines(0, 8181).expect("the port is open");
        let line = lines.iter().find(|line| line[0] == name).expect("the node has a line");
        line[3].parse().expect("a candidate")
    };
    let mut named: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..20 {
        let best = machines.lines(0, 8282).expect("the port is open");
        assert_eq!(best.len(), 1, "one line: {best:?}");
        *named.entry(best[0][0].clone()).or_default() += 1;
    }
    assert!(named.len() == 3 && named.values().all(|count| (6..=7).contains(count)), "{named:?}");
    for name in ["n1", "n2", "n3"] {
        // Six tasks that need a hundred CPUs each, on two CPUs, at 1.5 times the usual time.
        assert!(score(&machines, name) >= 450_000, "{name} counts as busy");
    }

    // By default no port is open, and only loopback ports unless an address is given.
    assert!(!machines.listening(1).contains(":1FF5") && !machines.listening(1).contains(":205A"));
    assert_eq!(machines.lines(1, 8181), None);
    let listening = machines.listening(0);
    assert!(listening.contains("0100007F:1FF5") && listening.contains("0100007F:205A"), "{listening}");

    // Thousands of silent connections do not affect other clients.
    let crowd = "ulimit -n 4096; for i in $(seq 10 1500); do eval \"exec $i<>/dev/tcp/127.0.0.1/$0\" || exit 1; done; \
                 echo all > /tmp/crowd-$0; sleep 600";
    let _tables = machines.nodes[0].daemon("crowd", &["bash", "-c", crowd, "8181"]);
    let _bests = machines.nodes[0].daemon("crowd", &["bash", "-c", crowd, "8282"]);
    wait_until("all connections to be open", 60, || {
        let is_in = |port| machines.nodes[0].read(&format!("/tmp/crowd-{port}")) == "all\n";
        (is_in(8181) && is_in(8282)).then_some(())
    });
    machines.wait_for_names(0, 8181, &["n1", "n2", "n3"]);
    assert_eq!(machines.lines(0, 8282).map(|lines| lines.len()), Some(1));
    machines.wait_until_live(1, 3);
}

#[test]
fn dshd_runs_as_the_agent_of_its_machine() {
    let mut machines = Machines::of(3);
    machines.start_agent(1, &[]);
    machines.start_agent(2, &[]);
    machines.nodes[0].write("/etc/hostler/dsh.conf", "# ours\nn1.example.org 2.0 0.5\nn2.example.org 1.0 # as usual\n");
    let started = machines.dshd(0, &["-b", "-p"]);
    assert_eq!((started.code, started.stderr.as_str()), (0, ""), "{started:?}");
    let pid = started.stdout.trim();
    assert!(machines.nodes[0].ok(&["cat", &format!("/proc/{pid}/cmdline")]).starts_with("dshd\0"));
    // The ports are open, n3 is not listed because it is not in the file, and other nodes know the weights from the
    // file.
    assert!(machines.lines(0, 8181).is_some() && machines.lines(0, 8282).is_some());
    machines.wait_for_names(0, 8181, &["n1", "n2"]);
    machines.wait_until_live(2, 3);
    let table = machines.nodes[2].json(&["hostler", "nodes", "--load"]);
    let load = &table["nodes"][0]["load"];
    assert_eq!((&load["load_weight"], &load["memory_weight"]), (&200.into(), &50.into()), "{table}");
    for _ in 0..5 {
        let best = machines.lines(0, 8282).expect("the port is open");
        assert!(["n1", "n2"].contains(&best[0][0].as_str()), "{best:?}");
    }

    // A second dshd cannot open the ports, and reports that before it goes to the background.
    let second = machines.dshd(0, &["-b"]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(
        second.stderr.contains("cannot listen on 127.0.0.1:8181") && second.stderr.contains("hint: "),
        "{second:?}"
    );

    machines.terminate(0, pid);
    assert_eq!(machines.lines(0, 8181), None);
    assert!(machines.nodes[0].read("/var/lib/hostler/dshd.log").contains("agent stopped"));

    // In the foreground, with other ports and its own file.
    machines.nodes[0].write("/home/op/cluster", "n3\n");
    let _daemon = machines.nodes[0].daemon("dshd", &["dshd", "-f", "cluster", "-t", "9181", "-r", "127.0.0.1:9282"]);
    machines.wait_for_names(0, 9181, &["n3"]);
    assert_eq!(machines.lines(0, 9282).expect("the port is open")[0][0], "n3");
    assert_eq!(machines.lines(0, 8181), None);
}

#[test]
fn dshd_queries_a_running_agent() {
    let mut machines = Machines::of(2);
    // More load than other processes on this machine cause.
    machines.nodes[0].write("/etc/hostler/agent.toml", "[dsh]\ncall_load = 10000\ncall_ms = 60000\n");
    machines.start_agent(0, &[]);
    machines.start_agent(1, &[]);
    machines.wait_until_live(0, 2);
    machines.nodes[0].write("/home/op/cluster", "n2\n");
    let started = machines.dshd(0, &["-bp", "-f", "cluster"]);
    assert_eq!(started.code, 0, "{started:?}");
    assert!(started.stderr.contains("an agent runs on this machine already"), "{started:?}");
    machines.wait_for_names(0, 8181, &["n2"]);
    assert_eq!(machines.lines(0, 8282).expect("the port is open")[0][0], "n2");
    let score =
        |machines: &Machines| machines.lines(0, 8282).expect("the port is open")[0][3].parse::<u64>().expect("a score");
    let scores: Vec<_> = (0..4).map(|_| score(&machines)).collect();
    assert!(scores[3] > scores[0], "each query adds load: {scores:?}");

    // Without the agent the ports send nothing; once it is back, they send lines again.
    machines.agents.remove(0).kill_9();
    wait_until("the ports to send nothing", 30, || (machines.lines(0, 8181)?.is_empty()).then_some(()));
    machines.start_agent(0, &[]);
    machines.wait_for_names(0, 8181, &["n2"]);
    // All users may query, because loads are public.
    machines.nodes[0].ok(&["sh", "-c", "mkdir -p /home/games && chown games /home/games"]);
    let games = ["setpriv", "--reuid", "games", "--regid", "games", "--clear-groups", "env", "HOME=/home/games"];
    let theirs = machines.nodes[0].ok(&[&games[..], &["dshd", "-b", "-p", "-t", "9181", "-r", "9282"]].concat());
    machines.wait_for_names(0, 9181, &["n1", "n2"]);
    machines.terminate(0, &theirs);
    machines.terminate(0, started.stdout.trim());
    assert_eq!(machines.lines(0, 8181), None);
}

#[test]
fn failed_start_is_reported_before_going_to_the_background() {
    let network = Network::new(HOSTLER);
    let stranger = network.host("stranger");
    stranger.ok(&["ln", "-s", "hostler", "/run/bin/dshd"]);
    for flags in [&["dshd"][..], &["dshd", "-b", "-p"]] {
        let said = stranger.run(flags);
        assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
        assert!(
            said.stderr.contains("has not joined a cluster") && said.stderr.contains("hostler agent join"),
            "{said:?}"
        );
    }
    stranger.write("/home/op/cluster", "n1 1.0\nn2 fast\n");
    let said = stranger.run(&["dshd", "-b", "-f", "cluster"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.contains("line 2 of the cluster file") && said.stderr.contains("`fast` is not a weight"),
        "{said:?}"
    );
    let said = stranger.run(&["dshd", "-f", "nowhere"]);
    assert!(said.code == 1 && said.stderr.contains("cannot read the cluster file nowhere"), "{said:?}");

    // An agent fails to start if its port is in use, or if it does not gossip.
    let mut machines = Machines::of(1);
    machines.nodes[0].ok(&["hostler", "head", "init", "--directory", "/tmp/h", "--listen", "127.0.0.1:8181"]);
    let taken = machines.nodes[0].daemon("taken", &["hostler", "head", "run", "--directory", "/tmp/h"]);
    wait_until("the port to be taken", 30, || machines.listening(0).contains(":1FF5").then_some(()));
    let said = machines.dshd(0, &["-b", "-p"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
    assert!(said.stderr.contains("cannot listen on 127.0.0.1:8181 for the table"), "{said:?}");
    taken.kill_9();
    machines.nodes[0].write("/etc/hostler/agent.toml", "gossip = \"none\"\n");
    let said = machines.dshd(0, &["-b"]);
    assert!(said.code == 1 && said.stderr.contains("the load ports need gossip"), "{said:?}");
    machines.start_agent(0, &[]);
    // Query the agent directly: dshd would start an agent if there is none.
    wait_until("the agent of the node to answer", 30, || {
        let said = machines.nodes[0].run(&["hostler", "nodes", "--load"]);
        said.stderr.contains("does not gossip about its load").then_some(())
    });
    let said = machines.dshd(0, &["-b"]);
    assert!(said.code != 0 && said.stderr.contains("does not gossip about its load"), "{said:?}");
}

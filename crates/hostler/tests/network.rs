//! A head and four nodes that share only a network, set up by the commands of the guide, with failing links.
//!
//! With `HOSTLER_LONG` in the environment, cuts last a minute, and the machine is kept busy for five minutes.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use hostler_testkit::{Daemon, Host, Network, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Final states of a job.
const ENDED: [&str; 6] = ["completed", "failed", "timeout", "out_of_memory", "cancelled", "node_fail"];

/// The job: checks its input, runs the shell command in `hold` and writes a large file. Each completed attempt is
/// logged on its host.
const WORK: &str = "set -e\nsha256sum noise > noise.sum\n. ./hold\nhead -c 8000000 /dev/urandom > out\n\
                    sha256sum out > out.sum\necho $HOSTLER_JOB_ID.$HOSTLER_ATTEMPT >> /home/op/ran\n";

/// A head and its nodes, each on its own host.
struct Machines {
    head_daemon: Option<Daemon>,
    head: Host,
    nodes: Vec<Host>,
    // Last: the daemons must end before their hosts.
    network: Network,
}

/// The state of a job, as the head reports it.
#[derive(Debug)]
struct Seen {
    id: String,
    state: String,
    node: Option<String>,
    attempt: u64,
}

impl Machines {
    /// Sets up the machines by the commands of `docs/guides/real-machines.md`.
    fn new(nodes: usize) -> Self {
        let network = Network::new(HOSTLER);
        let (head, daemon) = network.head();
        let mut machines = Self { head_daemon: Some(daemon), head, nodes: Vec::new(), network };
        for number in 1..=nodes {
            machines.add_node(&format!("n{number}"));
        }
        machines
    }

    fn run_head(&mut self) {
        if let Some(daemon) = self.head_daemon.take() {
            daemon.kill_9();
        }
        self.head_daemon = Some(self.head.daemon("head", &["hostler", "head", "run"]));
        let answers = || (self.head.run(&["hostler", "info"]).code == 0).then_some(());
        wait_until("the head to answer", 30, answers);
    }

    fn add_node(&mut self, name: &str) {
        let host = self.network.host(name);
        host.join(&self.head);
        let _: Daemon = host.daemon("agent", &["hostler", "agent", "run", "--root-jobs"]);
        self.nodes.push(host);
        self.wait_for_node(name, "up", 30);
    }

    /// Runs a client command on the head's host.
    fn ok(&self, arguments: &[&str]) -> String {
        self.head.ok(&[&["hostler"], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.head.json(&[&["hostler"], arguments].concat())
    }

    fn node_states(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let nodes = self.json(&["nodes"]);
        nodes.as_array().expect("a list").iter().map(|node| (text(&node["name"]), text(&node["state"]))).collect()
    }

    fn wait_for_node(&self, name: &str, state: &str, seconds: u64) {
        let is_so = || self.node_states().get(name).is_some_and(|now| now == state).then_some(());
        wait_until(&format!("node {name} {state}"), seconds, is_so);
    }

    /// Submits two jobs per node, which run the shell command `hold`; one of them may be requeued. They have 24 MB of
    /// random data, so that staging takes a while.
    fn submit_for_all(&self, hold: &str) -> Vec<Work> {
        self.head.write("/home/op/p/main.sh", WORK);
        self.head.write("/home/op/p/hold", hold);
        if self.head.read("/home/op/noise.sum").is_empty() {
            self.head.ok(&[
                "sh",
                "-c",
                "head -c 24000000 /dev/urandom > p/noise && cd p && sha256sum noise > ../noise.sum",
            ]);
        }
        let one = |number: usize| {
            let may_run_again = number.is_multiple_of(2);
            let mut submit = vec!["submit", "/home/op/p", "main.sh", "-c", "1", "-m", "16M"];
            submit.extend(may_run_again.then_some("--requeue"));
            Work { id: self.ok(&submit), may_run_again }
        };
        (0..2 * self.nodes.len()).map(one).collect()
    }

    /// The states of all jobs. One question for all, so that no short phase is missed.
    fn all_seen(&self) -> Vec<Seen> {
        let seen = |job: &Value| Seen {
            id: job["id"].to_string(),
            state: job["state"].as_str().expect("a job has a state").to_owned(),
            node: job["nodes"][0].as_str().map(ToOwned::to_owned),
            attempt: job["attempt"].as_u64().unwrap_or_default(),
        };
        self.json(&["jobs", "--all"])["jobs"].as_array().expect("a list").iter().map(seen).collect()
    }

    /// Waits until all jobs of [`gated`] run at the same time, and lets them go on.
    fn open_gate(&self, work: &[Work], gate: &str) {
        let all_run = || work.iter().all(|work| self.seen(work).state == "running").then_some(());
        wait_until("all jobs run", 60, all_run);
        self.nodes.iter().for_each(|node| node.write(&format!("/home/op/{gate}"), ""));
    }

    fn seen(&self, work: &Work) -> Seen {
        let job = self.json(&["job", &work.id]);
        let task = &job["tasks_shown"][0];
        Seen {
            id: work.id.clone(),
            state: job["state"].as_str().expect("a job has a state").to_owned(),
            node: task["node"].as_str().map(ToOwned::to_owned),
            attempt: task["attempt"].as_u64().unwrap_or_default(),
        }
    }

    /// Checks that each job ends once and its result is complete. `may_fail`: a node was unreachable long enough that
    /// jobs without requeue may have failed.
    fn all_end_well(&self, work: &[Work], may_fail: bool) {
        let ends: Vec<Seen> = work
            .iter()
            .map(|work| {
                wait_until(&format!("job {} to end", work.id), 240, || {
                    Some(self.seen(work)).filter(|seen| ENDED.contains(&seen.state.as_str()))
                })
            })
            .collect();
        for node in &self.nodes {
            self.wait_for_node(node.name(), "up", 60);
        }
        let ran = self.lines_that_runs_wrote();
        for (work, end) in work.iter().zip(ends) {
            tell(&format!("{end:?}, may run again: {}", work.may_run_again));
            let was_given_up = end.state == "node_fail" && may_fail && !work.may_run_again;
            assert!(end.state == "completed" || was_given_up, "{end:?}: {:#}", self.json(&["job", &work.id]));
            assert!(work.may_run_again || end.attempt == 1, "{end:?}");
            let accepted = format!("{}.{}", end.id, end.attempt);
            assert!(was_given_up || ran.get(&accepted) == Some(&1), "{accepted} ran exactly once: {ran:?}");
            let now = self.seen(work);
            assert_eq!((now.state, now.attempt), (end.state.clone(), end.attempt), "a final state does not change");
            if end.state == "completed" {
                self.result_is_whole(&end.id);
            }
        }
        assert!(ran.values().all(|count| *count == 1), "no attempt ran twice: {ran:?}");
    }

    fn result_is_whole(&self, job: &str) {
        self.ok(&["fetch", job, "--to", "/home/op/home"]);
        let folder = format!("/home/op/home/{job}");
        self.head.ok(&["sh", "-c", &format!("cd {folder} && sha256sum --check --quiet out.sum")]);
        assert_eq!(
            self.head.read(&format!("{folder}/noise.sum")),
            self.head.read("/home/op/noise.sum"),
            "what was staged"
        );
    }

    /// How often each `JOB.ATTEMPT` completed, on all nodes together.
    fn lines_that_runs_wrote(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for line in self
            .nodes
            .iter()
            .flat_map(|node| node.read("/home/op/ran").lines().map(ToOwned::to_owned).collect::<Vec<_>>())
        {
            *counts.entry(line).or_default() += 1;
        }
        counts
    }
}

struct Work {
    id: String,
    may_run_again: bool,
}

/// A shell command that waits for the file `gate` on its host, and then for some seconds.
fn gated(gate: &str, seconds: u32) -> String {
    format!("until [ -e /home/op/{gate} ]; do sleep 0.1; done; sleep {seconds}")
}

fn is_long() -> bool {
    std::env::var_os("HOSTLER_LONG").is_some()
}

#[test]
fn five_machines_work_with_the_documented_commands() {
    let mut machines = Machines::new(4);
    let mut names: Vec<String> =
        machines.ok(&["run", "-N", "4", "-m", "16M", "--", "uname", "-n"]).lines().map(ToOwned::to_owned).collect();
    names.sort();
    assert_eq!(names, ["n1", "n2", "n3", "n4"]);
    // Who holds one node reaches it by its address, as several nodes.
    let held = ["alloc", "-m", "16M", "--constraint", "n2", "--", "hostler", "step", "--tasks", "1", "uname", "-n"];
    assert_eq!(machines.ok(&held).trim(), "n2");

    // Files are staged to nodes without a shared disk, and results are fetched.
    let work = machines.submit_for_all(&gated("go", 0));
    machines.open_gate(&work, "go");
    machines.all_end_well(&work, false);
    for node in &machines.nodes {
        assert!(!node.read("/home/op/ran").is_empty(), "{} had work", node.name());
        assert!(!node.path("/home/op/p").exists() && !node.path("/home/op/home").exists(), "they share no files");
    }

    // If the head is killed, its machine keeps the state, and the nodes reconnect after the restart.
    machines.run_head();
    for node in &machines.nodes {
        machines.wait_for_node(node.name(), "up", 30);
    }

    // Ranks on four machines connect to each other and add up their values.
    let script = include_str!("network/sum.py");
    machines.head.write("/home/op/sum/main.py", script);
    let id = machines.ok(&["submit", "/home/op/sum", "main.py", "-N", "4", "-m", "64M"]);
    let wait = machines.head.run(&["hostler", "wait", &id]);
    assert_eq!(wait.code, 0, "{}{}", wait.stderr, machines.ok(&["logs", &id]));
    machines.ok(&["fetch", &id, "--to", "/home/op/home"]);
    let addresses: Vec<&str> = machines.nodes.iter().map(Host::address).collect();
    let said = machines.head.read(&format!("/home/op/home/{id}/sum"));
    let (sum, from) = said.trim().split_once(' ').expect("two words");
    assert_eq!(sum, "1111");
    assert!(from.split(',').all(|address| addresses.contains(&address)), "{said}");
}

/// A link that is cut when its node reaches a certain phase of a job, and restored after a while.
struct Cut<'a> {
    host: &'a Host,
    phase: &'static str,
    began: Option<Instant>,
    is_over: bool,
}

impl Cut<'_> {
    fn look(&mut self, seen: &[Seen], length: Duration) {
        let is_here = |seen: &&Seen| seen.node.as_deref() == Some(self.host.name()) && seen.state == self.phase;
        match self.began {
            None if seen.iter().any(|seen| is_here(&seen)) => {
                self.host.cut();
                self.began = Some(Instant::now());
            }
            Some(began) if !self.is_over && began.elapsed() >= length => {
                self.host.heal();
                self.is_over = true;
            }
            None | Some(_) => {}
        }
    }
}

/// Cuts one link in each phase of the jobs, each for `seconds`.
fn cut_in_every_phase(seconds: u64) {
    let machines = Machines::new(4);
    machines.nodes.iter().for_each(|node| node.slow(48));
    let work = machines.submit_for_all("sleep 5");
    let phases = ["starting", "running", "completing"];
    let cut = |(host, phase)| Cut { host, phase, began: None, is_over: false };
    let mut cuts: Vec<Cut<'_>> = machines.nodes.iter().zip(phases).map(cut).collect();
    wait_until("every link was cut and healed", seconds + 60, || {
        let seen = machines.all_seen();
        cuts.iter_mut().for_each(|cut| cut.look(&seen, Duration::from_secs(seconds)));
        cuts.iter().all(|cut| cut.is_over).then_some(())
    });
    machines.all_end_well(&work, seconds > 40);
}

#[test]
fn jobs_survive_short_link_cuts_in_every_phase() {
    cut_in_every_phase(3);
}

#[test]
fn jobs_end_correctly_after_long_link_cuts_in_every_phase() {
    cut_in_every_phase(if is_long() { 60 } else { 15 });
}

#[test]
fn jobs_survive_an_isolated_head_frozen_nodes_and_packet_loss() {
    let machines = Machines::new(4);
    let work = machines.submit_for_all(&gated("first", 12));
    machines.open_gate(&work, "first");
    let [stands_still, is_lossy, is_unplugged, ..] = &machines.nodes[..] else { panic!("there are four") };
    stands_still.freeze();
    is_lossy.lossy(90);
    is_unplugged.unplug();
    machines.wait_for_node(stands_still.name(), "down", 15);
    machines.wait_for_node(is_unplugged.name(), "down", 15);
    std::thread::sleep(Duration::from_secs(8));
    stands_still.thaw();
    is_lossy.heal();
    is_unplugged.plug();
    machines.all_end_well(&work, false);

    let work = machines.submit_for_all(&gated("second", 6));
    machines.open_gate(&work, "second");
    machines.head.cut();
    for node in &machines.nodes {
        machines.wait_for_node(node.name(), "down", 15);
    }
    std::thread::sleep(Duration::from_secs(10));
    machines.head.heal();
    machines.all_end_well(&work, false);
}

#[test]
fn job_and_its_watcher_survive_a_new_address_of_their_machine() {
    let machines = Machines::new(1);
    let node = &machines.nodes[0];
    node.ok(&["useradd", "--create-home", "ada"]);
    let job = "for i in $(seq 50); do echo $i; sleep 1; done; exit 5";
    let run = format!("cd /home/ada && hostler run -m 16M -- sh -c '{job}' >seen; echo $? >code");
    let _: Daemon = node.daemon("run", &["setpriv", "--reuid=ada", "--regid=ada", "--clear-groups", "sh", "-c", &run]);
    wait_until("the first line", 30, || node.read("/home/ada/seen").starts_with("1\n").then_some(()));
    // As when a laptop changes to another wireless network: packets to its old address are lost without an error.
    node.ok(&["ip", "address", "flush", "dev", "eth0"]);
    machines.wait_for_node("n1", "down", 15);
    node.ok(&["ip", "address", "add", "10.203.0.200/24", "dev", "eth0"]);
    machines.wait_for_node("n1", "up", 50);
    wait_until("the end of the job", 90, || (!node.read("/home/ada/code").is_empty()).then_some(()));
    let lines: String = (1..=50).map(|line| format!("{line}\n")).collect();
    let (seen, said) = (node.read("/home/ada/seen"), node.read("/home/op/run.log"));
    assert_eq!((seen, node.read("/home/ada/code")), (lines, "5\n".to_owned()), "{said}");
}

#[test]
fn silent_node_is_noticed_within_ten_seconds() {
    let machines = Machines::new(2);
    for _ in 0..if is_long() { 5 } else { 1 } {
        machines.wait_for_node("n1", "up", 30);
        let begun = Instant::now();
        machines.nodes[0].cut();
        machines.wait_for_node("n1", "down", 15);
        let took = begun.elapsed();
        tell(&format!("down {:.2} s after the cut", took.as_secs_f64()));
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert_eq!(machines.node_states()["n2"], "up");
        machines.nodes[0].heal();
    }
}

/// Busy processes, killed on drop.
struct Busy(Vec<Child>);

impl Busy {
    /// Starts endless loops, many more than there are CPUs.
    fn begin() -> Self {
        let loops = 4 * std::thread::available_parallelism().map_or(1, usize::from);
        let busy = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("there is a shell");
        Self((0..loops).map(busy).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn busy_machine_is_not_considered_dead() {
    let machines = Machines::new(4);
    let _busy = Busy::begin();
    let end = Instant::now() + Duration::from_secs(if is_long() { 300 } else { 20 });
    let mut looks = 0;
    while Instant::now() < end {
        let states = machines.node_states();
        assert!(states.values().all(|state| state == "up"), "after {looks} looks: {states:?}");
        looks += 1;
        std::thread::sleep(Duration::from_millis(100));
    }
    tell(&format!("always up, in {looks} looks"));
}

/// Prints a line for manual runs with `--no-capture`.
#[expect(clippy::print_stderr, reason = "figures for manual runs")]
fn tell(text: &str) {
    eprintln!("{text}");
}

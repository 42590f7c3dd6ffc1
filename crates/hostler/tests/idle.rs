//! An idle cluster uses almost no CPU, and still detects silent nodes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hostler_testkit::{Cluster, Size, kill, wait_until};
use nix::sys::signal::Signal;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

fn node_state(cluster: &Cluster, name: &str) -> String {
    let nodes = cluster.json(&["nodes"]);
    let nodes = nodes.as_array().expect("a list of nodes");
    let node = nodes.iter().find(|node| node["name"] == name).expect("the node is listed");
    node["state"].as_str().expect("a node has a state").to_owned()
}

fn agent_of(cluster: &Cluster, name: &str) -> u32 {
    let nodes = cluster.json(&["nodes"]);
    let node = nodes.as_array().expect("a list").iter().find(|node| node["name"] == name).expect("the node is listed");
    u32::try_from(node["agent_pid"].as_u64().expect("a pid")).expect("a pid")
}

/// The node of a job with one task.
fn place_of(cluster: &Cluster, job: &str) -> String {
    cluster.json(&["job", job])["nodes"][0].as_str().unwrap_or_default().to_owned()
}

#[test]
fn frozen_node_is_down_within_ten_seconds_and_keeps_its_jobs() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let release = cluster.path("release");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", release.display());
    let run = |requeue: bool| {
        let mut command = vec!["run", "--detach", "-m", "16M"];
        command.extend(requeue.then_some("--requeue"));
        command.extend(["--", "sh", "-c", &script]);
        let id = cluster.ok(&command);
        cluster.wait_for_state(&id, "running");
        id
    };
    // Best fit places both jobs on one node.
    let (patient, again) = (run(false), run(true));
    let node = place_of(&cluster, &patient);
    assert_eq!(place_of(&cluster, &again), node);

    let agent = agent_of(&cluster, &node);
    kill(agent, Signal::SIGSTOP);
    let frozen = Instant::now();
    wait_until("the node to be down", 30, || (node_state(&cluster, &node) == "down").then_some(()));
    assert!(frozen.elapsed() < Duration::from_secs(10), "after {:?}", frozen.elapsed());
    wait_until("the job to run on another node", 10, || {
        (place_of(&cluster, &again) != node && cluster.state(&again) == "running").then_some(())
    });
    assert_eq!(cluster.state(&patient), "running", "a job without --requeue gets more time");

    kill(agent, Signal::SIGCONT);
    wait_until("the node to be up again", 20, || (node_state(&cluster, &node) == "up").then_some(()));
    fs::write(&release, "").expect("a file can be written");
    for id in [&patient, &again] {
        cluster.wait_for_state(id, "completed");
    }
    let attempt = |id: &str| cluster.json(&["job", id])["attempt"].as_u64();
    assert_eq!((attempt(&patient), attempt(&again)), (Some(1), Some(2)));
}

#[test]
fn idle_daemons_rarely_wake_up() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 4, ..Size::default() });
    let asked = Cluster::up(HOSTLER, Size { nodes: 4, ..Size::default() });
    let daemons_of = |cluster: &Cluster| {
        cluster.ok(&["run", "-a", "0-7", "-m", "16M", "--", "true"]);
        let mut daemons = cluster.agent_pids();
        daemons.push(cluster.head_pid());
        daemons
    };
    let daemons = [daemons_of(&cluster), daemons_of(&asked)].concat();
    // Work of the preceding commands may still go on.
    let quiet = Duration::from_millis(1_000);
    let spent_in = |pause: &dyn Fn()| {
        let before: Vec<Spent> = daemons.iter().map(|pid| Spent::of(*pid)).collect();
        pause();
        daemons.iter().zip(before).map(|(pid, before)| Spent::of(*pid).since(before)).collect::<Vec<_>>()
    };
    wait_until("the daemons to be idle", 60, || {
        spent_in(&|| std::thread::sleep(quiet)).iter().all(|spent| spent.wakes < 8).then_some(())
    });

    // Each agent reports its figures once a minute.
    const MINUTE: Duration = Duration::from_secs(60);
    /// This many requests cost the head more than an idle minute costs a daemon.
    const REQUESTS: u32 = 50;
    let spent = spent_in(&|| {
        for _ in 0..REQUESTS {
            std::thread::sleep(MINUTE / REQUESTS);
            list_nodes(&asked);
        }
    });
    let (spent, of_asked) = spent.split_at(daemons.len() / 2);
    let head = |spent: &[Spent]| spent.last().expect("the head is the last daemon").cpu;
    let requests = head(of_asked).saturating_sub(head(spent));
    for spent in spent {
        // In that time, an agent sends 15 messages and the head receives 20. Each message wakes a few threads.
        assert!(spent.wakes < 600, "{spent:?}");
        // A bound in milliseconds would depend on the machine: a wake-up has cost 0.2 ms and 1.2 ms on the same one.
        assert!(spent.cpu < requests, "{spent:?}; {REQUESTS} requests take {requests:?}");
    }
}

/// Asks the head for the list of nodes.
fn list_nodes(cluster: &Cluster) {
    let mut head = UnixStream::connect(cluster.path("run/hostler/head.sock")).expect("the head listens");
    head.write_all(b"GET /api/v1/nodes HTTP/1.1\r\nhost: hostler\r\nconnection: close\r\n\r\n").expect("written");
    let mut answer = String::new();
    head.read_to_string(&mut answer).expect("the head answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// CPU time and wake-ups of a process since its start.
#[derive(Debug, Clone, Copy)]
struct Spent {
    cpu: Duration,
    wakes: u64,
}

impl Spent {
    fn of(pid: u32) -> Self {
        let mut spent = Self { cpu: Duration::ZERO, wakes: 0 };
        for thread in fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs").flatten() {
            // A thread may have ended meanwhile.
            let scheduled = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let nanoseconds = scheduled.split_whitespace().next().and_then(|number| number.parse().ok());
            spent.cpu += Duration::from_nanos(nanoseconds.unwrap_or_default());
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            spent.wakes += waits.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or_default();
        }
        spent
    }

    fn since(self, before: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(before.cpu), wakes: self.wakes.saturating_sub(before.wakes) }
    }
}

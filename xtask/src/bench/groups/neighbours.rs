//! Whether misbehaving jobs on the same node slow a job down: the same work on one CPU, while other jobs use the node's
//! other CPU.
//!
//! The two CPUs may be threads of one core. Then even a job within its limits slows the work down, so the misbehaving
//! jobs are compared with it.

use anyhow::Result;

use crate::bench::cluster::Cluster;
use crate::bench::context::Bench;
use crate::bench::measure::{Contender, interleave, milliseconds};
use crate::bench::report::{Goal, Row};

const ALONE: &str = "work on one CPU, alone on the node";

/// A program that stays within its request, with its name.
const GOOD: (&str, &str) = ("one busy process", "while :; do :; done");

/// Jobs that exceed their requests, with their names. Each is an array, so that a new task follows one that was killed.
const HOGS: [(&str, &str); 3] = [
    ("eight busy processes on one CPU", "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait"),
    ("jobs that take all memory they can", "x=x; while :; do x=$x$x; done"),
    ("a fork bomb", "bomb() { bomb | bomb & }; bomb; sleep 100"),
];

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(cluster) = bench.cluster()? else { return Ok(Vec::new()) };
    if cluster.is_advisory()? {
        println!("  (skipped: the kernel does not enforce job limits here)");
        return Ok(Vec::new());
    }
    let mut contenders = vec![Contender::new(ALONE, || work(bench, &cluster))];
    for (name, neighbour) in [GOOD].into_iter().chain(HOGS) {
        let cluster = &cluster;
        contenders.push(Contender::new(format!("beside {name}"), move || beside(bench, cluster, neighbour)));
    }
    let samples = interleave(bench.runs, contenders)?;
    let [alone, good, hogs @ ..] = samples.as_slice() else { unreachable!("there is one sample per contender") };
    let harm = |hog| Row::beside(hog, "ms", good).with_goal(Goal::AtMost(1.1));
    Ok([Row::alone(alone, "ms"), Row::beside(good, "ms", alone)].into_iter().chain(hogs.iter().map(harm)).collect())
}

/// Runs the work, and returns the duration of the client in milliseconds.
fn work(bench: &Bench, cluster: &Cluster) -> Result<f64> {
    let rounds = bench.scaled(400_000).to_string();
    let script = format!("for ((i = 0; i < {rounds}; i++)); do :; done");
    milliseconds(&mut cluster.command(&[&ON_ONE_NODE[..], &["--", "bash", "-c", &script]].concat()))
}

/// Arguments of a command on the node that both jobs share.
const ON_ONE_NODE: [&str; 7] = ["run", "--constraint", "n1", "-c", "1", "-m", "64M"];

/// Like [`work`], while another job runs on the node's other CPU.
fn beside(bench: &Bench, cluster: &Cluster, neighbour: &str) -> Result<f64> {
    let flags = ["--detach", "-a", "0-999%1", "--", "bash", "-c", neighbour];
    let id = cluster.output(&mut cluster.command(&[&ON_ONE_NODE[..], &flags].concat()))?;
    while !cluster.output(&mut cluster.command(&["job", &id, "--json"]))?.contains("\"live\":1") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let elapsed = work(bench, cluster);
    cluster.cancel(std::slice::from_ref(&id))?;
    // `wait` fails, because the job ends as cancelled.
    let _ = cluster.wait(&[id]);
    elapsed
}

//! How long it takes until an unresponsive node is detected.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bench::cluster::Cluster;
use crate::bench::context::Bench;
use crate::bench::measure::Sample;
use crate::bench::report::{Goal, Row};

/// Poll interval.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Timeout for state changes.
const DEADLINE: Duration = Duration::from_secs(60);

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(cluster) = bench.cluster()? else { return Ok(Vec::new()) };
    let (mut suspect, mut down) = (Vec::new(), Vec::new());
    for _ in 0..bench.long_runs() {
        let agent = agent_of(&first_node(&cluster)?)?;
        let frozen = Frozen::freeze(agent)?;
        let begun = Instant::now();
        suspect.push(until(&cluster, begun, "suspect")?);
        down.push(until(&cluster, begun, "down")?);
        drop(frozen);
        until(&cluster, Instant::now(), "up")?;
    }
    Ok(vec![
        Row::alone(&Sample::of("frozen node suspect", suspect), "s"),
        Row::alone(&Sample::of("frozen node down", down), "s").with_goal(Goal::AtMost(10.0)),
    ])
}

/// Seconds from `begun` until the node has this state.
fn until(cluster: &Cluster, begun: Instant, state: &str) -> Result<f64> {
    while first_node(cluster)?["state"] != state {
        ensure!(begun.elapsed() < DEADLINE, "the node is not {state} within {} s", DEADLINE.as_secs());
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn first_node(cluster: &Cluster) -> Result<Value> {
    let nodes: Value = serde_json::from_str(&cluster.output(&mut cluster.command(&["nodes", "--json"]))?)?;
    nodes.get(0).cloned().context("the cluster has nodes")
}

fn agent_of(node: &Value) -> Result<i32> {
    let pid = node["agent_pid"].as_i64().context("`nodes --json` names no agent_pid")?;
    Ok(i32::try_from(pid)?)
}

/// A stopped process, which simulates a hanging machine. It continues on drop.
struct Frozen(i32);

impl Frozen {
    fn freeze(pid: i32) -> Result<Self> {
        // SAFETY: a signal to a process by its number has no preconditions.
        ensure!(unsafe { libc::kill(pid, libc::SIGSTOP) } == 0, "cannot stop process {pid}");
        Ok(Self(pid))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }
}

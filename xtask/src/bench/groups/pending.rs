//! The cost of many waiting jobs: the head's memory per job, and the time of a query. The jobs resemble those of a loop
//! in a user's shell: a command with a different argument each time, and the shell's environment.

use std::sync::Mutex;

use anyhow::{Context, Result};

use crate::bench::cluster::{self, Cluster};
use crate::bench::context::Bench;
use crate::bench::floors;
use crate::bench::measure::{Contender, interleave, spread};
use crate::bench::report::{Goal, Row, compare};

const CLIENTS: usize = 16;
const FLOOR: &str = "bash -c true";

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(cluster) = bench.cluster()? else { return Ok(Vec::new()) };
    let empty_kib = cluster.head_kib()?;
    let mut rows = Vec::new();
    let mut waiting = 0;
    for (size, bound_ms) in [(10_000, 30.0), (100_000, 50.0)] {
        let count = bench.scaled(size);
        let last = submit_held(&cluster, count - waiting)?;
        waiting = count;
        rows.extend(queries(bench, &cluster, count, &last, bound_ms)?);
        let each_kib = (cluster.head_kib()? - empty_kib) / count as f64;
        let row = Row::once(format!("memory of the head a job, {count} pending"), each_kib, "KiB");
        rows.push(row.with_goal(Goal::AtMost(1.0)));
    }
    Ok(rows)
}

/// Submits `count` jobs that stay pending. Returns the id of one of them.
fn submit_held(cluster: &Cluster, count: usize) -> Result<String> {
    let last = Mutex::new(None);
    spread(count, CLIENTS, |number| {
        let number = number.to_string();
        let words = ["run", "--detach", "--hold", "--", "./simulate", &number];
        let id = cluster.output(cluster.command(&words).envs(cluster::ordinary_environment()))?;
        *last.lock().expect("no thread panics") = Some(id);
        Ok(())
    })?;
    last.into_inner().expect("no thread panics").context("at least one job is submitted")
}

/// Measures the most frequent queries, from start to end of the client.
fn queries(bench: &Bench, cluster: &Cluster, count: usize, id: &str, bound_ms: f64) -> Result<Vec<Row>> {
    let list = format!("hostler jobs, {count} pending");
    let contenders = vec![
        Contender::timed(FLOOR, floors::bash),
        Contender::timed(&list, || cluster.command(&["jobs"])),
        Contender::timed(format!("hostler job ID, {count} pending"), || cluster.command(&["job", id])),
        Contender::timed(format!("hostler info, {count} pending"), || cluster.command(&["info"])),
    ];
    let samples = interleave(bench.runs, contenders)?;
    let mut rows = compare(&samples, "ms", "", &[]);
    let first_page = samples.iter().find(|sample| sample.name == list).expect("it was measured");
    rows.push(Row::alone(first_page, "ms").with_goal(Goal::AtMost(bound_ms)));
    Ok(rows)
}

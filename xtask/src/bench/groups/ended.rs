//! The cost of ended jobs: the head's memory, the time of its restart, and the time of a query.
//!
//! Ten thousand jobs really run. A million would take an hour, so copies of the ended jobs are written into the store
//! of the stopped head, which then restarts.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::cluster::{Cluster, ordinary_environment};
use crate::bench::context::Bench;
use crate::bench::floors;
use crate::bench::measure::{Contender, interleave, spread};
use crate::bench::report::{Goal, Row, compare};
use crate::workspace::{cargo, shown};

const CLIENTS: usize = 16;
const FLOOR: &str = "bash -c true";
const MIB: f64 = 1024.0;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(cluster) = bench.cluster()? else { return Ok(Vec::new()) };
    let empty_kib = cluster.head_kib()?;
    let count = bench.scaled(10_000);
    spread(count, CLIENTS, |_| {
        let words = ["run", "--detach", "-m", "16M", "--", "true"];
        cluster.output(cluster.command(&words).envs(ordinary_environment())).map(drop)
    })?;
    cluster.wait(&(1..=count).map(|id| id.to_string()).collect::<Vec<_>>())?;
    let each_kib = (cluster.head_kib()? - empty_kib) / count as f64;
    let mut rows = vec![
        Row::once(format!("memory of the head a job, {count} that have run"), each_kib, "KiB")
            .with_goal(Goal::AtMost(1.0)),
    ];
    rows.extend(first_page(bench, &cluster, count)?);

    cluster.down()?;
    let many = bench.scaled(1_000_000);
    copy_ended_jobs(&cluster, many)?;
    let started = Instant::now();
    cluster.up_again()?;
    let restart = started.elapsed().as_secs_f64();
    rows.push(Row::once(format!("`hostler up` with {many} ended jobs"), restart, "s").with_goal(Goal::AtMost(2.0)));
    rows.extend(first_page(bench, &cluster, many)?);
    let all_mib = cluster.head_kib()? / MIB;
    rows.push(
        Row::once(format!("memory of the head, {many} ended jobs"), all_mib, "MiB").with_goal(Goal::AtMost(50.0)),
    );
    Ok(rows)
}

/// Measures the list of all jobs, from start to end of the client.
fn first_page(bench: &Bench, cluster: &Cluster, count: usize) -> Result<Vec<Row>> {
    let list = format!("hostler jobs --all, {count} ended");
    let contenders = vec![
        Contender::timed(FLOOR, floors::bash),
        Contender::timed(&list, || cluster.command(&["jobs", "--all"])),
        Contender::timed(format!("hostler job ID, {count} ended"), || cluster.command(&["job", "1"])),
    ];
    let samples = interleave(bench.runs, contenders)?;
    let mut rows = compare(&samples, "ms", "", &[]);
    let first_page = samples.iter().find(|sample| sample.name == list).expect("it was measured");
    rows.push(Row::alone(first_page, "ms").with_goal(Goal::AtMost(20.0)));
    Ok(rows)
}

/// Writes copies of the ended jobs into the store of a stopped head.
fn copy_ended_jobs(cluster: &Cluster, count: usize) -> Result<()> {
    let mut example = cargo();
    example.args(["run", "--quiet", "--release", "--package", "hostler-head", "--example", "copy_ended_jobs", "--"]);
    example.arg(cluster.database()).arg(count.to_string());
    let output = example.output().with_context(|| format!("cannot start `{}`", shown(&example)))?;
    ensure!(output.status.success(), "`{}` failed: {}", shown(&example), String::from_utf8_lossy(&output.stderr));
    Ok(())
}

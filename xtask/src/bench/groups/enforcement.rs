//! The cost of enforcing limits: the same cluster with and without the kernel's control groups.

use anyhow::Result;

use crate::bench::cluster::Cluster;
use crate::bench::context::Bench;
use crate::bench::floors;
use crate::bench::measure::{Contender, interleave, milliseconds};
use crate::bench::report::{Row, compare};

const FLOOR: &str = "bash -c true";
const ENFORCED: &str = "limits enforced";
const ADVISORY: &str = "limits advisory";

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(enforced) = bench.cluster()? else { return Ok(Vec::new()) };
    if enforced.is_advisory()? {
        println!("  (skipped: the kernel does not enforce job limits here)");
        return Ok(Vec::new());
    }
    let Some(program) = bench.hostler.as_deref() else { return Ok(Vec::new()) };
    let advisory = match Cluster::up_without_control_groups(program) {
        Ok(cluster) if cluster.is_advisory()? => cluster,
        Ok(_) => anyhow::bail!("the nodes enforce limits although control groups are hidden from them"),
        Err(error) => {
            println!("  (skipped: hiding control groups needs root: {error:#})");
            return Ok(Vec::new());
        }
    };
    let mut rows = one(bench, &enforced, &advisory)?;
    rows.extend(many(bench, &enforced, &advisory)?);
    Ok(rows)
}

/// Measures single jobs, one after another.
fn one(bench: &Bench, enforced: &Cluster, advisory: &Cluster) -> Result<Vec<Row>> {
    let run = |cluster: &Cluster| cluster.command(&["run", "--", "true"]);
    let samples = interleave(
        bench.runs,
        vec![
            Contender::timed(FLOOR, floors::bash),
            Contender::timed(format!("run true, {ADVISORY}"), || run(advisory)),
            Contender::timed(format!("run true, {ENFORCED}"), || run(enforced)),
        ],
    )?;
    Ok(compare(&samples, "ms", &format!("run true, {ENFORCED}"), &[]))
}

/// Measures an array, whose tasks reuse control groups, in milliseconds per task.
fn many(bench: &Bench, enforced: &Cluster, advisory: &Cluster) -> Result<Vec<Row>> {
    let count = bench.scaled(1_000);
    let each = |cluster: &Cluster| {
        let indices = format!("0-{}", count - 1);
        Ok(milliseconds(&mut cluster.command(&["run", "-a", &indices, "--", "true"]))? / count as f64)
    };
    let spawn = || {
        let begun = std::time::Instant::now();
        floors::spawn_loop(count, 2)?;
        Ok(begun.elapsed().as_secs_f64() * 1e3 / count as f64)
    };
    let samples = interleave(
        bench.long_runs(),
        vec![
            Contender::new("task: fork and exec alone, two at a time", spawn),
            Contender::new(format!("task, {ADVISORY}"), || each(advisory)),
            Contender::new(format!("task, {ENFORCED}"), || each(enforced)),
        ],
    )?;
    Ok(compare(&samples, "ms", &format!("task, {ENFORCED}"), &[]))
}

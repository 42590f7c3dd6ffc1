//! The time of a scheduling pass over a large cluster with a long queue.
//!
//! The figures come from the scheduler's example, which runs the production code on synthetic nodes and jobs. Each is
//! the median of its passes. There is no peer, because the schedulers of other systems cannot run alone.

use anyhow::{Context, Result, ensure};

use crate::bench::context::Bench;
use crate::bench::report::{Goal, Row};
use crate::workspace::{cargo, shown};

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    if bench.hostler.is_none() {
        return Ok(Vec::new());
    }
    let mut example = cargo();
    example.args(["run", "--quiet", "--release", "--package", "hostler-sched", "--example", "pass", "--", "--brief"]);
    let output = example.output().with_context(|| format!("cannot start `{}`", shown(&example)))?;
    ensure!(output.status.success(), "`{}` failed: {}", shown(&example), String::from_utf8_lossy(&output.stderr));
    let mut rows = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let fields: Vec<&str> = line.splitn(3, '\t').collect();
        let [pass_ms, starts, mix] = fields[..] else { anyhow::bail!("`{line}` is not a measured pass") };
        let (pass_ms, starts): (f64, f64) = (pass_ms.parse()?, starts.parse()?);
        rows.push(Row::once(mix, pass_ms, "ms").with_goal(Goal::AtMost(50.0)));
        if starts > 0.0 {
            let each_us = pass_ms * 1e3 / starts;
            rows.push(Row::once(format!("{mix}, a start"), each_us, "us").with_goal(Goal::AtMost(20.0)));
        }
    }
    Ok(rows)
}

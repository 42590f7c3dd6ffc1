//! What a no-op task costs each of the daemons, by the kernel's counters. They hardly depend on what else the machine does.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::bench::cluster::{Cluster, Role};
use crate::bench::context::Bench;
use crate::bench::report::Row;
use crate::workspace::find_program;

/// Counters of `perf`, and their units.
const COUNTERS: [(&str, &str); 3] =
    [("raw_syscalls:sys_enter", "system calls"), ("context-switches", "context switches"), ("task-clock", "core-ms")];

const ROLES: [(Role, &str); 3] =
    [(Role::Head, "head"), (Role::Agent, "agents"), (Role::Helper, "launchers, shepherds")];

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let count = bench.scaled(10_000);
    let Some(cluster) = bench.cluster()? else { return Ok(Vec::new()) };
    ensure!(find_program("perf").is_some(), "`perf` is missing; Debian's package is linux-perf");
    // Each node gets its shepherds, which stay.
    cluster.output(&mut cluster.command(&["run", "-a", "0-99", "--", "true"]))?;
    let places = ROLES
        .map(|(_, name)| std::env::temp_dir().join(format!("hostler-bench-{}-{}", std::process::id(), &name[..4])));
    let mut command = cluster.other("perf");
    for ((role, _), place) in ROLES.iter().zip(&places) {
        // The innermost command is the job, and all three end with it.
        if command.get_args().len() > 0 {
            command.arg("perf");
        }
        command.args(["stat", "--no-inherit", "-x,", "-o"]).arg(place);
        command.args(["-e", &COUNTERS.map(|(counter, _)| counter).join(","), "-p", &pids(&cluster, *role)?, "--"]);
    }
    let job = cluster.command(&["run", "-a", &format!("0-{}", count - 1), "--", "true"]);
    command.arg(job.get_program()).args(job.get_args());
    cluster.output(&mut command)?;
    let mut rows = Vec::new();
    for ((_, name), place) in ROLES.iter().zip(&places) {
        rows.extend(rows_of(name, place, count)?);
        std::fs::remove_file(place)?;
    }
    Ok(rows)
}

fn pids(cluster: &Cluster, role: Role) -> Result<String> {
    let daemons = cluster.daemons()?;
    let pids: Vec<String> = daemons.iter().filter(|it| it.role == role).map(|it| it.pid.to_string()).collect();
    ensure!(!pids.is_empty(), "the cluster has no process of role {role:?}");
    Ok(pids.join(","))
}

/// Reads what `perf stat -x,` has written: the value, its unit and the counter, separated by commas.
fn rows_of(name: &str, place: &Path, count: usize) -> Result<Vec<Row>> {
    let text = std::fs::read_to_string(place).with_context(|| format!("cannot read {}", place.display()))?;
    let of = |counter: &str| {
        let line = text.lines().find(|line| line.split(',').nth(2) == Some(counter));
        line.and_then(|line| line.split(',').next()?.parse::<f64>().ok())
    };
    let rows = COUNTERS.iter().map(|(counter, unit)| {
        let value = of(counter).with_context(|| format!("perf did not count {counter}: {text}"))?;
        Ok(Row::once(format!("{name}, per task"), value / count as f64, unit))
    });
    rows.collect()
}

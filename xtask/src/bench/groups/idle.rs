//! Memory and CPU time of the idle daemons.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::cluster::{Daemon, Role};
use crate::bench::context::Bench;
use crate::bench::report::{Goal, Row};

/// Duration of the CPU measurement. With 100 ticks per second, one tick is 0.05 %.
const WATCH: Duration = Duration::from_secs(20);

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(cluster) = bench.cluster()? else { return Ok(Vec::new()) };
    // Run a job on every node first, so that memory that is allocated on first use counts.
    cluster.output(&mut cluster.command(&["run", "-a", "0-15", "--", "true"]))?;
    let daemons = cluster.daemons()?;
    let before = ticks(&daemons, |_| true);
    std::thread::sleep(WATCH);
    let spent = ticks(&daemons, |_| true) - before;
    // SAFETY: sysconf has no preconditions.
    let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let cpu_percent = 100.0 * spent / ticks_a_second / WATCH.as_secs_f64();
    Ok(vec![
        Row::once("head, resident", resident_mb(&daemons, Role::Head)?, "MB").with_goal(Goal::AtMost(20.0)),
        Row::once("agent, resident", resident_mb(&daemons, Role::Agent)?, "MB").with_goal(Goal::AtMost(10.0)),
        Row::once("helpers, resident in all", total_mb(&daemons, Role::Helper), "MB"),
        Row::once("CPU of all daemons", cpu_percent, "%").with_goal(Goal::AtMost(0.05)),
    ])
}

fn ticks(daemons: &[Daemon], which: impl Fn(&Daemon) -> bool) -> f64 {
    daemons.iter().filter(|daemon| which(daemon)).map(|daemon| daemon.cpu_ticks()).sum()
}

/// Mean resident memory of all daemons of this role, in MB.
fn resident_mb(daemons: &[Daemon], role: Role) -> Result<f64> {
    let count = daemons.iter().filter(|daemon| daemon.role == role).count();
    (count > 0).then(|| total_mb(daemons, role) / count as f64).with_context(|| format!("no process of role {role:?}"))
}

fn total_mb(daemons: &[Daemon], role: Role) -> f64 {
    daemons.iter().filter(|daemon| daemon.role == role).map(|daemon| daemon.resident_kib()).sum::<f64>() / 1024.0
}

//! The time of the shortest command on another node, and the throughput of its output.

use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::cluster::Cluster;
use crate::bench::context::Bench;
use crate::bench::floors;
use crate::bench::measure::{Contender, Sample, interleave, milliseconds};
use crate::bench::report::{Goal, Row, compare};
use crate::bench::ssh::{KeptSsh, SshServer};

const FLOOR: &str = "bash -c true";
const SUBJECT: &str = "hostler exec true: on another node";
const PIPE_FLOOR: &str = "cat of 256 MiB: here";
const PIPE_SUBJECT: &str = "cat of 256 MiB: hostler exec, another node";

/// Amount of data sent through a pipe, in MiB.
const PIPE_MIB: usize = 256;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let cluster = bench.cluster()?;
    if let Some(cluster) = &cluster {
        wait_for_peers(cluster)?;
    }
    let ssh = SshServer::start().inspect_err(|error| println!("  (ssh is absent: {error:#})")).ok();
    let kept = ssh.as_ref().map(SshServer::keep).transpose()?;
    let mut rows = latency(bench, cluster.as_ref(), ssh.as_ref(), kept.as_ref())?;
    rows.extend(pipe(bench, cluster.as_ref(), kept.as_ref())?);
    Ok(rows)
}

fn latency(
    bench: &Bench,
    cluster: Option<&Cluster>,
    ssh: Option<&SshServer>,
    kept: Option<&KeptSsh<'_>>,
) -> Result<Vec<Row>> {
    let mut contenders =
        vec![Contender::timed("true: fork and exec", || Command::new("true")), Contender::timed(FLOOR, floors::bash)];
    if let Some(ssh) = ssh {
        contenders.push(Contender::timed("ssh to loopback: a new connection", || ssh.command("true")));
    }
    if let Some(kept) = kept {
        contenders.push(Contender::timed("ssh to loopback: a kept connection", || kept.command("true")));
    }
    if let Some(cluster) = cluster {
        contenders.push(Contender::timed("hostler exec true: on its own node", || {
            cluster.command(&["exec", "--node", "n1", "true"])
        }));
        contenders.push(Contender::timed(SUBJECT, || cluster.command(&["exec", "--exclude", "n1", "true"])));
    }
    let samples = interleave(bench.runs, contenders)?;
    Ok(compare(&samples, "ms", SUBJECT, &[(FLOOR, Goal::AtMost(5.0))]))
}

fn pipe(bench: &Bench, cluster: Option<&Cluster>, kept: Option<&KeptSsh<'_>>) -> Result<Vec<Row>> {
    let mebibytes = bench.scaled(PIPE_MIB);
    let through = move |middle: &Command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("head -c {mebibytes}M /dev/zero | \"$@\" | cat > /dev/null"), "sh"]);
        shell.arg(middle.get_program()).args(middle.get_args());
        shell.envs(middle.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(directory) = middle.get_current_dir() {
            shell.current_dir(directory);
        }
        milliseconds(&mut shell)
    };
    let mut contenders = vec![Contender::new(PIPE_FLOOR, move || through(&Command::new("cat")))];
    if let Some(kept) = kept {
        contenders
            .push(Contender::new("cat of 256 MiB: ssh, a kept connection", move || through(&kept.command("cat"))));
    }
    if let Some(cluster) = cluster {
        contenders
            .push(Contender::new(PIPE_SUBJECT, move || through(&cluster.command(&["exec", "--exclude", "n1", "cat"]))));
    }
    let samples: Vec<Sample> = interleave(bench.long_runs(), contenders)?;
    Ok(compare(&samples, "ms", PIPE_SUBJECT, &[]))
}

/// Waits until the nodes know each other, which takes a moment after they have joined.
pub(super) fn wait_for_peers(cluster: &Cluster) -> Result<()> {
    for _ in 0..200 {
        let known = cluster.output(&mut cluster.command(&["exec", "--explain"])).unwrap_or_default();
        if ["n1", "n2", "n3", "n4"]
            .iter()
            .all(|node| known.lines().any(|line| line.starts_with(node) && !line.contains(": ")))
        {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    None.context("the nodes do not discover each other")
}

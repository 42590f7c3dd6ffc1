//! The time of the shortest job.

use anyhow::Result;

use crate::bench::context::Bench;
use crate::bench::floors;
use crate::bench::measure::{Contender, interleave};
use crate::bench::peers::{self, Peer};
use crate::bench::report::{Goal, Row, compare};
use crate::bench::ssh::SshServer;

const SUBJECT: &str = "hostler run true";
const FLOOR: &str = "bash -c true";

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let cluster = bench.cluster()?;
    let ssh = SshServer::start().inspect_err(|error| println!("  (ssh is absent: {error:#})")).ok();
    let mut contenders = vec![Contender::timed(FLOOR, floors::bash)];
    if let Some(ssh) = &ssh {
        contenders.push(Contender::timed("ssh to loopback", || ssh.command("true")));
    }
    contenders.extend(peers::contenders(&bench.peers, |peer| Contender::timed(peer.name(), move || peer.run_one())));
    if let Some(cluster) = &cluster {
        contenders.push(Contender::timed(SUBJECT, || cluster.command(&["run", "--", "true"])));
    }
    let samples = interleave(bench.runs, contenders)?;
    let goals = [(FLOOR, Goal::AtMost(10.0)), (Peer::HyperQueue.name(), Goal::AtMost(1.0 / 6.0))];
    Ok(compare(&samples, "ms", SUBJECT, &goals))
}

//! No-op tasks per second of one array.

use anyhow::Result;

use crate::bench::context::Bench;
use crate::bench::floors;
use crate::bench::measure::{Contender, interleave, milliseconds, rate};
use crate::bench::peers::{self, Peer};
use crate::bench::report::{Goal, Row, compare};

const SUBJECT: &str = "hostler run -a";
const FLOOR: &str = "spawn loop, 2 threads";

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let count = bench.scaled(10_000);
    let cluster = bench.cluster()?;
    let mut contenders = vec![
        Contender::new(FLOOR, || rate(count, || floors::spawn_loop(count, 2))),
        Contender::new("xargs -P2", || rate(count, || floors::xargs(count))),
    ];
    contenders.extend(peers::contenders(&bench.peers, |peer| {
        Contender::new(peer.name(), move || rate(count, || milliseconds(&mut peer.run_array(count)).map(drop)))
    }));
    if let Some(cluster) = &cluster {
        let indices = format!("0-{}", count - 1);
        contenders.push(Contender::new(SUBJECT, move || {
            let mut command = cluster.command(&["run", "-a", &indices, "--", "true"]);
            rate(count, || milliseconds(&mut command).map(drop))
        }));
    }
    let samples = interleave(bench.long_runs(), contenders)?;
    let goals = [(FLOOR, Goal::AtLeast(0.5)), (Peer::HyperQueue.name(), Goal::AtLeast(1.3))];
    Ok(compare(&samples, "/s", SUBJECT, &goals))
}

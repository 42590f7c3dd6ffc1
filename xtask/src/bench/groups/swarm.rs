//! The head's resource use with a thousand idle agents.

use anyhow::{Context, Result};

use crate::bench::context::Bench;
use crate::bench::report::{Goal, Row};
use crate::swarm;

const AGENTS: usize = 1_000;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let Some(program) = bench.hostler.as_deref() else { return Ok(Vec::new()) };
    let agents = bench.scaled(AGENTS);
    let said = swarm::watch(&[program.as_os_str(), agents.to_string().as_ref(), "1".as_ref()])?;
    let idle =
        idle(&said).with_context(|| format!("the output of the swarm contains no figures of its head: {said}"))?;
    let thousands = agents as f64 / AGENTS as f64;
    Ok(vec![
        Row::once("head's CPU per 1,000 idle agents", idle.cpu_percent / thousands, "%"),
        Row::once("head with the agents, resident", idle.resident_mib, "MiB"),
        Row::once("until all have joined", idle.joined_secs, "s").with_goal(Goal::AtMost(10.0)),
    ])
}

/// The swarm's figures about its head.
#[derive(Debug, PartialEq)]
struct Idle {
    joined_secs: f64,
    cpu_percent: f64,
    resident_mib: f64,
}

/// Parses the output of the swarm.
fn idle(said: &str) -> Option<Idle> {
    let after = |begin: &str| {
        let (_, rest) = said.split_once(begin)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    Some(Idle {
        joined_secs: after("joined, linked and up in ")?,
        cpu_percent: after("always up: ")?,
        resident_mib: after("polls included; ")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_the_swarm_is_parsed() {
        let said = "run 1 of 1, 1000 agents\n  joined, linked and up in 3.21 s; at most 64 handshakes at once, 0 attempts refused; \
                    the head used 1.20 s of CPU\n  idle for 30 s, always up: 4.50 % of a CPU, polls included; 61 MiB resident, 40.1 KiB \
                    for each agent\n";
        assert_eq!(idle(said), Some(Idle { joined_secs: 3.21, cpu_percent: 4.5, resident_mib: 61.0 }));
        assert_eq!(idle("error: no room"), None);
    }
}

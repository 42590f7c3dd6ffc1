//! `hostler sim`.

use std::path::PathBuf;

use clap::Args;
use hostler_model::Request;
use hostler_sched::Policy;
use hostler_sim::{Metrics, ReplayOptions, Trace, replay};
use serde_json::json;

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::Memory;

/// Replay a recorded workload through the scheduler on a virtual clock and print how well it was served
///
/// The workload is a file in the Standard Workload Format. Jobs run as long as the trace says; the scheduler, the same as in a real
/// cluster, knows only their time limits. Needs no cluster.
#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// The workload, a file in the Standard Workload Format
    #[arg(value_name = "TRACE.swf")]
    trace: PathBuf,

    /// fcfs (first come, first served) or easy (backfill)
    #[arg(long, value_name = "POLICY", default_value_t = Policy::Easy)]
    policy: Policy,

    /// How many nodes; one by default
    #[arg(long, value_name = "N", requires = "cpus", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: Option<u32>,

    /// CPUs of each node; by default those of the recorded machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus: Option<u32>,

    /// Memory of each node; by default as much as any job asks for
    #[arg(long, value_name = "SIZE", requires = "cpus")]
    memory: Option<Memory>,
}

impl Sim {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let name = self.trace.display();
        let bytes = std::fs::read(&self.trace).during(|| format!("cannot read {name}"))?;
        let trace = Trace::parse(&bytes).during(|| format!("{name} is not in the Standard Workload Format"))?;
        if trace.skipped > 0 {
            context.output.say(&format!("note: {} jobs of the trace never ran and are left out", trace.skipped));
        }
        let options = ReplayOptions { policy: self.policy, nodes: self.machine() };
        let replay = replay(&trace, &options).map_err(|error| {
            Failure::new(format!("{name} cannot be replayed: {error}"))
                .because(&error)
                .hint("--nodes, --cpus and --memory say what machine to replay it on")
        })?;
        match context.output.is_json() {
            true => context.output.json(&as_json(self.policy, &replay.metrics)),
            false => context.output.data(&format!("policy                 {}\n{}", self.policy, replay.metrics)),
        }
        Ok(exit::OK)
    }

    /// The nodes that were asked for; none for the machine of the trace.
    fn machine(&self) -> Vec<Request> {
        let Some(cpus) = self.cpus else { return Vec::new() };
        let memory_bytes = self.memory.map_or(u64::MAX, |memory| memory.0);
        vec![Request::new(cpus, memory_bytes); self.nodes.unwrap_or(1) as usize]
    }
}

fn as_json(policy: Policy, metrics: &Metrics) -> serde_json::Value {
    json!({
        "policy": policy,
        "jobs": metrics.jobs,
        "jobs_that_waited": metrics.jobs_that_waited,
        "mean_wait_secs": metrics.mean_wait_secs,
        "sum_of_waits_secs": metrics.sum_of_waits_secs,
        "max_wait_secs": metrics.max_wait_secs,
        "mean_bounded_slowdown": metrics.mean_bounded_slowdown,
        "makespan_secs": metrics.makespan_secs,
        "utilisation": metrics.utilisation,
    })
}

//! `hostler sim`.

use std::path::PathBuf;

use clap::Args;
use hostler_model::{PowerPolicy, Request, Watts};
use hostler_sched::Policy;
use hostler_sim::{Machines, Metrics, MonthReport, ReplayOptions, Rule, Trace, home_lab, month, replay};
use serde_json::json;

use crate::context::Context;
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::{Memory, TimeLimit};

/// Replay a recorded workload through the scheduler on a virtual clock and print how well it was served
///
/// The workload is a file in the Standard Workload Format. Jobs run as long as the trace says; the scheduler, the same as in a real
/// cluster, knows only their time limits. Needs no cluster.
#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// The workload, a file in the Standard Workload Format
    #[arg(value_name = "TRACE.swf", required_unless_present = "home_lab")]
    trace: Option<PathBuf>,

    /// Switch machines on and off, and compare what is drawn and what jobs wait: machines that are always on, a script that looks every two
    /// minutes, and the head's own policy at three settings
    #[arg(long)]
    power: bool,

    /// With --power: thirty days of made-up arrivals as in a home lab, in place of a trace; on six nodes of 8 CPUs unless others are said
    #[arg(long, requires = "power", conflicts_with = "trace")]
    home_lab: bool,

    /// With --power: jobs that are submitted within so many days
    #[arg(long, requires = "power", value_name = "N", default_value_t = 30)]
    days: u64,

    /// With --power: how long a machine takes to boot
    #[arg(long, requires = "power", value_name = "TIME", default_value = "4m")]
    boot: TimeLimit,

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
        let Some(path) = &self.trace else { return self.compare(&home_lab(1), context) };
        let name = path.display();
        let bytes = std::fs::read(path).during(|| format!("cannot read {name}"))?;
        let trace = Trace::parse(&bytes).during(|| format!("{name} is not in the Standard Workload Format"))?;
        if trace.skipped > 0 {
            context.output.say(&format!("note: {} jobs of the trace never ran and are left out", trace.skipped));
        }
        if self.power {
            return self.compare(&trace, context);
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

    /// The same month under five rules.
    fn compare(&self, trace: &Trace, context: &Context) -> Outcome {
        let TimeLimit(boot) = self.boot;
        let machines = Machines {
            count: self.nodes.unwrap_or(6),
            cpus: self.cpus.unwrap_or(8),
            watts: Watts::default(),
            boot_ms: u64::try_from(boot.as_millis()).unwrap_or(u64::MAX),
        };
        let most = u64::from(machines.count) * u64::from(machines.cpus);
        if let Some(job) = trace.jobs.iter().find(|job| u64::from(job.request.cpus) > most) {
            let wanted = job.request.cpus;
            return Err(Failure::usage(format!("job {} wants {wanted} CPUs and there are {most}", job.number))
                .hint("--nodes and --cpus say what machines there are"));
        }
        let head = |minutes: u64| {
            let (idle_ms, min_up_ms) = (minutes * 60_000, minutes * 60_000);
            Rule::Head(PowerPolicy { idle_ms, min_up_ms, ..PowerPolicy::default() })
        };
        let rules = [
            ("always on", Rule::AlwaysOn),
            ("script", Rule::Script),
            ("idle 5m", head(5)),
            ("idle 15m", head(15)),
            ("idle 1h", head(60)),
        ];
        let reports: Vec<_> =
            rules.iter().map(|(name, rule)| (*name, month(trace, self.days, machines, rule))).collect();
        if context.output.is_json() {
            let each = reports.iter().map(|(name, report)| month_as_json(name, report));
            context.output.json(&each.collect::<Vec<_>>());
            return Ok(exit::OK);
        }
        let always = reports[0].1.kwh;
        for (name, report) in &reports {
            let saved = 100.0 * (1.0 - report.kwh / always.max(f64::MIN_POSITIVE));
            context.output.data(&format!("{name:9}  {report}; {saved:4.0} % saved"));
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

fn month_as_json(name: &str, report: &MonthReport) -> serde_json::Value {
    json!({
        "rule": name,
        "jobs": report.jobs,
        "mean_wait_secs": report.mean_wait_secs,
        "p95_wait_secs": report.p95_wait_secs,
        "max_wait_secs": report.max_wait_secs,
        "kwh": report.kwh,
        "starts_per_machine": report.starts_per_machine,
        "lasted_ms": report.lasted_ms,
    })
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

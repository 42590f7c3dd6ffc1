//! `hostler sim`: replays traces, and simulates clusters with failures.

use std::io::Write as _;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use clap::Args;
use hostler_cli::context::Context;
use hostler_cli::exit;
use hostler_cli::failure::{During, Failure, Outcome};
use hostler_cli::flags::{Memory, TimeLimit};
use hostler_model::{PowerPolicy, Request, Watts, plural};
use hostler_sched::Policy;
use hostler_sim::cluster;
use hostler_sim::{Machines, Metrics, MonthReport, ReplayOptions, Rule, Trace, home_lab, month, replay};
use serde_json::json;

/// Replay a workload trace in the scheduler simulator
///
/// The simulator runs the real scheduler on a virtual clock and prints waiting times and utilisation. Each job runs as
/// long as in the trace; the scheduler knows only the time limit of the job. The command needs no cluster.
///
/// With --seed or --seeds, the command simulates a cluster in which heads, nodes, disks, networks and power controllers
/// fail at random. It checks that no job is lost or run twice.
#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// Trace file in the Standard Workload Format
    #[arg(value_name = "TRACE.swf", required_unless_present_any = ["home_lab", "seed", "seeds"])]
    trace: Option<PathBuf>,

    /// Simulate one cluster with random failures from this seed; print the result
    #[arg(long, value_name = "N", conflicts_with_all = ["trace", "power", "seeds", "nodes", "cpus", "memory"])]
    seed: Option<u64>,

    /// With --seed: print all events, one per line, with the time in milliseconds
    #[arg(long = "trace", requires = "seed")]
    story: bool,

    /// Simulate one cluster for each seed, e.g. 0..1000; print the seeds that fail
    ///
    /// The last seed is TO - 1.
    #[arg(long, value_name = "FROM..TO", conflicts_with_all = ["trace", "power", "nodes", "cpus", "memory"])]
    seeds: Option<Seeds>,

    /// With --seeds: number of threads [default: one per CPU]
    #[arg(long, value_name = "N", requires = "seeds", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    /// Compare power policies: energy use and waiting times
    ///
    /// The policies are: machines that are always on, a script that checks every two minutes, and the head's policy
    /// with three settings.
    #[arg(long)]
    power: bool,

    /// With --power: generate 30 days of home-lab jobs instead of a trace
    ///
    /// The cluster has six nodes of 8 CPUs, unless --nodes and --cpus are given.
    #[arg(long, requires = "power", conflicts_with = "trace")]
    home_lab: bool,

    /// With --power: use only the jobs of the first N days
    #[arg(long, requires = "power", value_name = "N", default_value_t = 30)]
    days: u64,

    /// With --power: boot time of a machine
    #[arg(long, requires = "power", value_name = "TIME", default_value = "4m")]
    boot: TimeLimit,

    /// Scheduling policy: fcfs (first come, first served), easy (backfill) or greedy (whatever fits)
    ///
    /// Several, separated by commas, are compared.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "easy", conflicts_with = "power")]
    policy: Vec<Policy>,

    /// Number of nodes; requires --cpus [default: 1]
    #[arg(long, value_name = "N", requires = "cpus", value_parser = hostler_cli::flags::number::<1, 100_000>)]
    nodes: Option<u32>,

    /// CPUs per node [default: the CPUs of the machine in the trace]
    #[arg(long, value_name = "N", value_parser = hostler_cli::flags::at_least_one)]
    cpus: Option<u32>,

    /// Memory per node; requires --cpus [default: the largest request of a job]
    #[arg(long, value_name = "SIZE", requires = "cpus")]
    memory: Option<Memory>,
}

/// A half-open range of seeds.
#[derive(Debug, Clone)]
struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        match parsed {
            Some((from, to)) if from < to => Ok(Self(from..to)),
            _ => Err("not a range such as 0..1000, which ends before 1000".to_owned()),
        }
    }
}

fn run_seed(seed: u64, whole_trace: bool, context: &Context) -> Outcome {
    let output = &context.output;
    let options = cluster::Options { whole_trace, ..cluster::Options::default() };
    match cluster::run(seed, &options) {
        Ok(report) if output.is_json() => output.json(&json!({
            "seed": seed,
            "failed": false,
            "jobs": report.jobs,
            "processes": report.processes,
            "events": report.events,
            "head_starts": report.head_starts,
            "agent_starts": report.agent_starts,
            "virtual_ms": report.virtual_ms,
            "trace": report.trace,
        })),
        Ok(report) => output.data(&report.to_string()),
        Err(failure) => {
            match output.is_json() {
                true => output.json(&failed_as_json(&failure)),
                false => output.data(&failure.to_string()),
            }
            return Ok(exit::FAILED);
        }
    }
    Ok(exit::OK)
}

fn run_seeds(seeds: Range<u64>, threads: usize, context: &Context) -> Outcome {
    let output = &context.output;
    let began = Instant::now();
    let found = Mutex::new((0_u64, Vec::new()));
    let lock = || found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    cluster::run_many(seeds, threads, &cluster::Options::default(), |world| {
        let mut found = lock();
        found.0 += 1;
        if let Err(failure) = world {
            if !output.is_json() {
                output.data(&format!("seed {} fails: {}", failure.seed, failure.what));
            }
            found.1.push(failure);
        }
        ControlFlow::Continue(())
    });
    let (count, mut failures) = std::mem::take(&mut *lock());
    failures.sort_by_key(|failure| failure.seed);
    let seconds = began.elapsed().as_secs_f64();
    match output.is_json() {
        true => output.json(&json!({
            "worlds": count,
            "seconds": seconds,
            "failures": failures.iter().map(failed_as_json).collect::<Vec<_>>(),
        })),
        false => output.data(&format!(
            "simulated {count} clusters in {seconds:.1} s, {:.0} per second; {} failed",
            count as f64 / seconds.max(f64::MIN_POSITIVE),
            failures.len()
        )),
    }
    if let Some(first) = failures.first() {
        output.say(&format!("`hostler sim --seed {} --trace` prints all events of the first failure", first.seed));
        return Ok(exit::FAILED);
    }
    Ok(exit::OK)
}

fn failed_as_json(failure: &cluster::Failure) -> serde_json::Value {
    json!({
        "seed": failure.seed,
        "failed": true,
        "what": failure.what,
        "virtual_ms": failure.virtual_ms,
        "trace": failure.trace,
    })
}

/// Prints the seed on a panic, because a panic ends the program in release builds.
fn name_seed_in_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(seed) = cluster::current_seed() {
            let text =
                format!("seed {seed}: the production code panicked; to repeat it: hostler sim --seed {seed} --trace\n");
            // A failed write must not panic again.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        before(panic);
    }));
}

impl Sim {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if self.seed.is_some() || self.seeds.is_some() {
            name_seed_in_panics();
        }
        if let Some(seed) = self.seed {
            return run_seed(seed, self.story, context);
        }
        if let Some(Seeds(seeds)) = self.seeds {
            let all = || thread::available_parallelism().map_or(1, usize::from);
            return run_seeds(seeds, self.threads.map_or_else(all, usize::from), context);
        }
        let Some(path) = &self.trace else { return self.compare(&home_lab(1), context) };
        let name = path.display();
        let bytes = std::fs::read(path).during(|| format!("cannot read {name}"))?;
        let trace = Trace::parse(&bytes).during(|| format!("{name} is not in the Standard Workload Format"))?;
        if trace.skipped > 0 {
            context.output.say(&format!("note: left out {} of the trace that never ran", plural(trace.skipped, "job")));
        }
        if self.power {
            return self.compare(&trace, context);
        }
        let mut values = Vec::new();
        for &policy in &self.policy {
            let replay = replay(&trace, &ReplayOptions { policy, nodes: self.machine() }).map_err(|error| {
                Failure::new(format!("{name} cannot be replayed: {error}"))
                    .because(&error)
                    .hint("--nodes, --cpus and --memory set the simulated cluster")
            })?;
            match context.output.is_json() {
                true => values.push(as_json(policy, &replay.metrics)),
                false => context.output.data(&format!("policy                 {policy}\n{}", replay.metrics)),
            }
        }
        match values.as_slice() {
            [] => {}
            [one] => context.output.json(one),
            several => context.output.json(&several),
        }
        Ok(exit::OK)
    }

    /// Replays the same jobs under five power policies.
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
            return Err(Failure::usage(format!(
                "job {} requests {}, but the cluster has {most}",
                job.number,
                plural(wanted, "CPU")
            ))
            .hint("--nodes and --cpus set the simulated cluster"));
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

    /// The nodes that `--nodes` and `--cpus` describe; empty means the machine of the trace.
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

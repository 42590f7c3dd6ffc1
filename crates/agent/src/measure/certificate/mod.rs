//! Measurement certificates of exclusive jobs: what disturbed a run on this node.
//!
//! The agent reads the machine's counters just before and just after the run, and probes one CPU for 50 ms before the first
//! and after the second reading; again if something interrupted the probe, since the submission and the end of a job also
//! cause work. Only exclusive jobs are measured, so no other start waits for a probe.
//!
//! - [`parse`] and [`judge`] are pure; [`probe`] finds interruptions; this module reads the files.
//! - The certificate is a file in the run's directory, which belongs to the agent. From there it goes into the report of
//!   the run's end and into the results.

mod judge;
mod parse;
mod probe;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use hostler_core::agent::RunLaunch;
use hostler_model::{CpuSet, NodeFacts, RunId};
use hostler_proto::certificate::{Certificate, MeasuredMachine, MeasuredRun, ProcessorState};
use hostler_shepherd::{ExitRecord, Launch, Status};
use nix::unistd::{SysconfVar, sysconf};
use tokio::task::spawn_blocking;

pub use self::judge::NoiseLimits;
use self::judge::Reading;
use self::parse::{add_cpuinfo, all_waited, short, stat, swapped};
use crate::measure::usage::{processor_sensors, value_of};
use crate::mutex::lock;
use crate::runs::directory::Runs;
use crate::runs::outcome::RunOutcome;
use crate::runs::surroundings::Surrounding;

/// Where the kernel describes CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

/// Measures the runs of exclusive jobs.
pub(crate) struct Measurements {
    /// What does not change about the machine.
    machine: MeasuredMachine,
    limits: NoiseLimits,
    runs: Arc<Runs>,
    measuring: Mutex<HashMap<RunId, Measuring>>,
}

/// A run that is being measured.
struct Measuring {
    machine: MeasuredMachine,
    cpus: CpuSet,
    /// The cgroup that the run has to itself.
    leaf: Option<PathBuf>,
    before: (Reading, ProcessorState),
    at: Instant,
}

impl Measurements {
    /// `limits`: values up to which the node counts as quiet. `is_shared`: whether the machine has other uses.
    pub(crate) fn new(facts: &NodeFacts, limits: NoiseLimits, is_shared: bool, runs: Arc<Runs>) -> Self {
        Self { machine: offered(facts, is_shared), limits, runs, measuring: Mutex::default() }
    }

    /// Measures the machine before the start of a run.
    async fn begin(&self, run: RunId, cpus: CpuSet, leaf: Option<PathBuf>) {
        let (machine, limits) = (self.machine.clone(), self.limits);
        let work = move || {
            let machine = machine_now(machine);
            let state = processors(&cpus, &limits);
            let before = (reading(), state);
            Measuring { machine, cpus, leaf, before, at: Instant::now() }
        };
        if let Ok(measuring) = spawn_blocking(work).await {
            lock(&self.measuring).insert(run, measuring);
        }
    }

    /// Measures the machine after the end of a run, and stores the certificate in the run's directory.
    async fn finish(&self, run: RunId, record: ExitRecord) {
        let Some(Measuring { machine, cpus, leaf, before, at }) = lock(&self.measuring).remove(&run) else { return };
        let (limits, directory) = (self.limits, self.runs.of(run));
        let work = move || {
            let wall_us = u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX);
            let reading = reading();
            let figures = figures(cpus, wall_us, &record, leaf.as_deref());
            let after = (reading, processors(&figures.cpus, &limits));
            directory.store_certificate(&judge::certificate(machine, figures, [before, after], &limits));
        };
        let _ = spawn_blocking(work).await;
    }
}

impl Surrounding for Measurements {
    fn start<'a>(&'a self, launch: &'a RunLaunch, orders: &'a Launch) -> BoxFuture<'a, ()> {
        if !launch.spec().surroundings.exclusive {
            return ready(()).boxed();
        }
        let leaf = orders.options.leaf.as_ref().map(|leaf| leaf.path.clone());
        self.begin(launch.run(), launch.placement.resources.cpus.clone(), leaf).boxed()
    }

    fn end<'a>(&'a self, launch: &'a RunLaunch, outcome: &'a RunOutcome) -> BoxFuture<'a, ()> {
        match outcome {
            RunOutcome::Recorded(record) if launch.spec().surroundings.exclusive => {
                self.finish(launch.run(), ExitRecord::clone(record)).boxed()
            }
            _ => {
                lock(&self.measuring).remove(&launch.run());
                ready(()).boxed()
            }
        }
    }
}

/// The stored certificate of an ended run; `None` unless a program of an exclusive job ran.
pub(crate) fn of_ended(runs: &Runs, launch: &RunLaunch, record: &ExitRecord) -> Option<Box<Certificate>> {
    if !launch.spec().surroundings.exclusive || matches!(record.status, Status::StartFailed { .. }) {
        return None;
    }
    let stored = runs.of(launch.run()).stored_certificate();
    Some(Box::new(stored.unwrap_or_else(Certificate::of_restarted_agent)))
}

/// The figures of the run's own processes.
fn figures(cpus: CpuSet, wall_us: u64, record: &ExitRecord, leaf: Option<&Path>) -> MeasuredRun {
    let cpu_time = record.user_time + record.system_time;
    let in_leaf = |name: &str| text(&leaf?.join(name));
    MeasuredRun {
        cpus,
        wall_us,
        cpu_us: u64::try_from(cpu_time.as_micros()).unwrap_or(u64::MAX),
        voluntary_switches: record.events.map(|events| events.voluntary_switches),
        involuntary_switches: record.events.map(|events| events.involuntary_switches),
        minor_faults: record.events.map(|events| events.minor_faults),
        major_faults: record.events.map(|events| events.major_faults),
        waited: all_waited(|name| in_leaf(&format!("{name}.pressure"))),
        quota_stops: in_leaf("cpu.stat").and_then(|text| value_of(&text, "nr_throttled")),
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// The machine's counters now.
fn reading() -> Reading {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|it| u64::try_from(it).ok()).unwrap_or(100);
    Reading {
        stat: text(Path::new("/proc/stat")).and_then(|text| stat(&text, 1_000_000 / ticks.max(1))),
        waited: all_waited(|name| text(&Path::new("/proc/pressure").join(name))),
        swapped_pages: text(Path::new("/proc/vmstat")).and_then(|text| swapped(&text)),
        throttles: throttles(Path::new(CPUS)),
    }
}

/// How often the cores and packages below `cpus` have slowed down because of heat or power.
fn throttles(cpus: &Path) -> Option<u64> {
    let all: Vec<PathBuf> =
        fs::read_dir(cpus).ok()?.flatten().map(|entry| entry.path().join("thermal_throttle")).collect();
    let count =
        |name: &str| all.iter().filter_map(|directory| number(&directory.join(name))).reduce(u64::saturating_add);
    // Each CPU of a package has the package's counter.
    let package = all.iter().filter_map(|directory| number(&directory.join("package_throttle_count"))).max();
    Some(count("core_throttle_count")?.saturating_add(package.unwrap_or(0)))
}

/// Frequencies and temperature, and a probe of the first of these CPUs.
fn processors(cpus: &CpuSet, limits: &NoiseLimits) -> ProcessorState {
    let frequency = |cpu: u32| number(&Path::new(CPUS).join(format!("cpu{cpu}/cpufreq/scaling_cur_freq")));
    let frequencies: Vec<u64> = cpus.iter().filter_map(frequency).collect();
    let degrees = processor_sensors().into_iter().filter_map(|sensor| text(&sensor)?.trim().parse::<i64>().ok());
    ProcessorState {
        lowest_khz: frequencies.iter().copied().min(),
        highest_khz: frequencies.iter().copied().max(),
        temperature_mc: degrees.max(),
        probe: cpus.iter().next().and_then(|cpu| probe::quietest(cpu, |probe| limits.allow(probe))),
    }
}

/// The node's part of the machine.
fn offered(facts: &NodeFacts, is_shared: bool) -> MeasuredMachine {
    let topology: Vec<_> = facts.hardware.topology.cpus().collect();
    let count = |of: fn(&hostler_model::Cpu) -> u32| topology.iter().map(of).collect::<BTreeSet<_>>().len() as u32;
    MeasuredMachine {
        is_shared,
        cpus: facts.resources.cpus.len(),
        cores: count(|cpu| cpu.core),
        packages: count(|cpu| cpu.package),
        numa_nodes: count(|cpu| cpu.numa),
        ..MeasuredMachine::default()
    }
}

/// Adds what users of the machine can change.
fn machine_now(offered: MeasuredMachine) -> MeasuredMachine {
    let cpu_file = |name: &str| text(&Path::new(CPUS).join(name));
    let mut machine = MeasuredMachine {
        kernel: text(Path::new("/proc/sys/kernel/osrelease")).map(|text| short(&text)),
        governor: cpu_file("cpu0/cpufreq/scaling_governor").map(|text| short(&text)),
        boost: match (cpu_file("cpufreq/boost"), cpu_file("intel_pstate/no_turbo")) {
            (Some(boost), _) => Some(boost.trim() == "1"),
            (None, Some(no_turbo)) => Some(no_turbo.trim() == "0"),
            (None, None) => None,
        },
        smt: cpu_file("smt/control").map(|text| short(&text)),
        ..offered
    };
    add_cpuinfo(&mut machine, &text(Path::new("/proc/cpuinfo")).unwrap_or_default());
    machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_counters_of_cores_add_up_and_a_package_counts_once() {
        let top = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(throttles(top.path()), None, "a virtual machine has no counters");
        for (cpu, core) in [("cpu0", "3"), ("cpu1", "4")] {
            let directory = top.path().join(cpu).join("thermal_throttle");
            fs::create_dir_all(&directory).expect("the test owns the directory");
            fs::write(directory.join("core_throttle_count"), core).expect("the test owns the directory");
            fs::write(directory.join("package_throttle_count"), "10\n").expect("the test owns the directory");
        }
        assert_eq!(throttles(top.path()), Some(17));
    }
}

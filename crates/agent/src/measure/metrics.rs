//! `/metrics` of a node: the agent's work and the machine's load, for Prometheus.
//!
//! [`Metrics`] counts while the agent works. [`Exporter`] adds figures from the agent's state and from `/proc` at each
//! scrape. Users of this machine read them on the agent's socket, and others on the [`port`], if there is one. No label
//! names a job or a user.

pub(crate) mod port;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hostler_core::agent::Stage;
use hostler_metrics::{Counter, Family, Format, Histogram, Info, Registry, set, set_all};
use hostler_model::{Advisory, Resources};
use prometheus_client::encoding::EncodeLabelSet;

use crate::handle::{Handle, Held};

/// Outcomes of launches.
const LAUNCHES: [&str; 2] = ["started", "failed"];

/// Outcomes of requests for an environment.
const ENVIRONMENTS: [&str; 3] = ["built", "cached", "failed"];

/// Names of the stages of a run.
const STAGES: [&str; 5] = ["staging", "ready", "running", "collecting", "over"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLimit {
    limit: &'static str,
}

/// What the agent counts while it works.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    launches: Family<Outcome, Counter>,
    launch_times: Histogram,
    environments: Family<Outcome, Counter>,
    build_times: Histogram,
    /// Bytes of chunks from the head, as they travel.
    pub(crate) received: Counter,
    /// Bytes of chunks to the head, as they travel.
    pub(crate) sent: Counter,
    /// Whether the head has welcomed the agent.
    is_linked: AtomicBool,
}

impl Metrics {
    pub(crate) fn new(node: &str) -> Self {
        let mut registry = hostler_metrics::registry();
        let metrics = Self {
            launches: Family::default(),
            launch_times: hostler_metrics::task_seconds(),
            environments: Family::default(),
            build_times: hostler_metrics::task_seconds(),
            received: Counter::default(),
            sent: Counter::default(),
            is_linked: AtomicBool::new(false),
            registry: Registry::default(),
        };
        LAUNCHES.iter().for_each(|outcome| drop(metrics.launches.get_or_create(&Outcome { outcome })));
        ENVIRONMENTS.iter().for_each(|outcome| drop(metrics.environments.get_or_create(&Outcome { outcome })));
        let facts = [("node", node.to_owned()), ("version", env!("CARGO_PKG_VERSION").to_owned())];
        registry.register("node", "Name of the node, and release of its agent", Info::new(facts));
        registry.register("agent_launches", "Launches of runs on this node", metrics.launches.clone());
        let help = "Time from the launch of a run until its process started";
        registry.register("agent_launch_seconds", help, metrics.launch_times.clone());
        registry.register(
            "agent_environments",
            "Python environments that runs asked for",
            metrics.environments.clone(),
        );
        let help = "Duration of successful builds of Python environments";
        registry.register("agent_environment_build_seconds", help, metrics.build_times.clone());
        registry.register(
            "agent_received_bytes",
            "Chunks that the agent downloaded from the head",
            metrics.received.clone(),
        );
        registry.register("agent_sent_bytes", "Chunks that the agent uploaded to the head", metrics.sent.clone());
        Self { registry, ..metrics }
    }

    /// Counts a launch whose process has started.
    pub(crate) fn started(&self, took: Duration) {
        self.launch_times.observe(took.as_secs_f64());
        self.launches.get_or_create(&Outcome { outcome: LAUNCHES[0] }).inc();
    }

    /// Counts a launch without a process.
    pub(crate) fn not_started(&self) {
        self.launches.get_or_create(&Outcome { outcome: LAUNCHES[1] }).inc();
    }

    /// Counts an environment that was built in this time, or that was in the cache.
    pub(crate) fn environment(&self, built_in: Option<Duration>) {
        let outcome = if built_in.is_some() { ENVIRONMENTS[0] } else { ENVIRONMENTS[1] };
        if let Some(took) = built_in {
            self.build_times.observe(took.as_secs_f64());
        }
        self.environments.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn no_environment(&self) {
        self.environments.get_or_create(&Outcome { outcome: ENVIRONMENTS[2] }).inc();
    }

    pub(crate) fn linked(&self, is_linked: bool) {
        self.is_linked.store(is_linked, Ordering::Relaxed);
    }
}

/// Answers scrapes.
pub(crate) struct Exporter {
    pub(crate) metrics: Arc<Metrics>,
    /// What the node offers.
    pub(crate) resources: Resources,
    /// Limits that the kernel does not enforce here.
    pub(crate) advisory: Advisory,
    pub(crate) engine: Handle,
}

impl Exporter {
    /// All metrics in the format that the header `Accept` asks for, and their content type.
    pub(crate) fn answer(&self, accept: Option<&str>) -> (&'static str, String) {
        let format = Format::accepted(accept);
        let mut registry = hostler_metrics::registry();
        hostler_metrics::register_process(&mut registry);
        let metrics = &self.metrics;
        let is_linked = f64::from(u8::from(metrics.is_linked.load(Ordering::Relaxed)));
        set(&mut registry, "agent_connected", "1 while the agent is connected to the head", is_linked);
        self.add_runs(&mut registry);
        add_limits(&mut registry, &self.advisory);
        add_machine(&mut registry, |path| fs::read_to_string(path).ok());
        (format.content_type(), format.encode(&[&metrics.registry, &registry]))
    }

    fn add_runs(&self, registry: &mut Registry) {
        let mut counts = [0_u32; STAGES.len()];
        for (_, run) in self.engine.state().runs() {
            let at = match run.stage {
                Stage::Staging | Stage::Building => 0,
                Stage::Ready { .. } => 1,
                Stage::Running => 2,
                Stage::Collecting(_) | Stage::Recollecting(_) => 3,
                Stage::Over(_) => 4,
            };
            counts[at] += 1;
        }
        let values = STAGES.into_iter().zip(counts).map(|(state, runs)| (InState { state }, f64::from(runs)));
        set_all(registry, "agent_runs", "Runs on this node, by stage", values);
        let Held { cpus, memory_bytes, .. } = self.engine.held();
        let resources = &self.resources;
        for (name, help, value) in [
            ("node_cpus_offered", "CPUs of this node that jobs may use", f64::from(resources.cpus.len())),
            ("node_cpus_held", "CPUs of this node that runs hold", f64::from(cpus.len())),
            ("node_memory_offered_bytes", "Memory of this node that jobs may use", resources.memory_bytes as f64),
            ("node_memory_held_bytes", "Memory of this node that runs hold", memory_bytes as f64),
        ] {
            set(registry, name, help, value);
        }
    }
}

fn add_limits(registry: &mut Registry, advisory: &Advisory) {
    let limits =
        [("cpus", &advisory.cpus), ("memory", &advisory.memory), ("gpus", &advisory.gpus), ("users", &advisory.users)];
    let values = limits.map(|(limit, why)| (OfLimit { limit }, f64::from(u8::from(why.is_some()))));
    set_all(registry, "agent_limit_advisory", "1 if the kernel does not enforce the limit on this node", values);
}

/// Adds the machine's load, memory and pressure. Figures that the kernel does not report are absent.
fn add_machine(registry: &mut Registry, read: impl Fn(&str) -> Option<String>) {
    let load = read("/proc/loadavg").and_then(|text| text.split_ascii_whitespace().next()?.parse::<f64>().ok());
    if let Some(load) = load {
        set(registry, "node_load_average", "Load average of the machine's last minute", load);
    }
    let memory = read("/proc/meminfo").unwrap_or_default();
    for (key, name, help) in [
        ("MemTotal:", "node_memory_bytes", "Memory of the machine"),
        ("MemAvailable:", "node_memory_available_bytes", "Memory available without swapping"),
    ] {
        let kib = memory.lines().find_map(|line| line.strip_prefix(key));
        if let Some(kib) = kib.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()) {
            set(registry, name, help, (kib * 1024) as f64);
        }
    }
    let help = "Time in which at least one process waited for this resource";
    let waits = Family::<OfResource, Counter<f64, std::sync::atomic::AtomicU64>>::default();
    for (resource, path) in
        [("cpu", "/proc/pressure/cpu"), ("memory", "/proc/pressure/memory"), ("io", "/proc/pressure/io")]
    {
        if let Some(micros) = read(path).as_deref().and_then(waited_us) {
            waits.get_or_create(&OfResource { resource }).inc_by(micros as f64 / 1e6);
        }
    }
    registry.register("node_pressure_waiting_seconds", help, waits);
}

/// The total of the line `some` of a pressure file, in microseconds.
fn waited_us(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_figures_come_from_proc_and_unknown_ones_are_absent() {
        let text = |read: &dyn Fn(&str) -> Option<String>| {
            let mut registry = hostler_metrics::registry();
            add_machine(&mut registry, read);
            add_limits(&mut registry, &Advisory { memory: Some("no cgroups".to_owned()), ..Advisory::default() });
            Format::Text.encode(&[&registry])
        };
        let full = text(&|path| {
            Some(match path {
                "/proc/loadavg" => "1.25 0.50 0.10 2/300 4711\n".to_owned(),
                "/proc/meminfo" => "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n".to_owned(),
                "/proc/pressure/io" => {
                    "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull total=1\n".to_owned()
                }
                _ => return None,
            })
        });
        for line in [
            "hostler_node_load_average 1.25",
            "hostler_node_memory_bytes 2097152.0",
            "hostler_node_memory_available_bytes 1048576.0",
            "hostler_node_pressure_waiting_seconds_total{resource=\"io\"} 2.5",
            "hostler_agent_limit_advisory{limit=\"memory\"} 1.0",
            "hostler_agent_limit_advisory{limit=\"cpus\"} 0.0",
        ] {
            assert!(full.lines().any(|found| found == line), "{line} is not in\n{full}");
        }
        let empty = text(&|_| None);
        assert!(!empty.contains("node_"), "{empty}");
        let broken = text(&|_| Some("total=x kB some\nsome total=\nMemTotal: y kB".to_owned()));
        assert!(!broken.contains("node_"), "{broken}");
    }
}

//! What the head counts while it works, for `/metrics`: tasks, waits, scheduling passes, commits and requests.
//!
//! No label names a job or a user. Every state is present with 0, so that rules see the first change.

mod pace;
mod token;

use std::time::{Duration, Instant};

use hostler_core::head::{State, TaskChange, TaskCount};
use hostler_metrics::{Counter, Family, Format, Histogram, Histograms, Info, Registry};
use hostler_model::{JobState, PartitionName};
use prometheus_client::encoding::EncodeLabelSet;

pub(crate) use pace::Ends;
pub(crate) use token::Token;

/// Partition label of jobs without a partition. No partition has this name.
const NO_PARTITION: &str = "-";

/// State label of a state that this version does not list.
pub(crate) const OTHER: &str = "other";

/// Classes of HTTP statuses.
const CLASSES: [&str; 4] = ["2xx", "4xx", "5xx", OTHER];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InPartition {
    partition: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TaskLabels {
    pub(crate) partition: String,
    pub(crate) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    operation: String,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: String,
}

/// What the head counts while it works.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    submitted: Family<InPartition, Counter>,
    ended: Family<TaskLabels, Counter>,
    /// The ends of tasks that have run, for estimates.
    ends: Ends,
    waits: Histograms<InPartition>,
    passes: Histogram,
    commits: Histogram,
    links: Counter,
    requests: Family<Answered, Counter>,
    request_times: Histograms<Operation>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = hostler_metrics::registry();
        let metrics = Self {
            submitted: Family::default(),
            ended: Family::default(),
            ends: Ends::default(),
            waits: Histograms::new_with_constructor(hostler_metrics::wait_seconds),
            passes: hostler_metrics::work_seconds(),
            commits: hostler_metrics::work_seconds(),
            links: Counter::default(),
            requests: Family::default(),
            request_times: Histograms::new_with_constructor(hostler_metrics::work_seconds),
            registry: Registry::default(),
        };
        registry.register("build", "Release of the daemon", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register("tasks_submitted", "Tasks submitted since the head started", metrics.submitted.clone());
        registry.register("tasks_ended", "Tasks ended since the head started, by final state", metrics.ended.clone());
        let help = "Time from the submission to the first placement of a task";
        registry.register("queue_wait_seconds", help, metrics.waits.clone());
        let help = "Duration of scheduling passes with the placements that they made";
        registry.register("scheduling_pass_seconds", help, metrics.passes.clone());
        let help = "Time from the request to store a batch of events until it is on disk";
        registry.register("store_commit_seconds", help, metrics.commits.clone());
        registry.register("agent_connections", "Connections that agents opened", metrics.links.clone());
        let help = "Requests to the API by operation and class of the status";
        registry.register("api_requests", help, metrics.requests.clone());
        let help = "Time until the answer of an API operation began";
        registry.register("api_request_seconds", help, metrics.request_times.clone());
        Self { registry, ..metrics }
    }

    /// Creates the counters of these operations, methods with paths, with 0.
    pub(crate) fn add_operations(&self, operations: impl Iterator<Item = (&'static str, &'static str)>) {
        for (method, path) in operations {
            let operation = operation_name(method, path);
            for status in CLASSES {
                drop(self.requests.get_or_create(&Answered { operation: operation.clone(), status }));
            }
        }
    }

    /// What was counted, as text together with other figures.
    pub(crate) fn encode(&self, format: Format, others: &Registry) -> String {
        format.encode(&[&self.registry, others])
    }

    /// Counts what happened to tasks.
    pub(crate) fn count_tasks(&self, TaskCount { partition, what }: &TaskCount) {
        if let TaskChange::Ended { state, tasks } = *what
            && state != JobState::Cancelled
        {
            self.ends.add(partition.as_ref(), tasks, Instant::now());
        }
        let partition = partition_label(partition.as_ref());
        match *what {
            TaskChange::Submitted { tasks } => {
                self.submitted.get_or_create(&InPartition { partition }).inc_by(tasks);
            }
            TaskChange::Placed { waited_ms } => {
                self.waits.get_or_create(&InPartition { partition }).observe(waited_ms as f64 / 1e3);
            }
            TaskChange::Ended { state, tasks } => {
                self.ended.get_or_create(&TaskLabels { partition, state: state.as_str() }).inc_by(tasks);
            }
        }
    }

    /// The ends of tasks, for the pace at which they end.
    pub(crate) const fn ends(&self) -> &Ends {
        &self.ends
    }

    pub(crate) fn scheduled(&self, took: Duration) {
        self.passes.observe(took.as_secs_f64());
    }

    pub(crate) fn committed(&self, took: Duration) {
        self.commits.observe(took.as_secs_f64());
    }

    pub(crate) fn agent_connected(&self) {
        self.links.inc();
    }

    /// Counts an answer of an operation of the API.
    pub(crate) fn answered(&self, method: &str, path: &str, status: u16, took: Duration) {
        let operation = operation_name(method, path);
        let status = match status / 100 {
            2 => CLASSES[0],
            4 => CLASSES[1],
            5 => CLASSES[2],
            _ => OTHER,
        };
        self.request_times.get_or_create(&Operation { operation: operation.clone() }).observe(took.as_secs_f64());
        self.requests.get_or_create(&Answered { operation, status }).inc();
    }

    /// Creates the counters of all partitions with 0.
    pub(crate) fn add_partitions(&self, state: &State) {
        let names = state.partitions.iter().map(|partition| Some(&partition.name)).chain([None]);
        for partition in names.map(partition_label) {
            drop(self.submitted.get_or_create(&InPartition { partition: partition.clone() }));
            drop(self.waits.get_or_create(&InPartition { partition: partition.clone() }));
            for ended in JobState::ENDED {
                drop(self.ended.get_or_create(&TaskLabels { partition: partition.clone(), state: ended.as_str() }));
            }
        }
    }
}

fn operation_name(method: &str, path: &str) -> String {
    format!("{} {path}", method.to_ascii_uppercase())
}

pub(crate) fn partition_label(partition: Option<&PartitionName>) -> String {
    partition.map_or(NO_PARTITION, PartitionName::as_str).to_owned()
}

//! Benchmark groups. Each group is one question; its rows answer the question for the floor, the peers and Hostler.

mod build;
mod dashboard;
mod dead_node;
mod ended;
mod enforcement;
mod environment;
mod exec;
mod idle;
mod latency;
mod neighbours;
mod pending;
mod sandbox;
mod scheduling;
mod several_nodes;
mod staging;
mod submissions;
mod swarm;
mod tasks;
mod throughput;

use anyhow::Result;

use super::context::Bench;
use super::report::Row;

/// A benchmark group: a question, and the measurement that answers it.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) measure: fn(&Bench) -> Result<Vec<Row>>,
}

pub(super) const GROUPS: &[Group] = &[
    Group { name: "latency", about: "one no-op on an idle cluster, submit to finished", measure: latency::measure },
    Group { name: "throughput", about: "one array of no-ops, real processes", measure: throughput::measure },
    Group { name: "tasks", about: "what one of these no-ops costs each daemon", measure: tasks::measure },
    Group { name: "submissions", about: "separate submissions, durable", measure: submissions::measure },
    Group { name: "staging", about: "upload of a folder of 2,000 files, new and unchanged", measure: staging::measure },
    Group { name: "environment", about: "a second start with the same requirements", measure: environment::measure },
    Group { name: "idle", about: "memory and CPU time of an idle cluster", measure: idle::measure },
    Group {
        name: "scheduling",
        about: "a pass over 10,000 nodes and 100,000 pending jobs",
        measure: scheduling::measure,
    },
    Group { name: "several-nodes", about: "a job on four nodes, submit to running", measure: several_nodes::measure },
    Group { name: "exec", about: "a remote command, without the queue", measure: exec::measure },
    Group { name: "build", about: "a C program of many files, compiled on several nodes", measure: build::measure },
    Group { name: "enforcement", about: "cost of enforcing a job's limits", measure: enforcement::measure },
    Group { name: "sandbox", about: "cost of a job's sandbox", measure: sandbox::measure },
    Group { name: "neighbours", about: "a job next to misbehaving jobs", measure: neighbours::measure },
    Group { name: "dead-node", about: "detection of an unresponsive node", measure: dead_node::measure },
    Group { name: "swarm", about: "1,000 idle agents", measure: swarm::measure },
    Group {
        name: "dashboard",
        about: "the dashboard with 1,000 nodes, 100,000 waiting jobs and 200 open browsers",
        measure: dashboard::measure,
    },
    Group { name: "pending", about: "memory and queries with many jobs waiting", measure: pending::measure },
    Group {
        name: "ended",
        about: "memory, a restart and queries with many jobs that have ended",
        measure: ended::measure,
    },
];

pub(super) fn names() -> Vec<&'static str> {
    GROUPS.iter().map(|group| group.name).collect()
}

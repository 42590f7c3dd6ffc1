//! Nodes, as the API shows them and as explanations speak of them.

use hostler_core::head::{Drain, Job, Node, Now, State};
use hostler_proto::api::{CertificateView, DrainView, NodeDetail, NodeRunView, NodeView};

use super::NAMED;

/// One node, in a list.
pub(crate) fn node(state: &State, node: &Node) -> NodeView {
    let link = node.link.as_ref();
    NodeView {
        name: node.name.clone(),
        state: node.state(),
        power: if link.is_some() { "on" } else { "unknown" }.to_owned(),
        cpus: node.resources.cpus.len(),
        cpus_free: node.free_cpus().len(),
        memory_bytes: node.resources.memory_bytes,
        memory_free_bytes: node.free_memory_bytes(),
        tasks: u32::try_from(node.runs.len()).unwrap_or(u32::MAX),
        agent_pid: link.map_or(0, |link| link.pid),
        version: link.map_or_else(String::new, |link| link.version.clone()),
        reason: node.drain.as_ref().map(drained_by),
        advisory: node.advisory.clone(),
        partitions: state.partitions_of(&node.name).map(|partition| partition.name.clone()).collect(),
        features: state.features_of(node),
        weight: state.partitions.traits(&node.name).map_or(0, |traits| traits.weight),
    }
}

/// All about one node.
pub(crate) fn node_detail(state: &State, node: &Node, now: Now) -> NodeDetail {
    let member = state.member(&node.name);
    NodeDetail {
        node: self::node(state, node),
        drain: node.drain.as_ref().map(|drain| DrainView {
            by: drain.by.clone(),
            reason: drain.reason.clone(),
            at: drain.at,
        }),
        silent_ms: if node.link.is_some() { 0 } else { now.at.ms_since(node.last_heard) },
        cpu_ids: node.resources.cpus.to_string(),
        runs: node
            .runs
            .iter()
            .map(|(run, held)| NodeRunView {
                job: run.task.job,
                index: run.task.index,
                cpu_ids: held.cpus.to_string(),
                memory_bytes: held.memory_bytes,
            })
            .collect(),
        certificate: member.map(|member| CertificateView {
            age_ms: now.at.ms_since(member.key.issued_at),
            life_ms: member.key.life_ms,
            is_being_renewed: member.next.is_some(),
        }),
    }
}

/// `drained by root: new disk`.
fn drained_by(drain: &Drain) -> String {
    match &drain.reason {
        Some(reason) => format!("drained by {}: {reason}", drain.by),
        None => format!("drained by {}", drain.by),
    }
}

/// Says of a drained node that it is.
pub(super) fn drained_line(node: &Node) -> Option<String> {
    let drain = node.drain.as_ref()?;
    let name = &node.name;
    Some(format!("Node {name} takes nothing new: {}; `hostler node resume {name}` changes that.", drained_by(drain)))
}

/// The drained nodes on which a task of this job could run if they took any.
pub(super) fn drained_lines(state: &State, job: &Job) -> Vec<String> {
    let request = &job.spec.request;
    let could_run =
        |node: &&Node| node.resources.cpus.len() >= request.cpus && node.resources.memory_bytes >= request.memory_bytes;
    state.nodes().filter(could_run).filter_map(drained_line).take(NAMED).collect()
}

//! API views of partitions.

use std::time::Instant;

use hostler_core::head::{Job, Node, Partition, State};
use hostler_model::{NodeState, PartitionName, WallTime};
use hostler_proto::partitions::PartitionView;

use crate::metrics::Ends;

/// A partition with the resources of its nodes.
pub(crate) fn partition(state: &State, partition: &Partition, ends: &Ends, now: WallTime) -> PartitionView {
    let nodes: Vec<&Node> = state.nodes().filter(|node| partition.nodes.matches(&node.name)).collect();
    let up: Vec<&&Node> = nodes.iter().filter(|node| state.node_state(node) == NodeState::Up).collect();
    let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
    let waiting = state.waiting_in(&partition.name);
    PartitionView {
        name: partition.name.clone(),
        nodes: partition.nodes.clone(),
        is_default: state.partitions.default() == Some(&partition.name),
        state: partition.state,
        priority: partition.priority,
        default_time_ms: partition.default_time_ms,
        max_time_ms: partition.max_time_ms,
        max_nodes: partition.max_nodes,
        users: partition.users.clone(),
        groups: partition.groups.clone(),
        sandbox: partition.sandbox,
        sandbox_network: partition.sandbox_network,
        exclusive: partition.exclusive,
        join_code_until: partition.join_code.map(|code| code.until).filter(|until| *until > now),
        node_count: count(nodes.len()),
        nodes_up: count(up.len()),
        cpus: up.iter().map(|node| u64::from(node.total().cpus)).sum(),
        cpus_free: up.iter().map(|node| u64::from(node.free().cpus)).sum(),
        waiting,
        pace: ends.pace(|name| name == Some(&partition.name), waiting, Instant::now()),
    }
}

/// What the owner of a waiting job can do whose sandbox is not what `partition` demands.
pub(super) fn way_to_a_sandbox(job: &Job, partition: &PartitionName) -> String {
    let id = job.id;
    if job.spec.partition.as_ref() != Some(partition) {
        return format!("Its nodes take no other jobs. `hostler update {id} --partition` chooses a partition.");
    }
    if job.spec.surroundings.sandbox {
        return format!(
            "`hostler update {id} --partition` chooses another partition, or submit it again without `--network {}`.",
            job.spec.surroundings.network
        );
    }
    match job.spec.fits_sandbox() {
        true => {
            format!("`hostler update {id} --partition {partition}` puts it in a sandbox, if none of its tasks runs.")
        }
        false => {
            "A sandbox runs jobs on one node, or on several with `--network job` or `host`, with a program of their own. \
             `hostler update` can choose another partition."
                .to_owned()
        }
    }
}

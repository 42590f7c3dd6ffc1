//! `GET /metrics`: the cluster and the head in numbers, for Prometheus.
//!
//! [`crate::metrics`] counts while the head works. The other figures are read from the state at each scrape; nodes and running
//! tasks determine the cost, waiting jobs do not.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hostler_core::head::{Now, Power, State};
use hostler_metrics::{Format, Registry};
use hostler_model::{JobState, NodeState, PowerState};
use prometheus_client::encoding::EncodeLabelSet;

use super::access::check_scraper;
use super::error::ApiError;
use crate::head::Head;
use crate::metrics::{OTHER, TaskLabels, partition_label};

/// States of a node in the list of nodes.
const NODE_STATES: [NodeState; 8] = [
    NodeState::Up,
    NodeState::Suspect,
    NodeState::Down,
    NodeState::Draining,
    NodeState::Drained,
    NodeState::Off,
    NodeState::Waking,
    NodeState::Stopping,
];

/// Power states of a node that the head can switch on and off.
const POWER_STATES: [PowerState; 7] = [
    PowerState::Off,
    PowerState::Waking,
    PowerState::Up,
    PowerState::Idle,
    PowerState::Stopping,
    PowerState::Failed,
    PowerState::Unknown,
];

/// Memory to reserve for a scrape without its nodes, in bytes.
const SCRAPE_BYTES: usize = 1 << 20;
/// Memory to reserve for each node in a scrape, in bytes.
const NODE_BYTES: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNode {
    node: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    resource: String,
}

/// `GET /metrics`.
pub(crate) async fn show(Shared(head): Shared<Arc<Head>>, request: Request) -> Result<Response, ApiError> {
    let answer = check_scraper(&head, &request)?;
    let format = Format::accepted(request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    let nodes = head.engine.state().nodes().count();
    answer.reserve(&head.client_limits, SCRAPE_BYTES + nodes * NODE_BYTES).await;
    // The figures of the disk and the process come from files, which may block.
    let text = tokio::task::spawn_blocking(move || scrape(&head, format)).await.map_err(ApiError::internal)?;
    let mut response = ([(CONTENT_TYPE, format.content_type())], text).into_response();
    response.extensions_mut().insert(answer);
    Ok(response)
}

fn scrape(head: &Head, format: Format) -> String {
    let mut registry = hostler_metrics::registry();
    let metrics = head.engine.metrics();
    add_head(&mut registry, head);
    {
        let (state, now) = (head.engine.state(), head.engine.now());
        metrics.add_partitions(&state);
        add_tasks(&mut registry, &state);
        add_nodes(&mut registry, &state, now);
        add_resources(&mut registry, &state);
        add_energy(&mut registry, &state, now);
    }
    metrics.encode(format, &registry)
}

fn add_head(registry: &mut Registry, head: &Head) {
    hostler_metrics::register_process(registry);
    let mut set = |name: &str, help: &str, value: f64| hostler_metrics::set(registry, name, help, value);
    set("head_refusing", "1 while the head refuses submissions", f64::from(u8::from(head.refusing().is_some())));
    set("agent_links", "Agents that are connected", head.engine.links() as f64);
    set("event_streams", "Clients that watch for changes", head.engine.watchers() as f64);
    if let Some((free, size)) = head.library.disk() {
        set("head_disk_free_bytes", "Free disk space for the head's state and results", free as f64);
        set("head_disk_size_bytes", "Size of the disk with the head's state and results", size as f64);
    }
    let kept = head.library.room().kept_bytes().map_or(f64::NAN, |bytes| bytes as f64);
    set("results_bytes", "Size of all results at the last measurement; NaN before the first", kept);
    set(
        "results_limit_bytes",
        "Size of all results above which the head drops results",
        head.library.room().cap_bytes() as f64,
    );
}

fn add_tasks(registry: &mut Registry, state: &State) {
    let mut live = state.live_counts_by_partition();
    for partition in state.partitions.iter() {
        live.entry(Some(&partition.name)).or_default();
    }
    live.entry(None).or_default();
    let values = live.into_iter().flat_map(|(partition, counts)| {
        let partition = partition_label(partition);
        [
            (JobState::Pending, counts.pending),
            (JobState::Starting, counts.starting),
            (JobState::Running, counts.running),
            (JobState::Completing, counts.completing),
        ]
        .map(|(state, tasks)| (TaskLabels { partition: partition.clone(), state: state.as_str() }, tasks as f64))
    });
    hostler_metrics::set_all(registry, "tasks", "Tasks that have not ended, by partition and state", values);
}

fn add_nodes(registry: &mut Registry, state: &State, now: Now) {
    let mut states: Vec<(&'static str, u32)> = NODE_STATES.map(|state| (state.as_str(), 0)).into();
    states.push((OTHER, 0));
    let mut powers: Vec<(&'static str, u32)> = POWER_STATES.map(|state| (state.as_str(), 0)).into();
    powers.push((OTHER, 0));
    let mut down = Vec::new();
    let mut certificate: Option<u64> = None;
    for node in state.nodes() {
        let node_state = state.node_state(node);
        add_one(&mut states, node_state.as_str());
        let is_down = f64::from(u8::from(node_state == NodeState::Down));
        down.push((OfNode { node: node.name.to_string() }, is_down));
        let power = state.power.node(&node.name).map(Power::state);
        let power = power.unwrap_or(if node.link.is_some() { PowerState::Up } else { PowerState::Unknown });
        add_one(&mut powers, power.as_str());
        if let Some(member) = state.member(&node.name).filter(|_| node.link.is_some()) {
            let left = member.key.life_ms.saturating_sub(now.at.ms_since(member.key.issued_at));
            certificate = Some(certificate.map_or(left, |least| least.min(left)));
        }
    }
    let by_state = |counts: Vec<(&'static str, u32)>| {
        counts.into_iter().map(|(state, nodes)| (InState { state }, f64::from(nodes)))
    };
    hostler_metrics::set_all(registry, "nodes", "Nodes by state", by_state(states));
    hostler_metrics::set_all(registry, "nodes_power", "Nodes by power state", by_state(powers));
    let help = "1 if the node is down and was not switched off on purpose";
    hostler_metrics::set_all(registry, "node_down", help, down);
    if let Some(left_ms) = certificate {
        let help = "Shortest remaining validity of a connected node's certificate";
        hostler_metrics::set(registry, "node_certificate_left_seconds", help, left_ms as f64 / 1e3);
    }
}

/// Adds one to the count of a state, or of other states.
fn add_one(counts: &mut [(&'static str, u32)], state: &str) {
    let at = counts.iter().position(|(name, _)| *name == state).unwrap_or(counts.len() - 1);
    counts[at].1 += 1;
}

fn add_resources(registry: &mut Registry, state: &State) {
    let capacity = state.capacity();
    for (name, held_name, what, amount) in [
        ("cpus", "cpus_held", "CPUs", capacity.cpus),
        ("memory_bytes", "memory_held_bytes", "Memory", capacity.memory_bytes),
        ("gpus", "gpus_held", "GPUs", capacity.gpus),
    ] {
        let help = format!("{what} of the nodes that are up");
        hostler_metrics::set(registry, name, &help, amount.total as f64);
        let held = amount.total.saturating_sub(amount.free);
        hostler_metrics::set(registry, held_name, &format!("{help} that jobs hold"), held as f64);
    }
    let of = |name: &String| OfResource { resource: name.clone() };
    let total = capacity.counted.iter().map(|(name, count)| (of(name), *count as f64));
    hostler_metrics::set_all(registry, "resources", "Counted resources of the nodes that are up", total);
    let held = capacity.counted.iter().map(|(name, count)| {
        let free = capacity.counted_free.get(name).copied().unwrap_or(0);
        (of(name), count.saturating_sub(free) as f64)
    });
    let help = "Counted resources of the nodes that are up that jobs hold";
    hostler_metrics::set_all(registry, "resources_held", help, held);
}

fn add_energy(registry: &mut Registry, state: &State, now: Now) {
    let planned = state.power.nodes().filter(|(name, _)| state.power.is_planned(name));
    let (mut watts, mut used, mut measured, mut always_on) = (0.0, 0.0, 0.0, 0.0);
    for meter in planned.map(|(_, power)| power.meter.at(now.at)) {
        watts += meter.draws_mw as f64 / 1e3;
        used += meter.energy.drawn_uj as f64 / 1e6;
        measured += meter.energy.measured_uj as f64 / 1e6;
        always_on += meter.always_on_uj as f64 / 1e6;
    }
    let help = "Power that the nodes with power control use now, measured or estimated";
    hostler_metrics::set(registry, "power_watts", help, watts);
    for (name, help, joules) in [
        ("energy_joules", "Energy that the nodes with power control have used, measured or estimated", used),
        ("energy_measured_joules", "The measured part of hostler_energy_joules", measured),
        ("energy_always_on_joules", "Energy that these nodes would have used if they had never been off", always_on),
    ] {
        hostler_metrics::count(registry, name, help, joules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn unknown_states_count_as_other() {
        let mut counts = [("up", 0), (OTHER, 0)];
        for state in ["up", "levitating", "up"] {
            add_one(&mut counts, state);
        }
        assert_eq!(counts, [("up", 2), (OTHER, 1)]);
    }

    #[test]
    fn every_state_is_present_before_anything_happens() {
        let (metrics, state) = (Metrics::new(), State::default());
        metrics.add_operations([("post", "/jobs")].into_iter());
        metrics.add_partitions(&state);
        let mut registry = hostler_metrics::registry();
        add_tasks(&mut registry, &state);
        add_nodes(&mut registry, &state, Now::default());
        add_resources(&mut registry, &state);
        add_energy(&mut registry, &state, Now::default());
        let text = metrics.encode(Format::Text, &registry);
        for line in [
            "hostler_tasks{partition=\"-\",state=\"pending\"} 0.0",
            "hostler_tasks_ended_total{partition=\"-\",state=\"node_fail\"} 0",
            "hostler_queue_wait_seconds_count{partition=\"-\"} 0",
            "hostler_nodes{state=\"down\"} 0.0",
            "hostler_nodes{state=\"other\"} 0.0",
            "hostler_nodes_power{state=\"failed\"} 0.0",
            "hostler_api_requests_total{operation=\"POST /jobs\",status=\"5xx\"} 0",
            "hostler_energy_joules_total 0.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}

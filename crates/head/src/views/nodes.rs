//! API views of nodes, and the sentences about nodes in explanations.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hostler_core::head::{Drain, Job, Node, Now, State};
use hostler_model::{BootId, CpuSet, GpuId, JobId, JobState, NodeName, NodeState, Resources, RunId, TaskId, format_ms};
use hostler_proto::api::{CertificateView, DrainView, GpuView, NodeDetail, NodeRunView, NodeView};
use hostler_proto::power::{EnergyView, PowerView};

use super::names::{NAMED, and_more};
use crate::power::Price;

/// A node as an entry of a list.
pub(crate) fn node(state: &State, node: &Node, shared: &SharedCpus<'_>, now: Now) -> NodeView {
    let link = node.link.as_ref();
    let (total, free) = (node.total(), node.free());
    NodeView {
        name: node.name.clone(),
        state: state.node_state(node),
        power: match state.power.node(&node.name) {
            Some(power) => power.state().as_str(),
            None if link.is_some() => "on",
            None => "unknown",
        }
        .to_owned(),
        cpus: total.cpus,
        cpus_free: free.cpus,
        memory_bytes: total.memory_bytes,
        memory_free_bytes: free.memory_bytes,
        gpus: total.gpus,
        gpus_free: free.gpus,
        counted: total.counted,
        counted_free: free.counted,
        tasks: u32::try_from(node.runs.len()).unwrap_or(u32::MAX),
        address: node.facts.address,
        agent_pid: link.map_or(0, |link| link.pid),
        version: link.map_or_else(String::new, |link| link.version.clone()),
        reason: node.drain.as_ref().map(drained_by),
        advisory: node.facts.advisory.clone(),
        shares_cpus: shared.include_some_of(node),
        partitions: state.partitions_of(&node.name).map(|partition| partition.name.clone()).collect(),
        features: state.features_of(node),
        weight: state.partitions.traits(&node.name).map_or(0, |traits| traits.weight),
        since: state.node_since(node, now),
        why: why_no_work(state, node, now),
        kept_for: state.kept_for(node),
        holders: None,
        measured: None,
    }
}

/// The tasks that hold resources on a node, in the order of their first CPU.
pub(crate) fn holders(state: &State, node: &Node) -> Vec<NodeRunView> {
    let mut runs: Vec<(RunId, &Resources)> = node.runs.iter().map(|(run, held)| (*run, held)).collect();
    runs.sort_by_key(|(run, held)| (held.cpus.iter().next(), *run));
    let view = |(run, held): (RunId, &Resources)| {
        let job = state.job(run.task.job);
        let active = job.and_then(|job| job.active.get(&run.task.index)).filter(|active| active.run == run);
        NodeRunView {
            job: run.task.job,
            index: run.task.index,
            name: job.map_or_else(String::new, |job| job.spec.name.to_string()),
            user: job.map_or_else(String::new, |job| job.user.clone()),
            state: active.map_or(JobState::Completing, |active| active.phase().state()),
            started_at: active.and_then(|active| active.started_at),
            cpus: held.cpus.len(),
            cpu_ids: held.cpus.to_string(),
            memory_bytes: held.memory_bytes,
            gpu_ids: held.gpus.iter().cloned().collect(),
            counted: held.counted.clone(),
        }
    };
    runs.into_iter().map(view).collect()
}

/// Why a node gets no work, e.g. `drained by root: new disk`; `None` while it is up.
fn why_no_work(state: &State, node: &Node, now: Now) -> Option<String> {
    let silent = || format!("no message for {}", format_ms(silent_ms(node, now)));
    match state.node_state(node) {
        NodeState::Up => None,
        NodeState::Draining | NodeState::Drained => node.drain.as_ref().map(drained_by),
        NodeState::Suspect | NodeState::Down => Some(match &node.drain {
            Some(drain) => format!("{}; {}", silent(), drained_by(drain)),
            None => silent(),
        }),
        NodeState::Off | NodeState::Waking | NodeState::Stopping => {
            state.power.node(&node.name).map(|power| power.why.clone())
        }
        NodeState::Removed => Some("removed".to_owned()),
    }
}

/// Time since the last message of a silent node, on the wall clock if the head has restarted since.
fn silent_ms(node: &Node, now: Now) -> u64 {
    let since = node.silent_since.and_then(|since| u64::try_from(now.wall.0.saturating_sub(since.0)).ok());
    since.unwrap_or_else(|| now.at.ms_since(node.last_heard))
}

/// The CPUs that several nodes of one machine offer, as virtual nodes and containers may. One pass over all nodes answers
/// for each of them.
pub(crate) struct SharedCpus<'a>(HashMap<&'a BootId, Offers>);

/// The CPUs that nodes of one machine offer.
#[derive(Default)]
struct Offers {
    any: CpuSet,
    several: CpuSet,
}

impl<'a> SharedCpus<'a> {
    pub(crate) fn of(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let mut machines: HashMap<&BootId, Offers> = HashMap::new();
        for node in nodes.into_iter().filter(|node| !node.facts.boot.0.is_empty()) {
            let cpus = &node.facts.resources.cpus;
            let offers = machines.entry(&node.facts.boot).or_default();
            if offers.any.intersects(cpus) {
                offers.several.add_all(&offers.any.intersection(cpus));
            }
            offers.any.add_all(cpus);
        }
        Self(machines)
    }

    /// Whether another node of the same machine offers some of the node's CPUs.
    pub(crate) fn include_some_of(&self, node: &Node) -> bool {
        let offers = self.0.get(&node.facts.boot);
        offers.is_some_and(|offers| offers.several.intersects(&node.facts.resources.cpus))
    }
}

pub(crate) fn node_detail(state: &State, node: &Node, now: Now) -> NodeDetail {
    let member = state.member(&node.name);
    NodeDetail {
        node: self::node(state, node, &SharedCpus::of(state.nodes()), now),
        drain: node.drain.as_ref().map(|drain| DrainView {
            by: drain.by.clone(),
            reason: drain.reason.clone(),
            at: drain.at,
        }),
        silent_ms: if node.link.is_some() { 0 } else { silent_ms(node, now) },
        cpu_ids: node.facts.resources.cpus.to_string(),
        gpu_list: gpus(node),
        assigned_features: state
            .partitions
            .traits(&node.name)
            .map(|traits| traits.features.clone())
            .unwrap_or_default(),
        offer: state.partitions.traits(&node.name).map(|traits| traits.offer.clone()).unwrap_or_default(),
        runs: holders(state, node),
        certificate: member.map(|member| CertificateView {
            age_ms: now.at.ms_since(member.key.issued_at),
            life_ms: member.key.life_ms,
            is_being_renewed: member.next.is_some(),
        }),
        power_detail: power(state, &node.name, now),
        power_history: state.power.node(&node.name).map(|power| power.history.clone()).unwrap_or_default(),
    }
}

/// Power data of a node. `None` if the head cannot switch the node on and off.
pub(crate) fn power(state: &State, name: &NodeName, now: Now) -> Option<PowerView> {
    let power = state.power.node(name).filter(|_| state.power.is_planned(name))?;
    let meter = power.meter.at(now.at);
    let watts = meter.draws_mw.saturating_add(500) / 1_000;
    Some(PowerView {
        state: power.state(),
        for_ms: now.at.ms_since(power.since),
        since: power.since_wall,
        why: power.why.clone(),
        supply: power.supply().map(|(supply, _)| supply),
        supply_age_ms: power.supply().map(|(_, at)| now.at.ms_since(at)),
        fault: power.fault().map(|fault| fault.text.clone()),
        boot_ms: power.usual_boot_ms(&state.power.traits(name)),
        boots: power.boots.count,
        starts: power.starts,
        failures: power.failures,
        watts: u32::try_from(watts).unwrap_or(u32::MAX),
        gauge: meter.measured.map(|(gauge, _)| gauge),
        are_watts_assumed: state.power.traits(name).are_watts_assumed,
        watt_hours: hours(meter.energy.drawn_uj),
        measured_watt_hours: hours(meter.energy.measured_uj),
        always_on_watt_hours: hours(meter.always_on_uj),
        off_ms: meter.off_ms,
    })
}

/// Energy data of all switchable nodes.
pub(crate) fn energy(state: &State, now: Now, trouble: Option<String>, price: Option<&Price>) -> EnergyView {
    // A name in power.toml that no node has is not a machine that uses energy.
    let nodes = state.power.nodes().filter(|(name, _)| state.node(name).is_some());
    let nodes = nodes.filter_map(|(name, _)| Some((name.clone(), power(state, name, now)?)));
    let mut energy = EnergyView { nodes: nodes.collect(), trouble, ..EnergyView::default() };
    let sum = |figure: fn(&PowerView) -> u64| energy.nodes.values().map(figure).sum();
    // The total is the sum of rounded values, so that it equals the sum of the shown values.
    (energy.watts, energy.watt_hours) = (sum(|power| u64::from(power.watts)), sum(|power| power.watt_hours));
    energy.measured_watt_hours = sum(|power| power.measured_watt_hours);
    energy.saved_watt_hours = sum(|power| power.always_on_watt_hours.saturating_sub(power.watt_hours));
    energy.cost = price.map(|price| price.of(energy.watt_hours as f64));
    energy.saved_cost = price.map(|price| price.of(energy.saved_watt_hours as f64));
    energy
}

/// Converts to whole watt-hours.
const fn hours(microjoules: u64) -> u64 {
    microjoules / 3_600_000_000
}

/// The node's GPUs with the tasks that hold them, in hardware order where known.
fn gpus(node: &Node) -> Vec<GpuView> {
    let held: BTreeMap<&GpuId, TaskId> =
        node.runs.iter().flat_map(|(run, held)| held.gpus.iter().map(|id| (id, run.task))).collect();
    let known = |id: &GpuId| node.facts.hardware.gpus.iter().position(|gpu| gpu.id == *id);
    let mut ids: Vec<_> = node.facts.resources.gpus.iter().map(|id| (known(id).unwrap_or(usize::MAX), id)).collect();
    ids.sort_unstable();
    let view = |(at, id): (usize, &GpuId)| {
        let gpu = node.facts.hardware.gpus.get(at);
        GpuView {
            id: id.clone(),
            vendor: gpu.map(|gpu| gpu.vendor),
            name: gpu.map_or_else(String::new, |gpu| gpu.name.clone()),
            memory_bytes: gpu.and_then(|gpu| gpu.memory_bytes),
            numa: gpu.and_then(|gpu| gpu.numa),
            held_by: held.get(id).copied(),
        }
    };
    ids.into_iter().map(view).collect()
}

/// Describes who drained a node and why, e.g. `drained by root: new disk`.
fn drained_by(drain: &Drain) -> String {
    match &drain.reason {
        Some(reason) => format!("drained by {}: {reason}", drain.by),
        None => format!("drained by {}", drain.by),
    }
}

/// Returns a sentence about a node's power state.
pub(super) fn power_line(state: &State, name: &NodeName) -> Option<String> {
    let power = state.power.node(name)?;
    let fault = power.fault().map_or_else(String::new, |fault| format!(" ({})", fault.text));
    Some(format!("Node {name} is {}: {}{fault}.", power.state().as_str(), power.why))
}

/// Returns a sentence about a drained node.
pub(super) fn drained_line(node: &Node) -> Option<String> {
    let drain = node.drain.as_ref()?;
    let name = &node.name;
    Some(format!("Node {name} gets no new work: {}; `hostler node resume {name}` resumes it.", drained_by(drain)))
}

/// Names the jobs on a node that a waiting job needs to itself. `is_kept`: no other job may delay it there.
pub(super) fn in_use_line(state: &State, name: &NodeName, is_kept: bool) -> String {
    let runs = state.node(name).into_iter().flat_map(|node| node.runs.keys());
    let jobs: BTreeSet<JobId> = runs.map(|run| run.task.job).collect();
    let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let noun = if jobs.len() == 1 { "job" } else { "jobs" };
    let kept = if is_kept { "is kept for the job and " } else { "" };
    format!("Node {name} {kept}still runs {noun} {}.", and_more(&jobs, jobs.len()))
}

/// Returns sentences about the drained nodes on which a task of this job could otherwise run.
pub(super) fn drained_lines(state: &State, job: &Job) -> Vec<String> {
    let request = &job.spec.request;
    let could_run = |node: &&Node| node.total().covers(request);
    let may_run = |node: &&Node| state.may_use(job, node) && could_run(node);
    state.nodes().filter(may_run).filter_map(drained_line).take(NAMED).collect()
}

#[cfg(test)]
mod tests {
    use hostler_core::head::{Changes, Event, Stamped, update};
    use hostler_model::NodeFacts;

    use super::*;

    #[test]
    fn nodes_share_cpus_only_with_nodes_of_the_same_machine() {
        let mut state = State::default();
        let offers = [
            ("a1", "a", "0-1"),
            ("a2", "a", "1-2"),
            ("a3", "a", "3"),
            ("b1", "b", "0-3"),
            ("c1", "c", "0-69"),
            ("c2", "c", "69"),
            ("c3", "c", "69-70"),
            ("d1", "", "0"),
            ("d2", "", "0"),
        ];
        for (node, boot, cpus) in offers {
            let facts = NodeFacts::new(boot, Resources::new(cpus.parse().expect("CPUs"), 1 << 30));
            let event = Event::NodeSeen { node: node.parse().expect("a name"), facts: Box::new(facts) };
            update(&mut state, &Stamped { now: Now::default(), event }, &mut Changes::default());
        }
        let shared = SharedCpus::of(state.nodes());
        let found = state.nodes().filter(|node| shared.include_some_of(node)).map(|node| node.name.as_str());
        assert_eq!(found.collect::<Vec<_>>(), ["a1", "a2", "c1", "c2", "c3"]);
    }
}

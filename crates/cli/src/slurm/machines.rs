//! Nodes and partitions as Slurm's commands list them.

use std::cmp::Ordering;

use hostler_client::{Client, ClientError};
use hostler_model::{Counted, Metric, NodeState as Reported, PartitionState, WallTime};
use hostler_proto::api::{NodeDetail, NodeView};
use hostler_proto::partitions::PartitionView;
use hostler_slurm::hostlist::compress;
pub(crate) use hostler_slurm::job_variables::ALL_NODES;
use hostler_slurm::node_state::{Base, NodeState, Power};

/// What Slurm writes for an absent value.
pub(crate) const NULL: &str = "(null)";

/// The nodes and partitions of the cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// In the order of their names, numbers in them by value.
    pub(crate) machines: Vec<Machine>,
    pub(crate) parts: Vec<Part>,
}

/// Which nodes to ask for details, with a request for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Details {
    None,
    /// Drained nodes.
    Reasons,
    /// All nodes, for what agents measure.
    All,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) view: NodeView,
    detail: Option<NodeDetail>,
}

/// Why a node gets no work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) text: String,
    pub(crate) user: String,
    pub(crate) at: Option<WallTime>,
}

/// A partition.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) is_default: bool,
    pub(crate) state: PartitionState,
    pub(crate) priority: i32,
    /// Time limits in seconds.
    pub(crate) default_time: Option<u64>,
    pub(crate) max_time: Option<u64>,
    pub(crate) max_nodes: Option<u32>,
    /// Users and groups who may use the partition; empty if everybody may.
    pub(crate) allowed: Vec<String>,
}

impl Cluster {
    /// Asks the head for all nodes and partitions.
    pub(crate) async fn load(client: &Client, details: Details) -> Result<Self, ClientError> {
        let parts = client.partitions().await?;
        let mut machines = Vec::new();
        for view in client.nodes().await? {
            let is_asked = match details {
                Details::None => false,
                Details::Reasons => view.reason.is_some(),
                Details::All => true,
            };
            let detail = if is_asked { Self::detail(client, &view).await? } else { None };
            machines.push(Machine { view, detail });
        }
        Ok(Self::new(machines, &parts))
    }

    /// The details of a node; `None` if the node was removed meanwhile.
    async fn detail(client: &Client, view: &NodeView) -> Result<Option<NodeDetail>, ClientError> {
        match client.node(&view.name).await {
            Ok(detail) => Ok(Some(detail)),
            Err(error) if error.code() == Some("no_such_node") => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn new(mut machines: Vec<Machine>, parts: &[PartitionView]) -> Self {
        machines.sort_by(|a, b| by_name(a.name(), b.name()));
        let mut parts: Vec<Part> = parts.iter().map(Part::new).collect();
        if parts.is_empty() {
            parts.push(Part::of_all_nodes());
        }
        Self { machines, parts }
    }

    /// The nodes of a partition.
    pub(crate) fn machines_of(&self, part: &Part) -> Vec<&Machine> {
        self.machines.iter().filter(|machine| machine.is_in(&part.name)).collect()
    }
}

impl Machine {
    #[cfg(test)]
    pub(crate) fn from_view(view: NodeView) -> Self {
        Self { view, detail: None }
    }

    pub(crate) fn name(&self) -> &str {
        self.view.name.as_str()
    }

    /// The address at which other nodes reach the node; its name if the address is unknown.
    pub(crate) fn address(&self) -> String {
        self.view.address.map_or_else(|| self.name().to_owned(), |address| address.to_string())
    }

    /// The names of the partitions that contain the node.
    pub(crate) fn partitions(&self) -> Vec<&str> {
        match self.view.partitions.as_slice() {
            [] => vec![ALL_NODES],
            some => some.iter().map(hostler_model::PartitionName::as_str).collect(),
        }
    }

    fn is_in(&self, part: &str) -> bool {
        self.partitions().contains(&part)
    }

    pub(crate) fn state(&self) -> NodeState {
        let NodeView { tasks, cpus_free, state, reason, .. } = &self.view;
        let base = match (state, tasks, cpus_free) {
            (Reported::Down | Reported::Removed, ..) => Base::Down,
            (_, 0, _) => Base::Idle,
            (_, _, 0) => Base::Allocated,
            _ => Base::Mixed,
        };
        let power = match state {
            Reported::Off => Some(Power::Off),
            Reported::Waking => Some(Power::Starting),
            Reported::Stopping => Some(Power::Stopping),
            _ => None,
        };
        let drain = reason.is_some() || matches!(state, Reported::Draining | Reported::Drained);
        NodeState { base, drain, silent: matches!(state, Reported::Suspect | Reported::Down), power }
    }

    /// CPUs that jobs have.
    pub(crate) fn cpus_used(&self) -> u32 {
        self.view.cpus.saturating_sub(self.view.cpus_free)
    }

    /// Memory in mebibytes.
    pub(crate) fn memory(&self) -> u64 {
        self.view.memory_bytes >> 20
    }

    /// Memory that jobs have, in mebibytes.
    pub(crate) fn memory_used(&self) -> u64 {
        self.view.memory_bytes.saturating_sub(self.view.memory_free_bytes) >> 20
    }

    /// Memory that no process uses, in mebibytes; `None` if it was not measured.
    pub(crate) fn memory_free(&self) -> Option<u64> {
        let used = self.measured(Metric::Memory)?;
        // A measurement is not negative.
        Some(self.view.memory_bytes.saturating_sub(used as u64) >> 20)
    }

    /// The load average; `None` if it was not measured.
    pub(crate) fn load(&self) -> Option<f32> {
        self.measured(Metric::Load)
    }

    fn measured(&self, metric: Metric) -> Option<f32> {
        self.detail.as_ref()?.node.measured.as_ref()?.values.get(&metric).copied()
    }

    /// GPUs and counted resources, such as `gpu:2`; `None` if the node has none.
    pub(crate) fn gres(&self) -> Option<String> {
        let all = gres(self.view.gpus, &self.view.counted);
        (!all.is_empty()).then(|| joined(&all))
    }

    /// GPUs and counted resources that jobs have; `None` if the node has none.
    pub(crate) fn gres_used(&self) -> Option<String> {
        let NodeView { gpus, gpus_free, counted, counted_free, .. } = &self.view;
        let all: Vec<(String, u64)> = gres(*gpus, counted)
            .into_iter()
            .map(|(name, total)| {
                let free = if name == GPU { u64::from(*gpus_free) } else { counted_free.count(&name) };
                (name, total.saturating_sub(free))
            })
            .collect();
        (!all.is_empty()).then(|| joined(&all))
    }

    pub(crate) fn features(&self) -> Option<String> {
        let names: Vec<&str> = self.view.features.iter().map(hostler_model::Feature::as_str).collect();
        (!names.is_empty()).then(|| names.join(","))
    }

    /// The processor's architecture, which every agent reports as a feature.
    pub(crate) fn architecture(&self) -> Option<&str> {
        let is_known = |name: &&str| ["x86_64", "aarch64", "riscv64", "powerpc64"].contains(name);
        self.view.features.iter().map(hostler_model::Feature::as_str).find(is_known)
    }

    /// Why the node is drained or down.
    pub(crate) fn cause(&self) -> Option<Cause> {
        let since = self.view.since;
        if let Some(drain) = self.detail.as_ref().and_then(|detail| detail.drain.as_ref()) {
            let text = drain.reason.clone().unwrap_or_else(|| "none".to_owned());
            return Some(Cause { text, user: drain.by.clone(), at: Some(drain.at) });
        }
        let cause = |text: &str| Some(Cause { text: text.to_owned(), user: "root".to_owned(), at: since });
        match self.view.state {
            Reported::Down => cause("Not responding"),
            _ if self.view.reason.is_some() => cause("none"),
            _ => None,
        }
    }

    /// CPUs, memory, GPUs and counted resources as Slurm writes them, without those that are zero.
    pub(crate) fn tres(&self) -> String {
        let gres = gres(self.view.gpus, &self.view.counted);
        tres(u64::from(self.view.cpus), self.memory(), None, true, &gres)
    }

    /// What jobs have of the node; `None` if nothing.
    pub(crate) fn tres_used(&self) -> Option<String> {
        if self.view.tasks == 0 {
            return None;
        }
        let gpus = self.view.gpus.saturating_sub(self.view.gpus_free);
        Some(tres(u64::from(self.cpus_used()), self.memory_used(), None, false, &gres(gpus, &Counted::default())))
    }
}

impl Part {
    fn new(view: &PartitionView) -> Self {
        let seconds = |ms: Option<u64>| ms.map(|ms| ms.div_ceil(1000));
        let names = view.groups.iter().chain(&view.users);
        Self {
            name: view.name.as_str().to_owned(),
            is_default: view.is_default,
            state: view.state,
            priority: view.priority,
            default_time: seconds(view.default_time_ms),
            max_time: seconds(view.max_time_ms),
            max_nodes: view.max_nodes,
            allowed: names.map(|name| name.as_str().to_owned()).collect(),
        }
    }

    /// The partition of a cluster that has none.
    fn of_all_nodes() -> Self {
        Self {
            name: ALL_NODES.to_owned(),
            is_default: true,
            state: PartitionState::Open,
            priority: 1,
            default_time: None,
            max_time: None,
            max_nodes: None,
            allowed: Vec::new(),
        }
    }

    /// The state in Slurm's words.
    pub(crate) const fn state_name(&self) -> &'static str {
        match self.state {
            PartitionState::Open => "UP",
            PartitionState::Paused => "DOWN",
            PartitionState::Closed => "DRAIN",
        }
    }
}

/// The name of GPUs among the generic resources.
const GPU: &str = "gpu";

fn gres(gpus: u32, counted: &Counted) -> Vec<(String, u64)> {
    let gpus = (gpus > 0).then(|| (GPU.to_owned(), u64::from(gpus)));
    gpus.into_iter().chain(counted.iter().map(|(name, count)| (name.to_owned(), count))).collect()
}

fn joined(gres: &[(String, u64)]) -> String {
    gres.iter().map(|(name, count)| format!("{name}:{count}")).collect::<Vec<_>>().join(",")
}

/// Writes resources as Slurm does: `cpu=4,mem=4G,node=2,billing=4,gres/gpu=1`. Memory is in mebibytes.
fn tres(cpus: u64, memory: u64, nodes: Option<u64>, is_billed: bool, gres: &[(String, u64)]) -> String {
    let mut parts = vec![format!("cpu={cpus}")];
    parts.extend((memory > 0).then(|| format!("mem={}", hostler_slurm::size::exact(memory))));
    parts.extend(nodes.map(|nodes| format!("node={nodes}")));
    parts.extend(is_billed.then(|| format!("billing={cpus}")));
    parts.extend(gres.iter().map(|(name, count)| format!("gres/{name}={count}")));
    parts.join(",")
}

/// The resources of a partition's nodes.
pub(crate) fn tres_of(machines: &[&Machine]) -> String {
    let mut gres_of_all: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    for (name, count) in machines.iter().flat_map(|machine| gres(machine.view.gpus, &machine.view.counted)) {
        *gres_of_all.entry(name).or_default() += count;
    }
    let cpus = machines.iter().map(|machine| u64::from(machine.view.cpus)).sum();
    let memory = machines.iter().map(|machine| machine.memory()).sum();
    let gres_of_all: Vec<(String, u64)> = gres_of_all.into_iter().collect();
    tres(cpus, memory, Some(machines.len() as u64), true, &gres_of_all)
}

/// The names of nodes as a host list.
pub(crate) fn node_list(machines: &[&Machine]) -> String {
    let names: Vec<&str> = machines.iter().map(|machine| machine.name()).collect();
    compress(&names)
}

/// The addresses of nodes, each once.
pub(crate) fn addresses(machines: &[&Machine]) -> Vec<String> {
    let mut all: Vec<String> = machines.iter().map(|machine| machine.address()).collect();
    all.sort_by(|a, b| by_name(a, b));
    all.dedup();
    all
}

/// Compares names of nodes: letters by letters, numbers by their values.
pub(crate) fn by_name(a: &str, b: &str) -> Ordering {
    pieces(a).cmp(&pieces(b)).then_with(|| a.cmp(b))
}

/// Splits a name into texts and the numbers after them.
fn pieces(name: &str) -> Vec<(&str, u128)> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let letters = rest.bytes().take_while(|byte| !byte.is_ascii_digit()).count();
        let digits = rest[letters..].bytes().take_while(u8::is_ascii_digit).count();
        pieces.push((&rest[..letters], rest[letters..letters + digits].parse().unwrap_or(0)));
        rest = &rest[letters + digits..];
    }
    pieces
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A node with some of its CPUs in use.
    pub(crate) fn machine(name: &str, state: Reported, cpus: u32, cpus_free: u32) -> Machine {
        let view = NodeView {
            name: name.parse().expect("a name"),
            state,
            power: "on".to_owned(),
            cpus,
            cpus_free,
            memory_bytes: u64::from(cpus) << 30,
            memory_free_bytes: u64::from(cpus_free) << 30,
            gpus: 0,
            gpus_free: 0,
            counted: Counted::default(),
            counted_free: Counted::default(),
            tasks: u32::from(cpus_free < cpus),
            address: None,
            agent_pid: 1,
            version: "1".to_owned(),
            advisory: hostler_model::Advisory::default(),
            shares_cpus: false,
            reason: None,
            partitions: Vec::new(),
            features: ["x86_64".parse().expect("a feature")].into(),
            weight: 0,
            since: Some(WallTime(0)),
            why: None,
            kept_for: None,
            holders: None,
            measured: None,
        };
        Machine::from_view(view)
    }

    #[test]
    fn states_follow_from_use_power_and_drain() {
        let written = |state: Reported, cpus_free: u32| machine("n1", state, 4, cpus_free).state().compact();
        assert_eq!((written(Reported::Up, 4), written(Reported::Up, 1)), ("idle".to_owned(), "mix".to_owned()));
        assert_eq!((written(Reported::Up, 0), written(Reported::Down, 4)), ("alloc".to_owned(), "down*".to_owned()));
        assert_eq!((written(Reported::Drained, 4), written(Reported::Draining, 0)), ("drain".into(), "drng".into()));
        assert_eq!((written(Reported::Off, 4), written(Reported::Waking, 0)), ("idle~".into(), "alloc#".into()));
        let mut lost = machine("n1", Reported::Down, 4, 4);
        lost.view.reason = Some("drained by root".to_owned());
        assert_eq!(lost.state().complete(), "DOWN+DRAIN+NOT_RESPONDING");
        assert_eq!(lost.cause().map(|cause| cause.text).as_deref(), Some("Not responding"));
    }

    #[test]
    fn resources_are_written() {
        let mut node = machine("n1", Reported::Up, 4, 3);
        (node.view.gpus, node.view.gpus_free) = (2, 1);
        node.view.counted = [("camera".to_owned(), 3)]
            .into_iter()
            .collect::<std::collections::BTreeMap<_, _>>()
            .try_into()
            .expect("valid");
        assert_eq!(node.gres().as_deref(), Some("gpu:2,camera:3"));
        assert_eq!(node.gres_used().as_deref(), Some("gpu:1,camera:3"));
        assert_eq!(node.tres(), "cpu=4,mem=4G,billing=4,gres/gpu=2,gres/camera=3");
        assert_eq!(node.tres_used().as_deref(), Some("cpu=1,mem=1G,gres/gpu=1"));
        let other = machine("n2", Reported::Up, 4, 4);
        assert_eq!((other.gres(), other.tres_used(), other.features().as_deref()), (None, None, Some("x86_64")));
        assert_eq!(tres_of(&[&node, &other]), "cpu=8,mem=8G,node=2,billing=8,gres/camera=3,gres/gpu=2");
    }

    #[test]
    fn names_sort_by_their_numbers() {
        let mut names = ["n10", "n9", "a1-b10", "a1-b9", "n", "n09"];
        names.sort_by(|a, b| by_name(a, b));
        assert_eq!(names, ["a1-b9", "a1-b10", "n", "n09", "n9", "n10"]);
    }

    #[test]
    fn cluster_without_partitions_has_one_of_all_nodes() {
        let cluster = Cluster::new(vec![machine("n10", Reported::Up, 2, 2), machine("n9", Reported::Up, 2, 2)], &[]);
        let [part] = cluster.parts.as_slice() else { panic!("one partition") };
        assert_eq!((part.name.as_str(), node_list(&cluster.machines_of(part)).as_str()), ("all", "n[9-10]"));
    }
}

//! Divides the machine among virtual nodes.

use std::collections::BTreeSet;

use hostler_discovery::Caps;
use hostler_model::{CpuSet, NodeName};
use nix::sched::{CpuSet as Affinity, sched_getaffinity};
use nix::unistd::Pid;

use super::record::{NodeRecord, Sizes};
use crate::failure::{During, Failure};
use crate::flags::GpuCap;

/// Default number of nodes if the machine has as many CPUs; enough to show that jobs are spread.
const DEFAULT_NODES: u32 = 4;

/// Memory per node is a multiple of this, to get round numbers.
const MEMORY_STEP: u64 = 64 << 20;

/// The resources that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub cpus: Vec<u32>,
    /// Memory for jobs, in bytes.
    pub memory_bytes: u64,
    /// Unique ids of GPUs for jobs.
    pub gpus: Vec<String>,
}

impl Machine {
    /// Reads affinity, free memory and cgroup limits. [`Machine::with_gpus`] adds GPUs.
    pub fn detect() -> Result<Self, Failure> {
        let affinity = sched_getaffinity(Pid::from_raw(0)).during(|| "cannot determine the usable CPUs".to_owned())?;
        let cpus =
            (0..Affinity::count()).filter(|&id| affinity.is_set(id).unwrap_or(false)).map(|id| id as u32).collect();
        let text = std::fs::read_to_string("/proc/meminfo").during(|| "cannot read /proc/meminfo".to_owned())?;
        let unknown = || Failure::new("/proc/meminfo does not list the memory");
        let available = meminfo(&text, "MemAvailable:").ok_or_else(unknown)?;
        let total = meminfo(&text, "MemTotal:").ok_or_else(unknown)?;
        let usable = usable(available, total);
        Ok(Self {
            cpus,
            memory_bytes: cgroup_limit().map_or(usable, |limit| limit / 5 * 4).min(usable),
            gpus: Vec::new(),
        })
    }

    /// Adds the GPUs of `found` that `cap` allows.
    pub fn with_gpus(self, found: hostler_discovery::Machine, cap: Option<&GpuCap>) -> Self {
        let found = match cap {
            Some(GpuCap::Only(picks)) => found.capped(&Caps { gpus: Some(picks.clone()), ..Caps::default() }),
            Some(GpuCap::All) | None => found,
        };
        Self { gpus: found.gpus.into_iter().map(|gpu| gpu.uuid).collect(), ..self }
    }
}

/// Returns the memory to divide among the nodes: 80 % of the free memory, but at least half of all memory, because
/// memory that is in use now may be free when jobs run.
fn usable(available: u64, total: u64) -> u64 {
    (available / 5 * 4).max(total / 2)
}

/// The value of a line of `/proc/meminfo`, in bytes.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let kib: u64 =
        text.lines().find_map(|line| line.strip_prefix(key))?.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// The memory limit of this process's cgroup (v2 or v1), if any. Limits of parent cgroups are ignored.
fn cgroup_limit() -> Option<u64> {
    let memberships = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    memberships.lines().filter_map(limit_file).find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

/// The file with the memory limit for a line of `/proc/self/cgroup`.
fn limit_file(membership: &str) -> Option<String> {
    let mut fields = membership.splitn(3, ':');
    match (fields.next()?, fields.next()?, fields.next()?) {
        ("0", "", path) => Some(format!("/sys/fs/cgroup{path}/memory.max")),
        (_, controllers, path) if controllers.split(',').any(|name| name == "memory") => {
            Some(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"))
        }
        _ => None,
    }
}

impl Sizes {
    /// Whether nodes that have died can start again unchanged.
    pub fn still_fit(&self, dealt: &[NodeRecord], dead: &[NodeRecord]) -> bool {
        // Always compare the GPUs, because a recorded GPU may no longer exist.
        let gpus = Some(self.gpus.clone().unwrap_or(GpuCap::All));
        !dead.is_empty() && dealt.len() == dead.len() && Self { gpus, ..self.clone() }.fit(dealt, dead)
    }

    /// Whether running nodes have the requested sizes. `dealt` is the result of [`Self::deal`] now. Sizes that were not
    /// requested may differ, e.g. because less memory is free now.
    pub fn fit(&self, dealt: &[NodeRecord], running: &[NodeRecord]) -> bool {
        self.misfits(dealt, running).is_empty()
    }

    /// The flags whose sizes running nodes do not have.
    pub fn misfits(&self, dealt: &[NodeRecord], running: &[NodeRecord]) -> Vec<&'static str> {
        let gpus = |nodes: &[NodeRecord]| nodes.iter().flat_map(|node| node.gpus.clone()).collect::<BTreeSet<_>>();
        let has = |fits: &dyn Fn(&NodeRecord) -> bool| running.iter().all(fits);
        let fits = [
            ("--nodes", self.nodes.is_none_or(|_| dealt.len() == running.len())),
            ("--cpus", self.cpus.is_none_or(|cpus| has(&|node| node.cpus.len() == cpus))),
            ("--memory", self.memory_bytes.is_none_or(|bytes| has(&|node| node.memory_bytes == bytes))),
            ("--gpus", self.gpus.is_none() || gpus(dealt) == gpus(running)),
            ("--resource", self.counted.is_empty() || has(&|node| node.counted == self.counted)),
        ];
        fits.into_iter().filter(|(_, fits)| !fits).map(|(flag, _)| flag).collect()
    }

    /// Sizes for a start without options: as many nodes as before, even if the default is another number now. The nodes may
    /// still have jobs.
    pub fn as_before(&self, recorded: &[NodeRecord]) -> Self {
        let before = u32::try_from(recorded.len()).ok().filter(|count| *count > 0);
        Self { nodes: self.nodes.or(before), ..self.clone() }
    }

    /// Divides the machine: CPU ids in turn, memory in equal parts, each GPU to one node.
    pub fn deal(&self, machine: &Machine) -> Vec<NodeRecord> {
        let available = machine.cpus.len() as u32;
        let nodes = self.nodes.unwrap_or(DEFAULT_NODES.min(available)).max(1);
        let cpus = self.cpus.unwrap_or(available / nodes).max(1);
        let share = machine.memory_bytes / u64::from(nodes);
        let memory_bytes = self.memory_bytes.unwrap_or_else(|| (share / MEMORY_STEP * MEMORY_STEP).max(MEMORY_STEP));
        (0..nodes)
            .map(|node| NodeRecord {
                name: node_name(node),
                cpus: cpu_ids(&machine.cpus, node, cpus),
                memory_bytes,
                gpus: machine.gpus.iter().skip(node as usize).step_by(nodes as usize).cloned().collect(),
                counted: self.counted.clone(),
                agent: None,
            })
            .collect()
    }
}

fn node_name(node: u32) -> NodeName {
    format!("n{}", node + 1).parse().expect("a letter and digits make a valid name")
}

/// Returns the `count` CPU ids of a node, taken from the machine's ids in turn. If `count` exceeds the number of CPUs,
/// adds ids that do not exist.
fn cpu_ids(machine: &[u32], node: u32, count: u32) -> CpuSet {
    let available = machine.len() as u32;
    let real = (0..count.min(available)).map(|i| machine[((node * count + i) % available) as usize]);
    let beyond = machine.iter().max().map_or(0, |last| last + 1);
    real.chain((0..count.saturating_sub(available)).map(|i| beyond + i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(sizes: &Sizes, cpus: &[u32], memory_bytes: u64) -> Vec<(String, String, u64)> {
        let machine = Machine { cpus: cpus.to_vec(), memory_bytes, gpus: Vec::new() };
        let nodes = sizes.deal(&machine).into_iter();
        nodes.map(|node| (node.name.to_string(), node.cpus.to_string(), node.memory_bytes >> 20)).collect()
    }

    fn row(name: &str, cpus: &str, memory: u64) -> (String, String, u64) {
        (name.to_owned(), cpus.to_owned(), memory)
    }

    #[test]
    fn default_nodes_have_cpus_of_their_own() {
        let eight = dealt(&Sizes::default(), &[0, 1, 2, 3, 4, 5, 6, 7], 8 << 30);
        assert_eq!(
            eight,
            [row("n1", "0-1", 2048), row("n2", "2-3", 2048), row("n3", "4-5", 2048), row("n4", "6-7", 2048)]
        );
        let two = dealt(&Sizes::default(), &[4, 6], 800 << 20);
        assert_eq!(two, [row("n1", "4", 384), row("n2", "6", 384)]);
        assert_eq!(dealt(&Sizes::default(), &[7], 800 << 20), [row("n1", "7", 768)]);
        let three = dealt(&Sizes::default(), &[0, 1, 2], 768 << 20);
        assert_eq!(three, [row("n1", "0", 256), row("n2", "1", 256), row("n3", "2", 256)]);
        let shared = dealt(&Sizes { nodes: Some(3), ..Sizes::default() }, &[4, 6], 768 << 20);
        assert_eq!(shared, [row("n1", "4", 256), row("n2", "6", 256), row("n3", "4", 256)]);
    }

    #[test]
    fn requested_sizes_are_used() {
        let sizes = Sizes { nodes: Some(2), cpus: Some(3), memory_bytes: Some(1 << 30), ..Sizes::default() };
        assert_eq!(dealt(&sizes, &[0, 1, 2, 3], 1 << 20), [row("n1", "0-2", 1024), row("n2", "0-1,3", 1024)]);
        let large = Sizes { nodes: Some(1), cpus: Some(5), ..Sizes::default() };
        assert_eq!(dealt(&large, &[0, 2], 1 << 20), [row("n1", "0,2-5", 64)]);
    }

    #[test]
    fn start_without_options_keeps_the_number_of_nodes() {
        let machine = |cpus| Machine { cpus: (0..cpus).collect(), memory_bytes: 8 << 30, gpus: Vec::new() };
        let count = |sizes: &Sizes, cpus| sizes.deal(&machine(cpus)).len();
        let default = Sizes::default();
        for (before, now) in [(8, 2), (2, 8), (4, 1)] {
            let recorded = default.deal(&machine(before));
            assert_eq!(count(&default.as_before(&recorded), now), recorded.len(), "{before} CPUs, then {now}");
        }
        let three = Sizes { nodes: Some(3), ..Sizes::default() };
        assert_eq!(count(&three.as_before(&default.deal(&machine(8))), 8), 3);
        assert_eq!(count(&default.as_before(&[]), 2), 2, "the first start");
    }

    #[test]
    fn only_requested_sizes_must_match() {
        let machine = |gpus: &[&str]| Machine {
            cpus: (0..8).collect(),
            memory_bytes: 8 << 30,
            gpus: gpus.iter().map(|&gpu| gpu.to_owned()).collect(),
        };
        let nothing = Sizes::default();
        let running = Sizes { cpus: Some(3), ..nothing.clone() }.deal(&machine(&["a", "b"]));
        let fits =
            |sizes: Sizes| sizes.fit(&sizes.deal(&Machine { memory_bytes: 1 << 30, ..machine(&["b", "a"]) }), &running);
        assert!(fits(nothing.clone()), "the free memory has changed");
        let of = |nodes| Sizes { nodes: Some(nodes), ..nothing.clone() };
        assert!(fits(of(4)) && !fits(of(3)) && !fits(of(5)));
        assert!(fits(Sizes { cpus: Some(3), memory_bytes: Some(2 << 30), ..nothing.clone() }));
        assert!(!fits(Sizes { cpus: Some(2), ..nothing.clone() }));
        assert!(!fits(Sizes { memory_bytes: Some(1 << 30), ..nothing.clone() }));
        let all = Sizes { gpus: Some(GpuCap::All), ..nothing.clone() };
        assert!(fits(all.clone()) && !all.fit(&all.deal(&machine(&["a"])), &running));
    }

    #[test]
    fn each_gpu_is_given_to_one_node() {
        let machine =
            Machine { cpus: vec![0], memory_bytes: 1 << 30, gpus: ["a", "b", "c"].map(str::to_owned).to_vec() };
        let dealt = Sizes { nodes: Some(2), ..Sizes::default() }.deal(&machine);
        assert_eq!(dealt.iter().map(|node| node.gpus.concat()).collect::<Vec<_>>(), ["ac", "b"]);
    }

    #[test]
    fn this_machine_has_cpus_and_memory() {
        let machine = Machine::detect().expect("Linux");
        assert!(!machine.cpus.is_empty() && machine.memory_bytes > 1 << 20);
        assert_eq!((usable(10, 12), usable(1, 12)), (8, 6));
        assert_eq!(meminfo("MemTotal: 5 kB\nMemAvailable:   3 kB\n", "MemAvailable:"), Some(3072));
        assert_eq!(limit_file("0::/user/x").as_deref(), Some("/sys/fs/cgroup/user/x/memory.max"));
        assert_eq!(limit_file("4:memory:/x").as_deref(), Some("/sys/fs/cgroup/memory/x/memory.limit_in_bytes"));
        assert_eq!(limit_file("4:cpu,cpuacct:/x"), None);
    }
}

//! The machine's CPUs, their topology, and the CPUs that this process may use.
//!
//! The topology comes from `/sys/devices/system`. Containers, virtual machines and boards lack parts of it. Missing
//! parts are replaced by a flat topology: one thread per core, one package, one NUMA node. A note reports this.

use std::collections::BTreeMap;

use hostler_model::{CoreKind, Cpu, CpuSet, Topology, plural};

use crate::cgroup::Groups;
use crate::{Note, Source, Topic};

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

/// Upper limit for CPU ids; `CpuSet` has the same limit. Kernels support at most 8192 CPUs.
const MAX_CPUS: u32 = 1 << 16;

/// Numerator and denominator of a fraction: cores below this fraction of the fastest core's capacity are efficiency
/// cores. On boards with three kinds of cores, the middle kind has about nine tenths of the capacity and counts as
/// fast.
const FAST_PART: (i64, i64) = (2, 3);

#[derive(Debug, Default)]
pub(crate) struct Cpus {
    /// Online CPUs, by id.
    pub(crate) all: Vec<Cpu>,
    /// CPUs that jobs may use.
    pub(crate) usable: CpuSet,
    /// CPU time limit that control groups set, in thousandths of a CPU; `None` without a limit.
    pub(crate) quota_millicpus: Option<u64>,
}

impl Cpus {
    pub(crate) fn of(source: &Source, groups: &Groups, notes: &mut Vec<Note>) -> Self {
        let online = online(source, notes);
        let all = placed(source, &online, notes);
        let allowed = allowed(source, groups, &online, notes);
        let quota_millicpus = groups.quota_millicpus(source);
        let usable = within_quota(&all, allowed, quota_millicpus, notes);
        Self { all, usable, quota_millicpus }
    }
}

/// The online CPUs; never empty.
fn online(source: &Source, notes: &mut Vec<Note>) -> CpuSet {
    let mut note = |text: &str| notes.push(Note::new(Topic::Cpus, text));
    if let Some(online) = set(source, &format!("{CPU}/online")) {
        return online;
    }
    let directories = source.numbered(CPU, "cpu").into_iter().filter(|id| *id < MAX_CPUS);
    let listed: CpuSet = directories.filter(|id| source.number(&format!("{CPU}/cpu{id}/online")) != Some(0)).collect();
    if !listed.is_empty() {
        return listed;
    }
    if let Some(allowed) = affinity(source) {
        note("/sys does not list the online CPUs; only the CPUs that this process may use are counted");
        return allowed;
    }
    note("neither /sys nor /proc lists the CPUs; one CPU is assumed");
    CpuSet::first(1)
}

/// The CPU affinity of this process's first thread.
fn affinity(source: &Source) -> Option<CpuSet> {
    let status = source.lines("/proc/self/status", &["Cpus_allowed_list:"])?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.parse().ok().filter(|set: &CpuSet| !set.is_empty())
}

/// The online CPUs that affinity and control groups allow; never empty.
fn allowed(source: &Source, groups: &Groups, online: &CpuSet, notes: &mut Vec<Note>) -> CpuSet {
    let limits = [("the affinity mask", affinity(source)), ("a control group", groups.cpus(source))];
    let mut allowed = online.clone();
    for (what, limit) in limits {
        let Some(limit) = limit else { continue };
        let left = allowed.intersection(&limit);
        if left.is_empty() {
            let text = format!("{what} allows only {limit}, and none of these CPUs is available; the limit is ignored");
            notes.push(Note::new(Topic::Cpus, text));
        } else if left != allowed {
            notes.push(Note::new(Topic::Cpus, format!("{what} allows {left} of {online}")));
            allowed = left;
        }
    }
    allowed
}

/// Returns as many of the allowed CPUs as the CPU time limit covers, rounded down, but at least one.
fn within_quota(cpus: &[Cpu], allowed: CpuSet, quota_millicpus: Option<u64>, notes: &mut Vec<Note>) -> CpuSet {
    let Some(quota) = quota_millicpus else { return allowed };
    let count = u32::try_from(quota / 1000).unwrap_or(u32::MAX).max(1);
    if count >= allowed.len() && quota >= 1000 {
        return allowed;
    }
    let usable = Topology::new(cpus).choose(&allowed, count);
    let time = format!("{}.{:03}", quota / 1000, quota % 1000);
    let time = time.trim_end_matches('0').trim_end_matches('.');
    let text = format!(
        "a control group limits the CPU time to {}; {} of {} are offered",
        plural(time, "CPU"),
        usable.len(),
        plural(allowed.len(), "CPU")
    );
    notes.push(Note::new(Topic::Cpus, text));
    usable
}

/// The CPUs in `online` with their topology, sorted by id.
fn placed(source: &Source, online: &CpuSet, notes: &mut Vec<Note>) -> Vec<Cpu> {
    let packages = Groupings::read(online, |id| package(source, id));
    let cores = Groupings::read(online, |id| {
        let siblings = topology_set(source, id, ["core_cpus_list", "thread_siblings_list"])?;
        Some((siblings.intersection(online).iter().next()?, siblings))
    });
    let numa = numa_nodes(source);
    let kinds = Kinds::of(source);
    let cpus: Vec<_> = online
        .iter()
        .map(|id| {
            let core = cores.number.get(&id).copied().unwrap_or(id);
            let package = packages.number.get(&id).copied().unwrap_or(0);
            let numa = numa.get(&id).copied().unwrap_or(0);
            Cpu { id, core, package, numa, kind: CoreKind::Performance }
        })
        .collect();
    let cpus = kinds.mark(source, cpus);
    for (missing, assumed) in [
        (cores.missing, "the CPUs of each core are unknown; each CPU counts as a core"),
        (packages.missing, "the packages of CPUs are unknown; one package is assumed"),
        (
            !numa.is_empty() && online.iter().any(|id| !numa.contains_key(&id)),
            "some CPUs are in no NUMA node; node 0 is assumed",
        ),
    ] {
        if missing {
            notes.push(Note::new(Topic::Cpus, assumed));
        }
    }
    cpus
}

/// The number of the group that each CPU belongs to, e.g. of its package.
struct Groupings {
    number: BTreeMap<u32, u32>,
    /// Whether the group of some CPU is unknown.
    missing: bool,
}

impl Groupings {
    /// Reads the groups of all CPUs in `online`. Reads each group once, not once per CPU.
    fn read(online: &CpuSet, of: impl Fn(u32) -> Option<(u32, CpuSet)>) -> Self {
        let mut groupings = Self { number: BTreeMap::new(), missing: false };
        for id in online.iter() {
            if groupings.number.contains_key(&id) {
                continue;
            }
            let Some((number, members)) = of(id) else {
                groupings.missing = true;
                continue;
            };
            // A group that does not include the CPU itself is not trusted for other CPUs.
            let members = if members.contains(id) { members } else { CpuSet::from_iter([id]) };
            for member in members.intersection(online).iter() {
                groupings.number.entry(member).or_insert(number);
            }
        }
        groupings
    }
}

/// The package of a CPU, and all CPUs of that package.
fn package(source: &Source, id: u32) -> Option<(u32, CpuSet)> {
    let number = source.number(&format!("{CPU}/cpu{id}/topology/physical_package_id"))?;
    let members = topology_set(source, id, ["package_cpus_list", "core_siblings_list"]);
    // Boards without packages report -1.
    Some((u32::try_from(number).unwrap_or(0), members.unwrap_or_else(|| CpuSet::from_iter([id]))))
}

/// A CPU set from a CPU's topology directory. `names` are the file's current name and its name before Linux 5.3.
fn topology_set(source: &Source, id: u32, names: [&str; 2]) -> Option<CpuSet> {
    names.into_iter().find_map(|name| set(source, &format!("{CPU}/cpu{id}/topology/{name}")))
}

/// The NUMA node of each CPU; empty if the kernel does not support NUMA.
fn numa_nodes(source: &Source) -> BTreeMap<u32, u32> {
    let mut nodes = BTreeMap::new();
    for node in source.numbered(NODE, "node") {
        let members = set(source, &format!("{NODE}/node{node}/cpulist"));
        members.iter().flat_map(CpuSet::iter).for_each(|id| _ = nodes.entry(id).or_insert(node));
    }
    nodes
}

/// How to distinguish performance and efficiency cores.
enum Kinds {
    /// By the set of efficiency cores of Intel's hybrid processors.
    Named(CpuSet),
    /// By the capacity of each core, on boards.
    Capacity,
    /// All cores are equal.
    Alike,
}

impl Kinds {
    fn of(source: &Source) -> Self {
        if let Some(frugal) = set(source, "/sys/devices/cpu_atom/cpus") {
            return Self::Named(frugal);
        }
        let known = source.read(&format!("{CPU}/cpu0/cpu_capacity")).is_some();
        if known { Self::Capacity } else { Self::Alike }
    }

    fn mark(&self, source: &Source, mut cpus: Vec<Cpu>) -> Vec<Cpu> {
        match self {
            Self::Alike => {}
            // A processor with only efficiency cores has no faster ones.
            Self::Named(frugal) if cpus.iter().all(|cpu| frugal.contains(cpu.id)) => {}
            Self::Named(frugal) => {
                cpus.iter_mut().filter(|cpu| frugal.contains(cpu.id)).for_each(|cpu| cpu.kind = CoreKind::Efficiency);
            }
            Self::Capacity => mark_by_capacity(source, &mut cpus),
        }
        cpus
    }
}

fn mark_by_capacity(source: &Source, cpus: &mut [Cpu]) {
    let mut capacities: BTreeMap<u32, i64> = BTreeMap::new();
    for cpu in cpus.iter() {
        capacities
            .entry(cpu.core)
            .or_insert_with(|| source.number(&format!("{CPU}/cpu{}/cpu_capacity", cpu.id)).unwrap_or(0));
    }
    let largest = capacities.values().copied().max().unwrap_or(0);
    for cpu in cpus {
        let capacity = capacities[&cpu.core];
        if capacity.saturating_mul(FAST_PART.1) < largest.saturating_mul(FAST_PART.0) {
            cpu.kind = CoreKind::Efficiency;
        }
    }
}

/// Reads a non-empty CPU set.
fn set(source: &Source, path: &str) -> Option<CpuSet> {
    source.read(path)?.parse().ok().filter(|set: &CpuSet| !set.is_empty())
}

//! CPU topology of a machine, and the choice of CPUs for a job.
//!
//! [`Topology::choose`] corresponds to [`CpuSet::lowest`] for CPUs that are not all equal. It prefers whole cores, so that two jobs do not
//! share one, uses as few NUMA nodes as possible, and leaves the largest free pieces for later jobs. It ignores caches below a NUMA
//! node and distances between NUMA nodes, because on common machines neighbouring ids are close.
//!
//! The serialised form is short: similar cores are grouped, so a server with hundreds of CPUs needs a hundred bytes. See [`CoreGroup`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{CpuSet, ParseError};

/// A logical CPU: a hardware thread of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cpu {
    /// The CPU's id in the kernel.
    pub id: u32,
    /// The lowest CPU id of the CPU's core. CPUs with the same value are hardware threads of one core.
    pub core: u32,
    /// The number of the CPU's package (socket).
    pub package: u32,
    /// The number of the CPU's NUMA node.
    pub numa: u32,
    /// Whether the CPU's core is a performance or an efficiency core.
    #[serde(default)]
    pub kind: CoreKind,
}

/// The kind of a core. On machines with equal cores, all are performance cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoreKind {
    /// A core of the faster kind.
    #[default]
    Performance,
    /// A core that is clearly slower than others of the machine.
    Efficiency,
}

/// The CPUs of a machine by NUMA node and core, for [`choose`](Topology::choose).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<CoreGroup>", into = "Vec<CoreGroup>")]
pub struct Topology {
    /// The NUMA nodes in the order of their numbers.
    domains: Vec<Domain>,
    has_both_kinds: bool,
}

/// The cores of a NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Domain {
    numa: u32,
    package: u32,
    /// The number of hardware threads of the core that has most.
    threads_per_core: u32,
    /// The cores; neighbouring cores follow each other.
    cores: Vec<Core>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Core {
    package: u32,
    kind: CoreKind,
    /// The ids of the core's hardware threads, ascending.
    threads: Vec<u32>,
}

/// The free CPUs of a NUMA node, or only those in its cores of one kind.
#[derive(Debug, Clone)]
struct FreeDomain<'a> {
    package: u32,
    threads_per_core: u32,
    cores: Vec<FreeCore<'a>>,
    free: u32,
    /// How many of the free CPUs are in cores that are completely free.
    free_in_whole_cores: u32,
}

/// The free threads of a core.
#[derive(Debug, Clone, Copy)]
struct FreeCore<'a> {
    core: &'a Core,
    /// How many hardware threads of the core are free.
    free: u32,
    /// The free CPUs of the whole machine.
    ids: &'a CpuSet,
}

impl Topology {
    /// Creates a topology from CPUs in any order. Of CPUs with the same id, keeps one.
    #[must_use]
    pub fn new(cpus: &[Cpu]) -> Self {
        let mut cpus = cpus.to_vec();
        cpus.sort_by_key(|cpu| (cpu.numa, cpu.package, cpu.core, cpu.id));
        let mut seen = CpuSet::default();
        cpus.retain(|cpu| seen.insert(cpu.id));
        let domains = cpus.chunk_by(|a, b| a.numa == b.numa).map(Domain::new).collect();
        let has_both_kinds = cpus.iter().any(|cpu| cpu.kind != cpus[0].kind);
        Self { domains, has_both_kinds }
    }

    /// Chooses `count` of the CPUs in `free`; all of them when there are fewer. The result is deterministic.
    ///
    /// The choice follows these rules; an earlier rule takes precedence:
    /// 1. Use one NUMA node, or as few as possible, of one package if possible.
    /// 2. Use cores of one kind, performance cores first.
    /// 3. Use whole cores.
    /// 4. Use the NUMA node, and for a remainder the core, with the fewest free CPUs.
    ///
    /// Ids that are not in the topology are never chosen.
    #[must_use]
    pub fn choose(&self, free: &CpuSet, count: u32) -> CpuSet {
        let mut chosen = CpuSet::default();
        let domains: Vec<_> = self.domains.iter().map(|domain| domain.free(free)).collect();
        if self.has_both_kinds {
            for kind in [CoreKind::Performance, CoreKind::Efficiency] {
                let of_kind: Vec<_> = domains.iter().map(|domain| domain.only(kind)).collect();
                if let Some(best) = best_fit(&of_kind, count) {
                    best.take(count, &mut chosen);
                    return chosen;
                }
            }
        }
        let chosen_domains = best_fit(&domains, count).map_or_else(|| several(&domains, count), |best| vec![best]);
        let mut wanted = count;
        for domain in chosen_domains {
            let taken = domain.free.min(wanted);
            domain.take(taken, &mut chosen);
            wanted -= taken;
        }
        chosen
    }
}

impl Topology {
    /// Returns whether all CPUs are equivalent: they have the same NUMA node and kind, and each has its own core.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        let is_flat = |domain: &Domain| domain.threads_per_core == 1;
        !self.has_both_kinds && self.domains.len() <= 1 && self.domains.iter().all(is_flat)
    }

    /// Returns the subset of `cpus` in these NUMA nodes.
    #[must_use]
    pub fn of_numa_nodes(&self, cpus: &CpuSet, numa_nodes: &BTreeSet<u32>) -> CpuSet {
        let near = self.domains.iter().filter(|domain| numa_nodes.contains(&domain.numa));
        let ids = near.flat_map(|domain| &domain.cores).flat_map(|core| &core.threads).copied();
        ids.filter(|id| cpus.contains(*id)).collect()
    }

    /// Iterates over every CPU, sorted by NUMA node, package, core and id.
    pub fn cpus(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.domains.iter().flat_map(|domain| {
            let cpu = |core: &Core, id| Cpu {
                id,
                core: core.threads[0],
                package: core.package,
                numa: domain.numa,
                kind: core.kind,
            };
            domain.cores.iter().flat_map(move |core| core.threads.iter().map(move |&id| cpu(core, id)))
        })
    }

    /// Returns the topology restricted to `cpus`.
    #[must_use]
    pub fn within(&self, cpus: &CpuSet) -> Self {
        Self::new(&self.cpus().filter(|cpu| cpus.contains(cpu.id)).collect::<Vec<_>>())
    }
}

/// The serialised form of similar cores in one place. It has one CPU list for the first threads of all cores, one for
/// the second threads, and so on, each in the order of the cores. E.g. `0-7` and `8-15` are eight cores, of which the
/// first has CPUs 0 and 8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreGroup {
    numa: u32,
    package: u32,
    #[serde(default)]
    kind: CoreKind,
    threads: Vec<String>,
}

/// An upper limit for the number of CPUs, above what any kernel supports. The limit bounds the work for a short list
/// such as `0-4000000000`.
const MAX_CPUS: u32 = 1 << 16;

impl From<Topology> for Vec<CoreGroup> {
    fn from(topology: Topology) -> Self {
        let of_domain = |domain: &Domain| {
            let groups = domain.cores.chunk_by(Core::is_followed_by);
            let group = |cores: &[Core]| CoreGroup {
                numa: domain.numa,
                package: cores[0].package,
                kind: cores[0].kind,
                threads: (0..cores[0].threads.len())
                    .map(|thread| cores.iter().map(|core| core.threads[thread]).collect::<CpuSet>().to_string())
                    .collect(),
            };
            groups.map(group).collect::<Vec<_>>()
        };
        topology.domains.iter().flat_map(of_domain).collect()
    }
}

impl TryFrom<Vec<CoreGroup>> for Topology {
    type Error = ParseError;

    fn try_from(groups: Vec<CoreGroup>) -> Result<Self, ParseError> {
        let mut cpus = Vec::new();
        let mut room = MAX_CPUS;
        for group in &groups {
            let mut cores: Vec<u32> = Vec::new();
            for (thread, list) in group.threads.iter().enumerate() {
                let error = || ParseError::new(list, "CPUs, as many as there are cores");
                let ids: CpuSet = list.parse()?;
                room = room.checked_sub(ids.len()).ok_or_else(error)?;
                if thread == 0 {
                    cores = ids.iter().collect();
                } else if ids.len() as usize != cores.len() {
                    return Err(error());
                }
                let CoreGroup { package, numa, kind, .. } = *group;
                cpus.extend(ids.iter().zip(&cores).map(|(id, &core)| Cpu { id, core, package, numa, kind }));
            }
        }
        Ok(Self::new(&cpus))
    }
}

impl Core {
    /// Returns whether `next` can follow this core in one group.
    fn is_followed_by(&self, next: &Self) -> bool {
        (self.package, self.kind, self.threads.len()) == (next.package, next.kind, next.threads.len())
            && self.threads.iter().zip(&next.threads).all(|(mine, theirs)| mine < theirs)
    }
}

/// Chooses the NUMA node for `count` CPUs: the one that splits the fewest cores, then the one with the fewest free
/// CPUs.
fn best_fit<'d, 'a>(domains: &'d [FreeDomain<'a>], count: u32) -> Option<&'d FreeDomain<'a>> {
    let fitting = domains.iter().filter(|domain| domain.free >= count);
    fitting.min_by_key(|domain| {
        let in_whole_cores = count - count % domain.threads_per_core;
        (in_whole_cores.saturating_sub(domain.free_in_whole_cores), domain.free - count)
    })
}

/// Chooses the fewest NUMA nodes that together have `count` free CPUs; all nodes if they have fewer. Prefers nodes of
/// one package if that needs no more nodes.
fn several<'d, 'a>(domains: &'d [FreeDomain<'a>], count: u32) -> Vec<&'d FreeDomain<'a>> {
    let anywhere = largest_first(domains.iter().filter(|domain| domain.free > 0).collect(), count);
    let mut packages: Vec<_> = domains.iter().map(|domain| domain.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let in_one = packages.into_iter().filter_map(|package| {
        let near = domains.iter().filter(|domain| domain.free > 0 && domain.package == package).collect();
        let near = largest_first(near, count);
        let free: u32 = near.iter().map(|domain| domain.free).sum();
        (near.len() <= anywhere.len() && free >= count).then_some((free, near))
    });
    in_one.min_by_key(|(free, _)| *free).map_or(anywhere, |(_, near)| near)
}

/// Chooses the largest NUMA nodes that together have `count` CPUs. The last one is as small as possible.
fn largest_first<'d, 'a>(mut domains: Vec<&'d FreeDomain<'a>>, count: u32) -> Vec<&'d FreeDomain<'a>> {
    domains.sort_by_key(|domain| std::cmp::Reverse(domain.free));
    let mut wanted = count;
    for i in 0..domains.len() {
        let enough = (i..domains.len()).filter(|&other| domains[other].free >= wanted);
        if let Some(smallest) = enough.min_by_key(|&other| domains[other].free) {
            domains.swap(i, smallest);
            domains.truncate(i + 1);
            break;
        }
        wanted -= domains[i].free;
    }
    domains
}

impl Domain {
    /// Creates a NUMA node from its CPUs, sorted by package, core and id.
    fn new(cpus: &[Cpu]) -> Self {
        let cores = cpus.chunk_by(|a, b| (a.package, a.core) == (b.package, b.core));
        let cores: Vec<_> = cores
            .map(|threads| Core {
                package: threads[0].package,
                kind: threads[0].kind,
                threads: threads.iter().map(|cpu| cpu.id).collect(),
            })
            .collect();
        let threads_per_core = cores.iter().map(|core| core.threads.len() as u32).max().unwrap_or(1);
        Self { numa: cpus[0].numa, package: cpus[0].package, threads_per_core, cores }
    }

    /// Returns the CPUs of this NUMA node that are in `free`.
    fn free<'a>(&'a self, free: &'a CpuSet) -> FreeDomain<'a> {
        let cores = self.cores.iter().map(|core| FreeCore::new(core, free));
        FreeDomain::new(self.package, self.threads_per_core, cores.filter(|core| core.free > 0).collect())
    }
}

impl<'a> FreeDomain<'a> {
    fn new(package: u32, threads_per_core: u32, cores: Vec<FreeCore<'a>>) -> Self {
        let free = cores.iter().map(|core| core.free).sum();
        let free_in_whole_cores = cores.iter().filter(|core| core.is_whole()).map(|core| core.free).sum();
        Self { package, threads_per_core, cores, free, free_in_whole_cores }
    }

    /// Returns the free cores of one kind.
    fn only(&self, kind: CoreKind) -> Self {
        let cores = self.cores.iter().filter(|core| core.core.kind == kind).copied().collect();
        Self::new(self.package, self.threads_per_core, cores)
    }

    /// Adds `count` of the free CPUs to `chosen`: whole cores first, then the largest parts of cores that fit, then
    /// part of the smallest.
    fn take(&self, count: u32, chosen: &mut CpuSet) {
        let mut wanted = count;
        let mut rest = Vec::new();
        for core in &self.cores {
            if core.is_whole() && core.free <= wanted {
                wanted -= core.take(core.free, chosen);
            } else {
                rest.push(core);
            }
        }
        if wanted == 0 {
            return;
        }
        // A stable sort keeps cores of equal rank in order.
        rest.sort_by_key(|core| (core.is_whole(), std::cmp::Reverse(core.free)));
        rest.retain(|core| {
            let fits = core.free <= wanted;
            if fits {
                wanted -= core.take(core.free, chosen);
            }
            !fits
        });
        if let Some(smallest) = rest.iter().min_by_key(|core| (core.is_whole(), core.free)) {
            smallest.take(wanted, chosen);
        }
    }
}

impl<'a> FreeCore<'a> {
    fn new(core: &'a Core, free: &'a CpuSet) -> Self {
        let free_threads = core.threads.iter().filter(|&&id| free.contains(id)).count();
        Self { core, free: free_threads as u32, ids: free }
    }

    fn is_whole(&self) -> bool {
        self.free as usize == self.core.threads.len()
    }

    /// Adds the `count` lowest free CPUs of the core to `chosen`; returns how many were added.
    fn take(&self, count: u32, chosen: &mut CpuSet) -> u32 {
        let free = self.core.threads.iter().filter(|&&id| self.ids.contains(id));
        free.take(count as usize).map(|&id| u32::from(chosen.insert(id))).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// CPUs of a machine with this many packages, NUMA nodes per package, cores per NUMA node and threads per core. Threads are numbered
    /// as on Intel and AMD servers: first one of every core, then the others.
    fn machine(packages: u32, nodes: u32, cores: u32, threads: u32) -> Vec<Cpu> {
        let all_cores = packages * nodes * cores;
        let cpu = |id: u32| {
            let core = id % all_cores;
            let numa = core / cores;
            Cpu { id, core, package: numa / nodes, numa, kind: CoreKind::Performance }
        };
        (0..all_cores * threads).map(cpu).collect()
    }

    fn chosen(cpus: &[Cpu], free: &str, count: u32) -> String {
        Topology::new(cpus).choose(&free.parse().expect("a CPU set"), count).to_string()
    }

    #[test]
    fn whole_cores_of_one_numa_node_are_preferred() {
        let server = machine(2, 1, 8, 2);
        assert_eq!(chosen(&server, "0-31", 4), "0-1,16-17");
        assert_eq!(chosen(&server, "0-31", 16), "0-7,16-23");
        assert_eq!(chosen(&server, "2-31", 16), "8-15,24-31", "the first NUMA node has too few CPUs");
        assert_eq!(chosen(&server, "1,3,5,7,8-15,24-31", 4), "8-9,24-25", "two whole cores rather than four halves");
        assert_eq!(chosen(&server, "0-31", 20), "0-9,16-25");
    }

    #[test]
    fn small_requests_use_the_smallest_pieces() {
        let server = machine(2, 1, 8, 2);
        assert_eq!(chosen(&server, "0-7,9-31", 1), "24", "the free half of a used core");
        assert_eq!(chosen(&server, "0-15,17-31", 3), "0-1,17", "a whole core, and the free half of a used one");
        assert_eq!(
            chosen(&server, "0-7,14-23,30-31", 4),
            "14-15,30-31",
            "the NUMA node with exactly this number of free CPUs"
        );
    }

    #[test]
    fn several_numa_nodes_come_from_one_package() {
        let server = machine(2, 2, 4, 1);
        assert_eq!(chosen(&server, "0-2,4,8-15", 6), "8-13");
        assert_eq!(chosen(&server, "0-3,4-6,8-15", 7), "0-6", "best fit");
        assert_eq!(chosen(&server, "0-3,8-11", 7), "0-3,8-10", "no package has so many free CPUs");
        assert_eq!(chosen(&server, "0-15", 12), "0-11");
        assert_eq!(chosen(&server, "0-1,4,8,12", 9), "0-1,4,8,12", "all free CPUs");
    }

    #[test]
    fn kinds_of_cores_are_mixed_only_if_necessary() {
        let kind = |id| if id < 4 { CoreKind::Performance } else { CoreKind::Efficiency };
        let core = |id: u32| if id < 4 { id / 2 * 2 } else { id };
        let laptop: Vec<_> =
            (0..12).map(|id| Cpu { id, core: core(id), package: 0, numa: 0, kind: kind(id) }).collect();
        assert_eq!(chosen(&laptop, "0-11", 2), "0-1");
        assert_eq!(chosen(&laptop, "0-11", 6), "4-9");
        assert_eq!(chosen(&laptop, "0-11", 10), "0-9");
        assert_eq!(chosen(&laptop, "1,4-11", 1), "1");
    }

    #[test]
    fn empty_and_oversized_requests_are_answered() {
        assert_eq!(chosen(&[], "0-3", 2), "");
        assert_eq!(chosen(&machine(1, 1, 4, 1), "", 2), "");
        assert_eq!(chosen(&machine(1, 1, 4, 1), "2-9", 9), "2-3");
        assert_eq!(chosen(&machine(1, 1, 4, 1), "0-3", 0), "");
    }

    /// The smallest number of NUMA nodes that have `count` of the free CPUs together.
    fn fewest_nodes(cpus: &[Cpu], free: &CpuSet, count: u32) -> usize {
        let mut sizes = std::collections::BTreeMap::new();
        for cpu in cpus.iter().filter(|cpu| free.contains(cpu.id)) {
            *sizes.entry(cpu.numa).or_insert(0) += 1;
        }
        let mut sizes: Vec<u32> = sizes.into_values().collect();
        sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
        (0..sizes.len()).find(|&nodes| sizes[..nodes].iter().sum::<u32>() >= count).unwrap_or(sizes.len())
    }

    #[test]
    fn large_server_has_a_short_serialised_form() {
        let groups = Vec::<CoreGroup>::from(Topology::new(&machine(2, 2, 32, 2)));
        assert_eq!(groups.len(), 4);
        assert_eq!(groups[1].threads, ["32-63", "160-191"]);
        let flat = Topology::new(&machine(1, 1, 4, 1));
        assert!(flat.is_flat() && Topology::default().is_flat() && !Topology::new(&machine(1, 1, 2, 2)).is_flat());
        let group = |threads: &[&str]| CoreGroup {
            numa: 0,
            package: 0,
            kind: CoreKind::Performance,
            threads: threads.iter().map(|&list| list.to_owned()).collect(),
        };
        assert!(Topology::try_from(vec![group(&["0-3", "4-6"])]).is_err());
        assert!(Topology::try_from(vec![group(&["0-x"])]).is_err());
        let endless = vec![group(&["0-65535"]); 1000];
        assert!(Topology::try_from(endless).is_err(), "a short text cannot cause unbounded work");
    }

    proptest! {
        #[test]
        fn choice_has_the_right_size_and_uses_the_fewest_numa_nodes(
            shape in (1..3_u32, 1..4_u32, 1..9_u32, 1..5_u32),
            taken in proptest::collection::vec(0..300_u32, 0..200),
            frugal in 0..20_u32,
            count in 0..150_u32,
        ) {
            let mut cpus = machine(shape.0, shape.1, shape.2, shape.3);
            cpus.iter_mut().filter(|cpu| cpu.core < frugal).for_each(|cpu| cpu.kind = CoreKind::Efficiency);
            let mut free: CpuSet = cpus.iter().map(|cpu| cpu.id).collect();
            free.remove_all(&taken.into_iter().collect());
            let topology = Topology::new(&cpus);
            let chosen = topology.choose(&free, count);
            prop_assert_eq!(chosen.len(), count.min(free.len()));
            prop_assert!(free.is_superset(&chosen));
            let nodes: std::collections::BTreeSet<_> =
                cpus.iter().filter(|cpu| chosen.contains(cpu.id)).map(|cpu| cpu.numa).collect();
            prop_assert_eq!(nodes.len(), fewest_nodes(&cpus, &free, count));
            let groups = Vec::<CoreGroup>::from(topology.clone());
            prop_assert!(groups.len() <= 2 * (shape.0 * shape.1) as usize, "one group per kind of core and NUMA node");
            prop_assert_eq!(&Topology::try_from(groups).expect("a serialised topology can be parsed"), &topology);
            prop_assert_eq!(topology.within(&chosen).cpus().map(|cpu| cpu.id).collect::<CpuSet>(), chosen.clone());
            cpus.reverse();
            prop_assert_eq!(Topology::new(&cpus).choose(&free, count), chosen, "the order of CPUs does not matter");
        }

        #[test]
        fn idle_machine_gives_whole_cores(shape in (1..3_u32, 1..4_u32, 1..9_u32, 1..5_u32), cores in 1..9_u32) {
            let cpus = machine(shape.0, shape.1, shape.2, shape.3);
            let free = cpus.iter().map(|cpu| cpu.id).collect();
            let chosen = Topology::new(&cpus).choose(&free, cores.min(shape.2) * shape.3);
            for cpu in cpus.iter().filter(|cpu| chosen.contains(cpu.id)) {
                let siblings: CpuSet = cpus.iter().filter(|other| other.core == cpu.core).map(|other| other.id).collect();
                prop_assert!(chosen.is_superset(&siblings));
            }
        }
    }
}

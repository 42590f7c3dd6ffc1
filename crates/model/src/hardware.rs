//! GPUs and CPU topology of a node, and the choice of CPUs and GPUs for a job.
//!
//! [`Hardware::choose`] only selects; the scheduler has already decided that the job fits. It prefers GPUs of one NUMA node and CPUs of
//! the same node. It ignores links between GPUs, because on common machines the GPUs of one NUMA node are the ones that are linked.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::gpu::{Gpu, GpuId};
use crate::resources::Resources;
use crate::{CpuSet, Request, Topology};

/// A node's GPUs and CPU topology. Empty for nodes with an older agent; then the choice ignores locality.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// The topology of the CPUs that the node offers.
    #[serde(default)]
    pub topology: Topology,
    /// The GPUs that the node offers, in the machine's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

impl Hardware {
    /// Chooses the resources that `request` asks for out of `free`; `None` if `free` does not contain them. The result
    /// is deterministic.
    ///
    /// GPUs come from one NUMA node, or from as few as possible. NUMA nodes with enough free CPUs are preferred, then
    /// those with the fewest free GPUs. GPUs of unknown location come last. CPUs come from the NUMA nodes of the GPUs
    /// if these have enough, and otherwise as [`Topology::choose`] decides.
    #[must_use]
    pub fn choose(&self, free: &Resources, request: &Request) -> Option<Resources> {
        if !free.counts().covers(request) {
            return None;
        }
        let chosen = if request.gpus == 0 { Vec::new() } else { self.choose_gpus(free, request) };
        let near: BTreeSet<u32> = chosen.iter().filter_map(|gpu| gpu.numa).collect();
        let cpus = self.choose_cpus(&free.cpus, request.cpus, &near);
        Some(Resources::of_request(request, cpus, chosen.into_iter().map(|gpu| gpu.id.clone()).collect()))
    }

    fn choose_gpus<'a>(&self, free: &'a Resources, request: &Request) -> Vec<FreeGpu<'a>> {
        let count = request.gpus as usize;
        let mut domains: BTreeMap<Option<u32>, Vec<FreeGpu<'a>>> = BTreeMap::new();
        for gpu in self.free_gpus(free) {
            domains.entry(gpu.numa).or_default().push(gpu);
        }
        let is_short_of_cpus = |numa: Option<u32>| {
            numa.is_some_and(|numa| self.topology.of_numa_nodes(&free.cpus, &[numa].into()).len() < request.cpus)
        };
        let fitting = domains.iter().filter(|(_, gpus)| gpus.len() >= count);
        let best = fitting.min_by_key(|(numa, gpus)| (is_short_of_cpus(**numa), gpus.len())).map(|(numa, _)| *numa);
        let mut gpus = match best {
            Some(numa) => domains.remove(&numa).unwrap_or_default(),
            None => {
                let mut largest_first: Vec<_> = domains.into_values().collect();
                largest_first.sort_by_key(|gpus| std::cmp::Reverse(gpus.len()));
                largest_first.concat()
            }
        };
        gpus.truncate(count);
        gpus
    }

    /// Returns the free GPUs in the machine's order, followed by free GPUs that `gpus` does not list.
    fn free_gpus<'a>(&self, free: &'a Resources) -> Vec<FreeGpu<'a>> {
        let mut rest: BTreeSet<&GpuId> = free.gpus.iter().collect();
        let known = self.gpus.iter().filter_map(|gpu| Some(FreeGpu { id: rest.take(&gpu.id)?, numa: gpu.numa }));
        let mut all: Vec<_> = known.collect();
        all.extend(rest.into_iter().map(|id| FreeGpu { id, numa: None }));
        all
    }

    /// Chooses `count` of the free CPUs, preferably in the NUMA nodes `near`. At least `count` CPUs must be free.
    fn choose_cpus(&self, free: &CpuSet, count: u32, near: &BTreeSet<u32>) -> CpuSet {
        if self.topology.is_flat() {
            return free.lowest(count).unwrap_or_default();
        }
        let local = self.topology.of_numa_nodes(free, near);
        let mut chosen = self.topology.choose(if local.len() >= count { &local } else { free }, count);
        // Virtual nodes may report CPUs that the topology does not have.
        let missing = count - chosen.len();
        if missing > 0 {
            let mut rest = free.clone();
            rest.remove_all(&chosen);
            chosen.add_all(&rest.lowest(missing).unwrap_or_default());
        }
        chosen
    }
}

#[derive(Debug, Clone, Copy)]
struct FreeGpu<'a> {
    id: &'a GpuId,
    numa: Option<u32>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{CoreKind, Counted, Cpu, Vendor};

    /// Two NUMA nodes with `cores` cores of two threads each and `gpus` GPUs each.
    fn server(cores: u32, gpus: u32) -> (Hardware, Resources) {
        let cpu = |id: u32| {
            let core = id % (2 * cores);
            Cpu { id, core, package: core / cores, numa: core / cores, kind: CoreKind::Performance }
        };
        let cpus: Vec<_> = (0..4 * cores).map(cpu).collect();
        let gpus: Vec<_> = (0..2 * gpus).map(|index| gpu(index, Some(index / gpus))).collect();
        let free = Resources {
            cpus: cpus.iter().map(|cpu| cpu.id).collect(),
            memory_bytes: 1 << 30,
            gpus: gpus.iter().map(|gpu| gpu.id.clone()).collect(),
            counted: Counted::NONE,
        };
        (Hardware { topology: Topology::new(&cpus), gpus }, free)
    }

    fn gpu(index: u32, numa: Option<u32>) -> Gpu {
        let id = format!("GPU-{index}").parse().expect("an id");
        Gpu { id, vendor: Vendor::Nvidia, name: "card".to_owned(), memory_bytes: None, numa }
    }

    fn asks(cpus: u32, gpus: u32) -> Request {
        Request { gpus, ..Request::new(cpus, 1) }
    }

    /// Chooses and takes resources; returns the CPUs and GPUs as text.
    fn take(hardware: &Hardware, free: &mut Resources, request: &Request) -> String {
        let taken = hardware.choose(free, request).expect("enough is free");
        free.remove(&taken);
        let gpus: Vec<_> = taken.gpus.iter().map(GpuId::as_str).collect();
        format!("{} {}", taken.cpus, gpus.join("+"))
    }

    #[test]
    fn gpus_and_cpus_come_from_one_numa_node() {
        let (hardware, mut free) = server(4, 2);
        assert_eq!(take(&hardware, &mut free, &asks(2, 1)), "0,8 GPU-0");
        assert_eq!(take(&hardware, &mut free, &asks(2, 2)), "4,12 GPU-2+GPU-3", "both from one NUMA node");
        assert_eq!(take(&hardware, &mut free, &asks(2, 1)), "1,9 GPU-1");
        assert!(hardware.choose(&free, &asks(1, 1)).is_none());
        assert_eq!(take(&hardware, &mut free, &asks(2, 0)), "2,10 ");
    }

    #[test]
    fn gpus_near_free_cpus_are_preferred() {
        let (hardware, mut free) = server(2, 2);
        free.cpus.remove_all(&"0,1,4".parse().expect("CPUs"));
        assert_eq!(take(&hardware, &mut free, &asks(2, 1)), "2,6 GPU-2", "the first NUMA node has only one free CPU");
        assert_eq!(
            take(&hardware, &mut free, &asks(3, 1)),
            "3,5,7 GPU-3",
            "no NUMA node has three CPUs, so the GPU comes from the node with the fewest free GPUs"
        );
    }

    #[test]
    fn gpus_use_as_few_numa_nodes_as_possible() {
        let (hardware, mut free) = server(4, 2);
        free.gpus.remove(&gpu(0, None).id);
        assert_eq!(take(&hardware, &mut free, &asks(1, 3)), "0 GPU-1+GPU-2+GPU-3");
    }

    #[test]
    fn choice_works_without_hardware_information() {
        let nothing = Hardware::default();
        let mut free = Resources { gpus: [gpu(7, None).id].into(), ..Resources::new(CpuSet::first(4), 9) };
        assert_eq!(take(&nothing, &mut free, &asks(3, 1)), "0-2 GPU-7");
        let (hardware, _) = server(1, 0);
        let mut more = Resources::new(CpuSet::first(9), 9);
        assert_eq!(take(&hardware, &mut more, &asks(6, 0)), "0-5 ", "CPUs beyond the topology are used last");
    }

    proptest! {
        /// Jobs come and go: nothing is assigned twice, each job gets exactly its request or it does not fit, and the GPUs use as few NUMA
        /// nodes as possible.
        #[test]
        fn choice_is_exact_and_never_overlaps(
            shape in (1..5_u32, 0..5_u32),
            strange in any::<bool>(),
            jobs in proptest::collection::vec((0..6_u32, 0..5_u32, any::<bool>()), 1..40),
        ) {
            let (hardware, all) = server(shape.0, shape.1);
            let hardware = if strange { Hardware::default() } else { hardware };
            let (mut free, mut held) = (all.clone(), Vec::<Resources>::new());
            for (cpus, gpus, leaves) in jobs {
                let request = asks(cpus, gpus);
                let Some(taken) = hardware.choose(&free, &request) else {
                    prop_assert!(!free.counts().covers(&request));
                    continue;
                };
                prop_assert_eq!(hardware.choose(&free, &request), Some(taken.clone()), "deterministic");
                prop_assert_eq!(taken.counts(), request);
                prop_assert!(free.includes(&taken));
                prop_assert!(held.iter().all(|other| other.gpus.is_disjoint(&taken.gpus)));
                prop_assert!(held.iter().all(|other| other.cpus.intersection(&taken.cpus).is_empty()));
                let of = |numa| free.gpus.iter().filter(|id| numa_of(&hardware, id) == Some(numa)).count();
                if gpus > 0 && (0..2).any(|numa| of(numa) >= gpus as usize) {
                    let nodes: BTreeSet<_> = taken.gpus.iter().map(|id| numa_of(&hardware, id)).collect();
                    prop_assert_eq!(nodes.len(), 1);
                }
                free.remove(&taken);
                held.push(taken);
                if leaves {
                    free.add(&held.swap_remove(0));
                }
            }
            held.iter().for_each(|held| free.add(held));
            prop_assert_eq!(free, all);
        }
    }

    fn numa_of(hardware: &Hardware, id: &GpuId) -> Option<u32> {
        hardware.gpus.iter().find(|gpu| gpu.id == *id)?.numa
    }
}

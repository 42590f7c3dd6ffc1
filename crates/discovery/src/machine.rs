//! The result of discovery, and its entry points.

use std::time::{Duration, Instant};

use hostler_model::{Cpu, CpuSet, Resources, Topology};
use serde::{Deserialize, Serialize};

use crate::cgroup::Groups;
use crate::cpus::Cpus;
use crate::gpu;
use crate::{Fixture, Gpu, Memory, Note, Source};

/// Timeout for drivers. Without NVIDIA's persistence daemon, a healthy card needs about a second to wake up.
const PATIENCE: Duration = Duration::from_millis(1500);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Online CPUs, by id, including those that this process may not use.
    pub cpus: Vec<Cpu>,
    /// CPUs that jobs may use: at least one, unless caps forbid all.
    pub usable: CpuSet,
    /// CPU time limit of control groups, in thousandths of a CPU; `None` without a limit. The CPUs in `usable` respect
    /// this limit.
    pub quota_millicpus: Option<u64>,
    pub memory: Memory,
    /// GPUs that jobs may use, by index.
    pub gpus: Vec<Gpu>,
    /// Notes about facts that are unknown or assumed, and about resources that are not offered.
    pub notes: Vec<Note>,
}

/// Detects the resources that jobs of this process may use on this machine.
///
/// Takes a few milliseconds, or up to two seconds if a GPU driver does not respond. Never fails and never panics:
/// undetected facts are absent, and a note reports them.
#[must_use]
pub fn machine() -> Machine {
    Machine::of(&Source::this_machine())
}

/// Detects this machine's resources, and records all files that were read.
#[must_use]
pub fn capture() -> (Machine, Fixture) {
    let source = Source::this_machine().recording();
    let machine = Machine::of(&source);
    (machine, source.recorded())
}

impl Machine {
    /// Detects the resources of the machine behind `source`.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        let gpus = gpu::Search::begin(source, Instant::now() + PATIENCE);
        let mut notes = Vec::new();
        let groups = Groups::of(source);
        let Cpus { all, usable, quota_millicpus } = Cpus::of(source, &groups, &mut notes);
        let memory = Memory::of(source, &groups, &mut notes);
        let gpus = gpus.end(&mut notes);
        Self { cpus: all, usable, quota_millicpus, memory, gpus, notes }
    }

    /// The usable resources, for the scheduler.
    #[must_use]
    pub fn resources(&self) -> Resources {
        let gpus = self.gpus.iter().map(Gpu::id).collect();
        Resources { gpus, ..Resources::new(self.usable.clone(), self.memory.usable_bytes) }
    }

    /// The CPU topology, for choosing CPUs.
    #[must_use]
    pub fn topology(&self) -> Topology {
        Topology::new(&self.cpus)
    }

    /// The CPUs that share a core with CPU `id`, including `id` itself; empty if `id` does not exist.
    #[must_use]
    pub fn siblings(&self, id: u32) -> CpuSet {
        let core = self.cpus.iter().find(|cpu| cpu.id == id).map(|cpu| cpu.core);
        self.cpus.iter().filter(|cpu| Some(cpu.core) == core).map(|cpu| cpu.id).collect()
    }
}

//! The whole answer, and the one call that gives it.

use std::fmt;
use std::time::{Duration, Instant};

use hostler_model::{Cpu, CpuSet, Resources, Topology};
use serde::{Deserialize, Serialize};

use crate::cgroup::Groups;
use crate::cpus::Cpus;
use crate::gpu;
use crate::{Fixture, Gpu, Memory, Source};

/// How long drivers have to answer. Without NVIDIA's persistence daemon a healthy card needs about a second to wake up.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What a machine has to give.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPUs that are online, by id; also those that this process may not use.
    pub cpus: Vec<Cpu>,
    /// The CPUs that jobs may be given: at least one, unless caps say none.
    pub usable: CpuSet,
    /// The CPU time that control groups allow, in thousandths of a CPU; `None` without such a limit. `usable` keeps within it.
    pub quota_millicpus: Option<u64>,
    /// Memory.
    pub memory: Memory,
    /// GPUs that jobs may be given, by index.
    pub gpus: Vec<Gpu>,
    /// What could not be found out, was taken for granted, or is not offered, and why.
    pub notes: Vec<Note>,
}

/// Something that whoever wonders about a [`Machine`] should read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What it is about.
    pub about: Topic,
    /// One sentence without a full stop.
    pub text: String,
}

/// What notes are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// CPUs.
    Cpus,
    /// Memory.
    Memory,
    /// GPUs.
    Gpus,
}

/// What this machine has to give to jobs of this process.
///
/// Takes a few milliseconds, up to two seconds when there is a GPU whose driver does not answer. It never fails and never
/// panics: what cannot be found out is absent, and noted.
#[must_use]
pub fn machine() -> Machine {
    Machine::of(&Source::this_machine())
}

/// What this machine has to give, and everything that was read to find out.
#[must_use]
pub fn capture() -> (Machine, Fixture) {
    let source = Source::this_machine().recording();
    let machine = Machine::of(&source);
    (machine, source.recorded())
}

impl Machine {
    /// What the machine behind `source` has to give.
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

    /// What can be given, in the scheduler's words.
    #[must_use]
    pub fn resources(&self) -> Resources {
        let gpus = self.gpus.iter().map(Gpu::id).collect();
        Resources { gpus, ..Resources::new(self.usable.clone(), self.memory.usable_bytes) }
    }

    /// Its CPUs sorted for choosing.
    #[must_use]
    pub fn topology(&self) -> Topology {
        Topology::new(&self.cpus)
    }

    /// The CPUs that share a core with CPU `id`, itself included; none when there is no such CPU.
    #[must_use]
    pub fn siblings(&self, id: u32) -> CpuSet {
        let core = self.cpus.iter().find(|cpu| cpu.id == id).map(|cpu| cpu.core);
        self.cpus.iter().filter(|cpu| Some(cpu.core) == core).map(|cpu| cpu.id).collect()
    }
}

impl Note {
    pub(crate) fn new(about: Topic, text: impl Into<String>) -> Self {
        Self { about, text: text.into() }
    }
}

impl Topic {
    /// The word shown to people and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Memory => "memory",
            Self::Gpus => "gpus",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.about.as_str(), self.text)
    }
}

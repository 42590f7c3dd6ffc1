//! A node of a world: its machine, disk, shepherds and agent, and the steps that they take.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_core::agent::{Exit, RunLaunch, State, Why};
use hostler_core::link::{AgentLink, Attempt, Dialler};
use hostler_model::{
    BootId, CoreKind, Counted, Cpu, CpuSet, Gpu, GpuId, Hardware, NodeName, Resources, RunId, Topology, Vendor,
};

use super::network::Numbers;
use super::time::SECOND;
use crate::cluster::rng::Rng;

/// The run time of a process that never ends by itself.
pub(crate) const FOREVER: u64 = 24 * 3600 * SECOND;

pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) resources: Resources,
    pub(crate) hardware: Hardware,
    /// The number of boots.
    pub(crate) boots: u64,
    pub(crate) is_powered: bool,
    /// Writes to its disk fail.
    pub(crate) is_full: bool,
    pub(crate) directories: BTreeMap<RunId, Directory>,
    pub(crate) shepherds: BTreeMap<RunId, Shepherd>,
    pub(crate) agent: Option<Agent>,
    pub(crate) agent_lives: u64,
    /// What fails after this many more steps of the node.
    pub(crate) doom: Option<(u64, FailureTarget)>,
}

/// What fails.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FailureTarget {
    /// Only the agent.
    Agent,
    /// The power, and with it the whole machine.
    Machine,
}

/// The directory of a run on the disk of its node.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) launch: Vec<u8>,
    pub(crate) created_us: u64,
    /// The boot in which it was created.
    pub(crate) boot: u64,
    /// The boot in which a shepherd claimed the run, if any.
    pub(crate) claim: Option<u64>,
    pub(crate) claimed_us: u64,
    /// The synced exit record, complete or absent.
    pub(crate) exit: Option<Exit>,
    pub(crate) end: Option<Vec<u8>>,
    pub(crate) ended_us: u64,
}

/// The shepherd of a run, and the run's process.
#[derive(Debug)]
pub(crate) struct Shepherd {
    pub(crate) started_us: u64,
    pub(crate) ends_us: u64,
    pub(crate) exit: Why,
    /// Counts changes of plan: only the latest plan is carried out.
    pub(crate) plan: u64,
    /// The process ignores TERM.
    pub(crate) ignores_term: bool,
    /// How many times the time limit has changed.
    pub(crate) limit_changes: u32,
}

/// A step of a node.
pub(crate) enum NodeStep {
    StartAgent,
    /// The process ends, unless plans have changed.
    ProcessEnds {
        boot: u64,
        run: RunId,
        plan: u64,
    },
    /// The run reaches its time limit.
    TimeLimit {
        boot: u64,
        run: RunId,
        /// How many times the limit had changed when this step was planned.
        changes: u32,
        grace_ms: u64,
    },
    /// A step of the agent. Ignored if the agent was restarted since.
    Agent {
        life: u64,
        step: AgentStep,
    },
}

pub(crate) struct Agent {
    pub(crate) life: u64,
    pub(crate) state: State,
    pub(crate) line: Option<AgentLine>,
    pub(crate) dialler: Dialler,
    pub(crate) controls: BTreeMap<RunId, Control>,
}

/// The control flags of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Control {
    pub(crate) cancel: bool,
    pub(crate) grace_ms: Option<u64>,
    pub(crate) is_watched: bool,
    /// All other nodes are ready too.
    pub(crate) has_begun: bool,
    /// The run is prepared and waits for the other nodes.
    pub(crate) waits: bool,
}

/// A step of an agent.
pub(crate) enum AgentStep {
    Dial,
    LinkWakes { connection: u64 },
    FilesFetched { run: RunId },
    Staged { launch: Arc<RunLaunch> },
    NotStarted { run: RunId, why: &'static str },
    Launched { run: RunId },
    Terminate { run: RunId, grace_ms: u64 },
    Exited { run: RunId },
    Captured { run: RunId },
    Upload { run: RunId },
    Uploaded { run: RunId },
    Remove { run: RunId },
}

/// A connection, as the agent sees it.
pub(crate) struct AgentLine {
    pub(crate) connection: u64,
    pub(crate) link: AgentLink,
    pub(crate) attempt: Attempt,
    /// The earliest planned wake-up.
    pub(crate) wakes_us: Option<u64>,
    pub(crate) numbers: Numbers,
}

impl Node {
    pub(crate) fn new(number: usize, rng: &mut Rng) -> Self {
        let cpus: CpuSet = match rng.below(4) {
            // CPU ids need not begin with zero or be consecutive.
            0 => [1, 2, 5, 7].into_iter().collect(),
            wanted => CpuSet::first(wanted as u32 * 2),
        };
        let mut resources = Resources::new(cpus, rng.range(2, 9) << 30);
        let hardware = hardware(&resources.cpus, rng);
        resources.gpus = hardware.gpus.iter().map(|gpu| gpu.id.clone()).collect();
        resources.counted = counted(rng);
        Self {
            name: format!("n{number}").parse().expect("a valid name"),
            resources,
            hardware,
            boots: 1,
            is_powered: true,
            is_full: false,
            directories: BTreeMap::new(),
            shepherds: BTreeMap::new(),
            agent: None,
            agent_lives: 0,
            doom: None,
        }
    }

    /// The ID of the machine's current boot.
    pub(crate) fn boot_id(&self) -> BootId {
        BootId(format!("boot {} of {}", self.boots, self.name))
    }

    pub(crate) fn boot(&self) -> u64 {
        self.boots
    }

    /// Whether a run's process never ends by itself.
    pub(crate) fn runs_forever(&self, run: RunId) -> bool {
        self.shepherds.get(&run).is_some_and(|shepherd| shepherd.ends_us >= shepherd.started_us + FOREVER)
    }

    /// Describes work in progress.
    pub(crate) fn busy_reason(&self) -> Option<String> {
        let name = &self.name;
        if let Some(run) = self.shepherds.keys().next() {
            return Some(format!("{run} still runs on {name}"));
        }
        let Some(agent) = &self.agent else { return Some(format!("the agent of {name} is down")) };
        if let Some((run, held)) = agent.state.runs().next() {
            return Some(format!("the agent of {name} still holds {run}, {:?}", held.stage));
        }
        if let Some(run) = self.directories.keys().next() {
            return Some(format!("{name} still has the directory of {run}"));
        }
        (!agent.is_linked()).then(|| format!("the agent of {name} is not linked"))
    }
}

impl Directory {
    pub(crate) fn new(launch: &RunLaunch, boot: u64, now_us: u64) -> Self {
        Self {
            launch: hostler_proto::encode(launch),
            created_us: now_us,
            boot,
            claim: None,
            claimed_us: 0,
            exit: None,
            end: None,
            ended_us: 0,
        }
    }

    pub(crate) fn store_end(&mut self, end: Vec<u8>, now_us: u64) {
        self.end = Some(end);
        self.ended_us = now_us;
    }
}

impl Agent {
    /// Whether the head has welcomed the agent.
    pub(crate) fn is_linked(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.link.is_open())
    }
}

/// Half of the nodes get GPUs and a CPU topology.
pub(crate) fn hardware(cpus: &CpuSet, rng: &mut Rng) -> Hardware {
    let (has_more, gpus) = (rng.chance(500), rng.range(1, 5) as u32);
    if !has_more {
        return Hardware::default();
    }
    let cpu = |id| Cpu { id, core: id / 2 * 2, package: 0, numa: id / 4, kind: CoreKind::Performance };
    let gpu = |index: u32| Gpu {
        id: GpuId::from_name(&format!("GPU-{index}")),
        vendor: Vendor::Nvidia,
        name: "card".to_owned(),
        memory_bytes: None,
        numa: Some(index % 2),
    };
    Hardware { topology: Topology::new(&cpus.iter().map(cpu).collect::<Vec<_>>()), gpus: (0..gpus).map(gpu).collect() }
}

/// Half of the nodes get counted resources in their configuration.
pub(crate) fn counted(rng: &mut Rng) -> Counted {
    let text = match rng.below(6) {
        0 => "camera=1,license=3",
        1 => "license=2",
        2 => "camera=2",
        _ => "",
    };
    text.parse().expect("names and counts")
}

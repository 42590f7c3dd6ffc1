//! A node: its machine, its disk, and the shepherds with their processes, which outlive the agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_core::agent::{Exit, RunLaunch, Why};
use hostler_model::{
    BootId, CoreKind, Counted, Cpu, CpuSet, Gpu, GpuId, Hardware, NodeName, Resources, RunId, Topology, Vendor,
};
use hostler_proto::link::Usage;

use super::agent::Agent;
use super::faults::Fault;
use super::rng::Rng;
use super::world::{Happening, MS, SECOND, World};

/// A power failure may lose unsynced writes of this period.
const UNSYNCED: u64 = 5 * SECOND;

/// The run time of a process that never ends by itself.
const FOREVER: u64 = 24 * 3600 * SECOND;

pub(super) struct Node {
    pub(super) name: NodeName,
    pub(super) resources: Resources,
    pub(super) hardware: Hardware,
    /// The number of boots.
    boots: u64,
    pub(super) is_powered: bool,
    /// Events that are delayed while the machine is frozen.
    pub(super) frozen: Option<Vec<Happening>>,
    /// Whether writes to the node's disk fail.
    pub(super) is_full: bool,
    pub(super) directories: BTreeMap<RunId, Directory>,
    pub(super) shepherds: BTreeMap<RunId, Shepherd>,
    pub(super) agent: Option<Agent>,
    pub(super) agent_lives: u64,
    /// The planned failure, and the number of steps of this node until then.
    pub(super) doom: Option<(u64, Doomed)>,
}

/// What a planned failure of a node affects.
#[derive(Debug, Clone, Copy)]
pub(super) enum Doomed {
    /// Only the agent.
    Agent,
    /// The power, and with it the whole machine.
    Machine,
}

/// The directory of a run on the disk of its node.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) launch: Vec<u8>,
    created_us: u64,
    /// The boot in which the directory was created.
    pub(super) boot: u64,
    /// The boot in which a shepherd claimed the run, if any.
    pub(super) claim: Option<u64>,
    claimed_us: u64,
    /// The synced exit record, complete or absent.
    pub(super) exit: Option<Exit>,
    pub(super) end: Option<Vec<u8>>,
    ended_us: u64,
}

/// The shepherd of a run, and the run's process.
#[derive(Debug)]
pub(super) struct Shepherd {
    started_us: u64,
    ends_us: u64,
    exit: Why,
    /// The number of the current plan for the end of the process. Events of earlier plans are ignored.
    plan: u64,
    /// The process ignores TERM.
    ignores_term: bool,
}

/// A step of a node.
pub(super) enum NodeStep {
    StartAgent,
    /// The process ends, unless a later plan replaced this one.
    ProcessEnds {
        boot: u64,
        run: RunId,
        plan: u64,
    },
    /// The run reaches its time limit.
    TimeLimit {
        boot: u64,
        run: RunId,
        grace_ms: u64,
    },
    /// A step of the agent. Ignored if the agent has been restarted since it was scheduled.
    Agent {
        life: u64,
        step: super::agent::AgentStep,
    },
}

/// Chooses the hardware of a node. Half of the nodes get GPUs and a CPU topology.
fn hardware(cpus: &CpuSet, rng: &mut Rng) -> Hardware {
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

/// Chooses the counted resources of a node. Half of the nodes have some.
fn counted(rng: &mut Rng) -> Counted {
    let text = match rng.below(6) {
        0 => "camera=1,license=3",
        1 => "license=2",
        2 => "camera=2",
        _ => "",
    };
    text.parse().expect("the text lists names and counts")
}

impl Node {
    pub(super) fn new(number: usize, rng: &mut Rng) -> Self {
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
            frozen: None,
            is_full: false,
            directories: BTreeMap::new(),
            shepherds: BTreeMap::new(),
            agent: None,
            agent_lives: 0,
            doom: None,
        }
    }

    /// The ID of the machine's current boot.
    pub(super) fn boot_id(&self) -> BootId {
        BootId(format!("boot {} of {}", self.boots, self.name))
    }

    pub(super) fn boot(&self) -> u64 {
        self.boots
    }

    /// Whether a run's process never ends by itself.
    pub(super) fn runs_forever(&self, run: RunId) -> bool {
        self.shepherds.get(&run).is_some_and(|shepherd| shepherd.ends_us >= shepherd.started_us + FOREVER)
    }

    /// Describes work in progress.
    pub(super) fn unrest(&self) -> Option<String> {
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
    pub(super) fn new(launch: &RunLaunch, boot: u64, now_us: u64) -> Self {
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

    pub(super) fn store_end(&mut self, end: Vec<u8>, now_us: u64) {
        self.end = Some(end);
        self.ended_us = now_us;
    }
}

impl World {
    pub(super) fn node_later(&mut self, node: usize, in_us: u64, step: NodeStep) {
        self.later(in_us, Happening::Node { node, step });
    }

    pub(super) fn node_step(&mut self, node: usize, step: NodeStep) {
        if let Some(waiting) = &mut self.nodes[node].frozen {
            return waiting.push(Happening::Node { node, step });
        }
        if !self.nodes[node].is_powered || self.node_meets_doom(node) {
            return;
        }
        match step {
            NodeStep::StartAgent => self.start_agent(node),
            NodeStep::ProcessEnds { boot, run, plan } => self.process_ends(node, boot, run, plan),
            NodeStep::TimeLimit { boot, run, grace_ms } => {
                if boot == self.nodes[node].boots && self.nodes[node].shepherds.contains_key(&run) {
                    self.terminate(node, run, grace_ms, Why::TimeLimit);
                }
            }
            NodeStep::Agent { life, step } => self.agent_step(node, life, step),
        }
    }

    /// Counts a step toward a planned failure. Causes the failure if this step was the last, and returns whether the
    /// whole machine failed.
    fn node_meets_doom(&mut self, node: usize) -> bool {
        let Some((steps, doomed)) = &mut self.nodes[node].doom else { return false };
        if *steps > 0 {
            *steps -= 1;
            return false;
        }
        let doomed = *doomed;
        self.nodes[node].doom = None;
        match doomed {
            Doomed::Agent => self.crash_agent(node),
            Doomed::Machine => {
                self.lose_power(node);
                let down = if self.rng.chance(600) { self.rng.skewed(SECOND) } else { self.rng.below(40 * SECOND) };
                self.later(down, Happening::Fault(Fault::PowerOn { node }));
            }
        }
        // The shepherds do not notice that the agent is gone.
        matches!(doomed, Doomed::Machine)
    }

    /// Starts a shepherd that claims a run and starts its process; returns whether this worked.
    pub(super) fn launch_shepherd(&mut self, node: usize, launch: &Arc<RunLaunch>) -> bool {
        let now_us = self.now_us;
        let run = launch.run();
        let (boot, is_full) = (self.nodes[node].boots, self.nodes[node].is_full);
        let Some(directory) = self.nodes[node].directories.get_mut(&run) else { return false };
        if directory.claim.is_some() || is_full {
            return false;
        }
        directory.claim = Some(boot);
        directory.claimed_us = now_us;
        self.start_process(node, launch);
        true
    }

    /// Starts a run's process, which may fail.
    pub(super) fn start_process(&mut self, node: usize, launch: &Arc<RunLaunch>) {
        let run = launch.run();
        let boot = self.nodes[node].boots;
        let lasts = match self.rng.below(20) {
            0 => FOREVER,
            1..6 => self.rng.below(20 * MS),
            _ => self.rng.skewed(2 * SECOND),
        };
        let code = if self.rng.chance(250) { self.rng.range(1, 100) as i32 } else { 0 };
        let shepherd = Shepherd {
            started_us: self.now_us,
            ends_us: self.now_us + lasts,
            exit: Why::Exited(code),
            plan: 0,
            ignores_term: self.rng.chance(200),
        };
        self.note(format_args!("{run} starts on n{node} for {} ms", lasts / MS));
        self.books.process_starts(node, run, &launch.placement.resources);
        self.nodes[node].shepherds.insert(run, shepherd);
        self.node_later(node, lasts, NodeStep::ProcessEnds { boot, run, plan: 0 });
        if let Some(limit_ms) = launch.spec().time_limit_ms {
            let grace_ms = launch.spec().grace_ms.unwrap_or(10_000);
            self.node_later(node, limit_ms * MS, NodeStep::TimeLimit { boot, run, grace_ms });
        }
    }

    /// Sends TERM now and KILL after the grace period.
    pub(super) fn terminate(&mut self, node: usize, run: RunId, grace_ms: u64, why: fn(i32) -> Why) {
        let now_us = self.now_us;
        let reaction = self.rng.below(300 * MS);
        let boot = self.nodes[node].boots;
        let Some(shepherd) = self.nodes[node].shepherds.get_mut(&run) else { return };
        let grace = grace_ms * MS;
        let obeys = !shepherd.ignores_term && reaction < grace;
        let ends_us = now_us + if obeys { reaction } else { grace };
        if ends_us >= shepherd.ends_us {
            return;
        }
        if matches!(shepherd.exit, Why::Exited(_)) {
            shepherd.exit = why(if obeys { 143 } else { 137 });
        }
        shepherd.ends_us = ends_us;
        shepherd.plan += 1;
        let plan = shepherd.plan;
        self.node_later(node, ends_us - now_us, NodeStep::ProcessEnds { boot, run, plan });
    }

    fn process_ends(&mut self, node: usize, boot: u64, run: RunId, plan: u64) {
        let dies = !self.is_calm && self.rng.chance(10);
        let now_us = self.now_us;
        let machine = &mut self.nodes[node];
        if boot != machine.boots || machine.shepherds.get(&run).is_none_or(|shepherd| shepherd.plan != plan) {
            return;
        }
        let shepherd = machine.shepherds.remove(&run).expect("the shepherd was found above");
        let usage = Usage { wall_ms: (now_us - shepherd.started_us) / MS, ..Usage::default() };
        let exit = Exit { why: shepherd.exit, message: None, usage };
        if !dies && let Some(directory) = machine.directories.get_mut(&run) {
            directory.exit = Some(exit);
        }
        self.note(format_args!("{run} ends on n{node}: {:?}, record written {}", shepherd.exit, !dies));
        self.books.process_ends(node, run, (!dies).then_some(shepherd.exit));
        self.agent_hears_of_exit(node, run);
    }

    /// Kills a shepherd and its process.
    pub(super) fn kill_shepherd(&mut self, node: usize) {
        let running: Vec<RunId> = self.nodes[node].shepherds.keys().copied().collect();
        if running.is_empty() {
            return;
        }
        let run = *self.rng.pick(&running);
        self.nodes[node].shepherds.remove(&run);
        self.note(format_args!("the shepherd of {run} on n{node} is killed"));
        self.books.process_ends(node, run, None);
        self.agent_hears_of_exit(node, run);
    }

    /// Cuts the power of the machine; unsynced writes may be lost.
    pub(super) fn lose_power(&mut self, node: usize) {
        self.note(format_args!("n{node} loses power"));
        let now_us = self.now_us;
        let machine = &mut self.nodes[node];
        machine.is_powered = false;
        machine.frozen = None;
        machine.boots += 1;
        machine.agent = None;
        let runs: Vec<RunId> = std::mem::take(&mut machine.shepherds).into_keys().collect();
        for (run, mut directory) in std::mem::take(&mut machine.directories) {
            let is_lost = |rng: &mut Rng, written_us: u64| now_us - written_us < UNSYNCED && rng.chance(400);
            // A synced exit record also syncs its directory.
            if directory.exit.is_none() && is_lost(&mut self.rng, directory.created_us) {
                continue;
            }
            if directory.exit.is_none() && is_lost(&mut self.rng, directory.claimed_us) {
                directory.claim = None;
            }
            if is_lost(&mut self.rng, directory.ended_us) {
                directory.end = None;
            }
            machine.directories.insert(run, directory);
        }
        runs.into_iter().for_each(|run| self.books.process_ends(node, run, None));
        self.sever(node, 20 * SECOND);
    }

    pub(super) fn power_on(&mut self, node: usize) {
        if !self.nodes[node].is_powered {
            self.nodes[node].is_powered = true;
            self.node_later(node, 0, NodeStep::StartAgent);
        }
    }
}

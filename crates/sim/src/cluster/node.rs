//! A node: its machine, its disk, and the shepherds with their processes, which outlive the agent.

use std::sync::Arc;

use hostler_core::agent::{Exit, RunLaunch, Why};
use hostler_model::RunId;
use hostler_proto::link::Usage;

use super::rng::Rng;
use super::world::faults::Fault;
use super::world::node::{FOREVER, FailureTarget, NodeStep, Shepherd};
use super::world::time::{MS, SECOND};
use super::world::{ScheduledEvent, World};

/// Age up to which a power failure may lose unsynced writes.
const UNSYNCED: u64 = 5 * SECOND;

impl World {
    pub(super) fn node_later(&mut self, node: usize, in_us: u64, step: NodeStep) {
        self.later(in_us, ScheduledEvent::Node { node, step });
    }

    pub(super) fn node_step(&mut self, node: usize, step: NodeStep) {
        if let Some(waiting) = &mut self.frozen_nodes[node] {
            return waiting.push(ScheduledEvent::Node { node, step });
        }
        if !self.nodes[node].is_powered || self.count_failure_step(node) {
            return;
        }
        match step {
            NodeStep::StartAgent => self.start_agent(node),
            NodeStep::ProcessEnds { boot, run, plan } => self.process_ends(node, boot, run, plan),
            NodeStep::TimeLimit { boot, run, changes, grace_ms } => {
                let shepherd = self.nodes[node].shepherds.get(&run);
                if boot == self.nodes[node].boots && shepherd.is_some_and(|it| it.limit_changes == changes) {
                    self.terminate(node, run, grace_ms, Why::TimeLimit);
                }
            }
            NodeStep::Agent { life, step } => self.agent_step(node, life, step),
        }
    }

    /// Counts a step toward a planned failure. Causes the failure if this step was the last, and returns whether the
    /// whole machine failed.
    fn count_failure_step(&mut self, node: usize) -> bool {
        let Some((steps, doomed)) = &mut self.nodes[node].doom else { return false };
        if *steps > 0 {
            *steps -= 1;
            return false;
        }
        let doomed = *doomed;
        self.nodes[node].doom = None;
        match doomed {
            FailureTarget::Agent => self.crash_agent(node),
            FailureTarget::Machine => {
                self.lose_power(node);
                let down = if self.rng.chance(600) { self.rng.skewed(SECOND) } else { self.rng.below(40 * SECOND) };
                self.later(down, ScheduledEvent::Fault(Fault::PowerOn { node }));
            }
        }
        // The shepherds do not notice that the agent is gone.
        matches!(doomed, FailureTarget::Machine)
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
            limit_changes: 0,
        };
        self.note(format_args!("{run} starts on n{node} for {} ms", lasts / MS));
        self.books.process_starts(node, run, &launch.placement.resources);
        self.nodes[node].shepherds.insert(run, shepherd);
        self.node_later(node, lasts, NodeStep::ProcessEnds { boot, run, plan: 0 });
        if let Some(limit_ms) = launch.spec().time_limit_ms {
            let grace_ms = launch.spec().grace_ms.unwrap_or(10_000).into();
            self.node_later(node, limit_ms * MS, NodeStep::TimeLimit { boot, run, changes: 0, grace_ms });
        }
    }

    /// Replaces the time limit of a run, which counts from the start of its process.
    pub(super) fn change_limit(&mut self, node: usize, run: RunId, limit_ms: Option<u64>, grace_ms: u64) {
        let (now_us, boot) = (self.now_us, self.nodes[node].boots);
        let Some(shepherd) = self.nodes[node].shepherds.get_mut(&run) else { return };
        shepherd.limit_changes += 1;
        let changes = shepherd.limit_changes;
        if let Some(limit_ms) = limit_ms {
            let left_us = (shepherd.started_us + limit_ms * MS).saturating_sub(now_us);
            self.node_later(node, left_us, NodeStep::TimeLimit { boot, run, changes, grace_ms });
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
        let exit = Exit { why: shepherd.exit, message: None, usage, steps: Vec::new(), certificate: None };
        if !dies && let Some(directory) = machine.directories.get_mut(&run) {
            directory.exit = Some(exit);
        }
        self.note(format_args!("{run} ends on n{node}: {:?}, record written {}", shepherd.exit, !dies));
        self.books.process_ends(node, run, (!dies).then_some(shepherd.exit));
        self.handle_exit(node, run);
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
        self.handle_exit(node, run);
    }

    /// Cuts the power of the machine; unsynced writes may be lost.
    pub(super) fn lose_power(&mut self, node: usize) {
        self.note(format_args!("n{node} loses power"));
        let now_us = self.now_us;
        let machine = &mut self.nodes[node];
        machine.is_powered = false;
        self.frozen_nodes[node] = None;
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

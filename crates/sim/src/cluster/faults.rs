//! Faults and their times, planned from the seed before the simulation starts.
//!
//! Every seed prefers some kinds of faults: some worlds have many head crashes and no lost frames, others the reverse.
//! This produces rare combinations that an even mixture would hardly show.

use hostler_store::Fault as DiskFault;

use super::world::faults::Fault;
use super::world::head::{HeadStep, PlannedCrash};
use super::world::node::FailureTarget;
use super::world::time::SECOND;
use super::world::{ScheduledEvent, World};

/// The number of fault kinds that a world may prefer.
const KINDS: u64 = 12;

impl World {
    /// Plans every fault; returns the time when the last fault ends.
    pub(super) fn plan_faults(&mut self) -> u64 {
        let calm = self.rng.range(8 * SECOND, 45 * SECOND);
        self.network.trouble = if self.rng.chance(600) { self.rng.below(80) } else { 0 };
        let preferred: Vec<u64> = (0..KINDS).filter(|_| self.rng.chance(400)).collect();
        if !preferred.is_empty() {
            for _ in 0..self.rng.below(16) {
                let kind = *self.rng.pick(&preferred);
                let at = self.rng.below(calm);
                self.plan_fault(kind, at);
            }
        }
        for _ in 0..12 {
            let at = self.rng.below(calm);
            self.later(at, ScheduledEvent::Fault(Fault::Sweep));
        }
        self.later(calm, ScheduledEvent::Fault(Fault::Calm));
        calm
    }

    /// Plans one fault and its end.
    fn plan_fault(&mut self, kind: u64, at: u64) {
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        let short = self.rng.skewed(SECOND);
        let long = self.rng.below(40 * SECOND);
        let (fault, mended) = match kind {
            // The second crash happens during recovery or right after it.
            0 | 1 => (Fault::CrashHead { again: kind == 1 }, None),
            2 => (Fault::FreezeHead, Some((Fault::ThawHead, if self.rng.chance(700) { short } else { long }))),
            3 => (
                Fault::BreakDisk(self.disk_fault()),
                Some((Fault::MendDisk, if self.rng.chance(500) { short } else { short / 10 })),
            ),
            4 => (Fault::JumpClock, None),
            5 => (Fault::CrashAgent { node }, None),
            6 => (Fault::KillShepherd { node }, None),
            7 => (Fault::LosePower { node }, None),
            8 => (
                Fault::FreezeNode { node },
                Some((Fault::ThawNode { node }, if self.rng.chance(400) { short } else { long })),
            ),
            9 => (Fault::CutConnection { node }, None),
            10 => (
                Fault::CutOff { node },
                Some((Fault::Rejoin { node }, if self.rng.chance(400) { short } else { long })),
            ),
            _ => (Fault::FillNode { node }, Some((Fault::EmptyNode { node }, short))),
        };
        self.later(at, ScheduledEvent::Fault(fault));
        if let Some((mended, after)) = mended {
            self.later(at + after, ScheduledEvent::Fault(mended));
        }
    }

    pub(super) fn apply_fault(&mut self, fault: Fault) {
        if self.is_calm {
            return;
        }
        match fault {
            Fault::CrashHead { again } => {
                let then = again.then(|| self.rng.below(25));
                self.head.doom = Some(PlannedCrash { steps: self.rng.below(40), then });
            }
            Fault::StartHead => {
                if self.head.process.is_none() {
                    self.start_head();
                }
            }
            Fault::FreezeHead => {
                if self.head.process.is_some() {
                    self.note(format_args!("the head freezes"));
                    self.frozen_head.get_or_insert_default();
                }
            }
            Fault::ThawHead => self.thaw_head(),
            Fault::BreakDisk(fault) => self.break_disk(Some(fault)),
            Fault::MendDisk => self.break_disk(None),
            Fault::JumpClock => {
                self.head.wall_offset_ms = self.rng.below(48 * 3_600_000) as i64 - 24 * 3_600_000;
                let offset_ms = self.head.wall_offset_ms;
                self.note(format_args!("the head's wall clock is {offset_ms} ms off from now on"));
            }
            Fault::Sweep => self.head_later(0, HeadStep::Sweep),
            Fault::CrashAgent { node } => self.nodes[node].doom = Some((self.rng.below(30), FailureTarget::Agent)),
            Fault::KillShepherd { node } => self.kill_shepherd(node),
            Fault::LosePower { node } => self.nodes[node].doom = Some((self.rng.below(30), FailureTarget::Machine)),
            Fault::PowerOn { node } => self.power_on(node),
            Fault::FreezeNode { node } => {
                if self.nodes[node].is_powered {
                    self.note(format_args!("n{node} freezes"));
                    self.frozen_nodes[node].get_or_insert_default();
                }
            }
            Fault::ThawNode { node } => self.thaw_node(node),
            Fault::FillNode { node } => self.nodes[node].is_full = true,
            Fault::EmptyNode { node } => self.nodes[node].is_full = false,
            Fault::CutConnection { node } => self.sever(node, 3 * SECOND),
            Fault::CutOff { node } => {
                self.note(format_args!("n{node} is cut off"));
                self.network.is_cut_off[node] = true;
                self.sever(node, 15 * SECOND);
            }
            Fault::Rejoin { node } => self.network.is_cut_off[node] = false,
            Fault::Calm => self.mend_all(),
        }
    }

    /// Picks a disk fault, most often a full disk.
    fn disk_fault(&mut self) -> DiskFault {
        if self.rng.chance(500) {
            return DiskFault::DiskFull;
        }
        *self.rng.pick(&[DiskFault::Io, DiskFault::Unreported, DiskFault::Unconfirmed])
    }

    fn break_disk(&mut self, fault: Option<DiskFault>) {
        match fault {
            Some(fault) => self.note(format_args!("the head's disk fails: {fault:?}")),
            None => self.note(format_args!("the head's disk works")),
        }
        self.head.disk.store.set_fault(fault);
    }

    /// Ends a freeze of the head, and runs the delayed events in their order.
    fn thaw_head(&mut self) {
        if let Some(waiting) = self.frozen_head.take() {
            self.note(format_args!("the head goes on"));
            waiting.into_iter().for_each(|happening| self.later(0, happening));
        }
    }

    fn thaw_node(&mut self, node: usize) {
        if let Some(waiting) = self.frozen_nodes[node].take() {
            self.note(format_args!("n{node} goes on"));
            waiting.into_iter().for_each(|happening| self.later(0, happening));
        }
    }

    fn mend_all(&mut self) {
        self.note(format_args!("there are no faults from now on"));
        self.network.trouble = 0;
        self.head.doom = None;
        self.break_disk(None);
        self.thaw_head();
        if self.head.process.is_none() {
            self.start_head();
        }
        for node in 0..self.nodes.len() {
            self.network.is_cut_off[node] = false;
            self.nodes[node].is_full = false;
            self.nodes[node].doom = None;
            self.thaw_node(node);
            self.power_on(node);
        }
        self.is_calm = true;
        self.calm_users();
    }
}

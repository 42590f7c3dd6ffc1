//! A world: its clock, its event queue and its participants.

pub(super) mod faults;
pub(super) mod head;
pub(super) mod network;
pub(super) mod node;
pub(super) mod power;
pub(super) mod time;
pub(super) mod users;

use std::collections::BTreeMap;
use std::fmt;

use hostler_core::head::Settings;

use self::faults::Fault;
use self::head::{Head, HeadStep};
use self::network::{End, Network, Packet};
use self::node::{Node, NodeStep};
use self::power::{Controllers, PowerStep};
use self::users::{UserStep, Users};
use super::books::Books;
use super::rng::Rng;
use super::rules::Rule;
use super::trace::Trace;

/// An event of the simulation.
pub(super) enum ScheduledEvent {
    /// In one life of the head.
    Head { life: u64, step: HeadStep },
    /// On one node.
    Node { node: usize, step: NodeStep },
    /// A packet arrives.
    Arrival { connection: u64, at: End, packet: Packet },
    /// An end of a connection finds out that it is broken.
    Broken { connection: u64, at: End },
    /// A step of the users.
    User(UserStep),
    /// A fault or its repair.
    Fault(Fault),
    /// A step of the power controllers.
    Power(PowerStep),
    /// A check of the world.
    Look,
}

pub(super) struct World {
    pub(super) now_us: u64,
    pub(super) rng: Rng,
    pub(super) trace: Trace,
    pub(super) books: Books,
    pub(super) settings: Settings,
    pub(super) head: Head,
    pub(super) nodes: Vec<Node>,
    pub(super) network: Network,
    pub(super) users: Users,
    /// Events that are delayed while the head or a node is frozen.
    pub(super) frozen_head: Option<Vec<ScheduledEvent>>,
    pub(super) frozen_nodes: Vec<Option<Vec<ScheduledEvent>>>,
    /// Faults have stopped and everything is repaired.
    pub(super) is_calm: bool,
    /// Present in a world with partitions.
    pub(super) partition_dice: Option<Rng>,
    /// Present in a world in which the head switches nodes on and off.
    pub(super) controllers: Option<Controllers>,
    pub(super) break_rule: Option<Rule>,
    pub(super) queue: BTreeMap<(u64, u64), ScheduledEvent>,
    pub(super) queued: u64,
}

impl World {
    /// Schedules an event.
    pub(super) fn later(&mut self, in_us: u64, happening: ScheduledEvent) {
        self.queued += 1;
        self.queue.insert((self.now_us + in_us, self.queued), happening);
    }

    pub(super) fn breaks(&self, rule: Rule) -> bool {
        self.break_rule == Some(rule)
    }

    pub(super) fn broken_rule(&self) -> Option<Rule> {
        self.break_rule
    }

    pub(super) fn note(&mut self, what: fmt::Arguments<'_>) {
        self.trace.add(self.now_us, what);
    }
}

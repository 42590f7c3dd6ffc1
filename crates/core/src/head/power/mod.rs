//! Power: which machines are on, and which should be.
//!
//! ```text
//!  unknown ──▶ off ──▶ waking ──▶ up ──▶ asking ──▶ stopping ──▶ off
//!                │        │        ▲        │           │
//!                │        ▼        │        ▼           ▼
//!                └─────▶ failed ───┴─── up again ◀──────┘
//! ```
//!
//! **The idea.** What is intended is an event in the log before anything is done about it, and what is done depends only on what has been
//! confirmed since: by the node's agent, which is connected or not, and by its controller, which has said *on* or *off* or nothing. So a
//! head that is started again needs no special path: it asks how things are and goes on.
//!
//! [`manage`] looks at everything whenever something has changed or time alone matters, and answers with events. A node's next stage is in
//! [`machine`], which nodes the queue needs in [`wake`], which it does not in [`rest`].
//!
//! **Nothing that runs is switched off.** A node is first taken out of the scheduler's pool, in the event with which its agent is asked
//! ([`Stage::Asking`]); only when nothing is placed there and the agent itself says that nothing runs, staged or returning results
//! included, is its controller told ([`Stage::Stopping`]). Until then everything can be taken back.
//!
//! **An order to switch off cannot be taken back.** A controller may carry it out late, twice, or after it has answered with an error,
//! whether this head gave it or an earlier one. So from [`Stage::Stopping`] a node returns to work only
//!
//! - when the stop timeout has passed since a controller last answered such an order, or a later order to switch on was accepted, and
//! - when its agent comes from a later boot, or says that its machine is not shutting down.

mod energy;
mod machine;
mod pass;
mod rest;
mod wake;

use std::collections::BTreeMap;

use hostler_model::{
    BootId, Energy, Epoch, Gauge, NodeName, PowerPlan, PowerPolicy, PowerState, PowerTraits, PowerVerb, Supply,
    Timestamp, WallTime,
};
use serde::{Deserialize, Serialize};

use super::event::ConnectionId;

pub use energy::Meter;
pub(super) use pass::manage;
pub(super) use pass::{decide_drew, decide_power, decide_resting, update_power};
pub(super) use wake::why_asleep;

/// Everything the head knows of power.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Powers {
    /// What the operator wants.
    pub plan: PowerPlan,
    nodes: BTreeMap<NodeName, Power>,
    /// Something has changed since [`manage`] looked.
    #[serde(skip)]
    is_changed: bool,
    /// When time alone next matters.
    #[serde(skip)]
    due: Option<Timestamp>,
    /// How many questions and orders this head has sent.
    #[serde(skip)]
    asks: u64,
}

/// The power of one node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Power {
    /// Where it stands.
    pub stage: Stage,
    /// Since when, on the cluster's clock.
    pub since: Timestamp,
    /// Since when, on the wall.
    pub since_wall: WallTime,
    /// Why, for people.
    pub why: String,
    /// The boot that was told to shut down. Its agent is asked before the node works again.
    boot_before: Option<BootId>,
    /// It was told to shut down and has not been up since: until then such an order may still be carried out.
    #[serde(default)]
    settles_at: Option<Timestamp>,
    /// When its agent came, if it is up.
    up_since: Option<Timestamp>,
    /// When it was last confirmed to be off.
    #[serde(default)]
    off_since: Option<Timestamp>,
    /// Not before then is it to be tried once more, after it has failed or could not be switched off.
    again_at: Option<Timestamp>,
    /// How often it has failed since it last did what it was told.
    pub failures: u32,
    /// How often it was switched on.
    pub starts: u64,
    /// Which head has switched it on the last time.
    #[serde(default)]
    woken_in: Epoch,
    /// How long it takes from being switched on until its agent comes.
    pub boots: Boots,
    /// What it has drawn.
    pub meter: Meter,
    #[serde(skip)]
    live: Live,
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nobody has said anything of it, or not for long.
    Unknown,
    /// Confirmed to be off.
    Off,
    /// To be switched on, until its agent comes.
    Waking,
    /// Its agent has come.
    Up,
    /// Taken out of the pool; its agent is asked whether anything runs.
    Asking,
    /// Nothing runs: to be switched off, until that is confirmed.
    Stopping,
    /// It did not do what it was told.
    Failed,
}

/// What was learnt about how long a node takes to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boots {
    /// How many were seen.
    pub count: u32,
    /// How long they took, in milliseconds; the later ones count more.
    pub usual_ms: u64,
}

/// What ends with the head's process.
#[derive(Debug, Clone, Default)]
struct Live {
    /// What its controller said last, and when it was asked: so it was at some time after that.
    supply: Option<(Supply, Timestamp)>,
    /// Why its controller could not say or do what was wanted, the last time; how often in a row.
    fault: Option<(PowerFault, u32)>,
    /// What it is being asked, by the number of the question, and since when.
    asked: Option<(u64, PowerVerb, Timestamp)>,
    /// How often it was told to go where it should, in this stage, and when last.
    told: u32,
    told_at: Timestamp,
    /// By force.
    is_forced: bool,
    /// When it is asked next.
    ask_at: Timestamp,
    /// When a controller last answered an order to switch off in this stage, or first answered this head in it. Every earlier order has
    /// reached the controller by then.
    off_told_at: Option<Timestamp>,
    /// Why the controller does not switch it off. This head does not tell it again in this stage.
    refused: Option<String>,
    /// The number of the question to its agent whether anything runs, or whether its machine is shutting down.
    rest: Option<u64>,
    /// When the agent on this connection was asked whether its machine is shutting down.
    agent_asked: Option<(ConnectionId, Timestamp)>,
    /// The agent on this connection has answered that: true if its machine is shutting down.
    agent_said: Option<(ConnectionId, bool)>,
    /// Since when nothing is placed there.
    idle_since: Option<Timestamp>,
}

/// Why a controller could not say or do what was wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerFault {
    /// What happened, why, and what to do.
    pub text: String,
    /// It will be the same until somebody mends it.
    pub is_lasting: bool,
    /// Asking sooner is in vain, in milliseconds.
    pub retry_after_ms: u64,
}

/// What an operator or a controller says about power.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PowerCommand {
    /// An operator's plan, which replaces the one before.
    Plan(Box<PowerPlan>),
    /// An operator wants a node on.
    On {
        /// Which.
        node: NodeName,
        /// Who.
        by: String,
    },
    /// An operator wants a node off. Refused while anything is placed there.
    Off {
        /// Which.
        node: NodeName,
        /// Who.
        by: String,
        /// Without asking its agent and its operating system.
        force: bool,
    },
    /// An operator wants its controller asked now.
    Look {
        /// Which.
        node: NodeName,
    },
    /// What a controller has answered.
    Said {
        /// Whose.
        node: NodeName,
        /// Which question.
        ask: u64,
        /// What it confirmed; nothing when it has only accepted what it was told.
        outcome: Result<Option<Supply>, PowerFault>,
    },
    /// What somebody has measured.
    Drew {
        /// Which node.
        node: NodeName,
        /// Who.
        gauge: Gauge,
        /// What it draws, in milliwatts; nothing when that can no longer be measured.
        milliwatts: Option<u64>,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerEvent {
    /// There is a plan.
    Planned(Box<PowerPlan>),
    /// A node goes to another stage.
    Entered {
        /// Which.
        node: NodeName,
        /// Which stage.
        stage: Stage,
        /// Why, for people.
        why: String,
    },
    /// A node draws this from now on, in milliwatts; nothing when nobody can measure it any more.
    Drew {
        /// Which.
        node: NodeName,
        /// Who says so.
        gauge: Gauge,
        /// How much.
        milliwatts: Option<u64>,
    },
    /// A controller is asked or told something. Not durable.
    Asked {
        /// Whose.
        node: NodeName,
        /// What.
        verb: PowerVerb,
    },
    /// A controller has answered. Not durable.
    Said {
        /// Whose.
        node: NodeName,
        /// What it confirmed, if anything.
        outcome: Result<Option<Supply>, PowerFault>,
    },
    /// A controller has confirmed that a node is off and accepted to switch it on, which takes the place of any order to switch off.
    Woken {
        /// Whose.
        node: NodeName,
    },
    /// A controller is to be asked now. Not durable.
    Look {
        /// Whose.
        node: NodeName,
    },
    /// An agent is asked whether its machine is shutting down. Not durable.
    AskedAgent {
        /// Whose.
        node: NodeName,
    },
    /// An agent has answered whether its machine is shutting down. Not durable.
    AgentSaid {
        /// Whose.
        node: NodeName,
        /// It is.
        is_leaving: bool,
    },
}

impl PowerEvent {
    pub(super) const fn is_durable(&self) -> bool {
        matches!(self, Self::Planned(_) | Self::Entered { .. } | Self::Drew { .. } | Self::Woken { .. })
    }
}

impl Power {
    fn new(now: Timestamp, wall: WallTime) -> Self {
        Self {
            stage: Stage::Unknown,
            since: now,
            since_wall: wall,
            why: "nothing has been heard of it yet".to_owned(),
            boot_before: None,
            settles_at: None,
            up_since: None,
            off_since: None,
            again_at: None,
            failures: 0,
            starts: 0,
            woken_in: Epoch::default(),
            boots: Boots::default(),
            meter: Meter::new(now),
            live: Live::default(),
        }
    }

    /// For people: idle is up with nothing placed there.
    #[must_use]
    pub const fn state(&self) -> PowerState {
        match self.stage {
            Stage::Unknown => PowerState::Unknown,
            Stage::Off => PowerState::Off,
            Stage::Waking => PowerState::Waking,
            Stage::Up if self.live.idle_since.is_some() => PowerState::Idle,
            Stage::Up => PowerState::Up,
            Stage::Asking | Stage::Stopping => PowerState::Stopping,
            Stage::Failed => PowerState::Failed,
        }
    }

    /// Whether anything may be placed there.
    const fn takes_work(&self) -> bool {
        matches!(self.stage, Stage::Up)
    }

    /// Whether it draws more than its controller does, as far as is known.
    pub(super) const fn is_on(&self) -> bool {
        match self.stage {
            Stage::Off => false,
            Stage::Unknown => matches!(self.live.supply, Some((Supply::On, _))),
            Stage::Failed => !self.is_confirmed_off(),
            Stage::Waking | Stage::Up | Stage::Asking | Stage::Stopping => true,
        }
    }

    const fn is_confirmed_off(&self) -> bool {
        matches!(self.live.supply, Some((Supply::Off, _)))
    }

    /// What its controller said last, and when it was asked.
    #[must_use]
    pub const fn supply(&self) -> Option<(Supply, Timestamp)> {
        self.live.supply
    }

    /// Why its controller could not answer, if it could not the last time it was asked.
    #[must_use]
    pub fn fault(&self) -> Option<&PowerFault> {
        self.live.fault.as_ref().map(|(fault, _)| fault)
    }

    /// How long it should take to come when it is switched on, in milliseconds.
    #[must_use]
    pub const fn usual_boot_ms(&self, traits: &PowerTraits) -> u64 {
        if self.boots.count > 0 { self.boots.usual_ms } else { traits.boot_ms }
    }
}

impl Boots {
    fn learn(&mut self, ms: u64) {
        self.usual_ms = if self.count == 0 { ms } else { (2 * self.usual_ms + ms) / 3 };
        self.count = self.count.saturating_add(1);
    }
}

impl Powers {
    /// A node's power, if it can be switched.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Power> {
        self.nodes.get(name)
    }

    /// The power of all nodes that can be switched.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &Power)> {
        self.nodes.iter()
    }

    /// What is known of a node beforehand.
    #[must_use]
    pub fn traits(&self, name: &NodeName) -> PowerTraits {
        self.plan.nodes.get(name).copied().unwrap_or_default()
    }

    /// Whether the plan has a node. One that leaves the plan while it may yet be switched off is kept until it is up.
    #[must_use]
    pub fn is_planned(&self, name: &NodeName) -> bool {
        self.plan.nodes.contains_key(name)
    }

    /// A head begins. Answers to what another has asked, in this process or an earlier one, are told apart by their numbers.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) {
        self.asks = epoch.0 << 32;
    }

    const fn policy(&self) -> &PowerPolicy {
        &self.plan.policy
    }

    /// Whether a node may be given work as far as its power is concerned: not while it is or may yet be switched off.
    pub(super) fn takes_work(&self, name: &NodeName) -> bool {
        self.nodes.get(name).is_none_or(Power::takes_work)
    }

    /// What a node's meter shows now, if it has one.
    pub(super) fn reading(&self, name: &NodeName, now: Timestamp) -> Option<Energy> {
        self.nodes.get(name).map(|power| power.meter.at(now).energy)
    }

    /// Something has changed that could matter.
    pub(super) fn changed(&mut self) {
        self.is_changed = !self.nodes.is_empty();
    }

    /// A node has, or has not, something placed on it.
    pub(super) fn note_use(&mut self, name: &NodeName, is_idle: bool, now: Timestamp) {
        if let Some(power) = self.nodes.get_mut(name) {
            match is_idle {
                true => _ = power.live.idle_since.get_or_insert(now),
                false => power.live.idle_since = None,
            }
        }
        self.changed();
    }

    /// When time alone matters next.
    pub(super) fn due(&self) -> Option<Timestamp> {
        if self.is_changed { Some(Timestamp::default()) } else { self.due }
    }

    /// Whether [`manage`] has something to look at.
    #[must_use]
    pub fn needs_a_look(&self, now: Timestamp) -> bool {
        !self.nodes.is_empty() && self.due().is_some_and(|due| due <= now)
    }
}

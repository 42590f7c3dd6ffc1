//! Power management: which machines are on, and which should be.
//!
//! ```text
//!  unknown ──▶ off ──▶ waking ──▶ up ──▶ asking ──▶ stopping ──▶ off
//!                │        │        ▲        │           │
//!                │        ▼        │        ▼           ▼
//!                └─────▶ failed ───┴─── up again ◀──────┘
//! ```
//!
//! **The idea.** The log records every intention as an event before the head acts on it. Each action depends only on
//! later confirmations: of the node's agent, which is connected or not, and of its power controller, which has
//! answered *on*, *off* or nothing. So a restarted head needs no special code: it asks for the current state and
//! continues.
//!
//! [`manage`] checks all nodes when something has changed or a time limit has passed, and returns events. [`machine`] decides a node's
//! next stage, [`wake`] which nodes the queue needs, and [`rest`] which nodes it does not need.
//!
//! **A busy node is never switched off.** The event with which the head asks a node's agent also removes the node from the scheduler's
//! pool ([`Stage::Asking`]). The controller gets the order ([`Stage::Stopping`]) only when no run is placed on the node and the agent
//! confirms that nothing runs, including staging and the upload of results. Until then the head can still cancel.
//!
//! **An order to switch off cannot be cancelled.** A controller may carry it out late, twice, or after answering with an error, whether
//! this head sent it or an earlier one. So after [`Stage::Stopping`] a node returns to work only
//!
//! - when the stop timeout has passed since the controller's last answer to such an order, or it accepted a later order to switch on, and
//! - when its agent belongs to a later boot, or confirms that its machine is not shutting down.

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

/// The power state of all nodes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Powers {
    /// The operator's plan, read from power.toml: policy, nodes and their controllers.
    pub plan: PowerPlan,
    nodes: BTreeMap<NodeName, Power>,
    /// Whether something has changed since the last call of [`manage`], so that it must be called again.
    #[serde(skip)]
    is_changed: bool,
    /// When the next time limit of a node passes.
    #[serde(skip)]
    due: Option<Timestamp>,
    /// How many requests this head has sent to controllers and agents.
    #[serde(skip)]
    asks: u64,
}

/// The power state of one node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Power {
    /// The node's stage of power management.
    pub stage: Stage,
    /// When the stage began, on the cluster's clock.
    pub since: Timestamp,
    /// When the stage began, on the wall clock.
    pub since_wall: WallTime,
    /// The reason for the stage, for people.
    pub why: String,
    /// The boot of the machine when the head ordered it to shut down. An agent of this boot must first confirm that its
    /// machine stays on.
    boot_before: Option<BootId>,
    /// The time until which an order to shut down may still take effect. Set if the node was ordered to shut down and
    /// has not been up since.
    #[serde(default)]
    settles_at: Option<Timestamp>,
    /// When the node's agent connected, if the node is up.
    up_since: Option<Timestamp>,
    /// When the controller last confirmed that the node is off.
    #[serde(default)]
    off_since: Option<Timestamp>,
    /// The earliest time for a retry after a failure.
    again_at: Option<Timestamp>,
    /// How many times in a row the node failed to follow an order.
    pub failures: u32,
    /// How often the head has switched the node on.
    pub starts: u64,
    /// The epoch of the head that last switched the node on.
    #[serde(default)]
    woken_in: Epoch,
    /// Observed times from power-on until the agent connects.
    pub boots: Boots,
    /// The energy that the node has used.
    pub meter: Meter,
    #[serde(skip)]
    live: Live,
}

/// A stage of a node's power management.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Neither the agent nor the controller has said recently whether the node is on.
    Unknown,
    /// The controller has confirmed that the node is off.
    Off,
    /// The node is being switched on; its agent has not connected yet.
    Waking,
    /// The node's agent is connected.
    Up,
    /// The node gets no new work; the head has asked its agent whether anything runs there.
    Asking,
    /// Nothing runs on the node. The node is being switched off, until the controller confirms that it is off.
    Stopping,
    /// The node did not follow an order.
    Failed,
}

/// Boot times of a node, from power-on until its agent connects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boots {
    /// How many boots were observed.
    pub count: u32,
    /// The typical boot time in milliseconds; recent boots weigh more.
    pub usual_ms: u64,
}

/// Power data of a node that is not stored and ends with the head's process.
#[derive(Debug, Clone, Default)]
struct Live {
    /// The controller's last answer, and when the request for it was sent. The answer was true at some time after the
    /// request.
    supply: Option<(Supply, Timestamp)>,
    /// The controller's last error, and the number of consecutive errors.
    fault: Option<(PowerFault, u32)>,
    /// The unanswered request to the controller: its number, its verb and when it was sent.
    asked: Option<(u64, PowerVerb, Timestamp)>,
    /// How many orders were sent to the controller in this stage.
    told: u32,
    /// When the last order was sent to the controller.
    told_at: Timestamp,
    /// Whether an order to switch off by force was sent.
    is_forced: bool,
    /// The earliest time for the next request to the controller.
    ask_at: Timestamp,
    /// When the controller last answered an order to switch off in this stage, or first answered this head in the
    /// stage. By then every earlier order has reached the controller.
    off_told_at: Option<Timestamp>,
    /// Why the controller refuses to switch the node off. This head does not repeat the order in the current stage.
    refused: Option<String>,
    /// The number of the unanswered request to the agent, which asks whether anything runs or whether the machine is
    /// shutting down.
    rest: Option<u64>,
    /// The connection on which the agent was asked whether its machine is shutting down, and when.
    agent_asked: Option<(ConnectionId, Timestamp)>,
    /// The agent's answer on that connection: true if the machine is shutting down.
    agent_said: Option<(ConnectionId, bool)>,
    /// Since when no run has been placed on the node.
    idle_since: Option<Timestamp>,
}

/// An error of a power controller, which could not answer a request or did not follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerFault {
    /// The message for people: what happened, why, and what to do.
    pub text: String,
    /// Whether the error persists until a person fixes the cause.
    pub is_lasting: bool,
    /// How long to wait before another request, in milliseconds.
    pub retry_after_ms: u64,
}

/// A command of an operator, or an answer of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PowerCommand {
    /// An operator's new plan, which replaces the old one.
    Plan(Box<PowerPlan>),
    /// An operator switches a node on.
    On {
        /// The node to switch on.
        node: NodeName,
        /// The operator's name.
        by: String,
    },
    /// An operator switches a node off. Refused while a run is placed on the node.
    Off {
        /// The node to switch off.
        node: NodeName,
        /// The operator's name.
        by: String,
        /// Whether the controller cuts the power, without asking the agent or the operating system.
        force: bool,
    },
    /// An operator requests the controller's status now.
    Look {
        /// The node whose status is requested.
        node: NodeName,
    },
    /// A power controller has answered a request.
    Said {
        /// The node of the controller.
        node: NodeName,
        /// The number of the answered request.
        ask: u64,
        /// The confirmed state; `None` if the controller only accepted an order.
        outcome: Result<Option<Supply>, PowerFault>,
    },
    /// A gauge has measured a node's power.
    Drew {
        /// The measured node.
        node: NodeName,
        /// What measured the power: the node's agent or its power controller.
        gauge: Gauge,
        /// The power in milliwatts; `None` when it can no longer be measured.
        milliwatts: Option<u64>,
    },
}

/// An event that changes what the head knows about nodes' power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerEvent {
    /// An operator has set a new plan.
    Planned(Box<PowerPlan>),
    /// A node enters a stage.
    Entered {
        /// The node that changes its stage.
        node: NodeName,
        /// The new stage.
        stage: Stage,
        /// The reason, for people.
        why: String,
    },
    /// The measured power of a node has changed.
    Drew {
        /// The measured node.
        node: NodeName,
        /// What measured the power: the node's agent or its power controller.
        gauge: Gauge,
        /// The power in milliwatts; `None` when it can no longer be measured.
        milliwatts: Option<u64>,
    },
    /// The head sent a request to a node's power controller. Not durable.
    Asked {
        /// The node of the controller.
        node: NodeName,
        /// What the request asks for: status, on or off.
        verb: PowerVerb,
    },
    /// A power controller answered. Not durable.
    Said {
        /// The node of the controller.
        node: NodeName,
        /// The confirmed state; `None` if the controller only accepted an order.
        outcome: Result<Option<Supply>, PowerFault>,
    },
    /// A power controller has confirmed that a node is off and has accepted an order to switch the node on. An earlier
    /// order to switch the node off no longer counts.
    Woken {
        /// The node that is switched on.
        node: NodeName,
    },
    /// An operator requested the controller's status. Not durable.
    Look {
        /// The node whose status is requested.
        node: NodeName,
    },
    /// The head asked an agent whether its machine is shutting down. Not durable.
    AskedAgent {
        /// The node of the agent.
        node: NodeName,
    },
    /// An agent answered whether its machine is shutting down. Not durable.
    AgentSaid {
        /// The node of the agent.
        node: NodeName,
        /// Whether the machine is shutting down.
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
            why: "nothing is known about the node yet".to_owned(),
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

    /// Returns the state shown to people. Idle means that the node is up and no run is placed on it.
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

    /// Returns whether runs may be placed on the node.
    const fn takes_work(&self) -> bool {
        matches!(self.stage, Stage::Up)
    }

    /// Returns whether the node is on or may be on.
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

    /// Returns the controller's last answer, and when the request for it was sent.
    #[must_use]
    pub const fn supply(&self) -> Option<(Supply, Timestamp)> {
        self.live.supply
    }

    /// Returns the controller's last error; `None` if it answered the last request.
    #[must_use]
    pub fn fault(&self) -> Option<&PowerFault> {
        self.live.fault.as_ref().map(|(fault, _)| fault)
    }

    /// Returns the expected boot time in milliseconds: observed, or from the plan.
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
    /// Returns a node's power state; `None` if the head cannot switch the node on and off.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Power> {
        self.nodes.get(name)
    }

    /// Iterates over all nodes that the head can switch on and off.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &Power)> {
        self.nodes.iter()
    }

    /// Returns what the plan says about a node, such as its watts and its expected boot time.
    #[must_use]
    pub fn traits(&self, name: &NodeName) -> PowerTraits {
        self.plan.nodes.get(name).copied().unwrap_or_default()
    }

    /// Returns whether the plan contains a node. A node outside the plan may still have a power state: the head keeps
    /// it until the node is up, as long as an earlier order may switch the node off.
    #[must_use]
    pub fn is_planned(&self, name: &NodeName) -> bool {
        self.plan.nodes.contains_key(name)
    }

    /// Starts numbering the requests of this head. Each head uses other numbers, so that a late answer to an earlier
    /// head is recognised.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) {
        self.asks = epoch.0 << 32;
    }

    const fn policy(&self) -> &PowerPolicy {
        &self.plan.policy
    }

    /// Returns whether the power stage of a node allows runs there; true for nodes that the head cannot switch on and
    /// off.
    pub(super) fn takes_work(&self, name: &NodeName) -> bool {
        self.nodes.get(name).is_none_or(Power::takes_work)
    }

    /// Returns the current reading of a node's energy meter, if it has one.
    pub(super) fn reading(&self, name: &NodeName, now: Timestamp) -> Option<Energy> {
        self.nodes.get(name).map(|power| power.meter.at(now).energy)
    }

    /// Requests a call of [`manage`], because something has changed.
    pub(super) fn changed(&mut self) {
        self.is_changed = !self.nodes.is_empty();
    }

    /// Records whether runs are placed on a node.
    pub(super) fn note_use(&mut self, name: &NodeName, is_idle: bool, now: Timestamp) {
        if let Some(power) = self.nodes.get_mut(name) {
            match is_idle {
                true => _ = power.live.idle_since.get_or_insert(now),
                false => power.live.idle_since = None,
            }
        }
        self.changed();
    }

    /// Returns the time at which [`manage`] must be called next.
    pub(super) fn due(&self) -> Option<Timestamp> {
        if self.is_changed { Some(Timestamp::default()) } else { self.due }
    }

    /// Returns whether [`manage`] must be called now.
    #[must_use]
    pub fn needs_a_look(&self, now: Timestamp) -> bool {
        !self.nodes.is_empty() && self.due().is_some_and(|due| due <= now)
    }
}

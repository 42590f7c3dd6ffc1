//! The power state of the nodes, and the commands and events that change it.

use std::collections::BTreeMap;

use hostler_model::{
    BootId, Energy, Epoch, Gauge, NodeName, PowerPlan, PowerPolicy, PowerState, PowerTraits, PowerVerb, Supply,
    Timestamp, WallTime,
};
use hostler_proto::power::PowerChange;
use serde::{Deserialize, Serialize};

use super::energy::Meter;
use crate::head::ids::ConnectionId;

/// The power state of all nodes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Powers {
    /// The operator's plan.
    pub plan: PowerPlan,
    pub(super) nodes: BTreeMap<NodeName, Power>,
    /// Whether something has changed since the last call of [`super::manage`].
    #[serde(skip)]
    pub(super) is_changed: bool,
    /// When the next time limit passes.
    #[serde(skip)]
    pub(super) due: Option<Timestamp>,
    /// How many requests this head has sent.
    #[serde(skip)]
    pub(super) asks: u64,
}

/// The power state of one node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Power {
    /// The current stage.
    pub stage: Stage,
    /// When the stage began, on the cluster's clock.
    pub since: Timestamp,
    /// When the stage began, on the wall clock.
    pub since_wall: WallTime,
    /// The reason for the stage, for people.
    pub why: String,
    /// The latest stages, oldest first: at most [`MOST_CHANGES`].
    #[serde(default)]
    pub history: Vec<PowerChange>,
    /// The boot that was told to shut down. The head asks its agent before the node works again.
    pub(super) boot_before: Option<BootId>,
    /// Set if the node was told to shut down and has not been up since. Such an order may still take effect before this time.
    #[serde(default)]
    pub(super) settles_at: Option<Timestamp>,
    /// When its agent connected, if it is up.
    pub(super) up_since: Option<Timestamp>,
    /// When it was last confirmed off.
    #[serde(default)]
    pub(super) off_since: Option<Timestamp>,
    /// The earliest time for another attempt after a failure.
    pub(super) again_at: Option<Timestamp>,
    /// Consecutive failures.
    pub failures: u32,
    /// How often the head has switched it on.
    pub starts: u64,
    /// The epoch of the head that switched it on last.
    #[serde(default)]
    pub(super) woken_in: Epoch,
    /// How long it takes from the power-on until its agent connects.
    pub boots: Boots,
    /// Its energy use.
    pub meter: Meter,
    #[serde(skip)]
    pub(super) live: Live,
}

/// How many changes of its power state the head keeps for each node.
pub(super) const MOST_CHANGES: usize = 32;

/// A node's stage of power management.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nothing is known of the node, or nothing recent.
    Unknown,
    /// Confirmed off.
    Off,
    /// Being switched on, until its agent connects.
    Waking,
    /// Its agent is connected.
    Up,
    /// Removed from the pool; its agent is asked whether anything runs.
    Asking,
    /// Nothing runs: being switched off, until that is confirmed.
    Stopping,
    /// The node did not follow an order.
    Failed,
}

/// Observed boot times of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boots {
    /// How many boots were observed.
    pub count: u32,
    /// The typical boot time in milliseconds; recent boots weigh more.
    pub usual_ms: u64,
}

/// State that ends with the head's process.
#[derive(Debug, Clone, Default)]
pub(super) struct Live {
    /// The controller's last answer, and when that request was sent. The answer was true at some time after that.
    pub(super) supply: Option<(Supply, Timestamp)>,
    /// The controller's last error, and how many errors came in a row.
    pub(super) fault: Option<(PowerFault, u32)>,
    /// The open request: its number, its verb and when it was sent.
    pub(super) asked: Option<(u64, PowerVerb, Timestamp)>,
    /// How many orders were sent in this stage.
    pub(super) told: u32,
    /// When the last order was sent.
    pub(super) told_at: Timestamp,
    /// Whether an order to switch off by force was sent.
    pub(super) is_forced: bool,
    /// When to ask the controller next.
    pub(super) ask_at: Timestamp,
    /// When the controller last answered an order to switch off in this stage, or first answered this head in it. By then every
    /// earlier order has reached the controller.
    pub(super) off_told_at: Option<Timestamp>,
    /// Why the controller refuses to switch the node off. This head does not repeat the order in this stage.
    pub(super) refused: Option<String>,
    /// The number of the open request to the agent: whether anything runs, or whether its machine is shutting down.
    pub(super) rest: Option<u64>,
    /// The connection on which the agent was asked whether its machine is shutting down, and when.
    pub(super) agent_asked: Option<(ConnectionId, Timestamp)>,
    /// The agent's answer on this connection: true if its machine is shutting down.
    pub(super) agent_said: Option<(ConnectionId, bool)>,
    /// Since when no run is placed on the node.
    pub(super) idle_since: Option<Timestamp>,
}

/// Why a controller could not answer or follow a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerFault {
    /// What happened, why, and what to do.
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
        /// The node.
        node: NodeName,
        /// The operator.
        by: String,
    },
    /// An operator switches a node off. Refused while a run is placed on the node.
    Off {
        /// The node.
        node: NodeName,
        /// The operator.
        by: String,
        /// Whether to skip the agent and the operating system.
        force: bool,
    },
    /// An operator requests the controller's status now.
    Look {
        /// The node.
        node: NodeName,
    },
    /// A controller's answer.
    Said {
        /// The node.
        node: NodeName,
        /// The number of the request.
        ask: u64,
        /// The confirmed state; `None` if the controller only accepted an order.
        outcome: Result<Option<Supply>, PowerFault>,
    },
    /// A power measurement.
    Drew {
        /// The node.
        node: NodeName,
        /// The source.
        gauge: Gauge,
        /// The power in milliwatts; `None` when it can no longer be measured.
        milliwatts: Option<u64>,
    },
}

/// An event about power.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerEvent {
    /// There is a new plan.
    Planned(Box<PowerPlan>),
    /// A node enters a stage.
    Entered {
        /// The node.
        node: NodeName,
        /// The new stage.
        stage: Stage,
        /// The reason, for people.
        why: String,
    },
    /// The measured power of a node has changed.
    Drew {
        /// The node.
        node: NodeName,
        /// The source.
        gauge: Gauge,
        /// The power in milliwatts; `None` when it can no longer be measured.
        milliwatts: Option<u64>,
    },
    /// A request to a node's controller. Not durable.
    Asked {
        /// The node.
        node: NodeName,
        /// The request.
        verb: PowerVerb,
    },
    /// A controller's answer. Not durable.
    Said {
        /// The node.
        node: NodeName,
        /// The confirmed state, if any.
        outcome: Result<Option<Supply>, PowerFault>,
    },
    /// A controller has confirmed that a node is off and accepted to switch it on. That replaces any earlier order to switch off.
    Woken {
        /// The node.
        node: NodeName,
    },
    /// Request the controller's status now. Not durable.
    Look {
        /// The node.
        node: NodeName,
    },
    /// An agent is asked whether its machine is shutting down. Not durable.
    AskedAgent {
        /// The node.
        node: NodeName,
    },
    /// An agent's answer to the request to prepare for a shutdown. Not durable.
    AgentSaid {
        /// The node.
        node: NodeName,
        /// Whether its machine is shutting down.
        is_leaving: bool,
    },
}

impl PowerEvent {
    pub(in crate::head) const fn is_durable(&self) -> bool {
        matches!(self, Self::Planned(_) | Self::Entered { .. } | Self::Drew { .. } | Self::Woken { .. })
    }
}

impl Power {
    /// Returns whether the head has switched the node off, is doing so, or is switching it on.
    #[must_use]
    pub const fn is_away_by_order(&self) -> bool {
        match self.stage {
            Stage::Waking | Stage::Asking | Stage::Stopping => true,
            Stage::Off => self.settles_at.is_some(),
            Stage::Unknown | Stage::Up | Stage::Failed => false,
        }
    }

    pub(super) fn new(now: Timestamp, wall: WallTime) -> Self {
        Self {
            stage: Stage::Unknown,
            since: now,
            since_wall: wall,
            why: "nothing is known of it yet".to_owned(),
            history: Vec::new(),
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

    /// The state shown to people: idle means up without a placed run.
    #[must_use]
    pub const fn state(&self) -> PowerState {
        match self.stage {
            Stage::Up if self.live.idle_since.is_some() => PowerState::Idle,
            stage => stage.state(),
        }
    }

    /// Whether runs may be placed on the node.
    pub(super) const fn takes_work(&self) -> bool {
        matches!(self.stage, Stage::Up)
    }

    /// Whether the node uses more power than its controller alone, as far as known.
    pub(in crate::head) const fn is_on(&self) -> bool {
        match self.stage {
            Stage::Off => false,
            Stage::Unknown => matches!(self.live.supply, Some((Supply::On, _))),
            Stage::Failed => !self.is_confirmed_off(),
            Stage::Waking | Stage::Up | Stage::Asking | Stage::Stopping => true,
        }
    }

    pub(super) const fn is_confirmed_off(&self) -> bool {
        matches!(self.live.supply, Some((Supply::Off, _)))
    }

    /// The controller's last answer, and when that request was sent.
    #[must_use]
    pub const fn supply(&self) -> Option<(Supply, Timestamp)> {
        self.live.supply
    }

    /// The controller's error, if the last request failed.
    #[must_use]
    pub fn fault(&self) -> Option<&PowerFault> {
        self.live.fault.as_ref().map(|(fault, _)| fault)
    }

    /// The expected boot time in milliseconds.
    #[must_use]
    pub const fn usual_boot_ms(&self, traits: &PowerTraits) -> u64 {
        if self.boots.count > 0 { self.boots.usual_ms } else { traits.boot_ms }
    }
}

impl Stage {
    /// Returns the state shown to people, without the distinction between idle and busy nodes.
    pub(super) const fn state(self) -> PowerState {
        match self {
            Self::Unknown => PowerState::Unknown,
            Self::Off => PowerState::Off,
            Self::Waking => PowerState::Waking,
            Self::Up => PowerState::Up,
            Self::Asking | Self::Stopping => PowerState::Stopping,
            Self::Failed => PowerState::Failed,
        }
    }
}

impl Boots {
    pub(super) fn learn(&mut self, ms: u64) {
        self.usual_ms = if self.count == 0 { ms } else { (2 * self.usual_ms + ms) / 3 };
        self.count = self.count.saturating_add(1);
    }
}

impl Powers {
    /// A node's power state, if the head can switch it.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Power> {
        self.nodes.get(name)
    }

    /// All nodes that the head can switch.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &Power)> {
        self.nodes.iter()
    }

    /// The traits in the plan.
    #[must_use]
    pub fn traits(&self, name: &NodeName) -> PowerTraits {
        self.plan.nodes.get(name).copied().unwrap_or_default()
    }

    /// Whether the plan contains a node. A node that leaves the plan while it may still be switched off is kept until it is up.
    #[must_use]
    pub fn is_planned(&self, name: &NodeName) -> bool {
        self.plan.nodes.contains_key(name)
    }

    /// Starts numbering the requests of this head. Numbers never repeat, so late answers to other requests are recognised.
    pub(in crate::head) fn begin_epoch(&mut self, epoch: Epoch) {
        self.asks = epoch.0 << 32;
    }

    pub(super) const fn policy(&self) -> &PowerPolicy {
        &self.plan.policy
    }

    /// Whether runs may be placed on a node, as far as its power is concerned.
    pub(in crate::head) fn takes_work(&self, name: &NodeName) -> bool {
        self.nodes.get(name).is_none_or(Power::takes_work)
    }

    /// The current reading of a node's meter, if it has one.
    pub(in crate::head) fn reading(&self, name: &NodeName, now: Timestamp) -> Option<Energy> {
        self.nodes.get(name).map(|power| power.meter.at(now).energy)
    }

    /// Notes a change that may matter for power management.
    pub(in crate::head) fn changed(&mut self) {
        self.is_changed = !self.nodes.is_empty();
    }

    /// Notes whether runs are placed on a node.
    pub(in crate::head) fn note_use(&mut self, name: &NodeName, is_idle: bool, now: Timestamp) {
        if let Some(power) = self.nodes.get_mut(name) {
            match is_idle {
                true => _ = power.live.idle_since.get_or_insert(now),
                false => power.live.idle_since = None,
            }
        }
        self.changed();
    }

    /// When [`super::manage`] is next due; never without a node whose power is managed.
    pub(in crate::head) fn due(&self) -> Option<Timestamp> {
        let due = if self.is_changed { Some(Timestamp::default()) } else { self.due };
        due.filter(|_| !self.nodes.is_empty())
    }

    /// Whether [`super::manage`] is due.
    #[must_use]
    pub fn needs_manage(&self, now: Timestamp) -> bool {
        self.due().is_some_and(|due| due <= now)
    }
}

//! Node power and energy, as the API shows and accepts them.

use std::collections::BTreeMap;
use std::fmt;

use hostler_model::{Energy, Gauge, NodeName, PowerState, Supply, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Power state of a node that the head can switch on and off. Part of [`NodeDetail`](crate::api::NodeDetail) and
/// [`EnergyView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PowerView {
    /// Current power state.
    pub state: PowerState,
    /// Time since the state began, in milliseconds on the cluster's clock.
    pub for_ms: u64,
    /// Time at which this state began, in milliseconds since the Unix epoch.
    pub since: WallTime,
    /// Why the node is in this state, as a sentence fragment for people.
    pub why: String,
    /// What the power controller reported last; absent if it has not answered since the head started.
    pub supply: Option<Supply>,
    /// Age of the controller's last report, in milliseconds.
    pub supply_age_ms: Option<u64>,
    /// Error of the controller's last action; absent if the action succeeded.
    pub fault: Option<String>,
    /// Time from switching on until the agent connects, in milliseconds: measured, or else configured.
    pub boot_ms: u64,
    /// Number of measured boots; zero if `boot_ms` is the configured value.
    pub boots: u32,
    /// Number of times that the node was switched on.
    pub starts: u64,
    /// Number of failures since the last successful action.
    pub failures: u32,
    /// Current power, in watts.
    pub watts: u32,
    /// What measured the power; absent if the power is estimated.
    #[serde(default)]
    pub gauge: Option<Gauge>,
    /// Whether estimates use assumed values, because `power.toml` has none for this node.
    #[serde(default)]
    pub are_watts_assumed: bool,
    /// Energy that the node has used since the head began to manage the node's power, in watt-hours.
    pub watt_hours: u64,
    /// The measured part of `watt_hours`, in watt-hours. The rest is estimated.
    #[serde(default)]
    pub measured_watt_hours: u64,
    /// Energy that the node would have used without ever being switched off, in watt-hours.
    pub always_on_watt_hours: u64,
    /// Total time that the node was switched off, in milliseconds.
    pub off_ms: u64,
}

/// A change of a node's power state, in [`NodeDetail`](crate::api::NodeDetail).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PowerChange {
    /// New power state.
    pub state: PowerState,
    /// Time of the change, in milliseconds since the Unix epoch.
    pub at: WallTime,
    /// Why the state changed, as a sentence fragment for people.
    pub why: String,
}

/// Answer of `GET /energy`: power and energy of the nodes that the head can switch on and off, and their totals.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EnergyView {
    /// Power and energy of each node, by name.
    pub nodes: BTreeMap<NodeName, PowerView>,
    /// Sum of the nodes' current power, in watts.
    pub watts: u64,
    /// Energy that the nodes have used together, in watt-hours.
    pub watt_hours: u64,
    /// The measured part of `watt_hours`, in watt-hours.
    #[serde(default)]
    pub measured_watt_hours: u64,
    /// Energy saved by switching nodes off, in watt-hours.
    pub saved_watt_hours: u64,
    /// Cost of `watt_hours`, at the present price in `power.toml`; absent without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Cost of `saved_watt_hours`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_cost: Option<Cost>,
    /// Why `power.toml` is not fully applied; absent if it is fully applied.
    pub trouble: Option<String>,
}

/// An amount of money.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// The amount, in units of the currency.
    pub amount: f64,
    /// The currency, as `power.toml` names it, e.g. `EUR`.
    pub currency: String,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} {}", self.amount, self.currency)
    }
}

/// Energy of a job: for each of the job's nodes, the energy that the node used during the job, times the share of the
/// node's CPUs that the job held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobEnergy {
    /// Total energy, in joules.
    pub joules: u64,
    /// The measured part of `joules`, in joules. The rest is estimated.
    pub measured_joules: u64,
}

impl From<Energy> for JobEnergy {
    fn from(energy: Energy) -> Self {
        Self { joules: energy.drawn_uj / 1_000_000, measured_joules: energy.measured_uj / 1_000_000 }
    }
}

/// Request body of `POST /nodes/{name}/power`: switches a node on or off, or queries its power controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PowerRequest {
    /// Whether to switch the node on, switch it off, or query its controller.
    pub action: PowerAction,
    /// For `off`: switch off without asking the agent or the operating system.
    #[serde(default)]
    pub force: bool,
}

/// What to do with a node's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PowerAction {
    /// Switch the node on.
    On,
    /// Switch the node off.
    Off,
    /// Query the power controller for the node's state.
    Look,
}

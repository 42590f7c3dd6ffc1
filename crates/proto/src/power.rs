//! Node power and energy, as the API shows and accepts them.

use std::collections::BTreeMap;

use hostler_model::{Energy, Gauge, NodeName, PowerState, Supply, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Power state of a node that the head can switch on and off. Part of [`NodeDetail`](crate::api::NodeDetail) and
/// [`EnergyView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PowerView {
    /// Current power state.
    pub state: PowerState,
    /// Time in this state, in milliseconds on the cluster's clock.
    pub for_ms: u64,
    /// Time at which this state began, in milliseconds since the Unix epoch.
    pub since: WallTime,
    /// Reason for this state, for people.
    pub why: String,
    /// Last answer of the power controller; absent if it has not answered since the head started.
    pub supply: Option<Supply>,
    /// Age of that answer, in milliseconds.
    pub supply_age_ms: Option<u64>,
    /// Error of the controller's last action, if it failed.
    pub fault: Option<String>,
    /// Time from switching on until the agent connects, in milliseconds: measured, or as configured.
    pub boot_ms: u64,
    /// Number of measured boots; zero if `boot_ms` is the configured value.
    pub boots: u32,
    /// Number of times that the node was switched on.
    pub starts: u64,
    /// Number of failures since the last successful action.
    pub failures: u32,
    /// Current power, in watts.
    pub watts: u32,
    /// Source of the measurement; absent if the power is estimated.
    #[serde(default)]
    pub gauge: Option<Gauge>,
    /// Whether estimates use assumed values, because `power.toml` has none for this node.
    #[serde(default)]
    pub are_watts_assumed: bool,
    /// Energy used since the head manages this node's power, in watt-hours.
    pub watt_hours: u64,
    /// The measured part of `watt_hours`, in watt-hours. The rest is estimated.
    #[serde(default)]
    pub measured_watt_hours: u64,
    /// Energy that the node would have used if it had never been switched off, in watt-hours.
    pub always_on_watt_hours: u64,
    /// Total time switched off, in milliseconds.
    pub off_ms: u64,
}

/// `GET /energy`: power and energy of the nodes that the head can switch. Each total is the sum over these nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnergyView {
    /// Values of each node.
    pub nodes: BTreeMap<NodeName, PowerView>,
    /// Current power of all these nodes, in watts.
    pub watts: u64,
    /// Energy that they have used, in watt-hours.
    pub watt_hours: u64,
    /// The measured part of `watt_hours`, in watt-hours.
    #[serde(default)]
    pub measured_watt_hours: u64,
    /// Energy saved by switching nodes off, in watt-hours.
    pub saved_watt_hours: u64,
    /// Why `power.toml` is not fully applied, if so.
    pub trouble: Option<String>,
}

/// Energy of a job: its share of each node's energy while it was placed there, by the share of CPUs it held.
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

/// `POST /nodes/{name}/power`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PowerRequest {
    /// Requested action.
    pub action: PowerAction,
    /// For `off`: switch off without asking the agent or the operating system.
    #[serde(default)]
    pub force: bool,
}

/// Action on a node's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PowerAction {
    /// Switch the node on.
    On,
    /// Switch the node off.
    Off,
    /// Query the power controller.
    Look,
}

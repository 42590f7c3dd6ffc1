//! Power, as the API speaks of it.

use std::collections::BTreeMap;

use hostler_model::{Energy, Gauge, NodeName, PowerState, Supply, WallTime};
use serde::{Deserialize, Serialize};

/// The power of a node that the head can switch, in [`NodeDetail`](crate::api::NodeDetail) and in [`EnergyView`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerView {
    /// Where it stands.
    pub state: PowerState,
    /// For how long, in milliseconds on the cluster's clock.
    pub for_ms: u64,
    /// Since when, milliseconds since the Unix epoch.
    pub since: WallTime,
    /// Why, for people.
    pub why: String,
    /// What its controller said last; absent when it has not answered since the head started.
    pub supply: Option<Supply>,
    /// How long ago that was, in milliseconds.
    pub supply_age_ms: Option<u64>,
    /// Why its controller could not do the last thing it was asked to, if it could not.
    pub fault: Option<String>,
    /// How long it takes from being switched on until its agent comes, in milliseconds: as learnt, or as configured.
    pub boot_ms: u64,
    /// How often that was seen; zero when it is the configured figure.
    pub boots: u32,
    /// How often it was switched on.
    pub starts: u64,
    /// How often it has failed since it last did what it was told.
    pub failures: u32,
    /// What it draws now, in watts.
    pub watts: u32,
    /// Who measures that; absent when it is estimated.
    #[serde(default)]
    pub gauge: Option<Gauge>,
    /// Estimates rest on assumed figures, because `power.toml` has none for this node.
    #[serde(default)]
    pub are_watts_assumed: bool,
    /// What it has drawn since the head knows of its power, in watt-hours.
    pub watt_hours: u64,
    /// What of that was measured. The rest is estimated.
    #[serde(default)]
    pub measured_watt_hours: u64,
    /// What it would have drawn had it never been switched off, in watt-hours.
    pub always_on_watt_hours: u64,
    /// How long it was off, in milliseconds.
    pub off_ms: u64,
}

/// `GET /energy`: what the nodes have drawn that the head can switch. Each figure for all of them is the sum of theirs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnergyView {
    /// By node.
    pub nodes: BTreeMap<NodeName, PowerView>,
    /// What all of them draw now, in watts.
    pub watts: u64,
    /// What they have drawn, in watt-hours.
    pub watt_hours: u64,
    /// What of that was measured.
    #[serde(default)]
    pub measured_watt_hours: u64,
    /// What switching off has saved, in watt-hours.
    pub saved_watt_hours: u64,
    /// Why `power.toml` is not followed as it is, if it is not.
    pub trouble: Option<String>,
}

/// What a job's nodes have drawn for it: the share of each node's CPUs that it held, from its placement on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEnergy {
    /// All of it, in joules.
    pub joules: u64,
    /// What of that was measured. The rest is estimated.
    pub measured_joules: u64,
}

impl From<Energy> for JobEnergy {
    fn from(energy: Energy) -> Self {
        Self { joules: energy.drawn_uj / 1_000_000, measured_joules: energy.measured_uj / 1_000_000 }
    }
}

/// `POST /nodes/{name}/power`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerRequest {
    /// What is wanted.
    pub action: PowerAction,
    /// For `off`: without asking its agent or its operating system.
    #[serde(default)]
    pub force: bool,
}

/// What an operator wants of a node's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerAction {
    /// That it is on.
    On,
    /// That it is off.
    Off,
    /// That its controller is asked how it is.
    Look,
}

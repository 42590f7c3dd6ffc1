//! Descriptions of leaves, as sent to shepherds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A leaf for the shepherd to create.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafSpec {
    /// Path in the unified hierarchy.
    pub path: PathBuf,
    /// Where its limits are applied.
    #[serde(default)]
    pub controllers: BTreeMap<Controller, Place>,
}

/// A cgroup controller, which enforces one kind of limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    Cpuset,
    Memory,
    Pids,
    /// Denied devices. With version 2, this is a BPF program instead of a controller.
    Devices,
}

impl Controller {
    pub const ALL: [Controller; 4] = [Controller::Cpuset, Controller::Memory, Controller::Pids, Controller::Devices];

    /// Name in the kernel.
    pub fn as_str(self) -> &'static str {
        match self {
            Controller::Cpuset => "cpuset",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Devices => "devices",
        }
    }
}

/// The group in which a controller's limits are applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the leaf itself.
    Unified,
    /// In this group of the controller's version 1 hierarchy.
    V1(PathBuf),
    /// Not available, for this reason.
    Missing(String),
}

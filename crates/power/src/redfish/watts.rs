//! What a machine draws, where its chassis says so and holds no other machine.

use std::sync::Arc;

use super::bodies::{Chassis, EnvironmentMetrics, Power, System};
use super::service::Service;
use crate::Fault;

/// Where it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meter {
    /// As of 2021.
    Metrics(String),
    /// Before, and in most machines that there are.
    Power(String),
    Absent,
}

impl Meter {
    /// Looks for the one of this system. None is found for now where there may be one that shows nothing just now.
    pub(super) async fn find(service: &Arc<Service>, system: &System) -> Result<Option<Self>, Fault> {
        let address = service.address();
        // Several chassis are a machine in a rack; the first one is its own.
        let Some(path) = system.links.chassis.first().and_then(|link| address.path_of(&link.path)) else {
            return Ok(Some(Self::Absent));
        };
        let chassis = service.find::<Chassis>(&path).await?.unwrap_or_default();
        let metrics = chassis.environment_metrics.and_then(|link| address.path_of(&link.path)).map(Self::Metrics);
        let power = chassis.power.and_then(|link| address.path_of(&link.path)).map(Self::Power);
        let meters: Vec<Self> = [metrics, power].into_iter().flatten().collect();
        if meters.is_empty() || chassis.links.computer_systems.len() > 1 {
            return Ok(Some(Self::Absent));
        }
        for meter in meters {
            if meter.read(service).await?.is_some() {
                return Ok(Some(meter));
            }
        }
        Ok(None)
    }

    /// What it shows now, in watts.
    pub(super) async fn read(&self, service: &Arc<Service>) -> Result<Option<f64>, Fault> {
        match self {
            Self::Metrics(path) => {
                Ok(service.find::<EnvironmentMetrics>(path).await?.and_then(|metrics| metrics.watts()))
            }
            Self::Power(path) => Ok(service.find::<Power>(path).await?.and_then(|power| power.watts())),
            Self::Absent => Ok(None),
        }
    }
}

//! Power draw of a machine, if its chassis reports it and contains no other machine.

use std::sync::Arc;

use super::bodies::{Chassis, EnvironmentMetrics, Power, System};
use super::service::Service;
use crate::Fault;

/// Where to read the power draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meter {
    /// Path of an `EnvironmentMetrics` resource, the format since 2021.
    Metrics(String),
    /// Path of a `Power` resource, the older and most common format.
    Power(String),
    Absent,
}

impl Meter {
    /// Finds the meter of a system. `None` if there are candidates, but none has a reading at the moment.
    pub(super) async fn find(service: &Arc<Service>, system: &System) -> Result<Option<Self>, Fault> {
        let address = service.address();
        // Several chassis mean a machine in a rack. The first one is the machine's own.
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

    /// The current reading in watts.
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

//! The limits that a launch requests for its leaf, and which of them are enforced.

use super::leaf::Leaf;
use super::limits::Limit;
use super::spec::{Controller, Place};
use crate::launch::Options;
use crate::record::{Enforcement, Limits};

/// The limits requested for a leaf.
pub(crate) fn limits_of(options: &Options) -> Vec<Limit> {
    let cpus = options.cpus.clone().map(Limit::Cpus);
    let memory = options.memory_limit_bytes.map(Limit::Memory);
    let devices = options.denied_devices.clone().map(Limit::Devices);
    [cpus, memory, options.process_limit.map(Limit::Processes), devices].into_iter().flatten().collect()
}

/// Which requested limits the kernel enforces. `otherwise` is the reason that is reported for limits that the leaf does
/// not have.
pub(crate) fn enforced_limits(options: &Options, leaf: Option<&Leaf>, otherwise: &str) -> Limits {
    let enforcement = |is_wanted: bool, controller| {
        let found = leaf.and_then(|leaf| leaf.enforcement(controller)).cloned();
        is_wanted.then(|| found.unwrap_or_else(|| Enforcement::Advisory(otherwise.to_owned())))
    };
    Limits {
        cpus: enforcement(options.cpus.is_some(), Controller::Cpuset),
        memory: enforcement(options.memory_limit_bytes.is_some(), Controller::Memory),
        processes: enforcement(options.process_limit.is_some(), Controller::Pids),
        devices: enforcement(options.denied_devices.is_some(), Controller::Devices),
    }
}

/// Why the requested device rule is not enforced, although the machine supports such rules; `None` if the rule is
/// enforced.
pub(crate) fn unenforced_device_rule<'a>(options: &Options, limits: &'a Limits) -> Option<&'a str> {
    let place = options.leaf.as_ref()?.controllers.get(&Controller::Devices)?;
    match (place, limits.devices.as_ref()?) {
        (Place::Missing(_), _) | (_, Enforcement::Enforced) => None,
        (_, Enforcement::Advisory(reason)) => Some(reason),
    }
}

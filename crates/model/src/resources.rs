//! The resources of a node or an allocation.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Counted, CpuSet, GpuId, Request, format_bytes};

/// The resources that a node offers, or that an allocation holds on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// CPU ids of the node.
    pub cpus: CpuSet,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// GPUs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub gpus: BTreeSet<GpuId>,
    /// Counted resources.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub counted: Counted,
}

impl Resources {
    /// Creates resources of CPUs and memory only.
    #[must_use]
    pub const fn new(cpus: CpuSet, memory_bytes: u64) -> Self {
        Self { cpus, memory_bytes, gpus: BTreeSet::new(), counted: Counted::NONE }
    }

    /// Creates resources of these CPUs and GPUs, and of the memory and counted resources in `request`.
    #[must_use]
    pub fn of_request(request: &Request, cpus: CpuSet, gpus: BTreeSet<GpuId>) -> Self {
        Self { cpus, memory_bytes: request.memory_bytes, gpus, counted: request.counted.clone() }
    }

    /// Returns the amount of each resource, without ids.
    #[must_use]
    pub fn counts(&self) -> Request {
        let gpus = u32::try_from(self.gpus.len()).unwrap_or(u32::MAX);
        Request { cpus: self.cpus.len(), memory_bytes: self.memory_bytes, gpus, counted: self.counted.clone() }
    }

    /// Returns whether these resources contain all of `part`.
    #[must_use]
    pub fn includes(&self, part: &Self) -> bool {
        self.cpus.is_superset(&part.cpus)
            && self.memory_bytes >= part.memory_bytes
            && (part.gpus.is_empty() || self.gpus.is_superset(&part.gpus))
            && self.counted.covers(&part.counted)
    }

    /// Removes `part`. Ignores anything in `part` that these resources do not contain.
    pub fn remove(&mut self, part: &Self) {
        self.cpus.remove_all(&part.cpus);
        self.memory_bytes = self.memory_bytes.saturating_sub(part.memory_bytes);
        part.gpus.iter().for_each(|gpu| _ = self.gpus.remove(gpu));
        if !part.counted.is_empty() {
            self.counted = self.counted.minus(&part.counted);
        }
    }

    /// Adds `part`.
    pub fn add(&mut self, part: &Self) {
        self.cpus.add_all(&part.cpus);
        self.memory_bytes = self.memory_bytes.saturating_add(part.memory_bytes);
        self.gpus.extend(part.gpus.iter().cloned());
        if !part.counted.is_empty() {
            self.counted = self.counted.plus(&part.counted);
        }
    }
}

/// The most that a node offers to jobs. An absent amount is all that the node has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Offer {
    /// Number of CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Number of GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Counted resources by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counted: BTreeMap<String, u64>,
}

impl Offer {
    /// Returns whether the node offers all that it has.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what a node offers of what it `has`.
    #[must_use]
    pub fn of(&self, has: &Request) -> Request {
        let withheld = self.counted.iter().filter_map(|(name, most)| {
            let rest = has.counted.count(name).saturating_sub(*most);
            (rest > 0).then(|| (name.clone(), rest))
        });
        let withheld: BTreeMap<String, u64> = withheld.collect();
        Request {
            cpus: has.cpus.min(self.cpus.unwrap_or(u32::MAX)),
            memory_bytes: has.memory_bytes.min(self.memory_bytes.unwrap_or(u64::MAX)),
            gpus: has.gpus.min(self.gpus.unwrap_or(u32::MAX)),
            counted: has.counted.minus(&Counted::try_from(withheld).unwrap_or_default()),
        }
    }

    /// Returns what this offers beyond what a node `has`, e.g. `8 CPUs, and the node has 4`; `None` if nothing.
    #[must_use]
    pub fn excess(&self, has: &Request) -> Option<String> {
        let least = |count, has, unit: &str| (count > has).then(|| format!("{count} {unit}, and the node has {has}"));
        let bytes = self.memory_bytes.filter(|bytes| *bytes > has.memory_bytes);
        let mut counted = self.counted.iter();
        least(self.cpus.unwrap_or(0).into(), has.cpus.into(), "CPUs")
            .or_else(|| {
                Some(format!("{} of memory, and the node has {}", format_bytes(bytes?), format_bytes(has.memory_bytes)))
            })
            .or_else(|| least(self.gpus.unwrap_or(0).into(), has.gpus.into(), "GPUs"))
            .or_else(|| {
                counted.find_map(|(name, count)| match has.counted.count(name) {
                    0 => Some(format!("{name}, which it does not have")),
                    has => least(*count, has, name),
                })
            })
    }
}

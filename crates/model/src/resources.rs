//! The resources of a node or an allocation.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Counted, CpuSet, GpuId, Request};

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

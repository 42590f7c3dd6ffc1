//! Nodes: what they have and whether they can be used.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Counted, CpuSet, GpuId, Request};

/// What a node has to give, or an allocation holds, on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// CPU ids, as the node numbers them.
    pub cpus: CpuSet,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// GPUs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub gpus: BTreeSet<GpuId>,
    /// What the node's configuration counts.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub counted: Counted,
}

impl Resources {
    /// CPUs and memory, and nothing else.
    #[must_use]
    pub const fn new(cpus: CpuSet, memory_bytes: u64) -> Self {
        Self { cpus, memory_bytes, gpus: BTreeSet::new(), counted: Counted::NONE }
    }

    /// How much it is.
    #[must_use]
    pub fn counts(&self) -> Request {
        let gpus = u32::try_from(self.gpus.len()).unwrap_or(u32::MAX);
        Request { cpus: self.cpus.len(), memory_bytes: self.memory_bytes, gpus, counted: self.counted.clone() }
    }

    /// Whether all of `part` is in it.
    #[must_use]
    pub fn includes(&self, part: &Self) -> bool {
        self.cpus.is_superset(&part.cpus)
            && self.memory_bytes >= part.memory_bytes
            && (part.gpus.is_empty() || self.gpus.is_superset(&part.gpus))
            && self.counted.covers(&part.counted)
    }

    /// Takes `part` out of it, as far as it is in it.
    pub fn remove(&mut self, part: &Self) {
        self.cpus.remove_all(&part.cpus);
        self.memory_bytes = self.memory_bytes.saturating_sub(part.memory_bytes);
        part.gpus.iter().for_each(|gpu| _ = self.gpus.remove(gpu));
        if !part.counted.is_empty() {
            self.counted = self.counted.minus(&part.counted);
        }
    }

    /// Puts `part` back.
    pub fn add(&mut self, part: &Self) {
        self.cpus.add_all(&part.cpus);
        self.memory_bytes = self.memory_bytes.saturating_add(part.memory_bytes);
        self.gpus.extend(part.gpus.iter().cloned());
        if !part.counted.is_empty() {
            self.counted = self.counted.plus(&part.counted);
        }
    }
}

/// What jobs cannot count on at a node, and why: limits that its kernel does not hold them to, mostly. `None` for what they can.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advisory {
    /// A job may use other CPUs than its own.
    pub cpus: Option<String>,
    /// A job may use more memory than it asked for.
    pub memory: Option<String>,
    /// A job may use other GPUs than its own; `None` also where there are none.
    #[serde(default)]
    pub gpus: Option<String>,
    /// Jobs of different users run as one, and are not protected from each other.
    #[serde(default)]
    pub users: Option<String>,
    /// Jobs of root do not start: nobody has allowed them.
    #[serde(default)]
    pub refuses_root: bool,
}

/// Whether a node can be given work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Its agent is connected.
    Up,
    /// Its agent has been silent for a short while: nothing new is placed, running jobs are left alone.
    Suspect,
    /// Its agent has been silent for so long that what can run again runs elsewhere; in the end its jobs are given up.
    Down,
    /// Its controller says that it is off. It is switched on when it is needed.
    Off,
    /// It is being switched on; its agent has not come yet, or may not be given work yet.
    Waking,
    /// It is being switched off: nothing new is placed, and nothing runs there.
    Stopping,
    /// An operator drains it: nothing new is placed, and tasks still run there.
    Draining,
    /// An operator has drained it, and nothing runs there any more.
    Drained,
    /// An operator has removed it: it is in no list any more and its certificate is worth nothing. Only notices say so.
    Removed,
}

impl NodeState {
    /// The word shown to people and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
            Self::Off => "off",
            Self::Waking => "waking",
            Self::Stopping => "stopping",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Removed => "removed",
        }
    }
}

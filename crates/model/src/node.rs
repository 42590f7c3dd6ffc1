//! Nodes: their resources and states.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{BootId, Counted, CpuSet, Digest, Feature, GpuId, Hardware, Request};

/// The facts that an agent reports about its node. The hello, the log and the state of the head hold them as one
/// value, so a new fact is one field here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The current boot of the machine.
    pub boot: BootId,
    /// Resources that the node offers.
    pub resources: Resources,
    /// Details of these resources.
    #[serde(default)]
    pub hardware: Hardware,
    /// Limits that the node cannot enforce.
    #[serde(default)]
    pub advisory: Advisory,
    /// Features of the node, for constraints.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// Address at which other nodes reach its jobs: the local address of the agent's connection to the head.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// UDP address for load gossip; absent if the node does not gossip. An unspecified IP address means the local
    /// address of the connection to the head.
    #[serde(default)]
    pub gossip_at: Option<SocketAddr>,
    /// BLAKE3 hash of its certificate for remote commands; absent if the node accepts none.
    #[serde(default)]
    pub call_key: Option<Digest>,
}

impl NodeFacts {
    /// A node with `resources` and no other facts.
    #[must_use]
    pub fn new(boot: &str, resources: Resources) -> Self {
        Self { boot: BootId(boot.to_owned()), resources, ..Self::default() }
    }
}

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
    /// What the node's configuration counts.
    #[serde(default, skip_serializing_if = "Counted::is_empty")]
    pub counted: Counted,
}

impl Resources {
    /// Only CPUs and memory.
    #[must_use]
    pub const fn new(cpus: CpuSet, memory_bytes: u64) -> Self {
        Self { cpus, memory_bytes, gpus: BTreeSet::new(), counted: Counted::NONE }
    }

    /// The requested memory and counted resources, with these CPUs and GPUs.
    #[must_use]
    pub fn of_request(request: &Request, cpus: CpuSet, gpus: BTreeSet<GpuId>) -> Self {
        Self { cpus, memory_bytes: request.memory_bytes, gpus, counted: request.counted.clone() }
    }

    /// The amounts.
    #[must_use]
    pub fn counts(&self) -> Request {
        let gpus = u32::try_from(self.gpus.len()).unwrap_or(u32::MAX);
        Request { cpus: self.cpus.len(), memory_bytes: self.memory_bytes, gpus, counted: self.counted.clone() }
    }

    /// Whether this contains all of `part`.
    #[must_use]
    pub fn includes(&self, part: &Self) -> bool {
        self.cpus.is_superset(&part.cpus)
            && self.memory_bytes >= part.memory_bytes
            && (part.gpus.is_empty() || self.gpus.is_superset(&part.gpus))
            && self.counted.covers(&part.counted)
    }

    /// Removes `part`, as far as it is contained.
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

/// Protections that a node does not provide, each with the reason; `None` where it does. Mostly limits that its kernel cannot enforce.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Advisory {
    /// Jobs can use CPUs of other jobs.
    pub cpus: Option<String>,
    /// Jobs can use more memory than requested.
    pub memory: Option<String>,
    /// Jobs can use GPUs of other jobs. `None` also without GPUs.
    #[serde(default)]
    pub gpus: Option<String>,
    /// All jobs run as one user and are not protected from each other.
    #[serde(default)]
    pub users: Option<String>,
    /// The node refuses jobs of root, because no one has allowed them.
    #[serde(default)]
    pub refuses_root: bool,
}

/// Whether a node can get work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Its agent is connected.
    Up,
    /// Its agent has been silent for a short time: it gets no new runs; running ones continue.
    Suspect,
    /// Its agent has been silent for long: runs that may run again move to other nodes, and later the rest is given up.
    Down,
    /// Its controller reports that it is off. The head switches it on when needed.
    Off,
    /// It is being switched on: its agent has not connected, or may not get work yet.
    Waking,
    /// It is being switched off: nothing runs there, and it gets no new runs.
    Stopping,
    /// An operator drains it: it gets no new runs, and some still run.
    Draining,
    /// An operator has drained it, and nothing runs there.
    Drained,
    /// An admin has removed it: it is in no list, and its certificate is revoked. Appears only in notices.
    Removed,
}

impl NodeState {
    /// The word in output and JSON.
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

//! What the head knows of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use hostler_model::{
    Advisory, BootId, Counted, CpuSet, Digest, Feature, Hardware, NodeName, NodeState, Request, Resources, RunId,
    Timestamp, WallTime,
};
use hostler_sched::NodeIx;
use serde::{Deserialize, Serialize};

use super::event::ConnectionId;
use super::settings::Settings;

/// A node. What it has is durable; whether it is connected ends with the head's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its number in the scheduler's pool: one more than the highest there was when it was first seen.
    pub ix: NodeIx,
    /// Its machine's last known boot.
    pub boot: BootId,
    /// What it has to give.
    pub resources: Resources,
    /// What is known of it beyond that.
    #[serde(default)]
    pub hardware: Hardware,
    /// Which limits it cannot hold jobs to.
    #[serde(default)]
    pub advisory: Advisory,
    /// What its agent says that it has.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// Where other nodes reach its jobs, as far as its agent has said.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Where it says that it gossips; `None` when it does not.
    #[serde(default)]
    pub gossip_at: Option<SocketAddr>,
    /// By what other nodes know it when they have a command for it; `None` when it takes none.
    #[serde(default)]
    pub call_key: Option<Digest>,
    /// The runs placed on it and what each holds.
    pub runs: BTreeMap<RunId, Resources>,
    /// An operator wants nothing new placed here.
    #[serde(default)]
    pub drain: Option<Drain>,
    /// Its runs were given up and it has not been heard of since.
    pub given_up: bool,
    /// Its agent's connection.
    #[serde(skip)]
    pub link: Option<Link>,
    /// Which limits of silence it has passed.
    #[serde(skip)]
    pub silence: Silence,
    /// When it was last heard, or when this head started.
    #[serde(skip)]
    pub last_heard: Timestamp,
}

/// Which limits of silence a node has passed; the last one is [`Node::given_up`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Silence {
    /// None.
    #[default]
    Short,
    /// Silent for too long to be given work.
    Suspect,
    /// Silent for so long that it counts as down.
    Down,
}

/// An operator's wish that nothing new be placed on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Who wanted it.
    pub by: String,
    /// Why, in their words.
    pub reason: Option<String>,
    /// When.
    pub at: WallTime,
}

/// An agent's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub connection: ConnectionId,
    /// The agent's process id.
    pub pid: u32,
    /// The agent's release.
    pub version: String,
}

impl Node {
    /// A node of which nothing is known but that there is one.
    pub(super) fn new(name: NodeName, ix: NodeIx, now: Timestamp) -> Self {
        Self {
            name,
            ix,
            boot: BootId(String::new()),
            resources: Resources::default(),
            hardware: Hardware::default(),
            advisory: Advisory::default(),
            features: BTreeSet::new(),
            address: None,
            gossip_at: None,
            call_key: None,
            runs: BTreeMap::new(),
            drain: None,
            given_up: false,
            link: None,
            silence: Silence::Short,
            last_heard: now,
        }
    }

    /// Whether it can be given work. That it is lost matters more than that it is drained: [`Node::drain`] says so as well.
    #[must_use]
    pub fn state(&self) -> NodeState {
        match (&self.link, self.given_up, self.silence) {
            (_, true, _) | (_, false, Silence::Down) => NodeState::Down,
            (Some(_), false, Silence::Short) => match &self.drain {
                None => NodeState::Up,
                Some(_) if self.runs.is_empty() => NodeState::Drained,
                Some(_) => NodeState::Draining,
            },
            (None, false, Silence::Short) | (_, false, Silence::Suspect) => NodeState::Suspect,
        }
    }

    /// Whether it has not been silent for long.
    pub(super) fn is_expected_back(&self) -> bool {
        !self.given_up && self.silence == Silence::Short
    }

    /// When it will have passed its next limit of silence unless it is heard; `None` when there is none left to pass.
    pub(super) fn next_limit(&self, settings: &Settings) -> Option<Timestamp> {
        let limit_ms = match self.silence {
            _ if self.given_up => return None,
            Silence::Short => settings.suspect_after_ms,
            Silence::Suspect => settings.down_after_ms,
            Silence::Down => settings.lost_after_ms,
        };
        Some(self.last_heard.plus_ms(limit_ms))
    }

    /// CPUs that no run holds.
    #[must_use]
    pub fn free_cpus(&self) -> CpuSet {
        let mut free = self.resources.cpus.clone();
        self.runs.values().for_each(|held| free.remove_all(&held.cpus));
        free
    }

    /// Memory that no run holds, in bytes.
    #[must_use]
    pub fn free_memory_bytes(&self) -> u64 {
        let held: u64 = self.runs.values().map(|held| held.memory_bytes).sum();
        // A node may come back smaller than the runs that it still holds.
        self.resources.memory_bytes.saturating_sub(held)
    }

    /// What no run holds.
    #[must_use]
    pub fn free_resources(&self) -> Resources {
        let mut free = self.resources.clone();
        // A node may come back smaller than the runs that it still holds.
        self.runs.values().for_each(|held| free.remove(held));
        free
    }

    /// GPUs that no run holds.
    #[must_use]
    pub fn free_gpus(&self) -> u32 {
        let held = self.runs.values().flat_map(|held| &held.gpus).filter(|gpu| self.resources.gpus.contains(gpu));
        self.resources.counts().gpus - held.count() as u32
    }

    /// What no run holds of what its configuration counts.
    #[must_use]
    pub fn free_counted(&self) -> Counted {
        let held = self.runs.values().map(|held| &held.counted).filter(|counted| !counted.is_empty());
        held.fold(self.resources.counted.clone(), |free, held| free.minus(held))
    }

    /// What it has in all, as counts.
    pub(super) fn total(&self) -> Request {
        self.resources.counts()
    }

    /// What no run holds, as counts.
    pub(super) fn free(&self) -> Request {
        Request {
            cpus: self.free_cpus().len(),
            memory_bytes: self.free_memory_bytes(),
            gpus: self.free_gpus(),
            counted: self.free_counted(),
        }
    }
}

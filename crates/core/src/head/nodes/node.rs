//! A node in the head's state.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{NodeFacts, NodeName, NodeState, Offer, Request, Resources, RunId, Timestamp, WallTime};
use hostler_sched::NodeIx;
use serde::{Deserialize, Serialize};

use crate::head::ids::{ConnectionId, Now};
use crate::head::settings::Settings;
use crate::link::LONGEST_RETURN;

/// A node as the head knows it. The inventory is durable; the connection is not, and ends with the head's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Node {
    /// The node's name.
    pub name: NodeName,
    /// The node's index in the scheduler's pool: one more than the highest index when the node was first seen.
    pub ix: NodeIx,
    /// The facts that the node's agent reported last.
    pub facts: NodeFacts,
    /// The most that the node offers, as operators have set it.
    #[serde(skip)]
    pub(in crate::head) offer: Offer,
    /// The runs placed on the node, with the resources of each.
    pub runs: BTreeMap<RunId, Resources>,
    /// Who drains the node, and why; `None` unless an operator has drained it.
    #[serde(default)]
    pub drain: Option<Drain>,
    /// Runs of jobs that this head does not know, because an older backup was restored. They continue until an operator
    /// resumes the node.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unknown_runs: BTreeSet<RunId>,
    /// Whether the head has given up the node's runs, and the node has been silent since.
    pub given_up: bool,
    /// When the last message of a given-up node arrived, on the wall clock.
    #[serde(default)]
    pub silent_since: Option<WallTime>,
    /// Whether operators know that the node is down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reported_down: bool,
    /// The connection of the node's agent; `None` while it is not connected.
    #[serde(skip)]
    pub link: Option<Link>,
    /// The newest connection on which the node's agent has said hello to this head process.
    #[serde(skip)]
    pub(in crate::head) newest_connection: Option<ConnectionId>,
    /// The silence limits that the node has passed.
    #[serde(skip)]
    pub silence: Silence,
    /// When the node's last message arrived, or when this head started.
    #[serde(skip)]
    pub last_heard: Timestamp,
    /// Whether the node's agent has not returned since the start of this head.
    #[serde(skip)]
    pub(in crate::head) is_awaited: bool,
}

/// The silence limits that a node has passed; the last limit sets [`Node::given_up`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Silence {
    /// The node has passed no limit.
    #[default]
    Short,
    /// The node is silent for `suspect-after`: it gets no new work.
    Suspect,
    /// The node is silent for `down-after`: it counts as down.
    Down,
}

/// An operator's request to place nothing new on a node until an operator resumes the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The operator's name.
    pub by: String,
    /// The reason, in the operator's words.
    pub reason: Option<String>,
    /// When the drain began.
    pub at: WallTime,
}

/// An open connection of an agent, and what the agent's hello said about the agent's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The connection's id.
    pub connection: ConnectionId,
    /// The agent's process id.
    pub pid: u32,
    /// The agent's release.
    pub version: String,
    /// When the agent connected.
    pub since: WallTime,
}

impl Node {
    /// Creates a node of which only the name is known.
    pub(in crate::head) fn new(name: NodeName, ix: NodeIx, now: Timestamp) -> Self {
        Self {
            name,
            ix,
            facts: NodeFacts::default(),
            offer: Offer::default(),
            runs: BTreeMap::new(),
            drain: None,
            unknown_runs: BTreeSet::new(),
            given_up: false,
            silent_since: None,
            is_reported_down: false,
            link: None,
            newest_connection: None,
            silence: Silence::Short,
            last_heard: now,
            is_awaited: false,
        }
    }

    /// Whether an agent has ever connected as this node. Otherwise the node is only expected, by the power plan.
    pub(in crate::head) fn has_connected(&self) -> bool {
        !self.facts.boot.0.is_empty()
    }

    /// Returns whether the node can get work. Down takes precedence over drained; [`Node::drain`] still shows the
    /// drain.
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

    /// Returns since when the node is in its [state](Self::state), if that is known.
    #[must_use]
    pub fn since(&self, now: Now) -> Option<WallTime> {
        match (self.state(), &self.link, &self.drain) {
            (NodeState::Up, Some(link), _) => Some(link.since),
            (NodeState::Draining | NodeState::Drained, _, Some(drain)) => Some(drain.at),
            (NodeState::Suspect | NodeState::Down, ..) => {
                Some(self.silent_since.unwrap_or_else(|| now.wall_at(self.last_heard)))
            }
            _ => None,
        }
    }

    /// Returns whether the node has passed no silence limit, so a lost connection may soon come back.
    pub(in crate::head) fn is_within_limits(&self) -> bool {
        !self.given_up && self.silence == Silence::Short
    }

    /// Returns when the node passes its next silence limit if it sends no message; `None` after the last limit.
    pub(in crate::head) fn next_limit(&self, settings: &Settings) -> Option<Timestamp> {
        let limit_ms = match self.silence {
            _ if self.given_up => return None,
            // A job must not run twice because the head was away, and its agent has not returned yet.
            Silence::Short if self.is_awaited => settings.suspect_after_ms + LONGEST_RETURN.as_millis() as u64,
            Silence::Short => settings.suspect_after_ms,
            Silence::Suspect => settings.down_after_ms,
            Silence::Down => settings.lost_after_ms,
        };
        Some(self.last_heard.plus_ms(limit_ms))
    }

    /// Returns the resources that no run holds, also those that the node does not offer.
    #[must_use]
    pub fn free_resources(&self) -> Resources {
        let mut free = self.facts.resources.clone();
        // A returning node may have fewer resources than its runs still hold.
        self.runs.values().for_each(|held| free.remove(held));
        free
    }

    /// Returns all resources that the node offers as counts, without ids.
    #[must_use]
    pub fn total(&self) -> Request {
        self.offer.of(&self.facts.resources.counts())
    }

    /// Returns the offered resources that no run holds as counts, without ids.
    #[must_use]
    pub fn free(&self) -> Request {
        let free = self.free_resources().counts();
        if self.offer.is_all() {
            return free;
        }
        let (has, offered) = (self.facts.resources.counts(), self.total());
        let withheld = has.counted.minus(&offered.counted);
        Request {
            cpus: free.cpus.saturating_sub(has.cpus - offered.cpus),
            memory_bytes: free.memory_bytes.saturating_sub(has.memory_bytes - offered.memory_bytes),
            gpus: free.gpus.saturating_sub(has.gpus - offered.gpus),
            counted: free.counted.minus(&withheld),
        }
    }
}

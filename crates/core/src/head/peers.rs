//! Peers: the nodes that gossip with each other about their load.
//!
//! What they share changes whenever an operator removes a node. An agent that cannot hear of that falls silent to the others until it can.
//!
//! Who they are is what agents have said with their hello; each learns of the others from the head. That something has changed is said to
//! all of them a moment later, once for everything that changes in that time: many nodes may come at once, and each asks for all.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use hostler_model::{Digest, Feature, Timestamp};
use hostler_proto::link::HeadMessage;

use super::event::{Changes, Effect};
use super::node::Node;
use super::state::State;

/// How long after a change it is said, in milliseconds.
const GATHER_MS: u64 = 1_000;

/// Whether there is something to say.
#[derive(Debug, Clone, Default)]
pub(super) struct Peers {
    /// When it is to be said.
    due: Option<Timestamp>,
}

impl Peers {
    /// When there is something to say.
    pub(super) const fn due(&self) -> Option<Timestamp> {
        self.due
    }

    pub(super) fn are_due(&self, now: Timestamp) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// A node has said where it gossips, by what others know it, and what it has.
    pub(super) fn seen(
        &mut self,
        before: Option<&Node>,
        (address, at, call_key): (Option<IpAddr>, Option<SocketAddr>, Option<Digest>),
        features: &BTreeSet<Feature>,
        now: Timestamp,
    ) {
        let known = before.filter(|node| node.gossip_at.is_some());
        let is_same = known.is_some_and(|node| {
            (node.address, node.gossip_at, node.call_key) == (address, at, call_key) && node.features == *features
        });
        if !is_same && (known.is_some() || at.is_some()) {
            self.changed(now);
        }
    }

    /// A node that may have gossiped is gone, or something else about the nodes that do is new.
    pub(super) fn changed(&mut self, now: Timestamp) {
        self.due.get_or_insert(now.plus_ms(GATHER_MS));
    }
}

impl Node {
    /// Where it gossips.
    #[must_use]
    pub fn gossip_address(&self) -> Option<SocketAddr> {
        let at = self.gossip_at?;
        let ip = if at.ip().is_unspecified() { self.address? } else { at.ip() };
        Some(SocketAddr::new(ip, at.port()))
    }
}

/// Tells all that gossip and are connected.
pub(super) fn tell_peers(state: &mut State, changes: &mut Changes) {
    state.peers.due = None;
    let links = state.nodes.values().filter(|node| node.gossip_at.is_some()).filter_map(|node| node.link.as_ref());
    let tell =
        |link: &super::node::Link| Effect::Send { connection: link.connection, message: HeadMessage::PeersChanged };
    changes.effects.extend(links.map(tell));
}

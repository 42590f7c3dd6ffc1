//! Peers: the nodes that exchange their load by gossip.
//!
//! The key that they share changes whenever an operator removes a node. An agent that misses the change cannot take part until it gets
//! the new key.
//!
//! Each node reports its gossip address in its hello and learns the other peers from the head. After a change, the head waits a moment
//! and then notifies all peers once: many nodes may join together, and each peer requests the whole list.

use std::net::SocketAddr;

use hostler_model::{NodeFacts, Timestamp};

use super::node::Node;

/// The delay between a change of peers and the notification, in milliseconds. Changes during the delay share one
/// notification.
const GATHER_MS: u64 = 1_000;

/// The timer for notifying the gossiping nodes about a change of their peers.
#[derive(Debug, Clone, Default)]
pub(in crate::head) struct Peers {
    /// When to send the notification; `None` if nothing changed.
    pub(in crate::head) due: Option<Timestamp>,
}

impl Peers {
    /// Returns when the next notification is due; `None` if no change is pending.
    pub(in crate::head) const fn due(&self) -> Option<Timestamp> {
        self.due
    }

    pub(in crate::head) fn are_due(&self, now: Timestamp) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Handles a hello. Schedules a notification if the node's gossip address, key or features have changed.
    pub(in crate::head) fn seen(&mut self, before: Option<&Node>, facts: &NodeFacts, now: Timestamp) {
        let shared = |facts: &NodeFacts| (facts.address, facts.gossip_at, facts.call_key);
        let known = before.map(|node| &node.facts).filter(|facts| facts.gossip_at.is_some());
        let is_same = known.is_some_and(|known| shared(known) == shared(facts) && known.features == facts.features);
        if !is_same && (known.is_some() || facts.gossip_at.is_some()) {
            self.changed(now);
        }
    }

    /// Schedules a notification about a change, e.g. the removal of a peer.
    pub(in crate::head) fn changed(&mut self, now: Timestamp) {
        self.due.get_or_insert(now.plus_ms(GATHER_MS));
    }
}

impl Node {
    /// Returns the address at which the node gossips.
    #[must_use]
    pub fn gossip_address(&self) -> Option<SocketAddr> {
        let at = self.facts.gossip_at?;
        let ip = if at.ip().is_unspecified() { self.facts.address? } else { at.ip() };
        Some(SocketAddr::new(ip, at.port()))
    }
}

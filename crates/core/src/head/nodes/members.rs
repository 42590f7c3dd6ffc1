//! Membership: the keys with which each node may connect.
//!
//! A certificate contains only a name. The head's state decides whether it is valid, by the fingerprint of its public key. So removing
//! or replacing a node takes effect at once, without revocation lists. A key's age is measured on the cluster's clock; the wall clocks
//! of head and nodes do not matter.
//!
//! A node has one key, or two during a renewal: the old key stays valid until the new one is used. So a crash or a lost answer at any
//! point of the renewal cuts neither side off.

use hostler_model::{Digest, NodeName, NodeState, Timestamp};

use super::member::{KEY_LIFE_MS, Key, KeyRefusal, Member};
use super::node::Node;
use crate::head::command::{Refusal, Replaces};
use crate::head::event::Event;
use crate::head::ids::Now;
use crate::head::state::State;

impl State {
    /// A node that has joined, by name.
    #[must_use]
    pub fn member(&self, name: &NodeName) -> Option<&Member> {
        self.members.get(name)
    }

    /// Checks whether a node may connect with this key now.
    ///
    /// # Errors
    /// The reason and the remedy, if it may not.
    pub fn check_key(&self, name: &NodeName, key: Digest, now: Timestamp) -> Result<(), KeyRefusal> {
        let Some(member) = self.members.get(name) else {
            // The node joined before the head stored keys: accept the certificate this once and store its key.
            let was_here = self.nodes.get(name).is_some_and(Node::has_connected);
            return if was_here { Ok(()) } else { Err(KeyRefusal::NotAMember(name.clone())) };
        };
        let mut keys = std::iter::once(&member.key).chain(&member.next);
        let known = keys.find(|known| known.key == key).ok_or_else(|| KeyRefusal::Replaced(name.clone()))?;
        if known.is_expired(now) {
            let age_ms = now.ms_since(known.issued_at);
            return Err(KeyRefusal::Expired { node: name.clone(), age_ms, life_ms: known.life_ms });
        }
        Ok(())
    }

    /// Whether another machine may take the node's place without loss: it is down or off, and nothing can run there.
    fn is_away(&self, node: &Node) -> bool {
        let is_silent = matches!(self.node_state(node), NodeState::Down | NodeState::Off | NodeState::Waking);
        is_silent && node.link.is_none() && node.runs.is_empty() && node.unknown_runs.is_empty()
    }

    /// The time after which a node with this key should request the next one, in milliseconds.
    #[must_use]
    pub fn renew_in_ms(&self, name: &NodeName, key: Digest, now: Timestamp) -> Option<u64> {
        let member = self.members.get(name)?;
        let known = std::iter::once(&member.key).chain(&member.next).find(|known| known.key == key)?;
        Some(known.renew_in_ms(now))
    }

    /// Adds a node with this key as its only one.
    pub(in crate::head) fn admit(&mut self, name: &NodeName, key: Key) {
        self.members.insert(name.clone(), Member { key, next: None });
    }

    /// Stores the renewed key of a node.
    pub(in crate::head) fn renew_key(&mut self, name: &NodeName, key: Key) {
        let member = self.members.get_mut(name).expect("the event was decided for a member");
        member.next = Some(key);
    }

    /// Drops the old key after the new one was used.
    pub(in crate::head) fn use_key(&mut self, name: &NodeName) {
        let member = self.members.get_mut(name).expect("the event was decided for a member");
        member.key = member.next.take().expect("the event was decided for a key that was renewed");
    }

    /// Revokes all keys of a node.
    pub(in crate::head) fn expel(&mut self, name: &NodeName) {
        self.members.remove(name);
        self.partitions.forget_node(name);
    }
}

/// A machine with a valid invitation joins. Idempotent for a retry with the same key.
pub(in crate::head) fn decide_join(
    state: &State,
    node: &NodeName,
    key: Digest,
    life_ms: u64,
    replaces: Replaces,
) -> Result<Vec<Event>, Refusal> {
    if state.member(node).is_some_and(|member| member.key.key == key) {
        return Ok(Vec::new());
    }
    // A node that the power plan only expects is new.
    let present = state.node(node).filter(|node| node.has_connected());
    match replaces {
        _ if present.is_none() && state.member(node).is_none() => {
            if let Some(user) = state.user_named_after(node) {
                return Err(Refusal::NameOfUser { node: node.clone(), user: user.clone() });
            }
        }
        Replaces::Nothing => return Err(Refusal::NameTaken(node.clone())),
        Replaces::Away if present.is_some_and(|node| !state.is_away(node)) => {
            return Err(Refusal::NodePresent(node.clone()));
        }
        Replaces::Away | Replaces::Any => {}
    }
    Ok(vec![Event::NodeJoined { node: node.clone(), key, life_ms }])
}

/// The events of an agent that connects with this key.
pub(in crate::head) fn decide_key(
    state: &State,
    node: &NodeName,
    key: Digest,
    now: Now,
) -> Result<Vec<Event>, KeyRefusal> {
    state.check_key(node, key, now.at)?;
    Ok(match state.member(node) {
        None => vec![Event::NodeJoined { node: node.clone(), key, life_ms: KEY_LIFE_MS }],
        Some(member) if member.next.is_some_and(|next| next.key == key) => vec![Event::KeyUsed { node: node.clone() }],
        Some(_) => Vec::new(),
    })
}

/// An agent requests a certificate for a new key. If its current key was the renewed one, the old key is dropped.
pub(in crate::head) fn decide_renewal(
    state: &State,
    node: &NodeName,
    with: Digest,
    key: Digest,
    life_ms: u64,
    now: Now,
) -> Result<Vec<Event>, KeyRefusal> {
    let mut events = decide_key(state, node, with, now)?;
    if with != key {
        events.push(Event::KeyRenewed { node: node.clone(), key, life_ms });
    }
    Ok(events)
}

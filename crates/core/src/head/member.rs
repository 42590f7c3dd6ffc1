//! Membership: the keys with which each node may connect.
//!
//! A certificate contains only a name. The head's state decides whether it is valid, by the fingerprint of its public key. So removing
//! or replacing a node takes effect at once, without revocation lists. A key's age is measured on the cluster's clock; the wall clocks
//! of head and nodes do not matter.
//!
//! A node has one key, or two during a renewal: the old key stays valid until the new one is used. So a crash or a lost answer at any
//! point of the renewal cuts neither side off.

use std::time::Duration;

use hostler_model::{Digest, NodeName, Timestamp, format_duration};
use serde::{Deserialize, Serialize};

use super::command::Refusal;
use super::event::{Event, Now};
use super::state::State;

/// Default lifetime of a node's key, in milliseconds. The lifetime limits how long an unnoticed copy of a key is
/// useful; to revoke a key at once, remove the node. The default is long because a machine may stay off for months.
pub const KEY_LIFE_MS: u64 = 365 * 24 * 3600 * 1000;

/// The keys of a node that has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The key that the node uses.
    pub key: Key,
    /// A renewed key that the node has not used yet.
    pub next: Option<Key>,
}

/// A node's key as the head stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The fingerprint of the public key: the BLAKE3 hash of the key in DER.
    pub key: Digest,
    /// When the head issued the key's certificate, on the cluster's clock.
    pub issued_at: Timestamp,
    /// How long the key is valid, in milliseconds.
    pub life_ms: u64,
}

/// Why the head refuses a node's connection. The agent logs the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwelcome {
    /// The node is not a member: it was removed, or joined a cluster whose state is lost.
    #[error(
        "node {0} is not in this cluster: it was removed, or the head has lost its state; to add it again, run \
         `hostler node invite {0}` at the head and `hostler agent join` with that code on the node"
    )]
    NotAMember(NodeName),
    /// The node has a different key now, because it was renewed or another machine joined under the node's name.
    #[error(
        "the certificate of node {0} was replaced by a newer one, of this machine or of another that joined under its name; if this \
        machine should be {0}, run `hostler node invite {0}` at the head and `hostler agent join` with that code here"
    )]
    Replaced(NodeName),
    /// The node's certificate has expired, because its agent did not renew it in time.
    #[error(
        "the certificate of node {node} has expired: it was valid for {} and is {} old by the cluster's clock; run \
         `hostler node invite {node}` at the head and `hostler agent join` with that code on the node",
        format_duration(Duration::from_millis(*.life_ms)), format_duration(Duration::from_millis(*.age_ms))
    )]
    Expired {
        /// The refused node.
        node: NodeName,
        /// The age of the key, in milliseconds.
        age_ms: u64,
        /// The lifetime of the key, in milliseconds.
        life_ms: u64,
    },
}

impl Key {
    /// Returns the time until the key should be renewed, in milliseconds: when two thirds of its lifetime are over.
    #[must_use]
    pub fn renew_in_ms(&self, now: Timestamp) -> u64 {
        (self.life_ms / 3 * 2).saturating_sub(now.ms_since(self.issued_at))
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        now.ms_since(self.issued_at) > self.life_ms
    }
}

impl State {
    /// Returns the keys of a node by its name; `None` if no node of this name has joined.
    #[must_use]
    pub fn member(&self, name: &NodeName) -> Option<&Member> {
        self.members.get(name)
    }

    /// Checks whether a node may connect with this key now.
    ///
    /// # Errors
    /// When the node may not connect. The text gives the reason and the remedy.
    pub fn welcomes(&self, name: &NodeName, key: Digest, now: Timestamp) -> Result<(), Unwelcome> {
        let Some(member) = self.members.get(name) else {
            // The node joined before the head stored keys: accept the certificate this once and store its key.
            return if self.nodes.contains_key(name) { Ok(()) } else { Err(Unwelcome::NotAMember(name.clone())) };
        };
        let mut keys = std::iter::once(&member.key).chain(&member.next);
        let known = keys.find(|known| known.key == key).ok_or_else(|| Unwelcome::Replaced(name.clone()))?;
        if known.is_expired(now) {
            let age_ms = now.ms_since(known.issued_at);
            return Err(Unwelcome::Expired { node: name.clone(), age_ms, life_ms: known.life_ms });
        }
        Ok(())
    }

    /// Returns the time after which a node with this key should request a new one, in milliseconds.
    #[must_use]
    pub fn renew_in_ms(&self, name: &NodeName, key: Digest, now: Timestamp) -> Option<u64> {
        let member = self.members.get(name)?;
        let known = std::iter::once(&member.key).chain(&member.next).find(|known| known.key == key)?;
        Some(known.renew_in_ms(now))
    }

    /// Makes this key the only valid key of the node.
    pub(super) fn admit(&mut self, name: &NodeName, key: Key) {
        self.members.insert(name.clone(), Member { key, next: None });
    }

    /// Stores the renewed key of a node.
    pub(super) fn renew_key(&mut self, name: &NodeName, key: Key) {
        let member = self.members.get_mut(name).expect("the event was decided for a member");
        member.next = Some(key);
    }

    /// Replaces the node's key with the renewed key, which the node has just used.
    pub(super) fn use_key(&mut self, name: &NodeName) {
        let member = self.members.get_mut(name).expect("the event was decided for a member");
        member.key = member.next.take().expect("the event was decided for a key that was renewed");
    }

    /// Revokes all keys of a node.
    pub(super) fn expel(&mut self, name: &NodeName) {
        self.members.remove(name);
        self.partitions.forget_node(name);
    }
}

/// Decides the join of a machine with a valid invitation. A retry with the same key changes nothing.
pub(super) fn decide_join(
    state: &State,
    node: &NodeName,
    key: Digest,
    life_ms: u64,
    may_replace: bool,
) -> Result<Vec<Event>, Refusal> {
    match state.member(node) {
        Some(member) if member.key.key == key => return Ok(Vec::new()),
        Some(_) if !may_replace => return Err(Refusal::NameTaken(node.clone())),
        None if !may_replace && state.node(node).is_some() => return Err(Refusal::NameTaken(node.clone())),
        Some(_) | None => {}
    }
    Ok(vec![Event::NodeJoined { node: node.clone(), key, life_ms }])
}

/// Returns the events that follow when an agent connects with this key; refuses an invalid key.
pub(super) fn decide_key(state: &State, node: &NodeName, key: Digest, now: Now) -> Result<Vec<Event>, Unwelcome> {
    state.welcomes(node, key, now.at)?;
    Ok(match state.member(node) {
        None => vec![Event::NodeJoined { node: node.clone(), key, life_ms: KEY_LIFE_MS }],
        Some(member) if member.next.is_some_and(|next| next.key == key) => vec![Event::KeyUsed { node: node.clone() }],
        Some(_) => Vec::new(),
    })
}

/// Decides an agent's request for a certificate for a new key. If the agent connects with its renewed key, the previous
/// key is revoked.
pub(super) fn decide_renewal(
    state: &State,
    node: &NodeName,
    with: Digest,
    key: Digest,
    life_ms: u64,
    now: Now,
) -> Result<Vec<Event>, Unwelcome> {
    let mut events = decide_key(state, node, with, now)?;
    if with != key {
        events.push(Event::KeyRenewed { node: node.clone(), key, life_ms });
    }
    Ok(events)
}

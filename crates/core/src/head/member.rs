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

/// Default lifetime of a key, in milliseconds. To revoke a lost key, remove its node. The lifetime protects against losses that
/// go unnoticed. It is long, since a machine may stay off for months.
pub const KEY_LIFE_MS: u64 = 365 * 24 * 3600 * 1000;

/// A node that has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The current key.
    pub key: Key,
    /// A renewed key that the node has not used yet.
    pub next: Option<Key>,
}

/// A node's key as the head stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The fingerprint of the public key: the BLAKE3 hash of its DER encoding.
    pub key: Digest,
    /// When its certificate was issued.
    pub issued_at: Timestamp,
    /// How long the key is valid, in milliseconds.
    pub life_ms: u64,
}

/// Why a node may not connect. The agent logs the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwelcome {
    /// The node is not a member: it was removed, or joined a cluster whose state is lost.
    #[error(
        "node {0} is not in this cluster: it was removed, or the head has lost its state; to add it again, run \
         `hostler node invite {0}` at the head and `hostler agent join` with that code on the node"
    )]
    NotAMember(NodeName),
    /// The name has another key now.
    #[error(
        "the certificate of node {0} was replaced by a newer one, of this machine or of another that joined under its name; if this \
        machine should be {0}, run `hostler node invite {0}` at the head and `hostler agent join` with that code here"
    )]
    Replaced(NodeName),
    /// The certificate was not renewed in time.
    #[error(
        "the certificate of node {node} has expired: it was valid for {} and is {} old by the cluster's clock; run \
         `hostler node invite {node}` at the head and `hostler agent join` with that code on the node",
        format_duration(Duration::from_millis(*.life_ms)), format_duration(Duration::from_millis(*.age_ms))
    )]
    Expired {
        /// The node.
        node: NodeName,
        /// The age of the key, in milliseconds.
        age_ms: u64,
        /// The lifetime of the key, in milliseconds.
        life_ms: u64,
    },
}

impl Key {
    /// The time until two thirds of the key's lifetime are over, in milliseconds: then it should be renewed.
    #[must_use]
    pub fn renew_in_ms(&self, now: Timestamp) -> u64 {
        (self.life_ms / 3 * 2).saturating_sub(now.ms_since(self.issued_at))
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        now.ms_since(self.issued_at) > self.life_ms
    }
}

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

    /// The time after which a node with this key should request the next one, in milliseconds.
    #[must_use]
    pub fn renew_in_ms(&self, name: &NodeName, key: Digest, now: Timestamp) -> Option<u64> {
        let member = self.members.get(name)?;
        let known = std::iter::once(&member.key).chain(&member.next).find(|known| known.key == key)?;
        Some(known.renew_in_ms(now))
    }

    /// Adds a node with this key as its only one.
    pub(super) fn admit(&mut self, name: &NodeName, key: Key) {
        self.members.insert(name.clone(), Member { key, next: None });
    }

    /// Stores the renewed key of a node.
    pub(super) fn renew_key(&mut self, name: &NodeName, key: Key) {
        let member = self.members.get_mut(name).expect("the event was decided for a member");
        member.next = Some(key);
    }

    /// Drops the old key after the new one was used.
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

/// A machine with a valid invitation joins. Idempotent for a retry with the same key.
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

/// The events of an agent that connects with this key.
pub(super) fn decide_key(state: &State, node: &NodeName, key: Digest, now: Now) -> Result<Vec<Event>, Unwelcome> {
    state.welcomes(node, key, now.at)?;
    Ok(match state.member(node) {
        None => vec![Event::NodeJoined { node: node.clone(), key, life_ms: KEY_LIFE_MS }],
        Some(member) if member.next.is_some_and(|next| next.key == key) => vec![Event::KeyUsed { node: node.clone() }],
        Some(_) => Vec::new(),
    })
}

/// An agent requests a certificate for a new key. If its current key was the renewed one, the old key is dropped.
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

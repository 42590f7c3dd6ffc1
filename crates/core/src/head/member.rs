//! Membership: which keys a node may come with.
//!
//! A certificate says nothing but a name; whether it is good is written here, by the fingerprint of its public key. So a node is
//! removed or replaced at once, without lists that somebody must fetch, and how old a key may be is judged on the cluster's clock:
//! no wall clock has a say, neither the head's nor the node's.
//!
//! A node has one key, and for a while two: when a key is renewed, the one before stays good until the new one has been used, so that
//! neither side can be cut off by a crash or a lost answer at any point in between.

use std::time::Duration;

use hostler_model::{Digest, NodeName, Timestamp, format_duration};
use serde::{Deserialize, Serialize};

use super::command::Refusal;
use super::event::{Event, Now};
use super::state::State;

/// How long a key is good for unless an operator says otherwise, in milliseconds. A key that is lost is revoked at once by removing its
/// node; that keys end at all is for those that were lost unnoticed. A machine may well stand switched off for a season.
pub const KEY_LIFE_MS: u64 = 365 * 24 * 3600 * 1000;

/// A node that has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The key that it uses.
    pub key: Key,
    /// The key that it was given and has not used yet.
    pub next: Option<Key>,
}

/// A node's key, as the head remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The fingerprint of the public key: BLAKE3 of its DER.
    pub key: Digest,
    /// When its certificate was issued.
    pub issued_at: Timestamp,
    /// How long it is good for, in milliseconds.
    pub life_ms: u64,
}

/// Why a node is not let in. The text goes to the agent's log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwelcome {
    /// No such member: removed, or joined to what was here before.
    #[error(
        "node {0} is not in this cluster: it was removed, or the head has lost its state; to take it in again, run \
         `hostler node invite {0}` at the head and `hostler agent join` with that code on the node"
    )]
    NotAMember(NodeName),
    /// The name is another key's now.
    #[error(
        "the certificate of node {0} was replaced by a newer one, of this machine or of another that joined under its name; if this \
         machine is to be {0}, run `hostler node invite {0}` at the head and `hostler agent join` with that code here"
    )]
    Replaced(NodeName),
    /// It was not renewed in time.
    #[error(
        "the certificate of node {node} has expired: it was good for {} and is {} old by the cluster's clock; run `hostler node invite {node}` at the head and `hostler agent join` with that code on the node",
        format_duration(Duration::from_millis(*.life_ms)), format_duration(Duration::from_millis(*.age_ms))
    )]
    Expired {
        /// The node.
        node: NodeName,
        /// How old it is, in milliseconds.
        age_ms: u64,
        /// How old it might become.
        life_ms: u64,
    },
}

impl Key {
    /// How long until two thirds of its life are over, in milliseconds: then it should be renewed.
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

    /// Whether a node may come with this key now.
    ///
    /// # Errors
    /// Says why not, and what to do.
    pub fn welcomes(&self, name: &NodeName, key: Digest, now: Timestamp) -> Result<(), Unwelcome> {
        let Some(member) = self.members.get(name) else {
            // It joined before keys were written down, and is taken at the word of its certificate once more.
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

    /// In how long a node that came with this key should ask for the next one, in milliseconds.
    #[must_use]
    pub fn renew_in_ms(&self, name: &NodeName, key: Digest, now: Timestamp) -> Option<u64> {
        let member = self.members.get(name)?;
        let known = std::iter::once(&member.key).chain(&member.next).find(|known| known.key == key)?;
        Some(known.renew_in_ms(now))
    }

    /// Takes a node in, with this key and no other.
    pub(super) fn admit(&mut self, name: &NodeName, key: Key) {
        self.members.insert(name.clone(), Member { key, next: None });
    }

    /// Writes down a further key of a node.
    pub(super) fn renew_key(&mut self, name: &NodeName, key: Key) {
        let member = self.members.get_mut(name).expect("the event was decided for a member");
        member.next = Some(key);
    }

    /// The new key was used: the one before goes.
    pub(super) fn use_key(&mut self, name: &NodeName) {
        let member = self.members.get_mut(name).expect("the event was decided for a member");
        member.key = member.next.take().expect("the event was decided for a key that was renewed");
    }

    /// None of a node's keys is good any more.
    pub(super) fn expel(&mut self, name: &NodeName) {
        self.members.remove(name);
        self.partitions.forget_node(name);
    }
}

/// A machine with a valid invitation joins. One whose answer was lost asks again with the same key.
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

/// An agent comes with a key: what is new about that.
pub(super) fn decide_key(state: &State, node: &NodeName, key: Digest, now: Now) -> Result<Vec<Event>, Unwelcome> {
    state.welcomes(node, key, now.at)?;
    Ok(match state.member(node) {
        None => vec![Event::NodeJoined { node: node.clone(), key, life_ms: KEY_LIFE_MS }],
        Some(member) if member.next.is_some_and(|next| next.key == key) => vec![Event::KeyUsed { node: node.clone() }],
        Some(_) => Vec::new(),
    })
}

/// An agent wants a certificate for a new key. If it asks with one that was new, that is now the one it uses.
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

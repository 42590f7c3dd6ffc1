//! A node's membership: the keys with which it may connect.

use hostler_model::{Digest, NodeName, Timestamp, format_ms};
use serde::{Deserialize, Serialize};

/// Default lifetime of a key, in milliseconds. To revoke a lost key, remove its node. The lifetime protects against losses that
/// go unnoticed. It is long, since a machine may stay off for months.
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
pub enum KeyRefusal {
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
        format_ms(*.life_ms), format_ms(*.age_ms)
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

    pub(in crate::head) fn is_expired(&self, now: Timestamp) -> bool {
        now.ms_since(self.issued_at) > self.life_ms
    }
}

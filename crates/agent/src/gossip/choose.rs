//! Which node a command goes to, from what this one knows, and what is under way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use hostler_gossip::{Candidate, Explanation, MemberId, Needs, Ticket, Version, choose, explain};
use hostler_model::{Digest, NodeName};

use super::{Gossiping, Part, lock};
use crate::link::random_bits;

/// The most that `wait_ms` can be.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Where a node takes commands, and by what it is known there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallDoor {
    pub(crate) address: SocketAddr,
    pub(crate) key: Digest,
}

/// A command that was sent to a node. It counts there until this is dropped, or the node's own load shows it.
pub(crate) struct Sent<'a> {
    gossiping: &'a Gossiping,
    node: MemberId,
    ticket: Ticket,
}

impl Gossiping {
    /// The best nodes for a command, the one to take first and then those to fall back on.
    pub(crate) fn choose(&self, needs: &Needs) -> Vec<Candidate> {
        let now = self.now();
        let part = lock(&self.part);
        let Some(Part { gossip, .. }) = part.as_ref() else { return Vec::new() };
        choose(self.counted(gossip, now), needs, &self.policy, &lock(&self.calls), now, random_bits())
    }

    /// What [`Self::choose`] makes of every node.
    pub(crate) fn explain(&self, needs: &Needs) -> Explanation {
        let now = self.now();
        let part = lock(&self.part);
        let Some(Part { gossip, .. }) = part.as_ref() else {
            return Explanation { candidates: Vec::new(), unfit: Vec::new() };
        };
        explain(self.counted(gossip, now), needs, &self.policy, &lock(&self.calls), now, random_bits())
    }

    /// Where a node takes commands; `None` when it is no member, or takes none.
    pub(crate) fn door(&self, node: &NodeName) -> Option<CallDoor> {
        let now = self.now();
        let part = lock(&self.part);
        let Part { gossip, peers, .. } = part.as_ref()?;
        let peer = peers.iter().find(|peer| peer.name == *node)?;
        let port = gossip.get(MemberId(peer.id), now)?.load?.commands.port();
        (port > 0).then_some(CallDoor { address: SocketAddr::new(peer.address.ip(), port), key: peer.call_key? })
    }

    /// The nodes whose commands this one takes, by what they are known by.
    pub(crate) fn callers(&self) -> Vec<(Digest, NodeName)> {
        let part = lock(&self.part);
        let peers = part.iter().flat_map(|part| part.peers.iter());
        peers.filter_map(|peer| Some((peer.call_key?, peer.name.clone()))).collect()
    }

    /// Whether the node with this key is still one of them.
    pub(crate) fn takes_calls_of(&self, key: Digest) -> bool {
        let part = lock(&self.part);
        part.iter().flat_map(|part| part.peers.iter()).any(|peer| peer.call_key == Some(key))
    }

    /// All that gossip.
    pub(crate) fn names(&self) -> Vec<NodeName> {
        let part = lock(&self.part);
        part.iter().flat_map(|part| part.peers.iter()).map(|peer| peer.name.clone()).collect()
    }

    /// A command is sent to a node.
    pub(crate) fn sent(&self, node: MemberId) -> Sent<'_> {
        Sent { gossiping: self, node, ticket: lock(&self.calls).send(node, self.now()) }
    }

    /// A node could not be reached.
    pub(crate) fn unreachable(&self, node: MemberId) {
        lock(&self.calls).unreachable(node, &self.policy, self.now());
    }

    /// Where this node takes commands of others.
    pub(crate) fn takes_commands_at(&self, port: u16) {
        self.command_port.store(port, std::sync::atomic::Ordering::Relaxed);
    }

    /// The longest that a short command waits for a CPU here: less than its caller's node waits for an answer.
    pub(crate) fn longest_wait(&self) -> Duration {
        Duration::from_millis(self.policy.wait_ms.into()).min(LONGEST_WAIT)
    }

    /// Where it is counted how many wait, which others are told.
    pub(crate) fn waiting(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.waiting)
    }

    /// Forgets calls that do not count any more.
    pub(super) fn forget_calls(&self) {
        let now = self.now();
        let part = lock(&self.part);
        let Some(Part { gossip, .. }) = part.as_ref() else { return };
        let load_version = |id| gossip.get(id, now).map_or(Version::default(), |node| node.load_version);
        lock(&self.calls).forget(load_version, &self.policy, now);
    }
}

impl Sent<'_> {
    /// The command has begun there.
    pub(crate) fn began(&self) {
        let now = self.gossiping.now();
        let part = lock(&self.gossiping.part);
        let version = part.as_ref().and_then(|part| part.gossip.get(self.node, now)).map(|node| node.version);
        if let Some(version) = version {
            lock(&self.gossiping.calls).began(self.ticket, version);
        }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        lock(&self.gossiping.calls).ended(self.ticket);
    }
}

//! Choice of the node for a remote command, based on local load data and commands in progress.

use std::net::SocketAddr;

use hostler_gossip::{Candidate, Explanation, MemberId, Needs, Ticket, Version, choose, explain};
use hostler_model::{Digest, NodeName};

use super::{Gossiping, Part};
use crate::mutex::lock;
use crate::random::random_bits;

/// Address and key of a node for remote commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) key: Digest,
}

/// Guard of a remote command sent to a node. The command counts as load of that node until the guard is dropped, or
/// until the node's reported load includes the command.
pub(crate) struct Sent<'a> {
    gossiping: &'a Gossiping,
    node: MemberId,
    ticket: Ticket,
}

impl Gossiping {
    /// The best nodes for a command, in the order in which to try them.
    pub(crate) fn choose(&self, needs: &Needs) -> Vec<Candidate> {
        let now = self.now();
        let part = lock(&self.part);
        let Some(Part { gossip, .. }) = part.as_ref() else { return Vec::new() };
        choose(self.counted(gossip, now), needs, &self.policy, &lock(&self.calls), now, random_bits())
    }

    /// The best node for a command, which counts as load of the node for a while.
    pub(crate) fn choose_and_count(&self, needs: &Needs) -> Option<Candidate> {
        let best = self.choose(needs).into_iter().next()?;
        lock(&self.calls).send(best.id, self.now());
        Some(best)
    }

    /// Explains for every node how [`Self::choose`] rates it.
    pub(crate) fn explain(&self, needs: &Needs) -> Explanation {
        let now = self.now();
        let part = lock(&self.part);
        let Some(Part { gossip, .. }) = part.as_ref() else {
            return Explanation { candidates: Vec::new(), unfit: Vec::new() };
        };
        explain(self.counted(gossip, now), needs, &self.policy, &lock(&self.calls), now, random_bits())
    }

    /// Address and key of a node for remote commands; `None` if the node is unknown or accepts no remote commands.
    pub(crate) fn call_endpoint(&self, node: &NodeName) -> Option<CallEndpoint> {
        let now = self.now();
        let part = lock(&self.part);
        let Part { gossip, peers, .. } = part.as_ref()?;
        let peer = peers.iter().find(|peer| peer.name == *node)?;
        let port = gossip.get(MemberId(peer.id), now)?.load?.commands.port();
        (port > 0).then_some(CallEndpoint { address: SocketAddr::new(peer.address.ip(), port), key: peer.call_key? })
    }

    /// Keys and names of the nodes whose remote commands this node accepts.
    pub(crate) fn callers(&self) -> Vec<(Digest, NodeName)> {
        let part = lock(&self.part);
        let peers = part.iter().flat_map(|part| part.peers.iter());
        peers.filter_map(|peer| Some((peer.call_key?, peer.name.clone()))).collect()
    }

    /// Whether this node accepts remote commands from the node with the key `key`.
    pub(crate) fn takes_calls_of(&self, key: Digest) -> bool {
        let part = lock(&self.part);
        part.iter().flat_map(|part| part.peers.iter()).any(|peer| peer.call_key == Some(key))
    }

    pub(crate) fn names(&self) -> Vec<NodeName> {
        let part = lock(&self.part);
        part.iter().flat_map(|part| part.peers.iter()).map(|peer| peer.name.clone()).collect()
    }

    /// Registers a command that is sent to a node.
    pub(crate) fn sent(&self, node: MemberId) -> Sent<'_> {
        Sent { gossiping: self, node, ticket: lock(&self.calls).send(node, self.now()) }
    }

    /// Records that a node is unreachable.
    pub(crate) fn unreachable(&self, node: MemberId) {
        lock(&self.calls).unreachable(node, &self.policy, self.now());
    }

    /// Sets the port on which this node accepts remote commands.
    pub(crate) fn takes_commands_at(&self, port: u16) {
        self.command_port.store(port, std::sync::atomic::Ordering::Relaxed);
    }

    /// Removes commands that no longer count as load of a node, and nodes that are no longer avoided.
    pub(super) fn forget_calls(&self) {
        let now = self.now();
        let part = lock(&self.part);
        let Some(Part { gossip, .. }) = part.as_ref() else { return };
        let load_version = |id| gossip.get(id, now).map_or(Version::default(), |node| node.load_version);
        lock(&self.calls).forget(load_version, &self.policy, now);
    }
}

impl Sent<'_> {
    /// Records that the command has started.
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

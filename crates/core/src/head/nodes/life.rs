//! Membership changes of a node: join, drain, resume, remove.

use hostler_model::{Digest, NodeName, NodeState, RunId};
use hostler_proto::api::Notice;
use hostler_proto::link::HeadMessage;

use super::member::Key;
use super::node::Drain;
use crate::head::event::Effect;
use crate::head::step::Step;

impl Step<'_> {
    pub(in crate::head) fn set_drain(&mut self, name: &NodeName, drain: Option<Drain>) {
        self.state.change_node(name, |node| node.drain = drain);
        if self.state.nodes.get(name).is_some_and(|node| node.facts.gossip_at.is_some()) {
            self.state.peers.changed(self.now.at);
        }
        self.state.sync_pool(name);
        self.notify_node(name);
    }

    /// Makes a machine the node of this name. A machine that had the name before loses its key and its connection.
    pub(in crate::head) fn join(&mut self, name: &NodeName, key: Digest, life_ms: u64) {
        if self.state.member(name).is_some() {
            self.count_removed_machine();
        }
        self.state.admit(name, Key { key, issued_at: self.now.at, life_ms });
        self.disconnect_node(name, &format!("a machine has joined as node {name} with a new join code"));
    }

    /// Removes a node: its runs are lost, and the state keeps nothing about it. A connected node kills their processes before
    /// it loses its connection.
    pub(in crate::head) fn remove_member(&mut self, name: &NodeName, by: &str) {
        self.state.expel(name);
        self.count_removed_machine();
        if self.state.node(name).is_none() {
            return;
        }
        let node = &self.state.nodes[name];
        let runs: Vec<RunId> = node.runs.keys().chain(&node.unknown_runs).copied().collect();
        if let Some(connection) = node.link.as_ref().map(|link| link.connection) {
            runs.into_iter().for_each(|run| self.send(connection, HeadMessage::Forget { run }));
        }
        self.disconnect_node(name, &format!("{by} has removed node {name} from the cluster"));
        self.lose_runs(name, &format!("node {name} was removed by {by}"));
        self.state.remove_node(name, self.now.at);
        let notice = Notice::Node { name: name.clone(), state: NodeState::Removed };
        self.changes.effects.push(Effect::Notify(notice));
    }

    /// Counts a removed machine, and thereby changes the key that gossiping nodes share: the removed machine knows only
    /// the old key.
    fn count_removed_machine(&mut self) {
        self.state.expelled += 1;
        self.state.peers.changed(self.now.at);
    }

    /// Closes a node's connection, if it has one.
    pub(in crate::head) fn disconnect_node(&mut self, name: &NodeName, reason: &str) {
        let Some(node) = self.state.nodes.get_mut(name) else { return };
        let Some(link) = node.link.take() else { return };
        self.state.connections.remove(&link.connection);
        self.close(link.connection, reason);
        self.state.sync_pool(name);
    }
}

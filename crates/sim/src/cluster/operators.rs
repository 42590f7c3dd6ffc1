//! The operators: they drain, resume and remove nodes, and invite removed nodes again. Includes the checks of these
//! actions.

use hostler_core::head::{Command, KEY_LIFE_MS, Record};
use hostler_model::{Digest, NodeName, RunId};

use super::books::Books;
use super::head::Input;
use super::users::UserStep;
use super::world::World;

impl World {
    pub(super) fn plan_operators(&mut self, calm: u64) {
        for _ in 0..self.rng.below(6) {
            let at = self.rng.below(calm);
            self.user_later(at, UserStep::Operate);
        }
    }

    /// Performs an operator action on a random node.
    pub(super) fn operate(&mut self) {
        if self.is_calm {
            return;
        }
        let index = self.rng.below(self.nodes.len() as u64) as usize;
        let (node, by) = (self.nodes[index].name.clone(), "root".to_owned());
        let command = match self.rng.below(5) {
            0 | 1 => Command::DrainNode { node, by, reason: self.rng.chance(500).then(|| "new disk".to_owned()) },
            2 | 3 => Command::ResumeNode { node },
            // Do not remove nodes with power management: the head never switches on a node that was removed while it
            // was off.
            _ if self.controllers.is_some() => Command::ResumeNode { node },
            _ => Command::RemoveNode { node, by },
        };
        self.request(command);
    }

    /// Resumes all nodes after the last fault, because waiting jobs must end.
    pub(super) fn resume_all(&self) -> Vec<Command> {
        let nodes = self.head.process.iter().flat_map(|process| process.state.nodes());
        let drained = nodes.filter(|node| node.drain.is_some());
        drained.map(|node| Command::ResumeNode { node: node.name.clone() }).collect()
    }

    /// Returns the key that a node presents. If the node is new or was removed, it joins first.
    pub(super) fn rejoin_if_removed(&mut self, node: &NodeName) -> Digest {
        let key = key_of(node);
        let process = self.head.process.as_ref().expect("the head that receives the hello runs");
        if process.state.member(node).is_none() {
            let command = Command::Join { node: node.clone(), key, life_ms: KEY_LIFE_MS, may_replace: true };
            self.input(Input::of(command));
        }
        key
    }
}

/// The key of a node.
fn key_of(node: &NodeName) -> Digest {
    let mut key = [0; 32];
    key.iter_mut().zip(node.as_str().bytes()).for_each(|(digit, byte)| *digit = byte);
    Digest(key)
}

impl Books {
    pub(super) fn note_drained(&mut self, node: &NodeName) {
        self.drained.insert(node.clone());
    }

    pub(super) fn note_resumed(&mut self, node: &NodeName) {
        self.drained.remove(node);
    }

    pub(super) fn check_not_drained(&mut self, run: RunId, node: &NodeName) {
        let is_drained = self.drained.contains(node);
        self.expect(!is_drained, || format!("{run} is placed on {node}, which is drained"));
    }

    /// Gives up the runs of a removed node; if the node joins again, it counts as a new node.
    pub(super) fn see_node_removed(&mut self, node: &NodeName, records: &[Record]) {
        self.drained.remove(node);
        self.places.see_removed(node);
        self.see_node_given_up(node, records);
    }
}

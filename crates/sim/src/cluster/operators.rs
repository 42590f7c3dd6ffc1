//! The operators: they drain, resume and remove nodes, and invite removed nodes again. Includes the checks of these
//! actions.

use hostler_core::head::{Command, KEY_LIFE_MS, Record, Replaces};
use hostler_model::{Digest, NodeName, NodeState, RunId, TaskId};

use super::books::Books;
use super::rules::Rule;
use super::world::World;
use super::world::head::{Head, Input, Process};
use super::world::time::MS;
use super::world::users::UserStep;

/// A sweep keeps blobs that were touched this recently.
const YOUNG: u64 = 500 * MS;

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

    /// Removes unreferenced blobs once all writes are complete.
    pub(super) fn sweep(&mut self) {
        let before_us = self.now_us.saturating_sub(YOUNG);
        let forget_results = self.breaks(Rule::KeepResults);
        let process = self.process();
        if !process.is_idle() {
            return;
        }
        // An operator takes a down node off the list. The node may reconnect before the decision.
        let down = process.state.nodes().find(|node| node.state() == NodeState::Down).map(|node| node.name.clone());
        if let Some(node) = down
            && !self.would_stay_off(&node)
        {
            self.input(Input::of(Command::ForgetNode { node }));
        }
        // The next sweep removes results that are dropped now to free space.
        let ended = self.head.disk.jobs();
        let fetched = ended.values().filter(|job| !job.fetched_results().is_empty());
        let fetched = fetched.min_by_key(|job| (job.ended, job.id)).map(|job| (job.id, job.results.clone()));
        if let Some((job, indices)) = fetched {
            self.input(Input::of(Command::DropResults { job, indices }));
        }
        let Head { disk, process: Some(Process { state, .. }), .. } = &mut self.head else { return };
        let has_result = |task: TaskId| {
            let job = state.job(task.job).or_else(|| ended.get(&task.job));
            job.is_some_and(|job| job.results.contains(task.index))
        };
        let removed = disk.sweep(before_us, state.early_results(), |task| !forget_results && has_result(task));
        if removed > 0 {
            self.note(format_args!("{removed} blobs are collected"));
        }
    }

    /// A new or removed node was invited and joins just before its hello.
    pub(super) fn rejoin_if_removed(&mut self, node: &NodeName) {
        let process = self.head.process.as_ref().expect("the head that receives the hello runs");
        if process.state.member(node).is_none() {
            let command =
                Command::Join { node: node.clone(), key: key_of(node), life_ms: KEY_LIFE_MS, replaces: Replaces::Any };
            self.input(Input::of(command));
        }
    }
}

/// The key of a node.
pub(super) fn key_of(node: &NodeName) -> Digest {
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

//! Partitions in the simulation: half of the worlds have one. Operators add and remove nodes, pause and remove the
//! partition, and change features of nodes. Some jobs request a partition or a feature. The check: every placement is
//! on a node that was allowed for its job at that time.

use std::collections::BTreeSet;

use hostler_core::head::{Command, PartitionsCommand};
use hostler_model::{Feature, JobSpec, NodeName, Offer, PartitionName, PartitionState, RunId};
use hostler_proto::partitions::PartitionChange;

use super::books::Books;
use super::rng::Rng;
use super::world::World;
use super::world::users::UserStep;

/// The name of the only partition.
fn name() -> PartitionName {
    "left".parse().expect("a valid name")
}

/// The only feature apart from node names.
fn odd() -> Feature {
    "odd".parse().expect("a valid word")
}

impl World {
    /// Plans partition actions. Uses separate random numbers, so that the other parts of a world do not depend on them.
    pub(super) fn plan_partitions(&mut self, calm: u64, mut dice: Rng) {
        if dice.chance(500) {
            for _ in 0..dice.range(2, 10) {
                let at = dice.below(calm);
                self.user_later(at, UserStep::Arrange);
            }
            self.partition_dice = Some(dice);
        }
    }

    /// Performs an operator action on partitions.
    pub(super) fn arrange(&mut self) {
        let names: Vec<NodeName> = self.nodes.iter().map(|node| node.name.clone()).collect();
        let Some(dice) = self.partition_dice.as_mut().filter(|_| !self.is_calm) else { return };
        let some = |dice: &mut Rng| {
            let some: Vec<&str> = names.iter().filter(|_| dice.chance(600)).map(NodeName::as_str).collect();
            if some.is_empty() { "*".to_owned() } else { some.join(",") }
        };
        let nodes = some(dice).parse().ok();
        let state = *dice.pick(&[PartitionState::Open, PartitionState::Open, PartitionState::Paused]);
        let priority = Some(dice.below(3) as i32 - 1);
        let about = PartitionChange { nodes, state: Some(state), priority, ..PartitionChange::default() };
        let features = Some(if dice.chance(500) { BTreeSet::from([odd()]) } else { BTreeSet::new() });
        let command = match dice.below(8) {
            0 | 1 => PartitionsCommand::Add(name(), about),
            2 | 3 => PartitionsCommand::Change(name(), about),
            4 => PartitionsCommand::Remove(name()),
            5 => {
                let cpus = dice.chance(700).then_some(1);
                PartitionsCommand::SetOffer(dice.pick(&names).clone(), Offer { cpus, ..Offer::default() })
            }
            _ => {
                let weight = Some(dice.below(3) as u32);
                PartitionsCommand::SetTraits { node: dice.pick(&names).clone(), weight, features }
            }
        };
        self.request(Command::Partitions(command));
    }

    /// Adds a partition or a feature to the request of some jobs, in a world with partitions.
    pub(super) fn choose_nodes(&mut self, spec: &mut JobSpec) {
        let Some(dice) = &mut self.partition_dice else { return };
        spec.partition = dice.chance(300).then(name);
        spec.constraint = dice.chance(300).then(|| {
            let constraint = *dice.pick(&["odd", "odd|n0", "odd&(n0|n1|odd)", "n0|odd"]);
            constraint.parse().expect("a valid constraint")
        });
    }

    /// Returns the commands that give every job usable nodes after the last fault.
    pub(super) fn repair_partitions(&self) -> Vec<Command> {
        let Some(process) = self.head.process.as_ref().filter(|_| self.partition_dice.is_some()) else {
            return Vec::new();
        };
        let about = PartitionChange {
            nodes: "*".parse().ok(),
            state: Some(PartitionState::Open),
            ..PartitionChange::default()
        };
        let partition = match process.state.partitions.get(&name()) {
            None => PartitionsCommand::Add(name(), about),
            Some(_) => PartitionsCommand::Change(name(), about),
        };
        let give = |name: &NodeName| PartitionsCommand::SetTraits {
            node: name.clone(),
            weight: None,
            features: Some(BTreeSet::from([odd()])),
        };
        let offer = |name: &NodeName| PartitionsCommand::SetOffer(name.clone(), Offer::default());
        let nodes = process.state.nodes().flat_map(|node| [give(&node.name), offer(&node.name)]);
        std::iter::once(partition).chain(nodes).map(Command::Partitions).collect()
    }
}

impl Books {
    pub(super) fn check_may_use(&mut self, run: RunId, spec: &JobSpec, node: &NodeName) {
        let may_use = self.places.allow(spec, node);
        self.expect(may_use, || {
            format!(
                "{run} is placed on {node}, which a job of {:?} with {:?} may not use",
                spec.partition, spec.constraint
            )
        });
    }
}

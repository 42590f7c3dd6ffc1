//! The nodes that each job may use.

use std::collections::{BTreeMap, BTreeSet};

use hostler_core::head::{Partition, PartitionsEvent};
use hostler_model::{Feature, JobSpec, NodeName, PartitionName, PartitionState};

/// Which nodes each job may use, according to durable events.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) partitions: BTreeMap<PartitionName, Partition>,
    pub(crate) features: BTreeMap<NodeName, BTreeSet<Feature>>,
    /// The most CPUs that each node offers, where an operator has set that.
    pub(crate) offers: BTreeMap<NodeName, u32>,
}

impl Places {
    pub(crate) fn see(&mut self, event: &PartitionsEvent) {
        match event {
            PartitionsEvent::Put { partition, .. } => {
                self.partitions.insert(partition.name.clone(), partition.clone());
            }
            PartitionsEvent::Removed(name) => {
                self.partitions.remove(name);
            }
            PartitionsEvent::Traits { node, traits } => {
                self.features.insert(node.clone(), traits.features.clone());
                self.offers.remove(node);
                self.offers.extend(traits.offer.cpus.map(|cpus| (node.clone(), cpus)));
            }
        }
    }

    /// Drops the features and the offer of a removed node.
    pub(crate) fn see_removed(&mut self, node: &NodeName) {
        self.features.remove(node);
        self.offers.remove(node);
    }

    pub(crate) fn allow(&self, spec: &JobSpec, node: &NodeName) -> bool {
        let has = |feature: &Feature| {
            feature.as_str() == node.as_str() || self.features.get(node).is_some_and(|all| all.contains(feature))
        };
        let is_within = |name: &PartitionName| {
            let known = self.partitions.get(name);
            known.is_some_and(|known| known.state != PartitionState::Paused && known.nodes.matches(node))
        };
        spec.partition.as_ref().is_none_or(is_within) && spec.constraint.as_ref().is_none_or(|all| all.holds(has))
    }
}

//! Numbers of nodes, and a subset of a pool's nodes, e.g. the nodes of a partition that satisfy a job's constraint.

use serde::{Deserialize, Serialize};

/// A node's number in a [`crate::Pool`]. Numbers should be dense, since they index an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeIx(pub u32);

/// A set of node numbers, as a bit set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    /// Returns whether the set contains a node.
    #[must_use]
    pub fn contains(&self, node: NodeIx) -> bool {
        self.words.get(node.0 as usize / 64).is_some_and(|word| word >> (node.0 % 64) & 1 == 1)
    }

    /// Returns whether the sets have a node in common.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(one, other)| one & other != 0)
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
}

impl FromIterator<NodeIx> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeIx>>(nodes: I) -> Self {
        let mut words = Vec::new();
        for NodeIx(node) in nodes {
            let at = node as usize / 64;
            if at >= words.len() {
                words.resize(at + 1, 0);
            }
            words[at] |= 1 << (node % 64);
        }
        Self { words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_and_intersects() {
        let set: NodeSet = [3, 64, 200].map(NodeIx).into_iter().collect();
        let held: Vec<u32> = (0..1000).filter(|node| set.contains(NodeIx(*node))).collect();
        assert_eq!(held, [3, 64, 200]);
        assert!(!set.is_empty() && NodeSet::default().is_empty());
        let set_of = |nodes: &[u32]| nodes.iter().copied().map(NodeIx).collect::<NodeSet>();
        assert!(set.intersects(&set_of(&[1, 200])) && !set.intersects(&set_of(&[1, 199, 500])));
    }
}

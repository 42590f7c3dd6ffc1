//! The pool: what each node has, what of it is free, and whether the node can be used.
//!
//! It holds amounts, not CPU ids: which CPUs a task gets is for the node's owner to say. It is kept up to date node by node, so
//! that a scheduling pass begins with nothing to build.

use hostler_model::{NodeName, Request};
use serde::{Deserialize, Serialize};

use crate::amount::{at_most, covers, sum, without};
use crate::fit::FitIndex;

/// The most CPUs of a node that are used; memory for the index grows with the largest node.
pub const MAX_CPUS: u32 = (1 << 20) - 1;

/// A node's number in a [`Pool`]. Numbers should be dense: they index an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeIx(pub u32);

/// The nodes of a cluster, as the scheduler sees them.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    nodes: Vec<Option<Node>>,
    /// Usable nodes by what they have free.
    pub(crate) free: FitIndex,
    /// Usable nodes by what they have.
    usable: FitIndex,
    /// All nodes by what they have.
    all: FitIndex,
}

/// One node. Amounts never exceed [`MAX_CPUS`] CPUs, and what is free never exceeds what the node has.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) total: Request,
    pub(crate) free: Request,
    pub(crate) is_usable: bool,
}

impl Pool {
    /// Adds a node, or replaces what is known of it. Only a usable node is given work; what a node has in all counts for
    /// [`Self::admit`] in any case.
    pub fn set(&mut self, ix: NodeIx, name: &NodeName, total: Request, free: Request, is_usable: bool) {
        let total = Request { cpus: total.cpus.min(MAX_CPUS), ..total };
        let node = Node { name: name.clone(), total, free: at_most(&free, &total), is_usable };
        self.put(ix, Some(node));
    }

    /// Removes a node; does nothing when it is not there.
    pub fn remove(&mut self, ix: NodeIx) {
        self.put(ix, None);
    }

    /// Takes a request out of what is free on a node.
    ///
    /// # Panics
    /// When the node is not there or has less free: the caller's books are wrong.
    pub fn allocate(&mut self, ix: NodeIx, request: &Request) {
        let node = self.expect(ix);
        assert!(covers(&node.free, request), "node {} has less free than is taken", node.name);
        let free = without(&node.free, request);
        let node = Node { free, ..node.clone() };
        self.put(ix, Some(node));
    }

    /// Gives back what [`Self::allocate`] took.
    ///
    /// # Panics
    /// When the node is not there, or would have more free than it has: the caller's books are wrong.
    pub fn release(&mut self, ix: NodeIx, request: &Request) {
        let node = self.expect(ix);
        let free = sum(&node.free, request);
        assert!(covers(&node.total, &free), "node {} is given back more than was taken", node.name);
        let node = Node { free, ..node.clone() };
        self.put(ix, Some(node));
    }

    /// What is free on a node, or `None` when it is not there.
    #[must_use]
    pub fn free(&self, ix: NodeIx) -> Option<Request> {
        self.node(ix).map(|node| node.free)
    }

    /// The usable node with the least free resources that satisfies the request: fewest free CPUs, then least free memory, then
    /// the lowest number.
    #[must_use]
    pub fn best_fit(&self, request: &Request) -> Option<NodeIx> {
        self.free.best(request).map(|fit| fit.node)
    }

    /// Whether `nodes` usable nodes could run the request each if nothing else ran there.
    #[must_use]
    pub fn could_run(&self, request: &Request, nodes: u32) -> bool {
        has_as_many(&self.usable, request, nodes)
    }

    /// Whether `nodes` nodes, usable or not, could run the request each if nothing else ran there.
    pub(crate) fn could_ever_run(&self, request: &Request, nodes: u32) -> bool {
        has_as_many(&self.all, request, nodes)
    }

    /// Whether `nodes` usable nodes have enough free for the request each.
    pub(crate) fn fits_now(&self, request: &Request, nodes: u32) -> bool {
        has_as_many(&self.free, request, nodes)
    }

    /// How many nodes, usable or not, could run the request if nothing else ran there.
    pub(crate) fn able(&self, request: &Request) -> usize {
        self.all.all(request).count()
    }

    pub(crate) fn node(&self, ix: NodeIx) -> Option<&Node> {
        self.nodes.get(ix.0 as usize)?.as_ref()
    }

    /// A node that the caller knows to be there.
    pub(crate) fn expect(&self, ix: NodeIx) -> &Node {
        self.node(ix).expect("the node is in the pool")
    }

    /// One more than the highest node number ever set.
    pub(crate) fn slots(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes in the order of their numbers.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeIx, &Node)> {
        let numbered = self.nodes.iter().enumerate();
        numbered.filter_map(|(i, node)| node.as_ref().map(|node| (NodeIx(i as u32), node)))
    }

    /// Replaces a node and brings the indexes in line.
    fn put(&mut self, ix: NodeIx, after: Option<Node>) {
        let at = ix.0 as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, None);
        }
        let before = std::mem::replace(&mut self.nodes[at], after);
        let (before, after) = (before.as_ref(), self.nodes[at].as_ref());
        let usable = |node: &&Node| node.is_usable;
        self.free.replace(ix, before.filter(usable).map(|node| node.free), after.filter(usable).map(|node| node.free));
        self.usable.replace(
            ix,
            before.filter(usable).map(|node| node.total),
            after.filter(usable).map(|node| node.total),
        );
        self.all.replace(ix, before.map(|node| node.total), after.map(|node| node.total));
    }
}

/// Whether that many nodes of the index satisfy the request.
fn has_as_many(index: &FitIndex, request: &Request, nodes: u32) -> bool {
    index.all(request).take(nodes as usize).count() == nodes as usize
}

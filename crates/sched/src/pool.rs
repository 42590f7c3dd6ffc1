//! The pool: what each node has, what of it is free, and whether the node can be used.
//!
//! It holds amounts, not CPU ids: which CPUs a task gets is for the node's owner to say. It is kept up to date node by node, so
//! that a scheduling pass begins with nothing to build.

use hostler_model::{NodeName, Request};
use serde::{Deserialize, Serialize};

use crate::Waiting;
use crate::amount::{at_most, sum, without};
use crate::fit::{Class, FitIndex};

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
    /// Nodes with a lower weight are used first.
    weight: u32,
}

impl Node {
    fn class(&self) -> Class {
        Class { weight: self.weight, gpus: self.total.gpus, kinds: self.total.counted.kinds() as u32 }
    }
}

impl Pool {
    /// Adds a node, or replaces what is known of it but for its weight. Only a usable node is given work; what a node has in all counts for
    /// [`Self::admit`] in any case.
    pub fn set(&mut self, ix: NodeIx, name: &NodeName, total: &Request, free: &Request, is_usable: bool) {
        let total = Request { cpus: total.cpus.min(MAX_CPUS), ..total.clone() };
        let free = at_most(free, &total);
        let weight = self.node(ix).map_or(0, |node| node.weight);
        let node = Node { name: name.clone(), total, free, is_usable, weight };
        self.put(ix, Some(node));
    }

    /// Nodes with a lower weight are used first; it is zero until it is set.
    ///
    /// # Panics
    /// When the node is not there.
    pub fn set_weight(&mut self, ix: NodeIx, weight: u32) {
        let node = Node { weight, ..self.expect(ix).clone() };
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
        assert!(node.free.covers(request), "node {} has less free than is taken", node.name);
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
        assert!(node.total.covers(&free), "node {} is given back more than was taken", node.name);
        let node = Node { free, ..node.clone() };
        self.put(ix, Some(node));
    }

    /// What is free on a node, or `None` when it is not there.
    #[must_use]
    pub fn free(&self, ix: NodeIx) -> Option<Request> {
        self.node(ix).map(|node| node.free.clone())
    }

    /// The usable node of the least weight and with the least free resources that satisfies the request: fewest GPUs, fewest
    /// kinds of what is counted, fewest free CPUs, least free memory, then the lowest number.
    #[must_use]
    pub fn best_fit(&self, request: &Request) -> Option<NodeIx> {
        self.free.best(request, None).map(|fit| fit.node)
    }

    /// Whether as many usable nodes as the job asks for could run it if nothing else ran there.
    pub(crate) fn could_run(&self, job: &Waiting) -> bool {
        has_as_many(&self.usable, job)
    }

    /// Whether as many nodes, usable or not, could run the job if nothing else ran there.
    pub(crate) fn could_ever_run(&self, job: &Waiting) -> bool {
        has_as_many(&self.all, job)
    }

    /// Whether as many usable nodes as the job asks for have enough free for it.
    pub(crate) fn fits_now(&self, job: &Waiting) -> bool {
        has_as_many(&self.free, job)
    }

    /// How many nodes, usable or not, could run a part of the job if nothing else ran there.
    pub(crate) fn able(&self, job: &Waiting) -> usize {
        self.all.all(&job.request, job.among()).count()
    }

    /// What a node is like.
    pub(crate) fn class(&self, ix: NodeIx) -> Class {
        self.expect(ix).class()
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
        fn free(node: &Node) -> (Class, &Request) {
            (node.class(), &node.free)
        }
        fn total(node: &Node) -> (Class, &Request) {
            (node.class(), &node.total)
        }
        self.free.replace(ix, before.filter(usable).map(free), after.filter(usable).map(free));
        self.usable.replace(ix, before.filter(usable).map(total), after.filter(usable).map(total));
        self.all.replace(ix, before.map(total), after.map(total));
    }
}

/// Whether as many nodes of the index as the job asks for satisfy its request.
fn has_as_many(index: &FitIndex, job: &Waiting) -> bool {
    let nodes = job.nodes as usize;
    index.all(&job.request, job.among()).take(nodes).count() == nodes
}

//! The pool: each node's total and free resources, and whether it is usable.
//!
//! It stores amounts, not CPU ids; the caller chooses the CPUs of a task. The caller updates the pool node by node, so that a scheduling
//! pass needs no preparation.

use hostler_model::{NodeName, Request};

use crate::amount::{at_most, sum, without};
use crate::fit::{Class, FitIndex};
use crate::{Holding, NodeIx, Waiting};

/// The maximum number of CPUs per node; further CPUs are not used. The memory of the index grows with the largest node.
pub const MAX_CPUS: u32 = (1 << 20) - 1;

/// The cluster's nodes as the scheduler sees them.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    nodes: Vec<Option<Node>>,
    /// Usable nodes by free resources.
    pub(crate) free: FitIndex,
    /// Usable nodes on which nothing is in use, by total resources.
    pub(crate) idle: FitIndex,
    /// Usable nodes by total resources.
    usable: FitIndex,
    /// All nodes by total resources.
    all: FitIndex,
    sum: Holding,
}

/// A node in the pool. It has at most [`MAX_CPUS`] CPUs, and its free resources never exceed the total.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) total: Request,
    pub(crate) free: Request,
    pub(crate) is_usable: bool,
    /// The weight of the node. Jobs use nodes with a lower weight first.
    weight: u32,
}

impl Node {
    /// Whether nothing on the node is in use.
    pub(crate) fn is_idle(&self) -> bool {
        self.free == self.total
    }

    fn class(&self) -> Class {
        Class { weight: self.weight, gpus: self.total.gpus, kinds: self.total.rare_kinds() as u32 }
    }
}

impl Pool {
    /// Adds a node, or replaces its data except its weight. Only usable nodes get work; [`Self::admit`] counts the total resources of all
    /// nodes.
    pub fn set(&mut self, ix: NodeIx, name: &NodeName, total: &Request, free: &Request, is_usable: bool) {
        let total = Request { cpus: total.cpus.min(MAX_CPUS), ..total.clone() };
        let free = at_most(free, &total);
        let weight = self.node(ix).map_or(0, |node| node.weight);
        let node = Node { name: name.clone(), total, free, is_usable, weight };
        self.put(ix, Some(node));
    }

    /// Sets a node's weight, zero by default. Nodes with a lower weight are used first.
    ///
    /// # Panics
    /// When the node does not exist.
    pub fn set_weight(&mut self, ix: NodeIx, weight: u32) {
        let node = Node { weight, ..self.expect(ix).clone() };
        self.put(ix, Some(node));
    }

    /// Removes a node, if it exists.
    pub fn remove(&mut self, ix: NodeIx) {
        self.put(ix, None);
    }

    /// Allocates a request on a node.
    ///
    /// # Panics
    /// When the node does not exist or has too little free.
    pub fn allocate(&mut self, ix: NodeIx, request: &Request) {
        let node = self.expect(ix);
        assert!(node.free.covers(request), "node {} has too few free resources", node.name);
        let free = without(&node.free, request);
        let node = Node { free, ..node.clone() };
        self.put(ix, Some(node));
    }

    /// Releases an allocation on a node.
    ///
    /// # Panics
    /// When the node does not exist, or would have more free than its total.
    pub fn release(&mut self, ix: NodeIx, request: &Request) {
        let node = self.expect(ix);
        let free = sum(&node.free, request);
        assert!(node.total.covers(&free), "the free resources of node {} exceed its total", node.name);
        let node = Node { free, ..node.clone() };
        self.put(ix, Some(node));
    }

    /// Returns the free resources of a node; `None` if the node does not exist.
    #[must_use]
    pub fn free(&self, ix: NodeIx) -> Option<Request> {
        self.node(ix).map(|node| node.free.clone())
    }

    /// Returns the best usable node that covers the request. The order is: lowest weight, fewest GPUs, fewest kinds of
    /// counted resources, fewest free CPUs, least free memory, lowest number.
    #[must_use]
    pub fn best_fit(&self, request: &Request) -> Option<NodeIx> {
        self.free.best(request, None).map(|fit| fit.node)
    }

    /// Returns the resources of all nodes, usable or not.
    #[must_use]
    pub fn sum(&self) -> Holding {
        self.sum
    }

    /// Returns whether enough usable nodes could run the job if they were idle.
    pub(crate) fn could_run(&self, job: &Waiting) -> bool {
        has_as_many(&self.usable, job)
    }

    /// Returns whether enough nodes could run the job if they were usable and idle.
    pub(crate) fn could_ever_run(&self, job: &Waiting) -> bool {
        has_as_many(&self.all, job)
    }

    /// Returns whether enough usable nodes have enough free resources for the job.
    pub(crate) fn fits_now(&self, job: &Waiting) -> bool {
        has_as_many(if job.exclusive { &self.idle } else { &self.free }, job)
    }

    /// Returns how many nodes could run a part of the job if they were usable and idle.
    pub(crate) fn able(&self, job: &Waiting) -> usize {
        self.all.all(&job.request, job.allowed_nodes()).count()
    }

    /// Returns what a task of the job takes of a node.
    pub(crate) fn need_of<'a>(&'a self, job: &'a Waiting, node: NodeIx) -> &'a Request {
        if job.exclusive { &self.expect(node).total } else { &job.request }
    }

    pub(crate) fn class(&self, ix: NodeIx) -> Class {
        self.expect(ix).class()
    }

    pub(crate) fn node(&self, ix: NodeIx) -> Option<&Node> {
        self.nodes.get(ix.0 as usize)?.as_ref()
    }

    pub(crate) fn expect(&self, ix: NodeIx) -> &Node {
        self.node(ix).expect("the node is in the pool")
    }

    /// Returns one more than the highest node number that was ever used.
    pub(crate) fn slots(&self) -> usize {
        self.nodes.len()
    }

    /// Iterates over the nodes in order of their numbers.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeIx, &Node)> {
        let numbered = self.nodes.iter().enumerate();
        numbered.filter_map(|(i, node)| node.as_ref().map(|node| (NodeIx(i as u32), node)))
    }

    /// Replaces or removes a node and updates the indexes.
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
        let idle = |node: &&Node| node.is_usable && node.is_idle();
        self.idle.replace(ix, before.filter(idle).map(total), after.filter(idle).map(total));
        self.usable.replace(ix, before.filter(usable).map(total), after.filter(usable).map(total));
        self.all.replace(ix, before.map(total), after.map(total));
        before.into_iter().for_each(|node| self.sum.remove(&node.total));
        after.into_iter().for_each(|node| self.sum.add(&node.total, 1));
    }
}

/// Returns whether the index has as many nodes that cover the job's request as the job needs.
fn has_as_many(index: &FitIndex, job: &Waiting) -> bool {
    let nodes = job.nodes as usize;
    index.all(&job.request, job.allowed_nodes()).take(nodes).count() == nodes
}

//! An index of nodes by an amount of resources, with best-fit lookup in logarithmic time.
//!
//! Nodes are grouped into classes, which are tried in order: lower weights first, then fewer GPUs, so that GPUs remain for jobs that
//! request them. There are few classes.
//!
//! A sorted set keeps the nodes of a class in best-fit order: fewest CPUs, then least memory. The answer is the first node in that order
//! that covers the request. Such nodes are not contiguous: between two of them may be many with enough CPUs and too little memory. So a
//! tournament tree over CPU counts stores the largest memory of the nodes in each range of counts. The tree gives the lowest sufficient
//! count that has a node with enough memory, and the set gives the node. A search without a result costs no more.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hostler_model::Request;

use crate::{NodeIx, NodeSet};

/// The properties of a node that decide its place in the order of nodes, apart from its free resources. Nodes of the
/// lowest class are tried first.
///
/// Fields are compared in order of declaration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    /// The weight that an operator has set.
    pub(crate) weight: u32,
    pub(crate) gpus: u32,
    /// How many different rare resources (GPUs and counted resources) the node has.
    pub(crate) kinds: u32,
}

/// The position of a node in best-fit order: by class, then fewer CPUs, less memory, fewer GPUs, and the lower node
/// number.
///
/// Fields are compared in order of declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fit {
    class: Class,
    cpus: u32,
    memory_bytes: u64,
    gpus: u32,
    pub(crate) node: NodeIx,
}

impl Fit {
    pub(crate) const fn new(node: NodeIx, class: Class, amount: &Request) -> Self {
        Self { class, cpus: amount.cpus, memory_bytes: amount.memory_bytes, gpus: amount.gpus, node }
    }
}

/// An index of nodes by their total or free resources.
#[derive(Debug, Clone, Default)]
pub(crate) struct FitIndex {
    classes: BTreeMap<Class, ClassIndex>,
    /// Rare resources (GPUs and counted resources) of the nodes that have any.
    rare: BTreeMap<NodeIx, Request>,
}

impl FitIndex {
    /// Updates a node in the index after its class or resources have changed. `None` stands for a node that is not in
    /// the index.
    pub(crate) fn replace(
        &mut self,
        node: NodeIx,
        before: Option<(Class, &Request)>,
        after: Option<(Class, &Request)>,
    ) {
        if before == after {
            return;
        }
        match after.map(|(_, amount)| amount.rare()).filter(|rare| *rare != Request::NOTHING) {
            Some(rare) => drop(self.rare.insert(node, rare)),
            None => drop(self.rare.remove(&node)),
        }
        if let Some((class, amount)) = before {
            let index = self.classes.get_mut(&class).expect("the node is in the index");
            index.remove(&Fit::new(node, class, amount));
            if index.order.is_empty() {
                self.classes.remove(&class);
            }
        }
        if let Some((class, amount)) = after {
            self.classes.entry(class).or_default().insert(Fit::new(node, class, amount));
        }
    }

    /// Removes a node, if it is in the index with these resources.
    pub(crate) fn discard(&mut self, node: NodeIx, class: Class, amount: &Request) {
        let fit = Fit::new(node, class, amount);
        if self.classes.get(&class).is_some_and(|index| index.order.contains(&fit)) {
            self.replace(node, Some((class, amount)), None);
        }
    }

    /// Returns the best allowed node that covers the request.
    pub(crate) fn best(&self, request: &Request, among: Option<&NodeSet>) -> Option<Fit> {
        self.all(request, among).next()
    }

    /// Iterates over the allowed nodes that cover the request, the best first.
    pub(crate) fn all<'a>(&'a self, request: &Request, among: Option<&'a NodeSet>) -> impl Iterator<Item = Fit> + 'a {
        let Request { cpus, memory_bytes, gpus, .. } = *request;
        let (kinds, rare) = (request.rare_kinds() as u32, request.rare());
        let has_rare = move |node| kinds == 0 || self.rare.get(&node).is_some_and(|have| have.covers(&rare));
        let classes = self.classes.iter().filter(move |(class, _)| class.gpus >= gpus && class.kinds >= kinds);
        classes
            .flat_map(move |(_, index)| index.all(cpus, memory_bytes))
            .filter(move |fit| among.is_none_or(|among| among.contains(fit.node)))
            .filter(move |fit| has_rare(fit.node))
    }

    /// Returns the highest CPU count of a node; zero if there are no nodes.
    pub(crate) fn most_cpus(&self) -> u32 {
        self.classes.values().map(ClassIndex::most_cpus).max().unwrap_or(0)
    }
}

/// An index of the nodes of one class, by CPUs and memory.
#[derive(Debug, Clone, Default)]
struct ClassIndex {
    order: BTreeSet<Fit>,
    /// A complete binary tree in array form, for searches by CPUs and memory.
    ///
    /// The root is at 1, and the children of `i` are at `2i` and `2i + 1`. The leaf of CPU count `c` is at `len / 2 +
    /// c`. Each entry is the largest memory of the nodes below it; `None` if there are none.
    most_memory: Vec<Option<u64>>,
}

impl ClassIndex {
    fn remove(&mut self, fit: &Fit) {
        self.order.remove(fit);
        self.settle(fit.cpus);
    }

    fn insert(&mut self, fit: Fit) {
        self.order.insert(fit);
        self.make_room(fit.cpus);
        self.settle(fit.cpus);
    }

    /// Returns the first node in best-fit order that has at least `cpus` CPUs and `memory_bytes` memory.
    fn best(&self, cpus: u32, memory_bytes: u64) -> Option<Fit> {
        let cpus = self.lowest_count(cpus, memory_bytes)?;
        let class = self.class()?;
        let from = Fit { class, cpus, memory_bytes, gpus: 0, node: NodeIx(0) };
        let best = self.order.range(from..).next().expect("the set has a node for each CPU count in the tree");
        debug_assert_eq!(best.cpus, cpus, "the set and the tree have the same CPU count");
        Some(*best)
    }

    /// Iterates over the nodes with at least `cpus` CPUs and `memory_bytes` memory, the best first. Each step costs as
    /// much as [`Self::best`].
    fn all(&self, cpus: u32, memory_bytes: u64) -> impl Iterator<Item = Fit> {
        std::iter::successors(self.best(cpus, memory_bytes), move |last| self.after(last, memory_bytes))
    }

    /// Returns the next node after `last` in best-fit order that has enough memory.
    fn after(&self, last: &Fit, memory_bytes: u64) -> Option<Fit> {
        let next = self.order.range((Bound::Excluded(*last), Bound::Unbounded)).next()?;
        if next.cpus == last.cpus {
            // With the same CPU count it has at least as much memory.
            return Some(*next);
        }
        self.best(next.cpus, memory_bytes)
    }

    /// Returns the class that all nodes in this index have; `None` if it is empty.
    fn class(&self) -> Option<Class> {
        self.order.first().map(|fit| fit.class)
    }

    /// Returns the highest CPU count of a node; zero if there are no nodes.
    fn most_cpus(&self) -> u32 {
        self.order.last().map_or(0, |fit| fit.cpus)
    }

    /// Returns the lowest CPU count, at least `cpus`, for which a node has enough memory.
    fn lowest_count(&self, cpus: u32, memory_bytes: u64) -> Option<u32> {
        let leaves = self.most_memory.len() / 2;
        let has_enough = |at: usize| self.most_memory[at].is_some_and(|most| most >= memory_bytes);
        if cpus as usize >= leaves {
            return None;
        }
        // Go up until a subtree to the right contains an answer, then down to its leftmost leaf with one.
        let mut at = leaves + cpus as usize;
        while !has_enough(at) {
            while at % 2 == 1 {
                at /= 2;
            }
            if at == 0 {
                return None;
            }
            at += 1;
        }
        while at < leaves {
            at = if has_enough(2 * at) { 2 * at } else { 2 * at + 1 };
        }
        Some((at - leaves) as u32)
    }

    /// Updates the tree entries for one CPU count from the set of nodes.
    fn settle(&mut self, cpus: u32) {
        let up_to = |class| Fit { class, cpus, memory_bytes: u64::MAX, gpus: u32::MAX, node: NodeIx(u32::MAX) };
        let richest = self.class().and_then(|class| self.order.range(..=up_to(class)).next_back());
        let richest = richest.filter(|fit| fit.cpus == cpus);
        let mut most = richest.map(|fit| fit.memory_bytes);
        let mut at = self.most_memory.len() / 2 + cpus as usize;
        while at > 0 && self.most_memory[at] != most {
            self.most_memory[at] = most;
            // The root has no sibling: entry 0 takes its place and is always empty.
            most = most.max(self.most_memory[at ^ 1]);
            at /= 2;
        }
    }

    /// Grows the tree until it has a leaf for `cpus`.
    fn make_room(&mut self, cpus: u32) {
        let leaves = (cpus as usize + 1).next_power_of_two();
        if leaves <= self.most_memory.len() / 2 {
            return;
        }
        self.most_memory = vec![None; 2 * leaves];
        for fit in &self.order {
            let leaf = &mut self.most_memory[leaves + fit.cpus as usize];
            *leaf = (*leaf).max(Some(fit.memory_bytes));
        }
        for at in (1..leaves).rev() {
            self.most_memory[at] = self.most_memory[2 * at].max(self.most_memory[2 * at + 1]);
        }
    }
}

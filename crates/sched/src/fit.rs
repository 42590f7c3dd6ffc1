//! An index of nodes by an amount each, which answers best fit in logarithmic time.
//!
//! A set keeps the nodes in best-fit order: fewest CPUs, then least memory. The first node of that order that satisfies a
//! request is the answer, but the nodes that satisfy it are not contiguous: between two of them may lie many with enough CPUs
//! and too little memory. So a tournament tree over CPU counts says for each range of counts how much memory the best-off node
//! has. The leftmost count that is high enough and has a node with enough memory is found in it, and the node in the set.
//! Finding none costs no more, so refusals need no memo.

use std::collections::BTreeSet;
use std::ops::Bound;

use hostler_model::Request;

use crate::NodeIx;

/// How best fit compares nodes: fewer CPUs first, then less memory, then the node that was known first.
///
/// Fields are compared in the order in which they stand here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fit {
    cpus: u32,
    memory_bytes: u64,
    pub(crate) node: NodeIx,
}

impl Fit {
    pub(crate) const fn new(node: NodeIx, amount: &Request) -> Self {
        Self { cpus: amount.cpus, memory_bytes: amount.memory_bytes, node }
    }
}

/// Nodes by an amount each: what they have, or what they have free.
#[derive(Debug, Clone, Default)]
pub(crate) struct FitIndex {
    order: BTreeSet<Fit>,
    /// A complete binary tree in the usual array form: the root is 1, the children of `i` are `2i` and `2i + 1`, the leaf of
    /// CPU count `c` is `len / 2 + c`. Each holds the most memory of any node below it, or `None` without nodes.
    most_memory: Vec<Option<u64>>,
}

impl FitIndex {
    /// Puts a node where it belongs after its amount has changed. `None` means that it is not in the index.
    pub(crate) fn replace(&mut self, node: NodeIx, before: Option<Request>, after: Option<Request>) {
        if before == after {
            return;
        }
        if let Some(amount) = before {
            self.order.remove(&Fit::new(node, &amount));
            self.settle(amount.cpus);
        }
        if let Some(amount) = after {
            self.order.insert(Fit::new(node, &amount));
            self.make_room(amount.cpus);
            self.settle(amount.cpus);
        }
    }

    /// The node with the least that satisfies the request.
    pub(crate) fn best(&self, request: &Request) -> Option<Fit> {
        let cpus = self.lowest_count(request)?;
        let from = Fit { cpus, memory_bytes: request.memory_bytes, node: NodeIx(0) };
        let best = self.order.range(from..).next().expect("the tree knows of a node with this count and enough memory");
        debug_assert_eq!(best.cpus, cpus, "the tree and the set disagree");
        Some(*best)
    }

    /// Every node that satisfies the request, the best first. Takes as long as the best does for each that is asked for.
    pub(crate) fn all(&self, request: &Request) -> impl Iterator<Item = Fit> {
        let request = *request;
        std::iter::successors(self.best(&request), move |last| self.after(last, &request))
    }

    /// The node that satisfies the request and comes next after `last`, which satisfies it too.
    fn after(&self, last: &Fit, request: &Request) -> Option<Fit> {
        let next = self.order.range((Bound::Excluded(*last), Bound::Unbounded)).next()?;
        if next.cpus == last.cpus {
            // With as many CPUs it has no less memory.
            return Some(*next);
        }
        self.best(&Request { cpus: next.cpus, ..*request })
    }

    /// The most CPUs of any node, zero without nodes.
    pub(crate) fn most_cpus(&self) -> u32 {
        self.order.last().map_or(0, |fit| fit.cpus)
    }

    /// The lowest CPU count of at least `request.cpus` at which a node has enough memory.
    fn lowest_count(&self, request: &Request) -> Option<u32> {
        let leaves = self.most_memory.len() / 2;
        let has_enough = |at: usize| self.most_memory[at].is_some_and(|most| most >= request.memory_bytes);
        if request.cpus as usize >= leaves {
            return None;
        }
        // Up, until the subtree holds an answer and nothing left of the request; then down, to the leftmost leaf of it.
        let mut at = leaves + request.cpus as usize;
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

    /// Brings the tree in line with the set for one CPU count.
    fn settle(&mut self, cpus: u32) {
        let up_to = Fit { cpus, memory_bytes: u64::MAX, node: NodeIx(u32::MAX) };
        let richest = self.order.range(..=up_to).next_back().filter(|fit| fit.cpus == cpus);
        let mut most = richest.map(|fit| fit.memory_bytes);
        let mut at = self.most_memory.len() / 2 + cpus as usize;
        while at > 0 && self.most_memory[at] != most {
            self.most_memory[at] = most;
            // The root has no sibling: entry 0 stands in for one and is always empty.
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

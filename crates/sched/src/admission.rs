//! Whether a request can ever be satisfied, asked once when a job is submitted.

use std::cmp::Reverse;
use std::fmt;

use hostler_model::{NodeName, Request, format_bytes};

use crate::Pool;
use crate::amount::covers;

/// Why a request can never be satisfied by the nodes there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NeverFits {
    /// There is no node at all. Whether to wait for one is for the caller to decide.
    #[error("the cluster has no nodes yet")]
    NoNodes,
    /// Nodes are large enough, but too few of them, whatever state they are in.
    #[error("asks for {nodes} nodes at once, each with {}; {}", Size(.request), Able(*.able))]
    TooFewNodes {
        /// How many nodes were asked for.
        nodes: u32,
        /// What was asked for on each.
        request: Request,
        /// How many are large enough.
        able: usize,
    },
    /// No node is large enough, whatever state it is in.
    #[error("asks for {}; {}", Size(.request), Largest(.most_cpus, .most_memory))]
    TooLarge {
        /// What was asked for.
        request: Request,
        /// The node with the most CPUs, and the most memory among those.
        most_cpus: NodeSize,
        /// The node with the most memory, and the most CPUs among those. Often the same.
        most_memory: NodeSize,
    },
}

/// A node and what it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSize {
    /// The node.
    pub node: NodeName,
    /// What it has in all.
    pub total: Request,
}

impl Pool {
    /// Checks that `nodes` nodes could run the request each if they were up and nothing else ran there. Nodes that are down
    /// count: they come back.
    ///
    /// # Errors
    /// When there are no such nodes.
    pub fn admit(&self, request: &Request, nodes: u32) -> Result<(), NeverFits> {
        if self.could_ever_run(request, nodes) {
            return Ok(());
        }
        let able = self.able(request);
        if able > 0 {
            return Err(NeverFits::TooFewNodes { nodes, request: *request, able });
        }
        let most_cpus = largest(self, |total| (u64::from(total.cpus), total.memory_bytes)).ok_or(NeverFits::NoNodes)?;
        let most_memory =
            largest(self, |total| (total.memory_bytes, u64::from(total.cpus))).ok_or(NeverFits::NoNodes)?;
        // One node that is as large as the other in both is all there is to say.
        let is_largest = covers(&most_cpus.total, &most_memory.total);
        let most_memory = if is_largest { most_cpus.clone() } else { most_memory };
        Err(NeverFits::TooLarge { request: *request, most_cpus, most_memory })
    }
}

/// The node that is the greatest by `size`, the first one of equals.
fn largest(pool: &Pool, size: impl Fn(&Request) -> (u64, u64)) -> Option<NodeSize> {
    let (_, Reverse(ix)) = pool.nodes().map(|(ix, node)| (size(&node.total), Reverse(ix))).max()?;
    let node = pool.expect(ix);
    Some(NodeSize { node: node.name.clone(), total: node.total })
}

/// `4 CPUs and 16G of memory`; memory is left out when none is asked for.
struct Size<'a>(&'a Request);

impl fmt::Display for Size<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.cpus {
            1 => f.write_str("1 CPU")?,
            cpus => write!(f, "{cpus} CPUs")?,
        }
        match self.0.memory_bytes {
            0 => Ok(()),
            memory => write!(f, " and {} of memory", format_bytes(memory)),
        }
    }
}

/// How many nodes have what it takes.
struct Able(usize);

impl fmt::Display for Able {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("only one node has that"),
            able => write!(f, "only {able} nodes have that"),
        }
    }
}

/// The largest node, or the two that are largest in their own way.
struct Largest<'a>(&'a NodeSize, &'a NodeSize);

impl fmt::Display for Largest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(cpus, memory) = self;
        if cpus == memory {
            return write!(f, "the largest node, {}, has {}", cpus.node, Size(&cpus.total));
        }
        let (first, second) = (Size(&cpus.total), Size(&memory.total));
        write!(f, "the largest nodes are {} with {first} and {} with {second}", cpus.node, memory.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeIx;

    const G: u64 = 1 << 30;

    fn pool(nodes: &[(&str, u32, u64, bool)]) -> Pool {
        let mut pool = Pool::default();
        for (ix, (name, cpus, memory_bytes, is_usable)) in nodes.iter().enumerate() {
            let total = Request { cpus: *cpus, memory_bytes: *memory_bytes };
            pool.set(NodeIx(ix as u32), &name.parse().expect("a name"), total, total, *is_usable);
        }
        pool
    }

    fn refusal(pool: &Pool, cpus: u32, memory_bytes: u64) -> String {
        pool.admit(&Request { cpus, memory_bytes }, 1).expect_err("too large").to_string()
    }

    #[test]
    fn what_fits_somewhere_is_admitted_even_when_that_node_is_down() {
        let pool = pool(&[("n1", 2, 4 * G, true), ("n2", 8, 4 * G, false)]);
        assert_eq!(pool.admit(&Request { cpus: 8, memory_bytes: 4 * G }, 1), Ok(()));
    }

    #[test]
    fn several_nodes_must_be_there_at_once() {
        let pool = pool(&[("n1", 2, 4 * G, true), ("n2", 8, 4 * G, false), ("n3", 4, 4 * G, true)]);
        let request = Request { cpus: 4, memory_bytes: 4 * G };
        assert_eq!(pool.admit(&request, 2), Ok(()));
        let refused = pool.admit(&request, 3).expect_err("n1 is too small").to_string();
        assert_eq!(refused, "asks for 3 nodes at once, each with 4 CPUs and 4G of memory; only 2 nodes have that");
    }

    #[test]
    fn the_refusal_says_what_was_asked_and_what_there_is() {
        let nodes = pool(&[("n1", 4, 8 * G, true), ("n3", 4, 16 * G, true), ("n4", 4, 16 * G, true)]);
        let text = "asks for 64 CPUs and 1T of memory; the largest node, n3, has 4 CPUs and 16G of memory";
        assert_eq!(refusal(&nodes, 64, 1024 * G), text);
        let nodes = pool(&[("wide", 64, 16 * G, true), ("deep", 4, 1024 * G, true)]);
        let text = "asks for 8 CPUs and 512G of memory; \
                    the largest nodes are wide with 64 CPUs and 16G of memory and deep with 4 CPUs and 1T of memory";
        assert_eq!(refusal(&nodes, 8, 512 * G), text);
    }

    #[test]
    fn no_nodes_is_a_case_of_its_own() {
        assert_eq!(Pool::default().admit(&Request { cpus: 1, memory_bytes: 1 }, 1), Err(NeverFits::NoNodes));
    }
}

//! Whether a request can ever be satisfied, asked once when a job is submitted.

use std::cmp::Reverse;
use std::fmt;

use hostler_model::{NodeName, Request, format_bytes};

use crate::amount::covers;
use crate::{NodeSet, Pool, Waiting};

/// Why a request can never be satisfied by the nodes there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NeverFits {
    /// There is no node at all. Whether to wait for one is for the caller to decide.
    #[error("the cluster has no nodes yet")]
    NoNodes,
    /// There are nodes, but none that the job may use. Why not is for the caller to say.
    #[error("may use none of the nodes")]
    NoneMay,
    /// No node has as many GPUs.
    #[error("asks for {}; {}", Gpus(*.gpus), MostGpus(.most))]
    TooFewGpus {
        /// How many were asked for.
        gpus: u32,
        /// The node with the most.
        most: NodeSize,
    },
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
    /// Checks that as many nodes as the job asks for could run it if they were up and nothing else ran there. Nodes that are down
    /// count: they come back.
    ///
    /// # Errors
    /// When there are no such nodes.
    pub fn admit(&self, job: &Waiting) -> Result<(), NeverFits> {
        if self.could_ever_run(job) {
            return Ok(());
        }
        let Waiting { request, nodes, .. } = job;
        let able = self.able(job);
        if able > 0 {
            return Err(NeverFits::TooFewNodes { nodes: *nodes, request: *request, able });
        }
        let largest = |size: fn(&Request) -> (u64, u64)| largest(self, job.among(), size);
        let Some(most_cpus) = largest(|total| (u64::from(total.cpus), total.memory_bytes)) else {
            return Err(if job.among.is_some() { NeverFits::NoneMay } else { NeverFits::NoNodes });
        };
        let most_gpus = largest(|total| (u64::from(total.gpus), u64::from(total.cpus))).expect("there is a node");
        if most_gpus.total.gpus < request.gpus {
            return Err(NeverFits::TooFewGpus { gpus: request.gpus, most: most_gpus });
        }
        let most_memory = largest(|total| (total.memory_bytes, u64::from(total.cpus))).expect("there is a node");
        // One node that is as large as the other in both is all there is to say.
        let is_largest = covers(&most_cpus.total, &most_memory.total);
        let most_memory = if is_largest { most_cpus.clone() } else { most_memory };
        Err(NeverFits::TooLarge { request: *request, most_cpus, most_memory })
    }
}

/// The node that is the greatest by `size` among those that may be used, the first one of equals.
fn largest(pool: &Pool, among: Option<&NodeSet>, size: impl Fn(&Request) -> (u64, u64)) -> Option<NodeSize> {
    let may = |ix| among.is_none_or(|among| among.contains(ix));
    let nodes = pool.nodes().filter(|(ix, _)| may(*ix));
    let (_, Reverse(ix)) = nodes.map(|(ix, node)| (size(&node.total), Reverse(ix))).max()?;
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

/// `2 GPUs`.
struct Gpus(u32);

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 GPU"),
            gpus => write!(f, "{gpus} GPUs"),
        }
    }
}

/// The node with the most GPUs, if it has any.
struct MostGpus<'a>(&'a NodeSize);

impl fmt::Display for MostGpus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.total.gpus {
            0 => f.write_str("no node has one"),
            gpus => write!(f, "no node has more than {}, which has {}", self.0.node, Gpus(gpus)),
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
    use std::sync::Arc;

    use hostler_model::JobId;

    use super::*;
    use crate::NodeIx;

    const G: u64 = 1 << 30;

    fn pool(nodes: &[(&str, u32, u64, bool)]) -> Pool {
        let mut pool = Pool::default();
        for (ix, (name, cpus, memory_bytes, is_usable)) in nodes.iter().enumerate() {
            let total = Request { cpus: *cpus, memory_bytes: *memory_bytes, gpus: 0 };
            pool.set(NodeIx(ix as u32), &name.parse().expect("a name"), total, total, *is_usable);
        }
        pool
    }

    fn on_nodes(nodes: u32, cpus: u32, memory_bytes: u64) -> Waiting {
        let request = Request { cpus, memory_bytes, gpus: 0 };
        Waiting { job: JobId(1), request, nodes, among: None, tasks: 1, time_limit_ms: None }
    }

    fn refusal(pool: &Pool, cpus: u32, memory_bytes: u64) -> String {
        pool.admit(&on_nodes(1, cpus, memory_bytes)).expect_err("too large").to_string()
    }

    #[test]
    fn what_fits_somewhere_is_admitted_even_when_that_node_is_down() {
        let pool = pool(&[("n1", 2, 4 * G, true), ("n2", 8, 4 * G, false)]);
        assert_eq!(pool.admit(&on_nodes(1, 8, 4 * G)), Ok(()));
    }

    #[test]
    fn several_nodes_must_be_there_at_once() {
        let pool = pool(&[("n1", 2, 4 * G, true), ("n2", 8, 4 * G, false), ("n3", 4, 4 * G, true)]);
        assert_eq!(pool.admit(&on_nodes(2, 4, 4 * G)), Ok(()));
        let refused = pool.admit(&on_nodes(3, 4, 4 * G)).expect_err("n1 is too small").to_string();
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
        assert_eq!(Pool::default().admit(&on_nodes(1, 1, 1)), Err(NeverFits::NoNodes));
    }

    #[test]
    fn only_nodes_that_may_be_used_count() {
        let pool = pool(&[("n1", 2, 4 * G, true), ("n2", 8, 4 * G, false)]);
        let among = |nodes: &[u32]| {
            let among = Some(Arc::new(nodes.iter().copied().map(NodeIx).collect()));
            pool.admit(&Waiting { among, ..on_nodes(1, 4, G) })
        };
        assert_eq!(among(&[0, 1]), Ok(()));
        let text = "asks for 4 CPUs and 1G of memory; the largest node, n1, has 2 CPUs and 4G of memory";
        assert_eq!(among(&[0]).expect_err("n2 may not be used").to_string(), text);
        assert_eq!(among(&[]), Err(NeverFits::NoneMay));
    }

    #[test]
    fn gpus_are_refused_by_name() {
        let mut pool = pool(&[("n1", 2, 4 * G, true)]);
        let one_gpu = Request { cpus: 1, memory_bytes: 1, gpus: 2 };
        let refusal = |pool: &Pool| {
            pool.admit(&Waiting { request: one_gpu, ..on_nodes(1, 1, 1) }).expect_err("too few").to_string()
        };
        assert_eq!(refusal(&pool), "asks for 2 GPUs; no node has one");
        let total = Request { cpus: 2, memory_bytes: G, gpus: 1 };
        pool.set(NodeIx(1), &"gpu".parse().expect("a name"), total, total, true);
        assert_eq!(refusal(&pool), "asks for 2 GPUs; no node has more than gpu, which has 1 GPU");
    }
}

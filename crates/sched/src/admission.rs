//! Checks at submission whether a request can ever be satisfied.

use std::cmp::Reverse;
use std::fmt;

use hostler_model::{NodeName, Request, Shortfall};

use crate::amount::{NOTHING, at_most, scaled};
use crate::explain::closest;
use crate::{NodeSet, Pool, Waiting};

/// Why the cluster can never run a job, even if all nodes are up and idle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NeverFits {
    /// The cluster has no nodes. The caller decides whether the job waits for a node.
    #[error("the cluster has no nodes yet")]
    NoNodes,
    /// The job may use none of the cluster's nodes. The caller knows why.
    #[error("may use none of the nodes")]
    NoNodeAllowed,
    /// Every node has too few GPUs, or too little of a counted resource.
    #[error("asks for {asked}; {}", Most(.most))]
    TooFew {
        /// The requested amount of the missing resource.
        asked: Request,
        /// The node with the largest amount of this resource; `None` if no node has any.
        most: Option<NodeSize>,
    },
    /// Each requested resource is available on some node, but no single node has all requested resources.
    #[error("asks for {request}; no single node has all of it: closest is {closest}")]
    NotTogether {
        /// The request per node.
        request: Request,
        /// The node that lacks least, and what it lacks.
        closest: Shortfall,
    },
    /// Some nodes are large enough, but too few, regardless of their state.
    #[error("asks for {nodes} nodes at once, each with {request}; {}", Able(*.able))]
    TooFewNodes {
        /// The number of nodes that the job requests.
        nodes: u32,
        /// The request per node.
        request: Request,
        /// How many nodes are large enough.
        able: usize,
    },
    /// No node is large enough, regardless of the nodes' state.
    #[error("asks for {request}; {}", Largest(.most_cpus, .most_memory))]
    TooLarge {
        /// The request per node.
        request: Request,
        /// The node with the most CPUs; on a tie, with the most memory.
        most_cpus: NodeSize,
        /// The node with the most memory; on a tie, with the most CPUs. This is often the same node as `most_cpus`.
        most_memory: NodeSize,
    },
}

/// A node's name and its total resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSize {
    /// The name of the node.
    pub node: NodeName,
    /// The total resources of the node.
    pub total: Request,
}

impl Pool {
    /// Checks that enough nodes could run the job if they were up and idle. Nodes that are down count as well, since
    /// they may return.
    ///
    /// # Errors
    /// When too few nodes could run the job.
    pub fn admit(&self, job: &Waiting) -> Result<(), Box<NeverFits>> {
        if self.could_ever_run(job) {
            return Ok(());
        }
        let Waiting { request, nodes, .. } = job;
        let able = self.able(job);
        if able > 0 {
            return Err(Box::new(NeverFits::TooFewNodes { nodes: *nodes, request: request.clone(), able }));
        }
        let largest = |size: fn(&Request) -> (u64, u64)| largest(self, job.allowed_nodes(), size);
        let Some(most_cpus) = largest(|total| (u64::from(total.cpus), total.memory_bytes)) else {
            return Err(Box::new(if job.among.is_some() { NeverFits::NoNodeAllowed } else { NeverFits::NoNodes }));
        };
        if let Some(refusal) = request.each_rare().find_map(|asked| too_few(self, job, asked)) {
            return Err(Box::new(refusal));
        }
        let most_memory = largest(|total| (total.memory_bytes, u64::from(total.cpus)))
            .expect("the pool has at least one allowed node");
        let is_there = most_cpus.total.cpus >= request.cpus && most_memory.total.memory_bytes >= request.memory_bytes;
        if is_there && request.each_rare().next().is_some() {
            let nodes = self.nodes().filter(|(ix, _)| job.may_use(*ix));
            let closest = closest(nodes, request, |node| &node.total)
                .into_iter()
                .next()
                .expect("the pool has at least one allowed node");
            return Err(Box::new(NeverFits::NotTogether { request: request.clone(), closest }));
        }
        // If one node is largest in both, naming it is enough.
        let is_largest = most_cpus.total.memory_bytes == most_memory.total.memory_bytes;
        let most_memory = if is_largest { most_cpus.clone() } else { most_memory };
        Err(Box::new(NeverFits::TooLarge { request: request.clone(), most_cpus, most_memory }))
    }
}

/// Returns the refusal if no allowed node has the requested amount of the one resource in `asked`.
fn too_few(pool: &Pool, job: &Waiting, asked: Request) -> Option<NeverFits> {
    let limit = scaled(&asked, u32::MAX);
    let part = |total: &Request| at_most(total, &limit);
    let most = largest(pool, job.allowed_nodes(), |total| (part(total).amounts().sum(), 0));
    let most = most.map(|most| NodeSize { total: part(&most.total), ..most })?;
    let has_any = most.total != NOTHING;
    (!most.total.covers(&asked)).then(|| NeverFits::TooFew { asked, most: has_any.then_some(most) })
}

/// Returns the allowed node with the greatest `size`; the first one on a tie.
fn largest(pool: &Pool, among: Option<&NodeSet>, size: impl Fn(&Request) -> (u64, u64)) -> Option<NodeSize> {
    let may = |ix| among.is_none_or(|among| among.contains(ix));
    let nodes = pool.nodes().filter(|(ix, _)| may(*ix));
    let (_, Reverse(ix)) = nodes.map(|(ix, node)| (size(&node.total), Reverse(ix))).max()?;
    let node = pool.expect(ix);
    Some(NodeSize { node: node.name.clone(), total: node.total.clone() })
}

/// Formats which node has the most of a resource.
struct Most<'a>(&'a Option<NodeSize>);

impl fmt::Display for Most<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("no node has any"),
            Some(most) => write!(f, "no node has more than {}, which has {}", most.node, most.total),
        }
    }
}

/// Formats the number of nodes that are large enough for a job.
struct Able(usize);

impl fmt::Display for Able {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("only one node is large enough"),
            able => write!(f, "only {able} nodes are large enough"),
        }
    }
}

/// Formats the largest node, or the node with the most CPUs and the node with the most memory.
struct Largest<'a>(&'a NodeSize, &'a NodeSize);

impl fmt::Display for Largest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(cpus, memory) = self;
        if cpus == memory {
            return write!(f, "the largest node, {}, has {}", cpus.node, cpus.total);
        }
        let (first, second) = (&cpus.total, &memory.total);
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
            let total = Request::new(*cpus, *memory_bytes);
            pool.set(NodeIx(ix as u32), &name.parse().expect("a name"), &total, &total, *is_usable);
        }
        pool
    }

    fn on_nodes(nodes: u32, cpus: u32, memory_bytes: u64) -> Waiting {
        let request = Request::new(cpus, memory_bytes);
        Waiting { job: JobId(1), request, nodes, exclusive: false, among: None, tasks: 1, time_limit_ms: None }
    }

    fn refusal(pool: &Pool, cpus: u32, memory_bytes: u64) -> String {
        pool.admit(&on_nodes(1, cpus, memory_bytes)).expect_err("too large").to_string()
    }

    #[test]
    fn request_that_fits_a_down_node_is_admitted() {
        let pool = pool(&[("n1", 2, 4 * G, true), ("n2", 8, 4 * G, false)]);
        assert_eq!(pool.admit(&on_nodes(1, 8, 4 * G)), Ok(()));
    }

    #[test]
    fn request_for_several_nodes_needs_that_many() {
        let pool = pool(&[("n1", 2, 4 * G, true), ("n2", 8, 4 * G, false), ("n3", 4, 4 * G, true)]);
        assert_eq!(pool.admit(&on_nodes(2, 4, 4 * G)), Ok(()));
        let refused = pool.admit(&on_nodes(3, 4, 4 * G)).expect_err("n1 is too small").to_string();
        assert_eq!(
            refused,
            "asks for 3 nodes at once, each with 4 CPUs and 4G of memory; only 2 nodes are large enough"
        );
    }

    #[test]
    fn refusal_names_the_request_and_the_largest_nodes() {
        let nodes = pool(&[("n1", 4, 8 * G, true), ("n3", 4, 16 * G, true), ("n4", 4, 16 * G, true)]);
        let text = "asks for 64 CPUs and 1T of memory; the largest node, n3, has 4 CPUs and 16G of memory";
        assert_eq!(refusal(&nodes, 64, 1024 * G), text);
        let nodes = pool(&[("wide", 64, 16 * G, true), ("deep", 4, 1024 * G, true)]);
        let text = "asks for 8 CPUs and 512G of memory; \
                    the largest nodes are wide with 64 CPUs and 16G of memory and deep with 4 CPUs and 1T of memory";
        assert_eq!(refusal(&nodes, 8, 512 * G), text);
    }

    #[test]
    fn cluster_without_nodes_has_its_own_refusal() {
        assert_eq!(Pool::default().admit(&on_nodes(1, 1, 1)), Err(Box::new(NeverFits::NoNodes)));
    }

    #[test]
    fn only_allowed_nodes_count() {
        let pool = pool(&[("n1", 2, 4 * G, true), ("n2", 8, 4 * G, false)]);
        let admit = |nodes: &[u32]| {
            let among = Some(Arc::new(nodes.iter().copied().map(NodeIx).collect()));
            pool.admit(&Waiting { among, ..on_nodes(1, 4, G) })
        };
        assert_eq!(admit(&[0, 1]), Ok(()));
        let text = "asks for 4 CPUs and 1G of memory; the largest node, n1, has 2 CPUs and 4G of memory";
        assert_eq!(admit(&[0]).expect_err("n2 may not be used").to_string(), text);
        assert_eq!(admit(&[]), Err(Box::new(NeverFits::NoNodeAllowed)));
    }

    #[test]
    fn refusal_names_the_scarce_resource() {
        let mut pool = pool(&[("n1", 2, 4 * G, true)]);
        let refusal = |pool: &Pool, request: Request| {
            pool.admit(&Waiting { request, ..on_nodes(1, 1, 1) }).expect_err("too few").to_string()
        };
        let gpus = |gpus| Request { gpus, ..Request::new(1, 1) };
        let counted = |text: &str| Request { counted: text.parse().expect(text), ..Request::new(1, 1) };
        assert_eq!(refusal(&pool, gpus(2)), "asks for 2 GPUs; no node has any");
        assert_eq!(refusal(&pool, counted("license=2")), "asks for license=2; no node has any");
        let total = Request { gpus: 1, counted: counted("license=1,plate=9").counted, ..Request::new(2, G) };
        pool.set(NodeIx(1), &"lab".parse().expect("a name"), &total, &total, true);
        assert_eq!(refusal(&pool, gpus(2)), "asks for 2 GPUs; no node has more than lab, which has 1 GPU");
        let text = "asks for license=2; no node has more than lab, which has license=1";
        assert_eq!(refusal(&pool, counted("license=2,plate=5")), text);
        let text = "asks for 2 CPUs, 2G of memory and license=1; no single node has all of it: \
                    closest is lab, which lacks 1G of memory";
        assert_eq!(refusal(&pool, Request { cpus: 2, memory_bytes: 2 * G, ..counted("license") }), text);
    }
}

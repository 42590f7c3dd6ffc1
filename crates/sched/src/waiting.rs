//! Jobs in the queue.

use std::sync::Arc;

use hostler_model::{JobId, Request};

use crate::{NodeIx, NodeSet};

/// A startable job in the queue: not on hold, and without unmet dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The job.
    pub job: JobId,
    /// The resources of each task on each of its nodes; at least one CPU.
    pub request: Request,
    /// The number of nodes of each task, all at once; at least one.
    pub nodes: u32,
    /// Whether each task needs idle nodes and takes all their resources. `request` is then the least that a node has.
    pub exclusive: bool,
    /// The nodes that the job may use; all when absent. Jobs with the same set should share it.
    pub among: Option<Arc<NodeSet>>,
    /// How many of its tasks may start now.
    pub tasks: u64,
    /// The time limit of each task in milliseconds; none when absent.
    pub time_limit_ms: Option<u64>,
}

impl Waiting {
    /// The nodes that the job may use; all when absent.
    pub(crate) fn allowed_nodes(&self) -> Option<&NodeSet> {
        self.among.as_deref()
    }

    pub(crate) fn may_use(&self, node: NodeIx) -> bool {
        self.allowed_nodes().is_none_or(|among| among.contains(node))
    }
}

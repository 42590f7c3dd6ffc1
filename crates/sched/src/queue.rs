//! The queue that a pass takes its jobs from.

use hostler_model::JobId;

use crate::{NodeIx, Waiting};

/// A number of tasks of a job that start on the same nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The job's id.
    pub job: JobId,
    /// The nodes, each once, as many as the job requests. Every task runs on all these nodes.
    pub nodes: Vec<NodeIx>,
    /// The number of tasks, at least one.
    pub count: u32,
}

/// Jobs in scheduling order. The order of later jobs may depend on what has started in the same pass.
pub trait Queue {
    /// Returns the next job; `None` after the last. A job may come several times, with some of its tasks each time.
    ///
    /// `started` are the tasks that start of the job that was returned last; none before the first. If they are fewer than the job
    /// had, no more of its tasks can start in this pass.
    fn next(&mut self, started: &[Start]) -> Option<Waiting>;
}

/// A fixed order.
impl<I: Iterator<Item = Waiting>> Queue for I {
    fn next(&mut self, _started: &[Start]) -> Option<Waiting> {
        Iterator::next(self)
    }
}

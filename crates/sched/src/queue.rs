//! The queue that a pass takes its jobs from.

use crate::{Start, Waiting};

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

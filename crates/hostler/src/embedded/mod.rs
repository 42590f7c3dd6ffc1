//! Starts and stops the embedded cluster of `hostler up`.
//!
//! [`start`] starts processes that do not run, [`stop`] stops all. No supervisor is
//! needed: the head stores all jobs on disk and running jobs do not depend on their agent, so the next `hostler up` can start
//! a process that has died.

mod elastic;
mod lock;
pub(crate) mod start;
pub(crate) mod stop;

pub(crate) use lock::Lock;

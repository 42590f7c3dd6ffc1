//! Real clusters for tests: the real executable, real daemons, in a home of their own that is gone afterwards.
//!
//! [`Cluster`] is a home with or without a running cluster; [`wait_until`] waits for conditions. Nothing here knows how Hostler works
//! inside: tests speak to it as users do, by the command line.

mod cluster;
mod processes;
mod wait;

pub use cluster::{Cluster, Outcome, Size};
pub use processes::{is_alive, kill, processes_with};
pub use wait::wait_until;

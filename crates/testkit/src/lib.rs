//! Real clusters for tests: the real executable, real daemons, in a home of their own that is gone afterwards.
//!
//! [`Cluster`] is a home with or without a running cluster; [`wait_until`] waits for conditions; [`SharedCluster`] has several users;
//! [`SmallDisk`] fills up soon; [`Network`] lays out hosts with links that can be cut. Nothing here knows how Hostler works inside: tests
//! speak to it as users do, by the command line.

mod cluster;
mod disk;
mod network;
mod processes;
mod shared;
mod wait;

pub use cluster::{Cluster, Outcome, Size};
pub use disk::{SmallDisk, fill_disk, mount_for_this_thread};
pub use network::{Daemon, Host, Network};
pub use processes::{is_alive, kill, processes_with};
pub use shared::SharedCluster;
pub use wait::wait_until;

//! Real clusters for tests: the real executable, real daemons, in a home of their own that is gone afterwards.
//!
//! [`Cluster`] is a home with or without a running cluster; [`RealCluster`] is one whose head and nodes were set up by hand; [`SharedCluster`]
//! has several users; [`Network`] lays out hosts with links that can be cut and power that can fail; [`Slurm`] is another cluster to borrow
//! from; [`SmallDisk`] fills up soon; [`wait_until`] waits for conditions. Nothing here knows how Hostler works inside: tests speak to it as
//! users do, by the command line.

mod cluster;
mod disk;
mod emulators;
mod network;
mod processes;
mod program;
mod real;
mod shared;
mod slurm;
mod wait;

pub use cluster::{Cluster, Outcome, Size};
pub use disk::{SmallDisk, fill_disk, mount_for_this_thread};
pub use emulators::{ipmi_sim, sushy_emulator};
pub use network::{Daemon, Host, Network};
pub use processes::{is_alive, kill, processes_with};
pub use program::{Running, free_port, program};
pub use real::{RealCluster, end};
pub use shared::{SharedCluster, invite};
pub use slurm::Slurm;
pub use wait::wait_until;

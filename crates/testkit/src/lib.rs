//! Real clusters for tests: the real executable and real daemons, in temporary directories.
//!
//! - [`Cluster`]: a private home, with or without an embedded cluster.
//! - [`RealCluster`]: a head and nodes, set up by the documented commands.
//! - [`SharedCluster`]: a cluster with several users.
//! - [`Network`]: hosts with links that can be cut and power that can fail.
//! - [`Slurm`]: a Slurm cluster that lends nodes.
//! - [`SlurmNames`]: a cluster with commands that have the names of Slurm's.
//! - [`SmallDisk`]: a small file system that can be filled.
//! - [`wait_until`]: waits for conditions.
//! - [`hide_people_for_this_thread`], [`replace_people_for_this_thread`]: accounts that only a test sees.
//! - [`Random`]: random numbers from a seed.
//!
//! The crate does not depend on Hostler's internals: tests use the command line, like users.

mod accounts;
mod cluster;
mod disk;
mod emulators;
mod hanging_disk;
mod network;
mod processes;
mod program;
mod random;
mod real;
mod shared;
mod slurm;
mod slurm_names;
mod wait;

pub use accounts::{Person, hide_people_for_this_thread, replace_people_for_this_thread};
pub use cluster::{Cluster, Outcome, Size, create_private};
pub use disk::{SmallDisk, fill_disk, mount_for_this_thread};
pub use emulators::{ipmi_sim, sushy_emulator};
pub use hanging_disk::HangingDisk;
pub use network::{Daemon, Host, Network};
pub use processes::{is_alive, kill, listening_name, processes_with};
pub use program::{Running, free_port, program};
pub use random::Random;
pub use real::{RealCluster, end};
pub use shared::{SharedCluster, invite};
pub use slurm::Slurm;
pub use slurm_names::SlurmNames;
pub use wait::wait_until;

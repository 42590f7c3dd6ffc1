//! The embedded cluster: a head and virtual nodes on this machine, as ordinary processes of this user.
//!
//! [`Places`] are its paths, [`Sizes`] the resources of its nodes, [`Record`] the processes that were started.
//! [`start`] starts processes that do not run, [`stop`] stops all. No supervisor is needed: the head stores all jobs
//! on disk and running jobs do not depend on their agent, so the next `hostler up` can start a process that has died.

mod elastic;
mod lock;
mod places;
mod process;
mod record;
mod running_head;
mod sizes;
pub(crate) mod start;
pub(crate) mod stop;

pub(crate) use lock::Lock;
pub(crate) use places::{Daemon, Places, ensure_controlled};
pub(crate) use process::daemon;
pub(crate) use record::{Record, Sizes};
pub(crate) use running_head::{RunningHead, wait_for_socket};
pub(crate) use sizes::Machine;

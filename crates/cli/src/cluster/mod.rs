//! The embedded cluster: a head and virtual nodes on this machine, as ordinary processes of this user.
//!
//! [`Places`] says where its files are, [`Sizes`] what its nodes have, [`Record`] which processes were started. [`start`] brings
//! up whatever of it does not run, [`stop`] takes it down. Nothing supervises the processes: the head keeps every job on disk and
//! running jobs do not depend on their agent, so a part that died is simply started again by the next `hostler up`.

mod lock;
mod places;
mod process;
mod record;
mod sizes;
pub(crate) mod start;
pub(crate) mod stop;

pub(crate) use lock::Lock;
pub(crate) use places::Places;
pub(crate) use process::daemon;
pub(crate) use record::Record;
pub(crate) use sizes::{Machine, Sizes};

//! The embedded cluster: a head and virtual nodes on this machine, as ordinary processes of this user.
//!
//! [`Places`] are its paths, [`Record`] the processes that were started. `hostler up` and `hostler down` start and stop them.

mod places;
pub mod process;
pub mod record;
mod running_head;
mod sizes;

pub use places::{Daemon, Places, ensure_controlled};
pub use process::daemon;
pub use record::{Record, Sizes};
pub use running_head::{HEAD_FILE, RunningHead, wait_for_socket};
pub use sizes::Machine;

//! Users of the cluster and of this machine.
//!
//! - [`local_socket`]: the socket for local users; [`roster`]: creation of accounts for the cluster's users.
//! - [`restrictions`]: accounts that may not run jobs.

pub(crate) mod local_socket;
pub(crate) mod restrictions;
pub(crate) mod roster;

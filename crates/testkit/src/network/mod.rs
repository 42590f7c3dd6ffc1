//! Hosts that share nothing but a network: machines for tests, made of the kernel's namespaces.
//!
//! A [`Host`] has its own network, hostname, process ids, `/etc`, `/var/lib`, `/run`, `/root`, `/home`, `/tmp` and control groups, so the commands
//! that the guides tell people to type work on it as they stand, as root and in the documented places. Hosts hang on one switch, a bridge,
//! by links that can be cut, made lossy or slowed down.
//!
//! Nothing has a name outside: a host lives as long as its first process, which reads a pipe that only the test holds. However the test ends,
//! the kernel ends every process of the host and takes its network apart.
//!
//! It needs root, `ip`, `nft` and `tc`, and says so; it never skips. Delay is absent: kernels without `netem` have none to offer.

mod groups;
mod host;
mod link;
mod switch;

pub use host::{Daemon, Host};
pub use switch::Network;

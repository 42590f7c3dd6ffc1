//! Hosts that share only a network: test machines made of kernel namespaces.
//!
//! A [`Host`] has its own network, hostname, process ids, `/etc`, `/var/lib`, `/run`, `/root`, `/home`, `/tmp` and
//! control groups. So the commands in the guides work on it unchanged, as root and with the documented paths. All
//! hosts are connected to one switch, a bridge. Their links can be cut, made lossy or slowed down.
//!
//! A host runs as long as its first process, which reads a pipe that only the test holds open. When the test ends, even
//! by a crash, the kernel ends every process of the host and removes its network.
//!
//! The tests need root, `ip`, `nft` and `tc`. Without these they fail with a message; they are never skipped. Delays
//! are not simulated, because some kernels lack `netem`.

mod groups;
mod host;
mod link;
mod process;
mod switch;

pub use host::{Daemon, Host};
pub use switch::Network;

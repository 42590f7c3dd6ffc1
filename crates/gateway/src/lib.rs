//! The gateway of a cluster: router, DHCP server, DNS server and VPN endpoint on the head's machine.
//!
//! A user writes a [`Description`]. A [`Setup`] renders it to files, and to the commands that load them. Each command has
//! a check, and a command that undoes it. All of this is pure code.
//!
//! [`Gateway`] writes the files and runs the commands. It keeps the previous files until a user confirms that the machine
//! is still reachable.
//!
//! The gateway manages one table of packet rules, a DHCP server, a VPN interface, addresses that it adds, and
//! forwarding on the interfaces in the description. It is not a firewall: it does not change other rules, and it does
//! not filter traffic of other networks.

mod changes;
mod clients;
mod command;
mod description;
mod error;
mod gateway;
mod keys;
mod mac;
mod mistake;
mod names;
mod others;
mod reading;
mod render;
mod setup;
mod status;
mod store;
mod subnet;

pub use clients::{Client, Clients};
pub use description::{Description, EXAMPLE, Machine, Management, Nodes, Pxe, Reach, Vpn};
pub use error::GatewayError;
pub use gateway::{Applied, DEFAULT_DIRECTORY, Gateway};
pub use keys::{KeyError, PrivateKey, PublicKey};
pub use mac::Mac;
pub use mistake::Mistake;
pub use names::{TABLE, VPN_INTERFACE};
pub use others::{Obstacle, obstacles};
pub use render::qr_code;
pub use setup::Setup;
pub use status::{ClientState, Connection, Lease, Planned, Running, Status, VpnStatus};
pub use store::Trial;
pub use subnet::{InterfaceAddress, Subnet};

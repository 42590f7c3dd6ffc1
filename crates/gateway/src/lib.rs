//! The head's machine as the gateway of its nodes: router, DHCP and DNS server, and VPN endpoint.
//!
//! A person writes a [`Description`]. It is rendered to a [`Setup`]: all that is to be set on the machine, as a value that can be printed,
//! compared and stored. What is ([`Observed`]), what there was before us ([`Found`]) and what is wanted give a list of [`Step`]s; that
//! is what is carried out, and what takes it back. Up to there everything is pure; [`Gateway`] is the thin shell that looks at the
//! machine and carries steps out, on trial until someone has confirmed that they are still there.
//!
//! It touches a table of packet rules, a DHCP server, a VPN interface and addresses of its own, and forwarding on the interfaces that
//! the description names. It is not the machine's firewall: rules of others, and everything that is not to or from its networks, are left alone.

mod clients;
mod description;
mod difference;
mod found;
mod keys;
mod mac;
mod machine;
mod mistake;
mod names;
mod others;
mod reading;
mod render;
mod setup;
mod steps;
mod subnet;
mod vpn_state;

pub use clients::{Client, Clients};
pub use description::{Description, EXAMPLE, Machine, Management, Nodes, Pxe, Reach, Vpn};
pub use difference::{differences, unified};
pub use found::{Found, FoundInterface};
pub use keys::{KeyError, PrivateKey, PublicKey};
pub use mac::Mac;
pub use machine::{
    Applied, ClientState, Confirmation, DEFAULT_DIRECTORY, Gateway, GatewayError, Lease, Planned, RolledBack, Running,
    Status, Trial, VpnStatus,
};
pub use mistake::Mistake;
pub use others::{Obstacle, obstacles};
pub use render::{profile, qr_code};
pub use setup::{InterfaceSetup, Setup, TABLE, VPN_INTERFACE, VpnSetup};
pub use steps::{Observed, ObservedInterface, Step, Wanted, WantedTable, WantedVpn, steps};
pub use subnet::{InterfaceAddress, Subnet};
pub use vpn_state::{ObservedVpn, Peer};

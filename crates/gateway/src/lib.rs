//! The gateway of a cluster: router, DHCP server, DNS server and VPN endpoint on the head's machine.
//!
//! A user writes a [`Description`], which is rendered to a [`Setup`]: all settings for the machine, as a value that can
//! be printed, compared and stored. The wanted setup, the machine's current state ([`Observed`]) and its original state
//! ([`OriginalState`]) determine a list of [`Step`]s. The same function computes the steps that undo a setup. All of this is
//! pure code.
//!
//! [`Gateway`] reads the machine's state and executes steps. A change is on trial until a user confirms that the
//! machine is still reachable.
//!
//! The gateway manages one table of packet rules, a DHCP server, a VPN interface, addresses that it adds, and
//! forwarding on the interfaces in the description. It is not a firewall: it does not change other rules, and it does
//! not filter traffic of other networks.

mod clients;
mod description;
mod difference;
mod found;
mod keys;
mod mac;
mod machine;
mod mistake;
mod names;
mod observed;
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
pub use found::{FoundInterface, OriginalState};
pub use keys::{KeyError, PrivateKey, PublicKey};
pub use mac::Mac;
pub use machine::{
    Applied, ClientState, Confirmation, DEFAULT_DIRECTORY, Gateway, GatewayError, Lease, Planned, RolledBack, Running,
    Status, Trial, VpnStatus,
};
pub use mistake::Mistake;
pub use names::{TABLE, VPN_INTERFACE};
pub use observed::{Observed, ObservedInterface};
pub use others::{Obstacle, obstacles};
pub use render::{profile, qr_code};
pub use setup::{InterfaceSetup, Setup, VpnSetup};
pub use steps::{Step, Wanted, WantedTable, WantedVpn, steps};
pub use subnet::{InterfaceAddress, Subnet};
pub use vpn_state::{ObservedVpn, Peer};

//! A valid description of the gateway.

use std::net::Ipv4Addr;

use crate::mac::Mac;
use crate::subnet::{InterfaceAddress, Subnet};

/// The example description that `hostler gateway plan --example` prints.
pub const EXAMPLE: &str = include_str!("example.toml");

/// This machine's name in the nodes' network.
pub(crate) const HEAD_NAME: &str = "head";

/// Suffix that a node's management controller has after the node's name.
pub(crate) const MANAGEMENT_SUFFIX: &str = "-mgmt";

/// A validated description of the gateway, without contradictions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The interface to the outside network.
    pub outer: String,
    pub nodes: Nodes,
    pub management: Option<Management>,
    pub machines: Vec<Machine>,
    /// The VPN for access from outside.
    pub vpn: Option<Vpn>,
    pub pxe: Option<Pxe>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    pub interface: String,
    /// This machine's address in the nodes' network.
    pub address: InterfaceAddress,
    pub domain: String,
    /// Whether nodes can reach the outside network.
    pub outside: bool,
    /// First and last address for machines that are not listed.
    pub pool: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Lease time in the format of dnsmasq, e.g. `12h`.
    pub lease: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Management {
    /// The interface to the management network. It may be the interface to the nodes' network.
    pub interface: String,
    /// This machine's address in the management network.
    pub address: InterfaceAddress,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Name of the machine, without the domain.
    pub name: String,
    /// MAC address of the machine's port in the nodes' network.
    pub mac: Mac,
    /// Address of the machine in the nodes' network.
    pub address: Ipv4Addr,
    /// MAC address of the machine's management controller, if the gateway's DHCP server serves the controller.
    pub management_mac: Option<Mac>,
    pub management_address: Option<Ipv4Addr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vpn {
    /// This machine's address in the VPN. Clients get other addresses of the same subnet.
    pub address: InterfaceAddress,
    /// UDP port on which this machine listens.
    pub port: u16,
    /// Host name or address, and port, that clients connect to. A router may forward this port to [`port`](Self::port).
    pub endpoint: (String, u16),
    /// Destinations that clients can reach, without duplicates.
    pub reach: Vec<Reach>,
}

/// A destination that VPN clients can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    Head,
    Nodes,
    Management,
    /// The outside network, with the same access as the nodes.
    Outside,
    /// A subnet behind the outer interface.
    Subnet(Subnet),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pxe {
    /// Boot file for BIOS.
    pub boot_file: String,
    /// Boot file for UEFI, if it differs.
    pub efi_boot_file: Option<String>,
    pub from: BootServer,
}

/// Source of the boot files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootServer {
    /// Another machine.
    At(Ipv4Addr),
    /// A directory on this machine.
    Here(String),
}

impl Description {
    /// Whether nodes and management controllers share a network segment, where packet rules cannot separate them.
    #[must_use]
    pub fn shares_segment(&self) -> bool {
        self.management.as_ref().is_some_and(|management| management.interface == self.nodes.interface)
    }
}

impl Vpn {
    /// Whether clients can reach a destination.
    #[must_use]
    pub fn reaches(&self, what: Reach) -> bool {
        self.reach.contains(&what)
    }
}

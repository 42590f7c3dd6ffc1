//! What a person says about the gateway, once it has been found to make sense.

use std::net::Ipv4Addr;

use crate::mac::Mac;
use crate::mistake::Mistake;
use crate::reading;
use crate::subnet::{InterfaceAddress, Subnet};

/// A description with comments, to begin with.
pub const EXAMPLE: &str = include_str!("example.toml");

/// How this machine itself is called in the node network.
pub(crate) const HEAD_NAME: &str = "head";

/// What follows a node's name in that of its management controller.
pub(crate) const MANAGEMENT_SUFFIX: &str = "-mgmt";

/// What the gateway is to be. Nothing in it contradicts anything else in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The interface beyond which the rest of the world is.
    pub outer: String,
    /// The network of the nodes.
    pub nodes: Nodes,
    /// The network of their management controllers.
    pub management: Option<Management>,
    /// The machines in these networks.
    pub machines: Vec<Machine>,
    /// The way in from elsewhere.
    pub vpn: Option<Vpn>,
    /// Where nodes start from, if from the network.
    pub pxe: Option<Pxe>,
}

/// The network of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// The interface to it.
    pub interface: String,
    /// This machine's address there.
    pub address: InterfaceAddress,
    /// The domain of the nodes' names.
    pub domain: String,
    /// Whether nodes may reach the rest of the world.
    pub outside: bool,
    /// First and last address for machines that are not listed.
    pub pool: Option<(Ipv4Addr, Ipv4Addr)>,
    /// How long a lease is good, as dnsmasq writes it: `12h`.
    pub lease: String,
}

/// The network of management controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Management {
    /// The interface to it, which may be that of the nodes.
    pub interface: String,
    /// This machine's address there.
    pub address: InterfaceAddress,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name, without domain.
    pub name: String,
    /// Its port in the node network.
    pub mac: Mac,
    /// Its address there.
    pub address: Ipv4Addr,
    /// The port of its management controller, if that is to get its address from here.
    pub management_mac: Option<Mac>,
    /// The address of its management controller.
    pub management_address: Option<Ipv4Addr>,
}

/// The way in from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vpn {
    /// This machine's address in the VPN; clients get the others of its subnet.
    pub address: InterfaceAddress,
    /// The UDP port at which this machine listens.
    pub port: u16,
    /// Where clients find this machine: a name or an address, and the port that leads to [`port`](Self::port).
    pub endpoint: (String, u16),
    /// What clients may reach, each once.
    pub reach: Vec<Reach>,
}

/// Something that clients of the VPN may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// This machine.
    Head,
    /// The node network.
    Nodes,
    /// The management network.
    Management,
    /// The rest of the world, as the nodes do.
    Outside,
    /// A subnet beyond the outer interface.
    Subnet(Subnet),
}

/// Where nodes start from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pxe {
    /// What a BIOS loads.
    pub boot_file: String,
    /// What UEFI firmware loads, if something else.
    pub efi_boot_file: Option<String>,
    /// Who has these files.
    pub from: BootServer,
}

/// Who has the boot files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootServer {
    /// Another machine.
    At(Ipv4Addr),
    /// This one, in that directory.
    Here(String),
}

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// All mistakes that could be found, in the order of their lines.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        reading::read(text, None)
    }

    /// Reads a description for a machine that has these interfaces.
    ///
    /// # Errors
    /// The same, interfaces among them that the machine has not got.
    pub fn parse_for(text: &str, present: &[String]) -> Result<Self, Vec<Mistake>> {
        reading::read(text, Some(present))
    }

    /// Whether nodes and management controllers hang on one wire, where no rule of ours can keep them apart.
    #[must_use]
    pub fn shares_a_wire(&self) -> bool {
        self.management.as_ref().is_some_and(|management| management.interface == self.nodes.interface)
    }
}

impl Vpn {
    /// Whether clients may reach it.
    #[must_use]
    pub fn reaches(&self, what: Reach) -> bool {
        self.reach.contains(&what)
    }
}

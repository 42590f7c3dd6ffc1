//! From what is to what is wanted: a list of steps, each of which can be done again without harm.
//!
//! What is wanted may be nothing, or what was there before: going forward, going back and taking everything away are the same function.
//! Rules are there before anything is forwarded, and forwarding ends before they go.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use serde::Serialize;

use crate::found::Found;
use crate::keys::PublicKey;
use crate::setup::{InterfaceSetup, TABLE, VPN_INTERFACE};
use crate::subnet::InterfaceAddress;
use crate::vpn_state::ObservedVpn;

/// What is, as far as it concerns us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// All interfaces of the machine.
    pub interfaces: BTreeMap<String, ObservedInterface>,
    /// Whether the machine as a whole forwards.
    pub is_router: bool,
    /// Our table as `nft` lists it, without counts.
    pub table: Option<String>,
    /// The configuration that our dnsmasq was started with, if it runs.
    pub dnsmasq: Option<String>,
    /// The VPN, if its interface is there.
    pub vpn: Option<ObservedVpn>,
}

/// One interface as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedInterface {
    /// Whether its link is up.
    pub up: bool,
    /// Whether what comes in there is forwarded.
    pub forwarding: bool,
    /// Its addresses.
    pub addresses: Vec<InterfaceAddress>,
}

/// What is wanted. The default is that nothing of ours be there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The interfaces that take part.
    pub interfaces: Vec<InterfaceSetup>,
    /// Our table.
    pub table: Option<WantedTable>,
    /// The configuration of our dnsmasq.
    pub dnsmasq: Option<String>,
    /// The VPN.
    pub vpn: Option<WantedVpn>,
}

/// The table that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTable {
    /// As `nft` reads it.
    pub text: String,
    /// As `nft` lists it, if that is known because it has been loaded before.
    pub listing: Option<String>,
}

/// The VPN that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedVpn {
    /// The UDP port at which it listens.
    pub port: u16,
    /// Its key; `None` when none was made yet.
    pub public_key: Option<PublicKey>,
    /// Who may come in, and their addresses.
    pub peers: BTreeMap<PublicKey, Ipv4Addr>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// End our dnsmasq.
    StopDnsmasq,
    /// Start it with this configuration.
    StartDnsmasq {
        /// The configuration.
        #[serde(skip)]
        configuration: String,
    },
    /// Make the VPN's interface.
    CreateVpn,
    /// Give the VPN its key, its port and its clients. Connections of clients that stay are not touched.
    ConfigureVpn {
        /// The UDP port at which it listens.
        port: u16,
    },
    /// Take the VPN's interface away.
    RemoveVpn,
    /// Put our table in the place of the one that is there, at once.
    LoadTable {
        /// As `nft` reads it.
        #[serde(skip)]
        text: String,
    },
    /// Take our table away.
    DropTable,
    /// Set a link up or down.
    Link {
        /// Whose link.
        interface: String,
        /// Or down.
        up: bool,
    },
    /// Add an address to an interface.
    AddAddress {
        /// To which.
        interface: String,
        /// Which.
        address: InterfaceAddress,
    },
    /// Take an address of ours away again.
    RemoveAddress {
        /// From which interface.
        interface: String,
        /// Which.
        address: InterfaceAddress,
    },
    /// Say whether what comes in at an interface is forwarded.
    Forwarding {
        /// Which interface.
        interface: String,
        /// Whether it is.
        on: bool,
    },
}

/// The steps from what is to what is wanted. `found` has been told of what is wanted.
#[must_use]
pub fn steps(wanted: &Wanted, observed: &Observed, found: &Found) -> Vec<Step> {
    let planner = Planner { wanted, observed, found };
    let mut steps = Vec::new();
    let restarts = wanted.dnsmasq != observed.dnsmasq;
    steps.extend((restarts && observed.dnsmasq.is_some()).then_some(Step::StopDnsmasq));
    steps.extend(planner.forwarding(false));
    planner.create_vpn(&mut steps);
    planner.bring_up(&mut steps);
    planner.configure_vpn(&mut steps);
    planner.table(&mut steps);
    steps.extend(planner.forwarding(true));
    steps.extend((wanted.vpn.is_none() && observed.vpn.is_some()).then_some(Step::RemoveVpn));
    planner.take_down(&mut steps);
    if let Some(configuration) = wanted.dnsmasq.as_ref().filter(|_| restarts) {
        steps.push(Step::StartDnsmasq { configuration: configuration.clone() });
    }
    steps
}

struct Planner<'a> {
    wanted: &'a Wanted,
    observed: &'a Observed,
    found: &'a Found,
}

impl Planner<'_> {
    /// The interface as it is, or as it will be once the VPN has been made.
    fn interface(&self, name: &str) -> ObservedInterface {
        self.observed.interfaces.get(name).cloned().unwrap_or_default()
    }

    fn wants(&self, name: &str) -> Option<&InterfaceSetup> {
        self.wanted.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Forwarding that has to become `on`. Where nobody wants it any more it becomes what it was, unless the whole machine has been made a
    /// router since: then it is somebody else's.
    fn forwarding(&self, on: bool) -> Vec<Step> {
        let is_others = self.observed.is_router && !self.found.was_router;
        let mut targets = BTreeMap::new();
        for (name, found) in &self.found.interfaces {
            if self.observed.interfaces.contains_key(name) && !is_others {
                targets.insert(name.as_str(), found.forwarding);
            }
        }
        for wanted in &self.wanted.interfaces {
            let found = self.found.interfaces.get(&wanted.name).is_some_and(|found| found.forwarding);
            // What was forwarding before us may be needed for something else.
            let target = wanted.forwarding || found || (is_others && self.interface(&wanted.name).forwarding);
            targets.insert(&wanted.name, target);
        }
        let is_due = |(name, target): &(&str, bool)| *target == on && self.interface(name).forwarding != on;
        let step = |(name, on): (&str, bool)| Step::Forwarding { interface: name.to_owned(), on };
        targets.into_iter().filter(is_due).map(step).collect()
    }

    fn create_vpn(&self, steps: &mut Vec<Step>) {
        if self.wanted.vpn.is_some() && self.observed.vpn.is_none() {
            steps.push(Step::CreateVpn);
        }
    }

    fn configure_vpn(&self, steps: &mut Vec<Step>) {
        let Some(wanted) = &self.wanted.vpn else { return };
        let is_so = self.observed.vpn.as_ref().is_some_and(|vpn| {
            let peers = vpn.peers.iter().map(|peer| (peer.public_key, peer.address)).collect::<BTreeMap<_, _>>();
            let wanted_peers = wanted.peers.iter().map(|(key, address)| (*key, Some(*address))).collect();
            vpn.port == wanted.port
                && vpn.public_key.is_some()
                && vpn.public_key == wanted.public_key
                && peers == wanted_peers
        });
        if !is_so {
            steps.push(Step::ConfigureVpn { port: wanted.port });
        }
    }

    fn bring_up(&self, steps: &mut Vec<Step>) {
        for wanted in self.wanted.interfaces.iter().filter(|wanted| !wanted.addresses.is_empty()) {
            let is = self.interface(&wanted.name);
            let missing = wanted.addresses.iter().filter(|address| !is.addresses.contains(address));
            let add =
                |address: &InterfaceAddress| Step::AddAddress { interface: wanted.name.clone(), address: *address };
            steps.extend(missing.map(add));
            if !is.up {
                steps.push(Step::Link { interface: wanted.name.clone(), up: true });
            }
        }
    }

    fn table(&self, steps: &mut Vec<Step>) {
        match (&self.wanted.table, &self.observed.table) {
            (Some(wanted), is) if is.is_none() || wanted.listing != *is => {
                steps.push(Step::LoadTable { text: wanted.text.clone() });
            }
            (None, Some(_)) => steps.push(Step::DropTable),
            _ => {}
        }
    }

    fn take_down(&self, steps: &mut Vec<Step>) {
        let vpn_goes = self.wanted.vpn.is_none();
        for (name, is) in &self.observed.interfaces {
            if name == VPN_INTERFACE && vpn_goes {
                continue;
            }
            let found = self.found.interfaces.get(name);
            let stays = |address: &InterfaceAddress| {
                found.is_some_and(|found| found.addresses.contains(address))
                    || self.wants(name).is_some_and(|wanted| wanted.addresses.contains(address))
            };
            let added = self.found.added.get(name);
            let is_ours = |address: &&InterfaceAddress| added.is_some_and(|added| added.contains(address));
            for address in is.addresses.iter().filter(is_ours).filter(|address| !stays(address)) {
                steps.push(Step::RemoveAddress { interface: name.clone(), address: *address });
            }
            let wants_link = self.wants(name).is_some_and(|wanted| !wanted.addresses.is_empty());
            if added.is_some() && !wants_link && is.up && found.is_some_and(|found| !found.up) {
                steps.push(Step::Link { interface: name.clone(), up: false });
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StopDnsmasq => f.write_str("stop our dnsmasq"),
            Self::StartDnsmasq { .. } => f.write_str("start our dnsmasq"),
            Self::CreateVpn => write!(f, "make the interface {VPN_INTERFACE}"),
            Self::ConfigureVpn { port } => write!(f, "give {VPN_INTERFACE} its key, port {port} and clients"),
            Self::RemoveVpn => write!(f, "remove the interface {VPN_INTERFACE}"),
            Self::LoadTable { .. } => write!(f, "load the table inet {TABLE}"),
            Self::DropTable => write!(f, "delete the table inet {TABLE}"),
            Self::Link { interface, up } => write!(f, "set {interface} {}", if *up { "up" } else { "down" }),
            Self::AddAddress { interface, address } => write!(f, "add {address} to {interface}"),
            Self::RemoveAddress { interface, address } => write!(f, "remove {address} from {interface}"),
            Self::Forwarding { interface, on: true } => write!(f, "forward what comes in at {interface}"),
            Self::Forwarding { interface, on: false } => write!(f, "forward nothing that comes in at {interface}"),
        }
    }
}

#[cfg(test)]
mod tests;

//! Computes the steps from the current to the wanted state. Each step is idempotent.
//!
//! The wanted state may be empty, or an earlier state, so the same function applies, rolls back and removes a setup.
//! Packet rules are loaded before forwarding is enabled, and forwarding is disabled before they are deleted.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use serde::Serialize;

use crate::found::OriginalState;
use crate::keys::PublicKey;
use crate::names::{TABLE, VPN_INTERFACE};
use crate::observed::{Observed, ObservedInterface};
use crate::setup::InterfaceSetup;
use crate::subnet::InterfaceAddress;

/// The wanted state. The default means no gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub interfaces: Vec<InterfaceSetup>,
    /// The gateway's table.
    pub table: Option<WantedTable>,
    pub dnsmasq: Option<String>,
    pub vpn: Option<WantedVpn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTable {
    /// Input for `nft`.
    pub text: String,
    /// Listing by `nft`, if the table was loaded before.
    pub listing: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedVpn {
    pub port: u16,
    /// Public key of the server; `None` if there is no key yet.
    pub public_key: Option<PublicKey>,
    /// Clients and their addresses.
    pub peers: BTreeMap<PublicKey, Ipv4Addr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    StopDnsmasq,
    StartDnsmasq {
        #[serde(skip)]
        configuration: String,
    },
    CreateVpn,
    /// Set the VPN's key, port and clients. Connections of unchanged clients continue.
    ConfigureVpn {
        port: u16,
    },
    RemoveVpn,
    /// Replace the gateway's table in one transaction.
    LoadTable {
        /// Input for `nft`.
        #[serde(skip)]
        text: String,
    },
    DropTable,
    /// Set a link up or down.
    Link {
        interface: String,
        /// `true` sets the link up, `false` sets it down.
        up: bool,
    },
    /// Add an address to an interface.
    AddAddress {
        interface: String,
        address: InterfaceAddress,
    },
    /// Remove an address that the gateway added.
    RemoveAddress {
        interface: String,
        address: InterfaceAddress,
    },
    /// Enable or disable forwarding of packets that an interface receives.
    Forwarding {
        interface: String,
        /// `true` enables forwarding, `false` disables it.
        on: bool,
    },
}

/// Computes the steps. `found` must already include the wanted interfaces ([`OriginalState::note`]).
#[must_use]
pub fn steps(wanted: &Wanted, observed: &Observed, found: &OriginalState) -> Vec<Step> {
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
    found: &'a OriginalState,
}

impl Planner<'_> {
    /// The current state of an interface; the default state if the interface does not exist yet.
    fn interface(&self, name: &str) -> ObservedInterface {
        self.observed.interfaces.get(name).cloned().unwrap_or_default()
    }

    fn wants(&self, name: &str) -> Option<&InterfaceSetup> {
        self.wanted.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Forwarding settings that must change to `on`. Interfaces that no longer need forwarding get their original
    /// setting, but keep forwarding if another program has since enabled it for the whole machine.
    fn forwarding(&self, on: bool) -> Vec<Step> {
        let is_router_now = self.observed.is_router && !self.found.was_router;
        let mut targets = BTreeMap::new();
        for (name, found) in &self.found.interfaces {
            if self.observed.interfaces.contains_key(name) && !is_router_now {
                targets.insert(name.as_str(), found.forwarding);
            }
        }
        for wanted in &self.wanted.interfaces {
            let found = self.found.interfaces.get(&wanted.name).is_some_and(|found| found.forwarding);
            // Another program may need forwarding that was enabled before the gateway.
            let target = wanted.forwarding || found || (is_router_now && self.interface(&wanted.name).forwarding);
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
            Self::StopDnsmasq => f.write_str("stop the gateway's dnsmasq"),
            Self::StartDnsmasq { .. } => f.write_str("start the gateway's dnsmasq"),
            Self::CreateVpn => write!(f, "create the interface {VPN_INTERFACE}"),
            Self::ConfigureVpn { port } => write!(f, "set key, port {port} and clients of {VPN_INTERFACE}"),
            Self::RemoveVpn => write!(f, "delete the interface {VPN_INTERFACE}"),
            Self::LoadTable { .. } => write!(f, "load the table inet {TABLE}"),
            Self::DropTable => write!(f, "delete the table inet {TABLE}"),
            Self::Link { interface, up } => write!(f, "set {interface} {}", if *up { "up" } else { "down" }),
            Self::AddAddress { interface, address } => write!(f, "add {address} to {interface}"),
            Self::RemoveAddress { interface, address } => write!(f, "remove {address} from {interface}"),
            Self::Forwarding { interface, on: true } => write!(f, "enable forwarding on {interface}"),
            Self::Forwarding { interface, on: false } => write!(f, "disable forwarding on {interface}"),
        }
    }
}

#[cfg(test)]
mod tests;

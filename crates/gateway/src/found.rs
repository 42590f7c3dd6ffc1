//! The machine's original state, from before the gateway changed it, so that it can be restored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::names::VPN_INTERFACE;
use crate::observed::Observed;
use crate::setup::InterfaceSetup;
use crate::subnet::InterfaceAddress;

/// The original state of everything that the gateway has changed. The gateway stores it before each change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginalState {
    /// The interfaces, by name. Never contains the VPN interface, which the gateway creates.
    pub interfaces: BTreeMap<String, FoundInterface>,
    /// Addresses that the gateway has added or was about to add.
    pub added: BTreeMap<String, BTreeSet<InterfaceAddress>>,
    /// Whether forwarding was enabled for the whole machine (`net.ipv4.ip_forward`).
    pub was_router: bool,
    /// Directories that the gateway has created, innermost first.
    pub directories: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundInterface {
    pub up: bool,
    /// Whether the interface forwarded received packets.
    pub forwarding: bool,
    pub addresses: Vec<InterfaceAddress>,
}

impl OriginalState {
    /// Records the state of interfaces before a change. Skips interfaces that are recorded already. Returns whether
    /// anything was added.
    pub fn note(&mut self, touched: &[InterfaceSetup], observed: &Observed) -> bool {
        let before = self.clone();
        if self.interfaces.is_empty() {
            self.was_router = observed.is_router;
        }
        for setup in touched {
            let is = observed.interfaces.get(&setup.name);
            if let Some(is) = is.filter(|_| setup.name != VPN_INTERFACE) {
                let interface =
                    FoundInterface { up: is.up, forwarding: is.forwarding, addresses: is.addresses.clone() };
                self.interfaces.entry(setup.name.clone()).or_insert(interface);
            }
            let is_there = |address: &&InterfaceAddress| is.is_some_and(|is| is.addresses.contains(address));
            let added = setup.addresses.iter().filter(|address| !is_there(address));
            if !setup.addresses.is_empty() {
                self.added.entry(setup.name.clone()).or_default().extend(added);
            }
        }
        *self != before
    }
}

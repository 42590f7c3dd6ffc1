//! How the machine was before we touched it, so that it can be left so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::setup::{InterfaceSetup, VPN_INTERFACE};
use crate::steps::Observed;
use crate::subnet::InterfaceAddress;

/// What was found, for whatever we have touched since. It is on disk before anything is touched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The interfaces, by name. That of the VPN is never among them: it was not there.
    pub interfaces: BTreeMap<String, FoundInterface>,
    /// The addresses that were not there and that we have added, or were about to.
    pub added: BTreeMap<String, BTreeSet<InterfaceAddress>>,
    /// Whether the machine as a whole forwarded.
    pub was_router: bool,
    /// Directories that were not there, innermost first.
    pub directories: Vec<PathBuf>,
}

/// How one interface was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundInterface {
    /// Whether its link was up.
    pub up: bool,
    /// Whether what came in there was forwarded.
    pub forwarding: bool,
    /// The addresses that it had.
    pub addresses: Vec<InterfaceAddress>,
}

impl Found {
    /// Notes how interfaces that are about to be touched are, as far as that is not known; says whether anything is new.
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

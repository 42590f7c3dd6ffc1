//! The machine's current state.

use std::collections::BTreeMap;

use crate::subnet::InterfaceAddress;
use crate::vpn_state::ObservedVpn;

/// The current state, as far as the gateway needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    pub interfaces: BTreeMap<String, ObservedInterface>,
    /// Whether the machine as a whole forwards packets.
    pub is_router: bool,
    /// The gateway's table as `nft` lists it, without counters.
    pub table: Option<String>,
    /// The configuration of the gateway's dnsmasq, if it runs.
    pub dnsmasq: Option<String>,
    pub vpn: Option<ObservedVpn>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedInterface {
    pub up: bool,
    pub forwarding: bool,
    pub addresses: Vec<InterfaceAddress>,
}

//! Looking at the machine.

use std::collections::BTreeMap;
use std::fs;

use nix::sched::{CloneFlags, unshare};
use serde::Deserialize;

use super::Gateway;
use super::command::{find, require, run};
use super::error::GatewayError;
use super::service::Service;
use crate::setup::{Setup, TABLE, VPN_INTERFACE};
use crate::steps::{Observed, ObservedInterface};
use crate::subnet::InterfaceAddress;
use crate::vpn_state::ObservedVpn;

/// Programs without which nothing can be known or done, and the Debian package of each.
const ALWAYS: [(&str, &str); 2] = [("ip", "iproute2"), ("nft", "nftables")];

/// What `ip -json address` says of an interface.
#[derive(Debug, Deserialize)]
struct Link {
    ifname: String,
    flags: Vec<String>,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Debug, Deserialize)]
struct Address {
    family: Option<String>,
    local: Option<String>,
    prefixlen: Option<u8>,
}

impl Gateway {
    /// Refuses unless networks can be looked at and changed.
    pub(super) fn require_root(&self) -> Result<(), GatewayError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(GatewayError::NotRoot);
        }
        ALWAYS.into_iter().try_for_each(|(program, package)| require(program, package))
    }

    /// What a setup needs and this machine has not got: each as an error.
    pub(super) fn lacks(&self, setup: &Setup) -> Result<Vec<GatewayError>, GatewayError> {
        let mut lacks: Vec<GatewayError> = require("dnsmasq", "dnsmasq-base").err().into_iter().collect();
        if setup.vpn.is_some() {
            lacks.extend(require("wg", "wireguard-tools").err());
            // An interface that is there shows that something can do it.
            let is_there = interfaces()?.contains_key(VPN_INTERFACE);
            if !is_there && find("wireguard-go").is_none() && kernel_has_wireguard() == Some(false) {
                lacks.push(GatewayError::NoWireGuard);
            }
        }
        Ok(lacks)
    }

    /// The machine as it is, as far as it concerns us.
    pub(super) fn observe(&self) -> Result<Observed, GatewayError> {
        let interfaces = interfaces()?;
        let vpn = if interfaces.contains_key(VPN_INTERFACE) { Some(self.observe_vpn()?) } else { None };
        Ok(Observed {
            is_router: is_on("/proc/sys/net/ipv4/ip_forward"),
            interfaces,
            table: table()?,
            dnsmasq: self.services.running(Service::Dnsmasq)?,
            vpn,
        })
    }

    fn observe_vpn(&self) -> Result<ObservedVpn, GatewayError> {
        require("wg", "wireguard-tools")?;
        // An interface whose program has just died does not answer, and is configured anew.
        let dump = run("wg", &["show", VPN_INTERFACE, "dump"]).unwrap_or_default();
        Ok(ObservedVpn::parse(&dump).unwrap_or(ObservedVpn { public_key: None, port: 0, peers: Vec::new() }))
    }
}

/// Whether the kernel can do WireGuard; `None` when that cannot be tried. It is tried in a network namespace of its own, which is gone with
/// its thread: nothing of this machine is changed.
fn kernel_has_wireguard() -> Option<bool> {
    let tried = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).ok()?;
        Some(run("ip", &["link", "add", "dev", VPN_INTERFACE, "type", "wireguard"]).is_ok())
    });
    tried.join().ok().flatten()
}

/// All interfaces with their addresses of IPv4.
pub(super) fn interfaces() -> Result<BTreeMap<String, ObservedInterface>, GatewayError> {
    let command = ["-json", "address", "show"];
    let text = run("ip", &command)?;
    let links: Vec<Link> = serde_json::from_str(&text).map_err(|error| GatewayError::Command {
        command: format!("ip {}", command.join(" ")),
        said: format!("what it printed makes no sense: {error}"),
    })?;
    Ok(links.into_iter().map(|link| (link.ifname.clone(), link.observed())).collect())
}

impl Link {
    fn observed(&self) -> ObservedInterface {
        let address = |info: &Address| {
            let is_ipv4 = info.family.as_deref() == Some("inet");
            let address = info.local.as_deref().filter(|_| is_ipv4)?.parse().ok()?;
            Some(InterfaceAddress::new(address, info.prefixlen?))
        };
        ObservedInterface {
            up: self.flags.iter().any(|flag| flag == "UP"),
            forwarding: is_on(&forwarding_file(&self.ifname)),
            addresses: self.addr_info.iter().filter_map(address).collect(),
        }
    }
}

/// Where the kernel says whether what comes in at an interface is forwarded.
pub(super) fn forwarding_file(interface: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{interface}/forwarding")
}

fn is_on(path: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// Our table as it is listed, without counts.
pub(super) fn table() -> Result<Option<String>, GatewayError> {
    let name = format!("table inet {TABLE}");
    if !run("nft", &["list", "tables"])?.lines().any(|line| line.trim() == name) {
        return Ok(None);
    }
    run("nft", &["--stateless", "list", "table", "inet", TABLE]).map(Some)
}

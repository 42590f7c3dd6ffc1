//! Reads the machine's current state.

use std::collections::BTreeMap;
use std::fs;

use nix::sched::{CloneFlags, unshare};
use serde::Deserialize;

use super::command::{find, require, run};
use super::error::GatewayError;
use super::gateway::Gateway;
use super::service::Service;
use crate::names::{TABLE, VPN_INTERFACE};
use crate::observed::{Observed, ObservedInterface};
use crate::setup::Setup;
use crate::subnet::InterfaceAddress;
use crate::vpn_state::ObservedVpn;

/// Programs that every operation needs, with their Debian packages.
const ALWAYS: [(&str, &str); 2] = [("ip", "iproute2"), ("nft", "nftables")];

/// Part of the output of `ip -json address`.
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
    /// Checks for root and for the required programs.
    pub(super) fn require_root(&self) -> Result<(), GatewayError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(GatewayError::NotRoot);
        }
        ALWAYS.into_iter().try_for_each(|(program, package)| require(program, package))
    }

    /// All requirements of a setup that the machine does not meet, as errors.
    pub(super) fn missing_tools(&self, setup: &Setup) -> Result<Vec<GatewayError>, GatewayError> {
        let mut lacks: Vec<GatewayError> = require("dnsmasq", "dnsmasq-base").err().into_iter().collect();
        if setup.vpn.is_some() {
            lacks.extend(require("wg", "wireguard-tools").err());
            // An existing interface shows that WireGuard works.
            let is_there = interfaces()?.contains_key(VPN_INTERFACE);
            if !is_there && find("wireguard-go").is_none() && kernel_has_wireguard() == Some(false) {
                lacks.push(GatewayError::NoWireGuard);
            }
        }
        Ok(lacks)
    }

    /// The parts of the machine's state that matter to the gateway.
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
        // If `wireguard-go` has died, `wg` fails. The result then shows an interface without settings, so it is
        // configured again.
        let dump = run("wg", &["show", VPN_INTERFACE, "dump"]).unwrap_or_default();
        Ok(ObservedVpn::parse(&dump).unwrap_or(ObservedVpn { public_key: None, port: 0, peers: Vec::new() }))
    }
}

/// Returns whether the kernel supports WireGuard; `None` if the test is impossible. The test creates an interface in a
/// temporary network namespace, so that the machine's network stays unchanged.
fn kernel_has_wireguard() -> Option<bool> {
    let tried = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).ok()?;
        Some(run("ip", &["link", "add", "dev", VPN_INTERFACE, "type", "wireguard"]).is_ok())
    });
    tried.join().ok().flatten()
}

pub(super) fn interfaces() -> Result<BTreeMap<String, ObservedInterface>, GatewayError> {
    let command = ["-json", "address", "show"];
    let text = run("ip", &command)?;
    let links: Vec<Link> = serde_json::from_str(&text).map_err(|error| GatewayError::Command {
        command: format!("ip {}", command.join(" ")),
        said: format!("cannot parse the output: {error}"),
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

/// The kernel's file with the forwarding setting of an interface.
pub(super) fn forwarding_file(interface: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{interface}/forwarding")
}

fn is_on(path: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "1")
}

/// The gateway's table as `nft` lists it, without counters.
pub(super) fn table() -> Result<Option<String>, GatewayError> {
    let name = format!("table inet {TABLE}");
    if !run("nft", &["list", "tables"])?.lines().any(|line| line.trim() == name) {
        return Ok(None);
    }
    run("nft", &["--stateless", "list", "table", "inet", TABLE]).map(Some)
}

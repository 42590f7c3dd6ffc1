//! Status of the gateway, and preview of changes. Read-only.

use std::net::Ipv4Addr;

use serde::Serialize;
use serde_json::Value;

use super::carry_out::DNSMASQ_LEASES;
use super::command::{find, run};
use super::error::GatewayError;
use super::gateway::Gateway;
use super::observe::interfaces;
use super::records::{Confirmed, Loaded, RolledBack, Trial};
use super::service::Service;
use crate::difference::{differences, unified};
use crate::found::OriginalState;
use crate::names::TABLE;
use crate::others::{Obstacle, obstacles};
use crate::setup::Setup;
use crate::steps::{Step, steps};

/// Preview of applying a setup.
#[derive(Debug, Serialize)]
pub struct Planned {
    /// Differences between the planned and the current setup, for display; empty if the setups are equal.
    pub difference: String,
    /// Changes to the loaded table by other programs, for display.
    pub drift: String,
    pub steps: Vec<Step>,
    /// Chains of other programs that would drop the gateway's packets.
    pub obstacles: Vec<Obstacle>,
    /// Missing requirements of `apply`, with hints.
    pub missing: Vec<String>,
    /// Whether `apply` would change anything.
    pub is_change: bool,
}

#[derive(Debug, Serialize)]
pub struct Status {
    /// The current setup; `None` if there is no gateway.
    pub running: Option<Running>,
    /// Seconds left to confirm the change on trial, if any.
    pub confirm_within_secs: Option<u64>,
    /// Whether a guard process runs that rolls back the change on trial.
    pub is_guarded: bool,
    /// Reason and time (seconds since 1970) of the last rollback.
    pub rolled_back: Option<(String, u64)>,
    pub not_rolled_back: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Running {
    /// Steps that would repair the gateway; empty if it runs as configured.
    pub problems: Vec<Step>,
    /// Whether systemd supervises the services and sets the gateway up after a boot.
    pub by_systemd: bool,
    /// Wanted settings of the interfaces.
    pub interfaces: Vec<String>,
    /// Whether the DHCP and DNS server runs.
    pub dnsmasq_runs: bool,
    pub leases: Vec<Lease>,
    pub vpn: Option<VpnStatus>,
    /// Packet counters of rules: chain, comment and number of packets.
    pub counts: Vec<(String, String, u64)>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Lease {
    pub address: Ipv4Addr,
    pub mac: String,
    /// Name of the machine that holds the lease.
    pub name: String,
    /// Expiry in seconds since 1970; 0 for no expiry.
    pub until_secs: u64,
}

#[derive(Debug, Serialize)]
pub struct VpnStatus {
    /// Whether the VPN's interface exists.
    pub is_up: bool,
    /// UDP port of the server.
    pub port: u16,
    /// Host and port that clients connect to.
    pub endpoint: String,
    /// Whether the kernel provides WireGuard, instead of `wireguard-go`.
    pub by_kernel: bool,
    pub clients: Vec<ClientState>,
}

#[derive(Debug, Serialize)]
pub struct ClientState {
    pub name: String,
    pub address: Ipv4Addr,
    pub public_key: String,
    /// When the client was added, in seconds since 1970.
    pub added_secs: u64,
    /// Time of the last handshake in seconds since 1970; `None` if there was none since the VPN's start.
    pub handshake_secs: Option<u64>,
    pub endpoint: Option<String>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

impl Gateway {
    /// Names of this machine's interfaces.
    ///
    /// # Errors
    /// The interfaces cannot be listed.
    pub fn interfaces(&self) -> Result<Vec<String>, GatewayError> {
        Ok(interfaces()?.into_keys().collect())
    }

    /// Preview of applying a setup.
    ///
    /// # Errors
    /// The machine's state cannot be read.
    pub fn plan(&self, setup: &Setup) -> Result<Planned, GatewayError> {
        self.require_root()?;
        let observed = self.observe()?;
        let is = self.current()?;
        let mut found = self.records.read::<OriginalState>()?.unwrap_or_default();
        found.note(&setup.interfaces, &observed);
        let steps = steps(&self.wanted(setup)?, &observed, &found);
        let difference = differences(is.as_ref(), Some(setup));
        let loaded = self.records.read::<Loaded>()?;
        let drift = match (loaded, &observed.table) {
            (Some(loaded), Some(table)) => unified("loaded table", table, &loaded.listing),
            _ => String::new(),
        };
        let ruleset: Value = serde_json::from_str(&run("nft", &["--json", "list", "ruleset"])?).unwrap_or_default();
        let is_change = !steps.is_empty() || !difference.is_empty();
        let said = |lack: GatewayError| format!("{lack}: {}", lack.hints().join(", "));
        let missing = self.missing_tools(setup)?.into_iter().map(said).collect();
        Ok(Planned { difference, drift, steps, obstacles: obstacles(&ruleset), missing, is_change })
    }

    /// The current setup: on trial, or else confirmed.
    fn current(&self) -> Result<Option<Setup>, GatewayError> {
        if let Some(trial) = self.records.read::<Trial>()? {
            return Ok(Some(trial.setup));
        }
        Ok(self.records.read::<Confirmed>()?.map(|confirmed| confirmed.setup))
    }

    /// Status of the gateway.
    ///
    /// # Errors
    /// The machine's state cannot be read.
    pub fn status(&self) -> Result<Status, GatewayError> {
        self.require_root()?;
        let trial = self.records.read::<Trial>()?;
        let running = self.current()?.map(|setup| self.running(&setup)).transpose()?;
        let back = self.records.read::<RolledBack>()?;
        let not_rolled_back = back.as_ref().map(|back| back.problems.clone()).unwrap_or_default();
        let rolled_back = back.map(|back| (back.why, back.at_secs));
        Ok(Status {
            running,
            confirm_within_secs: trial.as_ref().map(|trial| trial.seconds_left().unwrap_or(0)),
            is_guarded: match &trial {
                Some(trial) => self.guard_of(&trial.token)?.is_some_and(|guard| guard.is_alive()),
                None => false,
            },
            rolled_back,
            not_rolled_back,
        })
    }

    fn running(&self, setup: &Setup) -> Result<Running, GatewayError> {
        let observed = self.observe()?;
        let found = self.records.read::<OriginalState>()?.unwrap_or_default();
        let problems = steps(&self.wanted(setup)?, &observed, &found);
        let [(_, interfaces), ..] = setup.documents();
        let vpn = match &setup.vpn {
            Some(vpn) => Some(VpnStatus {
                is_up: observed.vpn.is_some(),
                port: vpn.port,
                endpoint: vpn.endpoint.clone(),
                by_kernel: self.services.running(Service::WireGuard)?.is_none(),
                clients: self.client_states(observed.vpn.as_ref())?,
            }),
            None => None,
        };
        Ok(Running {
            problems,
            by_systemd: self.services.by_systemd(),
            interfaces: interfaces.lines().map(ToOwned::to_owned).collect(),
            dnsmasq_runs: observed.dnsmasq.is_some(),
            leases: self.records.read_text(DNSMASQ_LEASES)?.map(|text| leases(&text)).unwrap_or_default(),
            vpn,
            counts: if observed.table.is_some() { counts()? } else { Vec::new() },
        })
    }

    /// State of all VPN clients.
    ///
    /// # Errors
    /// The machine's state cannot be read.
    pub fn clients(&self) -> Result<Vec<ClientState>, GatewayError> {
        self.require_root()?;
        let has_wg = find("wg").is_some();
        let vpn = if has_wg { self.observe()?.vpn } else { None };
        self.client_states(vpn.as_ref())
    }

    fn client_states(&self, vpn: Option<&crate::ObservedVpn>) -> Result<Vec<ClientState>, GatewayError> {
        let peers = vpn.map(|vpn| vpn.peers.as_slice()).unwrap_or_default();
        let clients = self.records.clients()?;
        let states = clients.iter().map(|client| {
            let peer = peers.iter().find(|peer| peer.public_key == client.public_key);
            ClientState {
                name: client.name.clone(),
                address: client.address,
                public_key: client.public_key.to_string(),
                added_secs: client.added_secs,
                handshake_secs: peer.and_then(|peer| peer.handshake_secs),
                endpoint: peer.and_then(|peer| peer.endpoint.clone()),
                received_bytes: peer.map_or(0, |peer| peer.received_bytes),
                sent_bytes: peer.map_or(0, |peer| peer.sent_bytes),
            }
        });
        Ok(states.collect())
    }
}

/// Parses dnsmasq's lease file. Each line contains expiry, MAC address, address, name and client id.
fn leases(text: &str) -> Vec<Lease> {
    let lease = |line: &str| {
        let mut words = line.split(' ');
        let (until, mac, address, name) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let (mac, name) = (mac.to_owned(), name.to_owned());
        Some(Lease { address: address.parse().ok()?, mac, name, until_secs: until.parse().ok()? })
    };
    text.lines().filter_map(lease).collect()
}

/// Packet counters of the gateway's rules with a comment.
fn counts() -> Result<Vec<(String, String, u64)>, GatewayError> {
    let listing: Value =
        serde_json::from_str(&run("nft", &["--json", "list", "table", "inet", TABLE])?).unwrap_or_default();
    let rules = listing["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
    let count = |object: &Value| {
        let rule = &object["rule"];
        let counter = rule["expr"].as_array()?.iter().find_map(|part| part["counter"]["packets"].as_u64())?;
        Some((rule["chain"].as_str()?.to_owned(), rule["comment"].as_str()?.to_owned(), counter))
    };
    Ok(rules.iter().filter_map(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_parsed() {
        let text = "1700000000 52:54:00:00:01:01 10.42.0.11 r1 01:52\n0 52:54:00:00:01:02 10.42.0.12 * *\nduid 00:01\n";
        let leases = leases(text);
        assert_eq!(leases.len(), 2);
        assert_eq!((leases[0].name.as_str(), leases[0].until_secs), ("r1", 1_700_000_000));
        assert_eq!(leases[1].address, Ipv4Addr::new(10, 42, 0, 12));
    }
}

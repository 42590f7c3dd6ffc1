//! How the gateway stands, and what would be different. Nothing here changes anything.

use std::net::Ipv4Addr;

use serde::Serialize;
use serde_json::Value;

use super::Gateway;
use super::carry_out::DNSMASQ_LEASES;
use super::command::{find, run};
use super::error::GatewayError;
use super::observe::interfaces;
use super::records::{Confirmed, Loaded, RolledBack, Trial};
use super::service::Service;
use crate::difference::{differences, unified};
use crate::found::Found;
use crate::others::{Obstacle, obstacles};
use crate::setup::{Setup, TABLE};
use crate::steps::{Step, steps};

/// What applying a setup would do.
#[derive(Debug, Serialize)]
pub struct Planned {
    /// The difference from what was applied last, for people; empty when there is none.
    pub difference: String,
    /// What was changed by others in our table since it was loaded, for people.
    pub drift: String,
    /// What would be done.
    pub steps: Vec<Step>,
    /// Chains of others that would stop what it lets through.
    pub obstacles: Vec<Obstacle>,
    /// What `apply` needs and this machine has not got, with what to do about it.
    pub lacks: Vec<String>,
    /// Whether `apply` would do anything.
    pub is_change: bool,
}

/// How the gateway stands.
#[derive(Debug, Serialize)]
pub struct Status {
    /// What is to be; `None` when no gateway has been set up.
    pub running: Option<Running>,
    /// For how many seconds more an attempt waits to be confirmed.
    pub confirm_within_secs: Option<u64>,
    /// Whether somebody takes that attempt back in time.
    pub is_guarded: bool,
    /// That the last attempt was taken back: why, and when in seconds since 1970.
    pub rolled_back: Option<(String, u64)>,
    /// What could not be put back then.
    pub not_put_back: Vec<String>,
}

/// A gateway that was set up.
#[derive(Debug, Serialize)]
pub struct Running {
    /// What is not as it should be, and would be done about it. Empty when all is well.
    pub amiss: Vec<Step>,
    /// Whether systemd looks after it, and sets it up after a boot.
    pub by_systemd: bool,
    /// Interfaces with what they are to be.
    pub interfaces: Vec<String>,
    /// Whether leases and names are given.
    pub dnsmasq_runs: bool,
    /// Who has which address.
    pub leases: Vec<Lease>,
    /// The VPN.
    pub vpn: Option<VpnStatus>,
    /// How many packets our rules have seen: chain, what for, and number.
    pub counts: Vec<(String, String, u64)>,
}

/// An address that was given.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// To which port.
    pub mac: String,
    /// To which machine.
    pub name: String,
    /// Until when, in seconds since 1970; 0 for ever.
    pub until_secs: u64,
}

/// The VPN as it runs.
#[derive(Debug, Serialize)]
pub struct VpnStatus {
    /// Whether its interface is there.
    pub is_up: bool,
    /// The UDP port at which it listens.
    pub port: u16,
    /// Where clients find it.
    pub endpoint: String,
    /// Whether the kernel does it, and not a program.
    pub by_kernel: bool,
    /// Who may come in.
    pub clients: Vec<ClientState>,
}

/// A client of the VPN.
#[derive(Debug, Serialize)]
pub struct ClientState {
    /// Its name.
    pub name: String,
    /// Its address in the VPN.
    pub address: Ipv4Addr,
    /// By which it is known.
    pub public_key: String,
    /// When it was added, in seconds since 1970.
    pub added_secs: u64,
    /// When it last proved who it is, in seconds since 1970; `None` if never since the VPN was started.
    pub handshake_secs: Option<u64>,
    /// From where.
    pub endpoint: Option<String>,
    /// Bytes that came from it.
    pub received_bytes: u64,
    /// Bytes that went to it.
    pub sent_bytes: u64,
}

impl Gateway {
    /// The interfaces of this machine.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn interfaces(&self) -> Result<Vec<String>, GatewayError> {
        Ok(interfaces()?.into_keys().collect())
    }

    /// What applying a setup would do.
    ///
    /// # Errors
    /// When the machine cannot be looked at.
    pub fn plan(&self, setup: &Setup) -> Result<Planned, GatewayError> {
        self.require_root()?;
        let observed = self.observe()?;
        let is = self.current()?;
        let mut found = self.records.read::<Found>()?.unwrap_or_default();
        found.note(&setup.interfaces, &observed);
        let steps = steps(&self.wanted(setup)?, &observed, &found);
        let difference = differences(is.as_ref(), Some(setup));
        let loaded = self.records.read::<Loaded>()?;
        let drift = match (loaded, &observed.table) {
            (Some(loaded), Some(table)) => unified("the table that was loaded", table, &loaded.listing),
            _ => String::new(),
        };
        let ruleset: Value = serde_json::from_str(&run("nft", &["--json", "list", "ruleset"])?).unwrap_or_default();
        let is_change = !steps.is_empty() || !difference.is_empty();
        let said = |lack: GatewayError| format!("{lack}: {}", lack.hints().join(", "));
        let lacks = self.lacks(setup)?.into_iter().map(said).collect();
        Ok(Planned { difference, drift, steps, obstacles: obstacles(&ruleset), lacks, is_change })
    }

    /// What is to be now: what is on trial, or else what was confirmed.
    fn current(&self) -> Result<Option<Setup>, GatewayError> {
        if let Some(trial) = self.records.read::<Trial>()? {
            return Ok(Some(trial.setup));
        }
        Ok(self.records.read::<Confirmed>()?.map(|confirmed| confirmed.setup))
    }

    /// How the gateway stands.
    ///
    /// # Errors
    /// When the machine cannot be looked at.
    pub fn status(&self) -> Result<Status, GatewayError> {
        self.require_root()?;
        let trial = self.records.read::<Trial>()?;
        let running = self.current()?.map(|setup| self.running(&setup)).transpose()?;
        let back = self.records.read::<RolledBack>()?;
        let not_put_back = back.as_ref().map(|back| back.problems.clone()).unwrap_or_default();
        let rolled_back = back.map(|back| (back.why, back.at_secs));
        Ok(Status {
            running,
            confirm_within_secs: trial.as_ref().map(|trial| trial.seconds_left().unwrap_or(0)),
            is_guarded: match &trial {
                Some(trial) => self.guard_of(&trial.token)?.is_some_and(|guard| guard.is_alive()),
                None => false,
            },
            rolled_back,
            not_put_back,
        })
    }

    fn running(&self, setup: &Setup) -> Result<Running, GatewayError> {
        let observed = self.observe()?;
        let found = self.records.read::<Found>()?.unwrap_or_default();
        let amiss = steps(&self.wanted(setup)?, &observed, &found);
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
            amiss,
            by_systemd: self.services.by_systemd(),
            interfaces: interfaces.lines().map(ToOwned::to_owned).collect(),
            dnsmasq_runs: observed.dnsmasq.is_some(),
            leases: self.records.read_text(DNSMASQ_LEASES)?.map(|text| leases(&text)).unwrap_or_default(),
            vpn,
            counts: if observed.table.is_some() { counts()? } else { Vec::new() },
        })
    }

    /// Who may come in by the VPN.
    ///
    /// # Errors
    /// When the machine cannot be looked at.
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

/// The leases in dnsmasq's file: time, port, address, name and client id on a line.
fn leases(text: &str) -> Vec<Lease> {
    let lease = |line: &str| {
        let mut words = line.split(' ');
        let (until, mac, address, name) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let (mac, name) = (mac.to_owned(), name.to_owned());
        Some(Lease { address: address.parse().ok()?, mac, name, until_secs: until.parse().ok()? })
    };
    text.lines().filter_map(lease).collect()
}

/// What our rules with a comment have counted.
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
    fn leases_are_read() {
        let text = "1700000000 52:54:00:00:01:01 10.42.0.11 r1 01:52\n0 52:54:00:00:01:02 10.42.0.12 * *\nduid 00:01\n";
        let leases = leases(text);
        assert_eq!(leases.len(), 2);
        assert_eq!((leases[0].name.as_str(), leases[0].until_secs), ("r1", 1_700_000_000));
        assert_eq!(leases[1].address, Ipv4Addr::new(10, 42, 0, 12));
    }
}

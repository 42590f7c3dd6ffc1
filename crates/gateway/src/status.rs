//! What the services say, and a preview of changes. Read-only.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde_json::Value;

use crate::changes::WIREGUARD_SOCKET;
use crate::command::{is_installed, require, run};
use crate::error::GatewayError;
use crate::gateway::Gateway;
use crate::names::{TABLE, VPN_INTERFACE};
use crate::others::{Obstacle, obstacles};
use crate::setup::Setup;
use crate::store::{Trial, read};

/// Preview of applying a setup.
#[derive(Debug, Serialize)]
pub struct Planned {
    /// Differences between the planned files and those in use, as a unified diff; empty if there are none.
    pub difference: String,
    /// Commands that load the planned files.
    pub commands: Vec<String>,
    /// Chains of other programs that would drop the gateway's packets.
    pub obstacles: Vec<Obstacle>,
    /// Missing requirements of `apply`, with hints.
    pub missing: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Status {
    /// The gateway; `None` if there is none.
    pub running: Option<Running>,
    /// Seconds left to confirm the change on trial, if any.
    pub confirm_within_secs: Option<u64>,
    /// Whether a process waits that rolls back the change on trial.
    pub is_guarded: bool,
    /// Why the last change was rolled back.
    pub rolled_back: Option<String>,
    /// What failed in the rollback.
    pub not_rolled_back: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Running {
    /// Commands whose effect is missing; empty if the gateway runs as configured.
    pub problems: Vec<String>,
    /// Whether systemd supervises the services and starts the gateway after a boot.
    pub by_systemd: bool,
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
    #[serde(flatten)]
    pub connection: Connection,
}

/// A client's connection, as `wg` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// Time of the last handshake in seconds since 1970; `None` if there was none since the VPN's start.
    pub handshake_secs: Option<u64>,
    pub endpoint: Option<String>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

impl Gateway {
    /// Names of this machine's interfaces. Empty if the kernel does not list them.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        let all = nix::net::if_::if_nameindex();
        all.iter().flatten().map(|interface| interface.name().to_string_lossy().into_owned()).collect()
    }

    /// Preview of applying a setup.
    ///
    /// # Errors
    /// The files or the packet rules cannot be read.
    pub fn plan(&self, setup: &Setup) -> Result<Planned, GatewayError> {
        self.require_root()?;
        let mut difference = String::new();
        for (name, text) in setup.files(&self.store.leases()) {
            difference.push_str(&diff(&self.store.current().join(name), name, &text)?);
        }
        let ruleset: Value = serde_json::from_str(&run("nft --json list ruleset")?).unwrap_or_default();
        let said = |lack: GatewayError| format!("{lack}: {}", lack.hints().join(", "));
        let missing = self.missing(setup).into_iter().map(said).collect();
        let (mut commands, changes) = self.changes(Some(setup))?;
        commands.extend(changes.into_iter().map(|change| change.run));
        if difference.is_empty() {
            commands.clear();
        }
        Ok(Planned { difference, commands, obstacles: obstacles(&ruleset), missing })
    }

    /// All requirements of a setup that the machine does not meet, as errors.
    pub(crate) fn missing(&self, setup: &Setup) -> Vec<GatewayError> {
        let mut lacks: Vec<GatewayError> = require("dnsmasq", "dnsmasq-base").err().into_iter().collect();
        if setup.description.vpn.is_some() {
            lacks.extend(require("wg", "wireguard-tools").err());
            // Try in a temporary network namespace, unless none can be created.
            let probe =
                format!("unshare --net ip link && ! unshare --net ip link add dev {VPN_INTERFACE} type wireguard");
            if !is_installed("wireguard-go") && run(&probe).is_ok() {
                lacks.push(GatewayError::NoWireGuard);
            }
        }
        lacks
    }

    /// Status of the gateway.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn status(&self) -> Result<Status, GatewayError> {
        self.require_root()?;
        let running = self.store.setup()?.map(|setup| self.running(&setup)).transpose()?;
        let (rolled_back, not_rolled_back) = self.rolled_back()?.unzip();
        let confirm_within_secs = self.trial()?.map(|trial| match trial {
            Trial::Waits { secs } => secs,
            Trial::Loading => 0,
        });
        let is_guarded = self.store.is_guarded()?;
        Ok(Status {
            running,
            confirm_within_secs,
            is_guarded,
            rolled_back,
            not_rolled_back: not_rolled_back.filter(|problem| !problem.is_empty()),
        })
    }

    /// The change on trial, if any.
    ///
    /// # Errors
    /// Its deadline cannot be read.
    pub fn trial(&self) -> Result<Option<Trial>, GatewayError> {
        self.store.trial()
    }

    /// Why the last change was rolled back, and what failed in the rollback (may be empty). `None` if a change was
    /// confirmed since.
    pub(crate) fn rolled_back(&self) -> Result<Option<(String, String)>, GatewayError> {
        let split = |text: String| {
            let (why, failed) = text.split_once('\n').unwrap_or((&text, ""));
            (why.to_owned(), failed.to_owned())
        };
        Ok(self.store.rolled_back()?.map(split))
    }

    fn running(&self, setup: &Setup) -> Result<Running, GatewayError> {
        let (_, changes) = self.changes(Some(setup))?;
        let problems = changes.into_iter().filter(|change| run(&change.check).is_err()).map(|change| change.run);
        let vpn = match &setup.description.vpn {
            Some(vpn) => Some(VpnStatus {
                port: vpn.port,
                endpoint: format!("{}:{}", vpn.endpoint.0, vpn.endpoint.1),
                by_kernel: !Path::new(WIREGUARD_SOCKET).exists(),
                clients: self.clients()?,
            }),
            None => None,
        };
        Ok(Running {
            problems: problems.collect(),
            by_systemd: self.by_systemd,
            leases: leases(&read(&self.store.leases())?.unwrap_or_default()),
            vpn,
            counts: counts(),
        })
    }

    /// State of all VPN clients.
    ///
    /// # Errors
    /// The clients cannot be read.
    pub fn clients(&self) -> Result<Vec<ClientState>, GatewayError> {
        self.require_root()?;
        // A VPN that does not run has no connections.
        let dump = run(&format!("wg show {VPN_INTERFACE} dump")).unwrap_or_default();
        let clients = self.store.clients()?;
        let states = clients.iter().map(|client| ClientState {
            name: client.name.clone(),
            address: client.address,
            public_key: client.public_key.to_string(),
            added_secs: client.added_secs,
            connection: connection(&dump, &client.public_key.to_string()).unwrap_or_default(),
        });
        Ok(states.collect())
    }
}

/// Finds a client's connection in the output of `wg show INTERFACE dump`.
fn connection(dump: &str, public_key: &str) -> Option<Connection> {
    let mut peers = dump.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let fields = peers.find(|fields| fields.first() == Some(&public_key))?;
    let [_public, _shared, endpoint, _allowed, handshake, received, sent, _keep_alive] = fields.as_slice() else {
        return None;
    };
    Some(Connection {
        handshake_secs: handshake.parse().ok().filter(|secs| *secs != 0),
        endpoint: Some((*endpoint).to_owned()).filter(|endpoint| endpoint != "(none)"),
        received_bytes: received.parse().ok()?,
        sent_bytes: sent.parse().ok()?,
    })
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

/// Packet counters of the gateway's rules with a comment. Empty if the rules are not loaded.
fn counts() -> Vec<(String, String, u64)> {
    let listing = run(&format!("nft --json list table inet {TABLE}")).unwrap_or_default();
    let listing: Value = serde_json::from_str(&listing).unwrap_or_default();
    let count = |object: &Value| {
        let rule = &object["rule"];
        let counter = rule["expr"].as_array()?.iter().find_map(|part| part["counter"]["packets"].as_u64())?;
        Some((rule["chain"].as_str()?.to_owned(), rule["comment"].as_str()?.to_owned(), counter))
    };
    listing["nftables"].as_array().into_iter().flatten().filter_map(count).collect()
}

/// The differences between a file and its planned content, by the program `diff`; empty if there are none.
fn diff(old: &Path, name: &str, new: &str) -> Result<String, GatewayError> {
    require("diff", "diffutils")?;
    let old = if old.exists() { old } else { Path::new("/dev/null") };
    let labels = [format!("{name} (current)"), format!("{name} (planned)")];
    let mut command = Command::new("diff");
    command.args(["-u", "--label", &labels[0], "--label", &labels[1]]).arg(old).arg("-");
    let compare = || {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        // diff reads all its input before it writes. Closing its input ends it.
        child.stdin.take().ok_or_else(|| io::Error::other("no input"))?.write_all(new.as_bytes())?;
        child.wait_with_output()
    };
    let failed = |source| GatewayError::File { what: "compare", path: old.to_owned(), source };
    Ok(String::from_utf8_lossy(&{ compare }().map_err(failed)?.stdout).into_owned())
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

    #[test]
    fn connections_are_found_by_key() {
        let dump = "private\tserver\t51820\toff\nk1\t(none)\t192.0.2.7:4321\t10.44.0.2/32\t1700000000\t1234\t99\toff\n\
                    k2\t(none)\t(none)\t(none)\t0\t0\t0\t25\n";
        let first = connection(dump, "k1").expect("a connection");
        assert_eq!((first.handshake_secs, first.endpoint.as_deref()), (Some(1_700_000_000), Some("192.0.2.7:4321")));
        assert_eq!((first.received_bytes, first.sent_bytes), (1234, 99));
        assert_eq!(connection(dump, "k2"), Some(Connection::default()));
        assert_eq!((connection(dump, "server"), connection("", "k1")), (None, None));
    }

    #[test]
    fn planned_lines_are_shown() {
        let text = diff(Path::new("/nowhere"), "x", "a\n").expect("diff is installed");
        assert_eq!(text, "--- x (current)\n+++ x (planned)\n@@ -0,0 +1 @@\n+a\n");
        assert_eq!(diff(Path::new("/dev/null"), "x", "").expect("diff is installed"), "");
    }
}

//! Execution of steps.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::command::{find, run, run_with_input};
use super::error::GatewayError;
use super::gateway::Gateway;
use super::observe::{forwarding_file, table};
use super::records::{Loaded, Record};
use super::service::Service;
use crate::keys::PublicKey;
use crate::names::{TABLE, VPN_INTERFACE};
use crate::render;
use crate::steps::Step;

/// Timeout for a program to become ready.
const READY: Duration = Duration::from_secs(10);

/// Directory of the control sockets of `wireguard-go`.
const SOCKETS: &str = "/var/run/wireguard";

const DNSMASQ_CONFIGURATION: &str = "dnsmasq.conf";
const DNSMASQ_PID: &str = "dnsmasq.pid";
pub(super) const DNSMASQ_LEASES: &str = "dnsmasq.leases";
const WIREGUARD_CONFIGURATION: &str = "wireguard.conf";

/// Last known endpoints of clients, for a VPN that is created again.
pub(super) type Endpoints = BTreeMap<PublicKey, String>;

impl Gateway {
    /// Executes one step. Idempotent.
    pub(super) fn carry_out(&self, step: &Step, endpoints: &Endpoints) -> Result<(), GatewayError> {
        match step {
            Step::StopDnsmasq => self.services.stop(Service::Dnsmasq),
            Step::StartDnsmasq { configuration } => self.start_dnsmasq(configuration),
            Step::CreateVpn => self.create_vpn(),
            Step::ConfigureVpn { port } => self.configure_vpn(*port, endpoints),
            Step::RemoveVpn => self.remove_vpn(),
            Step::LoadTable { text } => self.load_table(text),
            Step::DropTable => {
                run("nft", &["delete", "table", "inet", TABLE])?;
                self.records.remove(Loaded::FILE)
            }
            Step::Link { interface, up } => {
                run("ip", &["link", "set", "dev", interface, if *up { "up" } else { "down" }]).map(drop)
            }
            Step::AddAddress { interface, address } => {
                let broadcast = address.subnet().broadcast().to_string();
                run("ip", &["address", "add", &address.to_string(), "broadcast", &broadcast, "dev", interface])
                    .map(drop)
            }
            Step::RemoveAddress { interface, address } => {
                run("ip", &["address", "delete", &address.to_string(), "dev", interface]).map(drop)
            }
            Step::Forwarding { interface, on } => {
                let path = forwarding_file(interface);
                let written = fs::write(&path, if *on { "1" } else { "0" });
                written.map_err(|source| GatewayError::File { what: "write", path: path.into(), source })
            }
        }
    }

    /// Replaces the table in one transaction, so that there is no moment without rules.
    fn load_table(&self, text: &str) -> Result<(), GatewayError> {
        run_with_input("nft", &["-f", "-"], &replacing(text))?;
        let listing = table()?.unwrap_or_default();
        self.records.write(&Loaded { text: text.to_owned(), listing })
    }

    fn start_dnsmasq(&self, configuration: &str) -> Result<(), GatewayError> {
        self.services.stop(Service::Dnsmasq)?;
        self.records.write_text(DNSMASQ_CONFIGURATION, configuration)?;
        self.records.remove(DNSMASQ_PID)?;
        let option = |name: &str, file: &str| format!("--{name}={}", self.records.path(file).display()).into();
        let arguments = [
            "--keep-in-foreground".into(),
            option("conf-file", DNSMASQ_CONFIGURATION),
            option("dhcp-leasefile", DNSMASQ_LEASES),
            option("pid-file", DNSMASQ_PID),
        ];
        self.services.start(Service::Dnsmasq, Path::new("dnsmasq"), &arguments, configuration)?;
        // dnsmasq writes its pid file after it has opened its sockets.
        self.wait_for(Service::Dnsmasq, || self.records.path(DNSMASQ_PID).exists())
    }

    fn create_vpn(&self) -> Result<(), GatewayError> {
        let made = run("ip", &["link", "add", "dev", VPN_INTERFACE, "type", "wireguard"]);
        let Err(error) = made else { return Ok(()) };
        if find("wireguard-go").is_none() {
            return Err(error);
        }
        // An earlier process may still run without having created its interface.
        self.services.stop(Service::WireGuard)?;
        let arguments = ["--foreground".into(), VPN_INTERFACE.into()];
        self.services.start(Service::WireGuard, Path::new("wireguard-go"), &arguments, "")?;
        // Do not call `wg` here: it deletes the socket if no process listens on it yet.
        let socket = Path::new(SOCKETS).join(format!("{VPN_INTERFACE}.sock"));
        self.wait_for(Service::WireGuard, || UnixStream::connect(&socket).is_ok())
    }

    /// Sets the VPN's key, port and clients. Passes them in a file that only root can read, because other users can see
    /// command lines.
    fn configure_vpn(&self, port: u16, endpoints: &Endpoints) -> Result<(), GatewayError> {
        let (key, clients) = (self.records.make_server_key()?, self.records.clients()?);
        self.records.write_text(WIREGUARD_CONFIGURATION, &render::server(&key, port, clients.iter(), endpoints))?;
        let path = self.records.path(WIREGUARD_CONFIGURATION);
        let configured = run("wg", &["syncconf", VPN_INTERFACE, &path.to_string_lossy()]).map(drop);
        self.records.remove(WIREGUARD_CONFIGURATION)?;
        configured
    }

    pub(super) fn remove_vpn(&self) -> Result<(), GatewayError> {
        self.services.stop(Service::WireGuard)?;
        // A kernel interface stays until it is deleted. An interface of `wireguard-go` disappears shortly after its
        // program.
        let path = Path::new("/sys/class/net").join(VPN_INTERFACE);
        if path.exists() {
            let deleted = run("ip", &["link", "delete", "dev", VPN_INTERFACE]);
            if path.exists() {
                deleted?;
            }
        }
        // `wireguard-go` leaves this directory behind. It is not removed while it contains another VPN's socket.
        let _ = fs::remove_dir(SOCKETS);
        Ok(())
    }

    /// Waits until a started service is ready.
    fn wait_for(&self, service: Service, is_ready: impl Fn() -> bool) -> Result<(), GatewayError> {
        let deadline = Instant::now() + READY;
        while !is_ready() {
            if self.services.running(service)?.is_none() || Instant::now() > deadline {
                let error =
                    self.services.ended(service, "the process ended without a message, or was not ready in time");
                let _ = self.services.stop(service);
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Validates the configurations with `nft` and `dnsmasq`.
    pub(super) fn check(&self, table: &str, dnsmasq: &str) -> Result<(), GatewayError> {
        run_with_input("nft", &["--check", "-f", "-"], &replacing(table))?;
        run_with_input("dnsmasq", &["--test", "--conf-file=-"], dnsmasq).map(drop)
    }
}

/// Input for `nft` that replaces the table, whether or not it exists.
fn replacing(text: &str) -> String {
    format!("table inet {TABLE}\ndelete table inet {TABLE}\n{text}")
}

//! The switch: a bridge in its own network namespace, and the hosts connected to it.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::groups::sweep_stale;
use super::host::{Daemon, Host, Plan};
use super::process::{in_network_of, start};
use crate::wait::wait_until;

/// Required programs, with their Debian packages.
const TOOLS: [(&str, &str); 5] =
    [("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables"), ("unshare", "util-linux"), ("nsenter", "util-linux")];

/// The first three bytes of every host's address. The network is private to the test.
const PREFIX: &str = "10.203.0";

/// A switch without hosts. It must outlive its hosts.
pub struct Network {
    holder: Child,
    directory: TempDir,
    executable: PathBuf,
    hosts: AtomicUsize,
}

impl Network {
    /// Creates a network of hosts with `executable` on their `PATH`.
    ///
    /// # Panics
    /// Without root or without a required tool. The message names the tool.
    #[must_use]
    pub fn new(executable: &str) -> Self {
        require_all();
        sweep_stale();
        let directory = tempfile::Builder::new().prefix("hostler-net-").tempdir().expect("a temporary directory");
        let script = "ip link add switch type bridge && ip link set switch up && echo ready && exec cat >&2";
        let holder = start(Command::new("unshare").args(["--net", "sh", "-c", script]));
        let network = Self { holder, directory, executable: executable.into(), hosts: AtomicUsize::new(0) };
        std::fs::write(network.roster(), "127.0.0.1 localhost\n").expect("the file is writable");
        network
    }

    /// Adds a host. Other hosts can reach the host by name or address.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn host(&self, name: &str) -> Host {
        let number = self.hosts.fetch_add(1, Ordering::Relaxed) + 1;
        let host = Host::start(Plan {
            name: name.to_owned(),
            address: format!("{PREFIX}.{number}"),
            root: self.directory.path().join(name),
            roster: self.roster(),
            executable: self.executable.clone(),
            switch: self.holder.id(),
            port: format!("port{number}"),
        });
        let mut roster = std::fs::read_to_string(self.roster()).expect("the file is readable");
        roster.push_str(&format!("{} {name}\n", host.address()));
        // Overwrite the file in place: every host has mounted the same inode.
        std::fs::write(self.roster(), roster).expect("the file is writable");
        host
    }

    /// Adds a host named `head`, and sets up and starts a head on it as in the guide. System accounts may use the
    /// cluster, because every Debian has some.
    ///
    /// # Panics
    /// If the head does not answer.
    #[must_use]
    pub fn head(&self) -> (Host, Daemon) {
        let head = self.host("head");
        head.ok(&["hostler", "head", "init", "--advertise", "head"]);
        let daemon = head.daemon("head", &["hostler", "head", "run"]);
        wait_until("the head to answer", 30, || (head.run(&["hostler", "info"]).code == 0).then_some(()));
        head.ok(&["hostler", "configure", "setting", "system-accounts", "yes"]);
        (head, daemon)
    }

    /// A port without a host.
    fn next_port(&self) -> String {
        format!("port{}", self.hosts.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Runs a shell command in the switch's network namespace. It must succeed.
    fn at_switch(&self, script: &str) {
        in_network_of(self.holder.id(), script);
    }

    /// The file that every host has as `/etc/hosts`.
    fn roster(&self) -> PathBuf {
        self.directory.path().join("hosts")
    }
}

impl Host {
    /// Connects the host to another network, with an interface of this name. The interface is down and has no address.
    pub fn connect_to(&self, network: &Network, interface: &str) {
        let (port, pid) = (network.next_port(), self.holder());
        network.at_switch(&format!(
            "ip link add {port} type veth peer name {interface} netns {pid} && ip link set {port} master switch up"
        ));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn require_all() {
    assert!(nix::unistd::geteuid().is_root(), "hosts in network namespaces need root: run this test as root");
    let path = std::env::var_os("PATH").unwrap_or_default();
    for (tool, package) in TOOLS {
        let is_there = std::env::split_paths(&path).any(|directory| directory.join(tool).exists());
        assert!(is_there, "`{tool}` is missing: install the package {package}, as .ci/run does");
    }
}

//! The switch: a bridge in a network of its own, and who hangs on it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::groups::sweep_stale;
use super::host::{Daemon, Host, Plan};
use crate::wait::wait_until;

/// Programs that lay out the network, and the Debian package of each.
const TOOLS: [(&str, &str); 5] =
    [("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables"), ("unshare", "util-linux"), ("nsenter", "util-linux")];

/// The first three numbers of every host's address. Nobody outside sees it.
const PREFIX: &str = "10.203.0";

/// A switch with no host on it yet. It must outlive its hosts.
pub struct Network {
    holder: Child,
    directory: TempDir,
    executable: PathBuf,
    hosts: AtomicUsize,
}

impl Network {
    /// A network whose hosts have `executable` on their `PATH`.
    ///
    /// # Panics
    /// Without root or a tool that it needs; the message says what is missing.
    #[must_use]
    pub fn new(executable: &str) -> Self {
        require_all();
        sweep_stale();
        let directory = tempfile::Builder::new().prefix("hostler-net-").tempdir().expect("a temporary directory");
        let script = "ip link add switch type bridge && ip link set switch up && echo ready && exec cat >&2";
        let holder = start(Command::new("unshare").args(["--net", "sh", "-c", script]));
        let network = Self { holder, directory, executable: executable.into(), hosts: AtomicUsize::new(0) };
        std::fs::write(network.roster(), "127.0.0.1 localhost\n").expect("the test owns it");
        network
    }

    /// A new host on the switch. The others reach it by its name or its address.
    ///
    /// # Panics
    /// When it cannot be made.
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
        let mut roster = std::fs::read_to_string(self.roster()).expect("the test owns it");
        roster.push_str(&format!("{} {name}\n", host.address()));
        // In place: it is the same file on every host.
        std::fs::write(self.roster(), roster).expect("it is ours");
        host
    }

    /// A host by the name of `head` on which a head has been set up and runs, as the guide says.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn head(&self) -> (Host, Daemon) {
        let head = self.host("head");
        head.ok(&["hostler", "head", "init", "--advertise", "head"]);
        let daemon = head.daemon("head", &["hostler", "head", "run"]);
        wait_until("the head to answer", 30, || (head.run(&["hostler", "info"]).code == 0).then_some(()));
        (head, daemon)
    }

    /// A port that no host has yet.
    pub(super) fn next_port(&self) -> String {
        format!("port{}", self.hosts.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Runs a shell command in the switch's network that must succeed.
    pub(super) fn at_switch(&self, script: &str) {
        in_network_of(self.holder.id(), script);
    }

    /// The file of names that is `/etc/hosts` on every host.
    fn roster(&self) -> PathBuf {
        self.directory.path().join("hosts")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Starts a process that says `ready` and then lives as long as the pipe to it.
pub(super) fn start(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("util-linux is installed");
    let mut said = String::new();
    let _ = BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut said);
    assert_eq!(said.trim(), "ready", "no namespace could be made; what refused has said why above");
    child
}

/// Runs a command that must succeed.
pub(super) fn succeed(command: &mut Command) {
    let output = command.output().expect("the program can be started");
    assert!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a shell command in a process's network that must succeed.
pub(super) fn in_network_of(process: u32, script: &str) {
    succeed(Command::new("nsenter").args(["--target", &process.to_string(), "--net", "sh", "-c", script]));
}

fn require_all() {
    assert!(nix::unistd::geteuid().is_root(), "hosts in network namespaces need root: run this test as root");
    let path = std::env::var_os("PATH").unwrap_or_default();
    for (tool, package) in TOOLS {
        let is_there = std::env::split_paths(&path).any(|directory| directory.join(tool).exists());
        assert!(is_there, "`{tool}` is missing: install the package {package}, as .ci/run does");
    }
}

//! A head and nodes with a shared directory, and helpers for tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use hostler_testkit::{Daemon, Host, Network, Outcome, wait_until};
use serde_json::Value;
use tempfile::TempDir;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// The user of the commands: an account without processes that every Debian has.
pub(crate) const USER: &str = "games";

/// A head and nodes `n1`, `n2` and so on, each on its own host. [`USER`] has a shared directory, as on a network
/// disk, and a home on each.
pub(crate) struct Machines {
    pub(crate) head: Host,
    pub(crate) head_daemon: Option<Daemon>,
    pub(crate) nodes: Vec<Host>,
    pub(crate) agents: Vec<Option<Daemon>>,
    shared: TempDir,
    // Last: the daemons must end before their hosts.
    _network: Network,
}

impl Machines {
    /// Starts `count` nodes and waits until they know of each other.
    pub(crate) fn of(count: usize) -> Self {
        Self::prepared(count, |_| &[])
    }

    /// Like `of`, with additional flags for the agents.
    pub(crate) fn prepared(count: usize, flags: impl Fn(&Host) -> &'static [&'static str]) -> Self {
        let network = Network::new(HOSTLER);
        let (head, daemon) = network.head();
        // A directory that is not private to a host.
        let shared = tempfile::Builder::new().prefix("hostler-exec-").tempdir_in("/var/tmp").expect("a directory");
        let (uid, gid) = ids();
        chown(shared.path(), Some(uid), Some(gid)).expect("root may");
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o755)).expect("root may");
        let mut machines =
            Self { head, head_daemon: Some(daemon), nodes: Vec::new(), agents: Vec::new(), shared, _network: network };
        for number in 1..=count {
            let host = machines._network.host(&format!("n{number}"));
            host.ok(&["sh", "-c", &format!("mkdir /home/{USER} && chown {USER} /home/{USER} && chmod 1777 /tmp")]);
            // The small program on the first host, the full one on the others.
            host.ok(&["ln", "-s", if number == 1 { "hostler-tools" } else { "hostler" }, "/run/bin/dsh"]);
            host.join(&machines.head);
            machines.nodes.push(host);
            machines.agents.push(None);
            let flags = flags(&machines.nodes[number - 1]);
            machines.start_agent(number - 1, flags);
        }
        (0..count).for_each(|by| machines.wait_for(by, count));
        machines
    }

    pub(crate) fn start_agent(&mut self, node: usize, flags: &[&str]) {
        let cpus: &[&str] = if flags.contains(&"--cpus") { &[] } else { &["--cpus", "0-1"] };
        let run = [&["hostler", "agent", "run", "--memory", "512M"], cpus].concat();
        self.agents[node] = Some(self.nodes[node].daemon("agent", &[&run[..], flags].concat()));
    }

    pub(crate) fn kill_agent(&mut self, node: usize) {
        self.agents[node].take().expect("the daemon runs").kill_9();
    }

    pub(crate) fn agent_pid(&self, node: usize) -> u32 {
        self.agents[node].as_ref().expect("the daemon runs").pid()
    }

    /// The nodes that a node would send commands to.
    pub(crate) fn candidates(&self, by: usize) -> Vec<String> {
        let said = self.nodes[by].run(&["hostler", "exec", "--explain", "--json"]);
        let choice: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
        let name = |how: &Value| how["node"].as_str().map(ToOwned::to_owned);
        let mut names: Vec<_> = choice["candidates"].as_array().into_iter().flatten().filter_map(name).collect();
        names.sort();
        names
    }

    /// Waits until a node knows of `count` nodes that accept commands, itself included.
    pub(crate) fn wait_for(&self, by: usize, count: usize) {
        wait_until(&format!("{count} nodes to take commands of n{}", by + 1), 60, || {
            (self.candidates(by).len() == count).then_some(())
        });
    }

    /// Writes an executable file of the user to the shared directory.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.shared.path().join(name);
        fs::write(&path, content).expect("the file is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the test owns the file");
        let (uid, gid) = ids();
        chown(path, Some(uid), Some(gid)).expect("root may");
    }

    /// Reads a file of the shared directory; empty if it does not exist.
    pub(crate) fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.shared.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads a file of the shared directory once it has a whole line.
    pub(crate) fn line_of(&self, name: &str) -> String {
        let whole = || self.read(name).strip_suffix('\n').map(ToOwned::to_owned);
        wait_until(&format!("a line in {name}"), 30, whole)
    }

    /// Path of the shared directory on every host.
    pub(crate) fn shared(&self) -> String {
        self.shared.path().to_string_lossy().into_owned()
    }

    /// A command of a user in the shared directory, not yet started.
    pub(crate) fn command_of(&self, user: &str, node: usize, arguments: &[&str]) -> Command {
        let home = format!("HOME=/home/{user}");
        let enter = format!("cd {} && exec \"$@\"", self.shared());
        let become_user = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "env", &home];
        self.nodes[node].command(&[&become_user[..], &["sh", "-c", &enter, "sh"], arguments].concat())
    }

    /// A bash script of [`USER`], not yet started.
    pub(crate) fn bash(&self, node: usize, script: &str) -> Command {
        self.command_of(USER, node, &["bash", "-c", script])
    }

    /// Runs a bash script of [`USER`].
    pub(crate) fn run(&self, node: usize, script: &str) -> Outcome {
        Outcome::of(&self.bash(node, script).output().expect("nsenter can be started"))
    }

    /// Runs a script that must succeed without output on stderr. Returns its stdout without the final newline.
    pub(crate) fn ok(&self, node: usize, script: &str) -> String {
        let outcome = self.run(node, script);
        assert!(outcome.code == 0 && outcome.stderr.is_empty(), "{script} failed: {outcome:?}");
        outcome.stdout.trim_end_matches('\n').to_owned()
    }

    /// Runs a Python script that must succeed. Returns its lines.
    pub(crate) fn python(&self, node: usize, script: &str) -> Vec<String> {
        let output = self.command_of(USER, node, &["python3", "-c", script]).output().expect("nsenter can be started");
        let outcome = Outcome::of(&output);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome.stdout.lines().map(ToOwned::to_owned).collect()
    }

    /// Starts a script; its output is read at its end.
    pub(crate) fn start(&self, node: usize, script: &str) -> Child {
        let mut command = self.bash(node, script);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("nsenter can be started")
    }

    /// The number of processes of a node with `text` in their command line.
    pub(crate) fn processes(&self, node: usize, text: &str) -> usize {
        let (first, rest) = text.split_at(1);
        // The brackets keep the search from matching itself.
        let search = format!("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -ao '[{first}]{rest}' | wc -l");
        self.nodes[node].ok(&["sh", "-c", &search]).trim().parse().expect("a number")
    }

    /// Waits until there is no such process.
    pub(crate) fn wait_for_none(&self, node: usize, text: &str, seconds: u64) {
        wait_until(&format!("none of {text} on n{}", node + 1), seconds, || {
            (self.processes(node, text) == 0).then_some(())
        });
    }
}

/// The outcome of a started script, and how many seconds its end took from now.
pub(crate) fn end_of(child: Child) -> (Outcome, f64) {
    let since = Instant::now();
    let outcome = Outcome::of(&child.wait_with_output().expect("the process ends"));
    (outcome, since.elapsed().as_secs_f64())
}

/// Uid and gid of [`USER`].
pub(crate) fn ids() -> (u32, u32) {
    let user = nix::unistd::User::from_name(USER).expect("readable").expect("on every Debian");
    (user.uid.as_raw(), user.gid.as_raw())
}

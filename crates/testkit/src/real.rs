//! A real cluster in one home directory: a head, and nodes that join with join codes.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::{Cluster, Outcome, free_port, wait_until};

/// A head and its nodes, set up by the documented commands, each in its own directory below one home. Dropping it ends
/// all its processes.
pub struct RealCluster {
    head: RefCell<Option<Child>>,
    pub home: Cluster,
    /// Value for `--head`.
    pub address: String,
}

impl RealCluster {
    /// Sets up a head and starts it.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(executable: &str) -> Self {
        let home = Cluster::none(executable);
        let address = format!("unix:{}", home.path("head/head.sock").display());
        let real = Self { head: RefCell::default(), home, address };
        // Nodes must find the head at the same port after a restart.
        let listen = format!("127.0.0.1:{}", free_port());
        let said = real.home.run(&["head", "init", "--directory", &real.path("head"), "--listen", &listen]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(
            said.stdout.is_empty() && said.stderr.contains("next: start the head with `hostler head run"),
            "{said:?}"
        );
        real.run_head();
        real
    }

    /// A path below the home.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.home.path(name).display().to_string()
    }

    /// Starts a daemon that logs to the file `name`. `change` can modify the command.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn daemon(&self, name: &str, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Child {
        let log = File::options().append(true).create(true).open(self.home.path(name)).expect("a log can be written");
        let mut command = self.home.command(arguments);
        change(&mut command);
        command.stdout(Stdio::null()).stderr(log).spawn().expect("the executable can be started")
    }

    /// Starts the head.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn run_head(&self) {
        let _ = fs::remove_file(self.home.path("head/head.json"));
        let child = self.daemon("head.log", &["head", "run", "--directory", &self.path("head")], |_| {});
        self.head.replace(Some(child));
        wait_until("the head to be ready", 30, || self.home.path("head/head.json").exists().then_some(()));
    }

    /// Sends SIGKILL to the head.
    ///
    /// # Panics
    /// If the head is not running.
    pub fn kill_head(&self) {
        end(self.head.take().expect("the process is running"));
    }

    /// Starts the agent of a node that has joined.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run_agent(&self, node: &str) -> Child {
        self.daemon(&format!("{node}.log"), &["agent", "run", "--directory", &self.path(node), "--root-jobs"], |_| {})
    }

    /// The log of a daemon.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.home.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Waits until the log of a daemon contains `text`.
    ///
    /// # Panics
    /// If that takes longer than a minute.
    pub fn wait_for_log(&self, name: &str, text: &str) {
        let logged = || self.log(name).contains(text).then_some(());
        wait_until(&format!("the log of {name} to contain `{text}`, not {}", self.log(name)), 60, logged);
    }

    /// Runs a client command that must succeed. Returns stdout.
    ///
    /// # Panics
    /// If it fails; the message has its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.home.ok(&[&["--head", self.address.as_str()], arguments].concat())
    }

    /// Runs a client command that must fail. Returns stderr.
    ///
    /// # Panics
    /// If it does not fail.
    pub fn fails(&self, arguments: &[&str]) -> String {
        self.home.fails(&[&["--head", self.address.as_str()], arguments].concat())
    }

    /// Runs a client command with `--json`. Returns its output.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn json(&self, arguments: &[&str]) -> Value {
        self.home.json(&[&["--head", self.address.as_str()], arguments].concat())
    }

    /// Waits until a node has this state.
    ///
    /// # Panics
    /// If that takes longer than a minute.
    pub fn wait_for_node(&self, node: &str, state: &str) {
        wait_until(&format!("node {node} {state}"), 60, || {
            let nodes = self.json(&["nodes"]);
            nodes.as_array()?.iter().any(|it| it["name"] == node && it["state"] == state).then_some(())
        });
    }

    /// Waits until a job has this state.
    ///
    /// # Panics
    /// If that takes longer than a minute.
    pub fn wait_for_job(&self, job: &str, state: &str) {
        wait_until(&format!("job {job} {state}"), 60, || (self.json(&["job", job])["state"] == state).then_some(()));
    }

    /// Runs `hostler agent join` with the code on standard input. `change` can modify the command.
    ///
    /// # Panics
    /// If the command cannot be run.
    pub fn join(&self, directory: &str, code: &str, more: &[&str], change: impl FnOnce(&mut Command)) -> Outcome {
        let directory = self.path(directory);
        let mut command = self.home.command(&[&["agent", "join", "-", "--directory", &directory], more].concat());
        change(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the executable can be started");
        child
            .stdin
            .take()
            .expect("the stream is piped")
            .write_all(format!("{code}\n").as_bytes())
            .expect("the child reads its input");
        let output = child.wait_with_output().expect("the program ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Outcome { code: output.status.code().unwrap_or(-1), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Adds a node of this name and starts its agent.
    ///
    /// # Panics
    /// If the head refuses the node, or the agent does not start.
    pub fn add_node(&self, node: &str) -> Child {
        let joined = self.join(node, &self.ok(&["node", "invite", node]), &[], |_| {});
        assert_eq!(joined.code, 0, "{joined:?}");
        let agent = self.run_agent(node);
        self.wait_for_node(node, "up");
        agent
    }
}

impl Drop for RealCluster {
    fn drop(&mut self) {
        self.head.take().into_iter().for_each(end);
    }
}

/// Sends SIGKILL to a child of the caller and waits for its end.
///
/// # Panics
/// If the caller has already waited for it.
pub fn end(mut child: Child) {
    child.kill().expect("the process is not reaped yet");
    child.wait().expect("the process is not reaped yet");
}

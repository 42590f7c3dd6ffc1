//! A cluster for several users: a head that every user may contact, and an agent that root runs.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::Signal;
use nix::unistd::User;
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::{Outcome, collect_logs, configures_index_access, kill_processes_with};
use crate::{kill, wait_until};

/// A head and one agent or several, run by root, in a directory that every user can traverse. Dropping it ends all its
/// processes and removes the directory.
pub struct SharedCluster {
    home: TempDir,
    executable: PathBuf,
    agent_options: Vec<String>,
    /// Variables of agents in addition to those of the tests.
    agent_variables: Vec<(String, String)>,
    agent: Option<Child>,
    /// Agents of further nodes.
    others: Vec<Child>,
    head: Mutex<Child>,
}

impl SharedCluster {
    /// Starts a cluster with the node `n1`. The agent gets `agent_options` in addition to the required ones.
    ///
    /// # Panics
    /// If the cluster does not start, e.g. without root.
    #[must_use]
    pub fn up(executable: &str, agent_options: &[&str]) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "a cluster for several users needs root");
        let home = tempfile::Builder::new().prefix("hostler-test-").tempdir().expect("a temporary directory");
        fs::set_permissions(home.path(), Permissions::from_mode(0o711)).expect("just made");
        // The original executable may be in a directory that other users cannot access.
        let copy = home.path().join("hostler");
        fs::hard_link(executable, &copy)
            .or_else(|_| fs::copy(executable, &copy).map(drop))
            .expect("the disk has space");
        let mut init = daemon(&copy, home.path(), "init", &head_arguments(home.path(), "init"), &[]);
        assert!(init.wait().expect("the process is not reaped yet").success(), "see init.log");
        let head = daemon(&copy, home.path(), "head", &head_arguments(home.path(), "run"), &[]);
        let agent_options = agent_options.iter().map(|&option| option.to_owned()).collect();
        let (others, head) = (Vec::new(), Mutex::new(head));
        let agent_variables = Vec::new();
        let mut cluster = Self { home, executable: copy, agent_options, agent_variables, agent: None, others, head };
        cluster.wait_for_head();
        // The users of the tests are accounts that every Debian has.
        cluster.ok("root", &["configure", "setting", "system-accounts", "yes"]);
        cluster.invite("n1", "join");
        cluster.start_agent();
        cluster
    }

    /// Adds a node, and waits until it is up.
    ///
    /// # Panics
    /// If it does not start.
    pub fn add_node(&mut self, name: &str) {
        self.invite(name, &format!("join-{name}"));
        let agent = self.run_agent(name, &format!("agent-{name}"), &format!("join-{name}"));
        self.others.push(agent);
    }

    /// Adds a node whose agent an ordinary user runs in their own home, and waits until it is up. Returns the agent's directory.
    ///
    /// # Panics
    /// If it does not start.
    pub fn add_node_of(&mut self, user: &str, name: &str) -> PathBuf {
        let (directory, code) =
            (self.home_of(user).join(".local/state/hostler/nodes").join(name), format!("join-{name}"));
        self.invite(name, &code);
        give(&self.path(&code), user);
        let log = File::create(self.path(&format!("agent-{name}.log"))).expect("the file is writable");
        let (directory_text, code) = (text(&directory), text(&self.path(&code)));
        let mut agent = self.command(user, &["agent", "run", "--name", name, "--cpus", "0-1", "--memory", "1G"]);
        agent.args(["--directory", &directory_text, "--join-file", &code]).env_remove("HOSTLER_HEAD");
        let agent = agent.stdout(log.try_clone().expect("a descriptor is free")).stderr(log).spawn();
        self.others.push(agent.expect("the executable can be started"));
        self.wait_for_node(name);
        directory
    }

    /// Writes a join code for a node to a file.
    fn invite(&self, node: &str, file: &str) {
        fs::write(self.path(file), invite(&self.socket(), node)).expect("the file is writable");
        fs::set_permissions(self.path(file), Permissions::from_mode(0o600)).expect("the test owns the file");
    }

    fn wait_for_head(&self) {
        wait_until("the head to listen", 30, || UnixStream::connect(self.socket()).ok());
    }

    fn head(&self) -> MutexGuard<'_, Child> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends SIGKILL to the head, starts it again, and waits until it listens.
    ///
    /// # Panics
    /// If it does not start.
    pub fn kill_and_restart_head(&self) {
        let mut head = self.head();
        kill(head.id(), Signal::SIGKILL);
        head.wait().expect("the process is not reaped yet");
        *head = daemon(&self.executable, self.home.path(), "head", &head_arguments(self.home.path(), "run"), &[]);
        self.wait_for_head();
    }

    /// Sets a variable of agents that are started later.
    pub fn set_agent_variable(&mut self, name: &str, value: &str) {
        self.agent_variables.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the agent and waits until its node is up.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_agent(&mut self) {
        self.agent = Some(self.run_agent("n1", "agent", "join"));
    }

    /// Starts an agent, with a directory and a file with a join code, and waits until its node is up.
    fn run_agent(&self, node: &str, directory: &str, code: &str) -> Child {
        let mut arguments: Vec<String> = ["agent", "run", "--name", node, "--cpus", "0-1", "--memory", "1G"]
            .map(str::to_owned)
            .into_iter()
            .chain(["--directory".into(), text(&self.path(directory)), "--join-file".into(), text(&self.path(code))])
            .collect();
        arguments.extend(self.agent_options.iter().cloned());
        let agent = daemon(&self.executable, self.home.path(), directory, &arguments, &self.agent_variables);
        self.wait_for_node(node);
        agent
    }

    fn wait_for_node(&self, node: &str) {
        wait_until("the node to be up", 30, || {
            let nodes = self.run("root", &["nodes", "--json"]);
            let nodes: Value = serde_json::from_str(&nodes.stdout).ok()?;
            nodes.as_array()?.iter().any(|it| it["name"] == node && it["state"] == "up").then_some(())
        });
    }

    /// Sends SIGKILL to the agent.
    ///
    /// # Panics
    /// If it is not running.
    pub fn kill_agent(&mut self) {
        let mut agent = self.agent.take().expect("the process is running");
        kill(agent.id(), Signal::SIGKILL);
        agent.wait().expect("the process is not reaped yet");
    }

    /// A path below the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The directory of a user, created if it does not exist. Only the user can access it.
    ///
    /// # Panics
    /// If the user does not exist.
    #[must_use]
    pub fn home_of(&self, user: &str) -> PathBuf {
        let home = self.path(&format!("home-{user}"));
        if !home.exists() {
            fs::create_dir(&home).expect("the directory can be created");
            fs::set_permissions(&home, Permissions::from_mode(0o700)).expect("just created");
            give(&home, user);
        }
        home
    }

    /// Writes a file of a user below the user's directory, and creates its parent directories.
    ///
    /// # Panics
    /// If writing fails.
    pub fn write(&self, user: &str, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.home_of(user).join(name);
        let parent = path.parent().expect("the path has a parent");
        fs::create_dir_all(parent).expect("root has permission");
        give(parent, user);
        fs::write(&path, content).expect("root has permission");
        give(&path, user);
        path
    }

    /// A command of the executable as a user of this machine, in the user's directory. The caller runs it.
    ///
    /// # Panics
    /// If the user does not exist.
    #[must_use]
    pub fn command(&self, user: &str, arguments: &[&str]) -> Command {
        let account = User::from_name(user).expect("readable").expect("a user of this machine");
        self.command_by_id((account.uid.as_raw(), account.gid.as_raw()), &self.home_of(user), arguments)
    }

    /// Like [`SharedCluster::command`], for a uid and gid without a name.
    #[must_use]
    pub fn command_by_id(&self, (uid, gid): (u32, u32), home: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .args(arguments)
            .uid(uid)
            .gid(gid)
            .current_dir(home)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", home)
            .env("LANG", "C.UTF-8")
            .env("HOSTLER_HEAD", format!("unix:{}", self.socket().display()))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command as a user to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn run(&self, user: &str, arguments: &[&str]) -> Outcome {
        Outcome::of(&self.command(user, arguments).output().expect("the executable can be started"))
    }

    /// Runs a command that must succeed. Returns stdout without the final newline.
    ///
    /// # Panics
    /// If it fails; the message has its output.
    pub fn ok(&self, user: &str, arguments: &[&str]) -> String {
        let outcome = self.run(user, arguments);
        assert_eq!(outcome.code, 0, "{user}: hostler {arguments:?} failed: {}{}", outcome.stdout, outcome.stderr);
        outcome.stdout.trim_end_matches('\n').to_owned()
    }

    /// A job as JSON.
    ///
    /// # Panics
    /// If the job does not exist.
    #[must_use]
    pub fn job(&self, id: &str) -> Value {
        serde_json::from_str(&self.ok("root", &["job", id, "--json"])).expect("JSON")
    }

    /// The pid of the agent.
    ///
    /// # Panics
    /// If the agent is not running.
    #[must_use]
    pub fn agent_pid(&self) -> u32 {
        self.agent.as_ref().expect("the process is running").id()
    }

    fn socket(&self) -> PathBuf {
        self.path("head.sock")
    }
}

impl Drop for SharedCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut logs = String::new();
            collect_logs(self.home.path(), &mut logs);
            #[expect(clippy::print_stderr, reason = "a failing test prints the daemons' logs")]
            {
                eprintln!("{logs}");
            }
        }
        // After SIGTERM to the agent, idle shepherds end and remove their cgroup leaves.
        let head = self.head.get_mut().unwrap_or_else(PoisonError::into_inner);
        for child in self.agent.iter_mut().chain(&mut self.others).chain([head]) {
            kill(child.id(), Signal::SIGTERM);
            let _ = child.wait();
        }
        kill_processes_with(&text(self.home.path()));
    }
}

/// Arguments of `hostler head init` or `hostler head run`.
fn head_arguments(home: &Path, command: &str) -> Vec<String> {
    let (directory, socket) = (text(&home.join("head")), text(&home.join("head.sock")));
    ["head", command, "--directory", &directory, "--socket", &socket, "--listen", "127.0.0.1:0"]
        .map(str::to_owned)
        .to_vec()
}

/// Starts a daemon. Its log is next to its directory.
fn daemon(executable: &Path, home: &Path, name: &str, arguments: &[String], variables: &[(String, String)]) -> Child {
    let log =
        File::options().create(true).append(true).open(home.join(format!("{name}.log"))).expect("the file is writable");
    fs::set_permissions(home.join(format!("{name}.log")), Permissions::from_mode(0o600))
        .expect("the test owns the file");
    Command::new(executable)
        .args(arguments)
        .env_clear()
        .envs(std::env::vars().filter(|(name, _)| configures_index_access(name)))
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .env("HOME", home)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor is free"))
        .stderr(log)
        .spawn()
        .expect("the executable can be started")
}

fn give(path: &Path, user: &str) {
    let account = User::from_name(user).expect("readable").expect("a user of this machine");
    chown(path, Some(account.uid.as_raw()), Some(account.gid.as_raw())).expect("root has permission");
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A join code for a node, from the head on `socket`.
///
/// # Panics
/// If the head refuses.
pub fn invite(socket: &Path, node: &str) -> String {
    let mut socket = UnixStream::connect(socket).expect("the head listens");
    let body = format!("{{\"node\":\"{node}\"}}");
    let request = format!(
        "POST /api/v1/nodes/invite HTTP/1.1\r\nhost: hostler\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).expect("the head reads the request");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("the head answers");
    let json = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let invitation: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {answer}"));
    invitation["code"].as_str().unwrap_or_else(|| panic!("no code: {answer}")).to_owned()
}

//! Starts the processes of an embedded cluster that do not run.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use hostler_cli::cluster::process::{ProcessId, log_tail, spawn};
use hostler_cli::cluster::record::NodeRecord;
use hostler_cli::cluster::{HEAD_FILE, Machine, Places, Record, RunningHead, Sizes};
use hostler_cli::commands::discover::captured_machine;
use hostler_cli::failure::{During, Failure};
use hostler_client::{Client, ClientError, Endpoint, RetryLimits};
use hostler_model::{NodeName, NodeState, format_bytes, plural};
use hostler_proto::api::{Info, NodeView};
use tokio::time::{Instant, sleep};

use super::elastic;

/// How long the head may take to start. The head replays its store before it accepts connections.
const HEAD_TIME: Duration = Duration::from_secs(60);

/// How long the agents may take to connect once the head runs.
const NODES_TIME: Duration = Duration::from_secs(60);

/// Poll interval while processes start.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Number of log lines to show if a process has died.
const LOG_LINES: usize = 12;

#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) info: Info,
    pub(crate) nodes: Vec<NodeView>,
    /// Number of processes that were started; 0 if all were running.
    pub(crate) started: usize,
}

/// Starts processes that do not run and waits until all nodes are up. `tell` receives progress messages. The caller
/// holds the lock. Fails and changes nothing if the cluster runs with other sizes than requested.
pub(crate) async fn bring_up(
    places: &Places,
    sizes: Sizes,
    is_elastic: bool,
    results_cap_bytes: Option<u64>,
    mut tell: impl FnMut(&str),
) -> Result<Started, Failure> {
    // Move this process to a child cgroup first, so that the agents can enable controllers for the cgroups of jobs.
    hostler_agent::leave_cgroup();
    let mut starter = Starter::new(places)?;
    starter.choose_nodes(&sizes)?;
    starter.choose_elasticity(is_elastic, &mut tell)?;
    if results_cap_bytes.is_some() {
        starter.record.results_cap_bytes = results_cap_bytes;
        starter.save()?;
    }
    starter.ensure_head(&mut tell).await?;
    starter.ensure_agents(&mut tell).await?;
    let nodes = starter.wait_for_nodes(&mut tell).await?;
    starter.remove_unused_nodes(&mut tell).await?;
    let info = starter.client.info().await?;
    Ok(Started { info, nodes, started: starter.children.len() })
}

/// Starts the agent of one node. The caller holds the lock.
pub(crate) async fn start_node(places: &Places, name: &NodeName) -> Result<(), Failure> {
    hostler_agent::leave_cgroup();
    let mut starter = Starter::new(places)?;
    let at = starter.record.nodes.iter().position(|node| node.name == *name);
    starter.start_agent(at.ok_or_else(|| Failure::new(format!("this cluster has no node {name}")))?).await
}

/// A process that was just started and may still fail.
struct StartedProcess {
    name: String,
    child: Child,
    log: PathBuf,
    /// Size of the log before the start.
    log_start: u64,
}

struct Starter<'a> {
    places: &'a Places,
    executable: PathBuf,
    socket: PathBuf,
    client: Client,
    record: Record,
    children: Vec<StartedProcess>,
}

impl<'a> Starter<'a> {
    fn new(places: &'a Places) -> Result<Self, Failure> {
        let socket = places.socket()?;
        Ok(Self {
            places,
            executable: std::env::current_exe().during(|| "cannot find this executable".to_owned())?,
            client: Client::new(Endpoint::Unix(socket.clone())).with_retry_limits(RetryLimits::NONE),
            socket,
            record: Record::load(&places.record())?,
            children: Vec::new(),
        })
    }

    async fn ensure_head(&mut self, tell: &mut impl FnMut(&str)) -> Result<(), Failure> {
        if let Some(head) = RunningHead::of(&self.places.head()) {
            head.wait_for_socket()?;
        }
        match self.client.info().await {
            Ok(info) => return self.is_ours(&info),
            Err(ClientError::Connect { .. } | ClientError::Interrupted { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if !self.record.head.as_ref().is_some_and(ProcessId::is_alive) {
            tell("starting the head");
            self.start_head()?;
        }
        let info = self.wait_for_head().await?;
        self.is_ours(&info)?;
        self.record.address = Some(info.head.address);
        self.save()
    }

    /// Checks that the head at the socket belongs to this cluster.
    fn is_ours(&self, info: &Info) -> Result<(), Failure> {
        let same = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if same(Path::new(&info.head.directory)) == same(&self.places.head()) {
            return Ok(());
        }
        Err(Failure::new(format!("the head of another cluster listens at {}", self.socket.display()))
            .hint(format!(
                "that head's state is in {}; stop it with `hostler down` and the same XDG_STATE_HOME",
                info.head.directory
            ))
            .hint("or set XDG_RUNTIME_DIR to another private directory for this cluster"))
    }

    fn start_head(&mut self) -> Result<(), Failure> {
        let listen = free_address(self.record.address.as_deref());
        let mut args: Vec<OsString> = vec![
            "head".into(),
            "run".into(),
            "--embedded".into(),
            "--directory".into(),
            self.places.head().into(),
            "--socket".into(),
            self.socket.clone().into(),
            "--listen".into(),
            listen.into(),
        ];
        if let Some(bytes) = self.record.results_cap_bytes {
            args.extend(["--results-cap".into(), bytes.to_string().into()]);
        }
        self.record.head = Some(self.start("head", &args)?);
        self.save()
    }

    async fn wait_for_head(&mut self) -> Result<Info, Failure> {
        let deadline = Instant::now() + HEAD_TIME;
        loop {
            match self.client.info().await {
                Ok(info) => return Ok(info),
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(error.into()),
            }
            self.check_children()?;
            if Instant::now() >= deadline {
                return Err(self.too_slow("the head", "head"));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Keeps the recorded nodes if any node runs and the sizes match. Otherwise divides the machine again. Saves nothing.
    fn choose_nodes(&mut self, sizes: &Sizes) -> Result<(), Failure> {
        if sizes.is_empty() && self.record.is_running() {
            return Ok(());
        }
        let is_repeated = sizes.is_empty();
        let sizes = if is_repeated { &self.record.sizes.clone() } else { sizes };
        let found = match &sizes.machine_from {
            Some(file) => captured_machine(file)?,
            None => hostler_discovery::machine(),
        };
        let machine = Machine::detect()?.with_gpus(found, sizes.gpus.as_ref());
        let wanted =
            if is_repeated { sizes.as_before(&self.record.nodes).deal(&machine) } else { sizes.deal(&machine) };
        if !self.record.is_running() {
            // After a crash, keep default values such as the share of the free memory.
            let is_as_before = self.record.has_died() && *sizes == self.record.sizes;
            if !(is_as_before && sizes.still_fit(&wanted, &self.record.nodes)) {
                self.record.nodes = wanted;
            }
            self.record.machine_from = sizes.machine_from.clone();
            self.record.sizes = sizes.clone();
            return Ok(());
        }
        let misfits = sizes.misfits(&wanted, &self.record.nodes);
        if misfits.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "the cluster is already running with other sizes: {}; {} would change that",
            describe(&self.record.nodes),
            misfits.join(" and ")
        ))
        .hint("to change the sizes, run `hostler down` and repeat this command")
        .hint("`hostler up` without options for sizes restarts processes that have died"))
    }

    /// Writes or removes the head's `power.toml`. A running elastic cluster stays elastic.
    fn choose_elasticity(&mut self, is_elastic: bool, tell: &mut impl FnMut(&str)) -> Result<(), Failure> {
        if self.record.is_running() && !is_elastic {
            return Ok(());
        }
        let path = self.places.head().join("power.toml");
        if is_elastic {
            let directory = self.places.head();
            std::fs::create_dir_all(&directory).during(|| format!("cannot create {}", directory.display()))?;
            let nodes: Vec<&str> = self.record.nodes.iter().map(|node| node.name.as_str()).collect();
            elastic::enable(&path, &nodes)?;
        } else if elastic::disable(&path)? {
            tell(&format!("note: the head switches nodes on and off as your file {} says", path.display()));
        }
        self.record.is_elastic = is_elastic;
        self.save()
    }

    async fn ensure_agents(&mut self, tell: &mut impl FnMut(&str)) -> Result<(), Failure> {
        let missing: Vec<usize> = (0..self.record.nodes.len())
            .filter(|&i| !self.record.nodes[i].is_on())
            // In an elastic cluster, start only new nodes: the head starts the other nodes when jobs need them.
            .filter(|&i| !(self.record.is_elastic && self.is_known(i)))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let of_them: Vec<NodeRecord> = missing.iter().map(|&i| self.record.nodes[i].clone()).collect();
        tell(&format!("starting {}", describe(&of_them)));
        for i in missing {
            self.start_agent(i).await?;
        }
        Ok(())
    }

    /// Whether a node has joined before.
    fn is_known(&self, i: usize) -> bool {
        hostler_agent::has_joined(&self.places.node(&self.record.nodes[i].name))
    }

    async fn start_agent(&mut self, i: usize) -> Result<(), Failure> {
        let node = self.record.nodes[i].clone();
        let directory = self.places.node(&node.name);
        let mut args: Vec<OsString> = vec![
            "agent".into(),
            "run".into(),
            "--directory".into(),
            directory.clone().into(),
            "--environments".into(),
            self.places.environments().into(),
            "--name".into(),
            node.name.as_str().into(),
            "--cpus".into(),
            node.cpus.to_string().into(),
            "--memory".into(),
            node.memory_bytes.to_string().into(),
            "--gpus".into(),
            if node.gpus.is_empty() { "none".into() } else { node.gpus.join(",").into() },
            "--socket".into(),
            self.places.node_socket(&node.name).into(),
            "--head-file".into(),
            self.places.head().join(HEAD_FILE).into(),
        ];
        args.push("--shared-machine".into());
        if self.record.is_elastic {
            // Simulates the boot time of a machine.
            args.extend(["--start-after".into(), elastic::BOOT.into()]);
        }
        if !node.counted.is_empty() {
            args.extend(["--resource".into(), node.counted.to_string().into()]);
        }
        if let Some(file) = &self.record.machine_from {
            args.extend(["--machine-from".into(), file.into()]);
        }
        if nix::unistd::geteuid().is_root() {
            // Only root can use a cluster that root started, so all its jobs are root's and must be allowed.
            args.push("--root-jobs".into());
        }
        if !self.can_start_without_join(&node.name, &directory).await? {
            args.extend(["--join-file".into(), self.invite(&node.name).await?.into()]);
        }
        self.record.nodes[i].agent = Some(self.start(node.name.as_str(), &args)?);
        self.save()
    }

    /// Returns whether a node can start without a join code: it has joined, and the head still lists it. If not,
    /// deletes the node's certificate, so that the node joins again.
    async fn can_start_without_join(&self, name: &NodeName, directory: &Path) -> Result<bool, Failure> {
        if !hostler_agent::has_joined(directory) {
            return Ok(false);
        }
        match self.client.node(name).await {
            Ok(_) => return Ok(true),
            Err(error) if error.code() == Some("no_such_node") => {}
            Err(error) => return Err(error.into()),
        }
        hostler_agent::leave(directory).during(|| format!("cannot remove the certificate of node {name}"))?;
        Ok(false)
    }

    /// Writes a join code to a private file.
    async fn invite(&self, name: &NodeName) -> Result<PathBuf, Failure> {
        let code = self.client.invite(name).await?.code;
        let path = self.places.join_file(name);
        let write = || {
            // Remove an old file that no agent has read: other users may be able to read its contents.
            std::fs::remove_file(&path).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
            let mut file = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
            writeln!(file, "{code}")
        };
        write().during(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    async fn wait_for_nodes(&mut self, tell: &mut impl FnMut(&str)) -> Result<Vec<NodeView>, Failure> {
        let deadline = Instant::now() + NODES_TIME;
        let mut told = 0;
        loop {
            let nodes = self.client.nodes().await?;
            let is_ours = |view: &NodeView| self.record.nodes.iter().any(|node| node.name == view.name);
            let ours: Vec<NodeView> = nodes.into_iter().filter(is_ours).collect();
            let is_elastic = self.record.is_elastic;
            let is_there = |node: &&NodeView| {
                let is_drained = matches!(node.state, NodeState::Draining | NodeState::Drained);
                node.state == NodeState::Up || is_drained || is_elastic && node.cpus > 0
            };
            let up = ours.iter().filter(is_there).count();
            if up == self.record.nodes.len() {
                self.remove_invitations();
                return Ok(ours);
            }
            if up > told {
                tell(&format!("{up} of {} are up", plural(self.record.nodes.len(), "node")));
                told = up;
            }
            self.check_children()?;
            if Instant::now() >= deadline {
                let late =
                    self.record.nodes.iter().find(|node| !ours.iter().any(|it| it.name == node.name && is_there(&it)));
                let name = late.map_or_else(|| "n1".to_owned(), |node| node.name.to_string());
                return Err(self.too_slow(&format!("node {name}"), &name));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Removes nodes of an earlier, larger cluster from the list. Nodes that still have tasks stay.
    async fn remove_unused_nodes(&self, tell: &mut impl FnMut(&str)) -> Result<(), Failure> {
        for node in self.client.nodes().await? {
            if self.record.nodes.iter().any(|ours| ours.name == node.name) {
                continue;
            }
            match self.client.forget_node(&node.name).await {
                Ok(()) => {}
                Err(error) if error.code() == Some("node_in_use") => tell(&format!("note: {error}")),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes the files with join codes, because each code is valid only once.
    fn remove_invitations(&self) {
        for node in &self.record.nodes {
            std::fs::remove_file(self.places.join_file(&node.name)).ok();
        }
    }

    fn start(&mut self, name: &str, args: &[OsString]) -> Result<ProcessId, Failure> {
        let log = self.places.log(name);
        let log_start = std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let child = spawn(&self.executable, args, &log)?;
        let pid = child.id() as i32;
        self.children.push(StartedProcess { name: name.to_owned(), child, log, log_start });
        match ProcessId::of(pid).during(|| format!("cannot examine the process of {name}"))? {
            Some(process) => Ok(process),
            None => Err(self.check_children().expect_err("a process without an id has ended")),
        }
    }

    /// Fails if a started process has already ended. The error contains the end of the process's log.
    fn check_children(&mut self) -> Result<(), Failure> {
        for started in &mut self.children {
            if let Ok(Some(status)) = started.child.try_wait() {
                let what = format!("{} ended right after its start ({status})", started.name);
                return Err(with_log(Failure::new(what), &started.log, started.log_start));
            }
        }
        Ok(())
    }

    fn too_slow(&self, what: &str, name: &str) -> Failure {
        let start = self.children.iter().find(|started| started.name == name).map_or(0, |started| started.log_start);
        let failure = Failure::new(format!("{what} did not come up in {} seconds", HEAD_TIME.as_secs()));
        with_log(failure, &self.places.log(name), start)
    }

    fn save(&self) -> Result<(), Failure> {
        self.record.save(&self.places.record())
    }
}

/// Returns the head's previous address, so that running agents find the head, or any free address if that address is in
/// use.
fn free_address(previous: Option<&str>) -> String {
    let is_free = |address: &&str| std::net::TcpListener::bind(address).is_ok();
    previous.filter(is_free).unwrap_or("127.0.0.1:0").to_owned()
}

/// Adds the end of a log and the path of the log.
fn with_log(failure: Failure, log: &Path, from: u64) -> Failure {
    let lines = log_tail(log, from, LOG_LINES);
    let failure = lines.into_iter().fold(failure, |failure, line| failure.because(&std::io::Error::other(line)));
    failure.hint(format!("the log is {}", log.display()))
}

/// Formats the sizes of the nodes, e.g. `4 nodes with 1 CPU and 4.5G of memory each`.
pub(crate) fn describe(nodes: &[NodeRecord]) -> String {
    let Some(first) = nodes.first() else { return "no nodes".to_owned() };
    let cpus = plural(first.cpus.len(), "CPU");
    let memory = format_bytes(first.memory_bytes);
    let counted = if first.counted.is_empty() { String::new() } else { format!(", {}", first.counted) };
    match nodes.len() {
        1 => format!("1 node with {cpus} and {memory} of memory{counted}"),
        count => format!("{count} nodes with {cpus} and {memory} of memory{counted} each"),
    }
}

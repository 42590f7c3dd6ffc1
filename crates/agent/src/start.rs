//! Startup: from a configuration to a running agent.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use hostler_client::{Client, Endpoint};
use hostler_gossip::Policy;
use hostler_listen::LocalSocket;
use hostler_model::{BootId, Engine, Feature, Hardware, NodeFacts, NodeName, Resources, Topology};
use hostler_shepherd::{Launcher, cgroup};
use hostler_snapshot::ChunkStore;
use hostler_sys::Descriptors;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::account::Accounts;
use crate::certificate::NoiseLimits;
use crate::directory::Runs;
use crate::engine;
use crate::engines::Engines;
use crate::environment::{self, Environments};
use crate::gossip::{Away, Gossiping, Machines, Ports, Setup, StatusPorts, Weights};
use crate::gpu_use::GpuUse;
use crate::gpus::{Gpus, MachineGpu};
use crate::handle::Handle;
use crate::identity::{Identity, LOCK};
use crate::images::Images;
use crate::job_network::Networks;
use crate::local_socket::{serve as serve_users, socket_access};
use crate::metrics::port::Port;
use crate::metrics::{Exporter, Metrics};
use crate::node::Node;
use crate::process_limits::ProcessLimits;
use crate::program_directory::{ProgramDirectory, is_found_on};
use crate::program_in_image::ProgramInImage;
use crate::pull::ImageSettings;
use crate::quiet::{Quiet, QuietSettings};
use crate::roster::NewAccounts;
use crate::sandbox::SandboxSettings;
use crate::variables::default_path;
use crate::{exec, link, recover, renewal, sandbox, usage};

/// Maximum number of threads for work that may wait for files, once for remote commands and once for all other work. One
/// user has at most 512 remote commands, and as many runs as the node has CPUs.
pub(crate) const BLOCKING_THREADS: usize = 2048;

/// Maximum time for which a stop waits for these threads.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub struct Config {
    /// State directory of the node; only one agent may use it.
    pub directory: PathBuf,
    /// Separate directory for environments. Agents that run as the same user on one machine may share it.
    pub environments: Option<PathBuf>,
    /// Required node name; if absent, the name under which the node joined.
    pub name: Option<NodeName>,
    /// Resources that the node offers, without its GPUs.
    pub resources: Resources,
    /// Features of the node, which jobs can require.
    pub features: BTreeSet<Feature>,
    pub topology: Topology,
    /// GPUs of the machine, including those that the node does not offer.
    pub gpus: Vec<MachineGpu>,
    /// Whether to run jobs of root. Has no effect unless the agent runs as root.
    pub root_jobs: bool,
    /// Whether uv may install Python versions that projects request and the node lacks.
    pub install_python: bool,
    /// Container engines that jobs may use.
    pub engines: BTreeSet<Engine>,
    /// File with a join code, for a node that has not joined yet.
    pub join_file: Option<PathBuf>,
    /// File with the address of a head on the same machine.
    pub head_file: Option<PathBuf>,
    /// Socket for local users, if any.
    pub socket: Option<PathBuf>,
    /// Whether and how to create accounts for the cluster's users.
    pub accounts: NewAccounts,
    /// Whether the machine has other uses besides this node. If so, activity outside of jobs does not prevent a
    /// shutdown.
    pub shared_machine: bool,
    /// Addresses for gossip: the agent uses the first free one. Empty to disable gossip.
    pub gossip: Vec<SocketAddr>,
    /// Whether to run remote commands of other nodes, and to send remote commands to other nodes.
    pub calls: bool,
    /// Whether commands of other nodes run in a sandbox, also if they do not ask for one.
    pub sandboxed_calls: bool,
    /// The node's weights, which gossip distributes.
    pub weights: Weights,
    /// Policy that selects a node for a remote command sent from this node.
    pub policy: Policy,
    /// Machines that may get remote commands from this node, with their weights; all nodes if absent.
    pub machines: Option<Machines>,
    /// Addresses of the ports that serve load data as plain text.
    pub status: StatusPorts,
    /// What sandboxed jobs get besides the usual.
    pub sandbox: SandboxSettings,
    /// How images are pulled.
    pub images: ImageSettings,
    /// Which settings of the machine jobs may ask to change.
    pub quiet_machine: QuietSettings,
    /// Values up to which the node counts as quiet while an exclusive job runs.
    pub noise_limits: NoiseLimits,
    /// Address of the port for metrics, if any.
    pub metrics: Option<SocketAddr>,
}

/// Limit for each of the chunk and environment caches, in bytes. Above the limit, least recently used entries are
/// removed.
const CACHE_BYTES: u64 = 10 << 30;

/// Runs an agent until SIGTERM or SIGINT. Jobs continue afterwards.
///
/// Must be called while the process has a single thread, because the function forks.
///
/// # Errors
/// If the agent cannot start: another agent uses the directory, the node has not joined, or the system refuses an
/// operation.
pub fn run(config: Config) -> anyhow::Result<()> {
    run_and_say(config, || {})
}

/// Like [`run`], but calls `is_up` after a successful start: the ports are open, and directory and settings are valid.
///
/// # Errors
/// As for [`run`].
pub fn run_and_say(config: Config, is_up: impl FnOnce()) -> anyhow::Result<()> {
    Identity::ensure_obtainable(&config.directory, config.join_file.as_deref())?;
    let launcher = Launcher::start()?;
    let accounts = Arc::new(Accounts::restored(config.root_jobs, config.directory.join("accounts.json")));
    allow_many_files();
    lay_out(&config.directory, &accounts)?;
    let _lock = lock(&config.directory)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().max_blocking_threads(BLOCKING_THREADS).enable_all().build()?;
    let outcome = runtime.block_on(serve(config, accounts, launcher, is_up));
    // Threads that wait for a user's file system must not keep the process alive.
    runtime.shutdown_timeout(STOP_TIMEOUT);
    outcome
}

/// Serves load data as plain text like an agent with [`Config::status`], but in a separate process that queries the
/// agent. Runs until SIGTERM or SIGINT. Calls `is_up` once the ports are open.
///
/// # Errors
/// If a port cannot be opened.
pub fn run_ports_beside(
    agent: Client,
    status: StatusPorts,
    policy: Policy,
    machines: Option<Machines>,
    is_up: impl FnOnce(),
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        Ports::open(status)?.start(Arc::new(Away::new(agent, policy, machines)))?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        is_up();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

/// Raises the limit of open files: each run and each local connection needs several, so a large node exceeds the
/// default of 1024. Jobs keep the default, because their launcher was forked before.
fn allow_many_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

async fn serve(
    config: Config,
    accounts: Arc<Accounts>,
    launcher: Launcher,
    is_up: impl FnOnce(),
) -> anyhow::Result<()> {
    let directory = config.directory;
    let ports = Ports::open(config.status)?;
    let metrics_port = config.metrics.map(Port::open).transpose()?;
    let identity =
        Identity::obtain(&directory, config.name.as_ref(), config.join_file.as_deref(), config.head_file).await?;
    let name = identity.name().clone();
    let cgroups = cgroup::Tree::find().map_err(|error| error.to_string());
    let processes = ProcessLimits::of_this_machine(config.resources.cpus.len(), cgroups.as_ref().ok());
    match &cgroups {
        Ok(tree) => limit_all_jobs(tree, &processes),
        Err(reason) => {
            tracing::info!(%reason, "no cgroups for jobs; their processes are tracked by process ancestry");
        }
    }
    let gpu_use = GpuUse::of(&config.gpus);
    let gpus = Gpus::new(config.gpus);
    let hardware =
        Hardware { topology: config.topology.within(&config.resources.cpus), gpus: gpus.given().cloned().collect() };
    let environments = config.environments.unwrap_or_else(|| directory.join("environments"));
    let settings = environment::Settings {
        node: name.to_string(),
        install_python: config.install_python,
        ..environment::Settings::new(CACHE_BYTES)
    };
    let resources = Resources { gpus: gpus.given().map(|gpu| gpu.id.clone()).collect(), ..config.resources };
    let cpus = resources.cpus.clone();
    let machine = usage::Machine {
        cpus: cpus.clone(),
        directory: directory.clone(),
        has_power: !config.shared_machine,
        gpus: resources.gpus.clone(),
        gpu_use,
    };
    let setup = Setup { weights: config.weights, policy: config.policy, machines: config.machines };
    let gossiping = gossip(&name, &resources, setup, &config.gossip, &directory);
    let own = exec::Own::obtain(&directory).context("cannot create the node's key for remote commands")?;
    let program = program()?;
    let program_in_image = ProgramInImage::prepare(&program, &directory);
    let program_in_image = program_in_image.context("cannot prepare this program for jobs with an image")?;
    let leaf_prefix = leaf_prefix(&directory)?;
    let leaf = |name| cgroups.as_ref().ok().and_then(|tree| tree.leaf(&format!("{leaf_prefix}{name}")).ok());
    let sandbox = sandbox::try_out(&launcher, &directory, leaf("sandbox-trial"), &config.sandbox).await;
    let networks = match (&sandbox, gossiping.as_ref().filter(|_| config.calls)) {
        (Err(_), _) => Err("this node runs no sandboxed jobs".to_owned()),
        (Ok(()), None) => {
            Err("it needs connections between nodes, and this node accepts no remote commands".to_owned())
        }
        (Ok(()), Some(gossiping)) => {
            let leaf = leaf("network-trial");
            let tried = sandbox::try_out_job_network(&launcher, &directory, leaf, &config.sandbox).await;
            tried.map(|()| Networks::new(Arc::clone(gossiping), own.credentials.clone()))
        }
    };
    if let Err(reason) = &sandbox {
        if config.sandbox == SandboxSettings::default() {
            tracing::info!(%reason, "this node runs no sandboxed jobs");
        } else {
            tracing::warn!(%reason, "this node runs no sandboxed jobs");
        }
    }
    let build_sandbox = environment::BuildSandbox {
        of_machine: config.sandbox.read_only.clone(),
        own: accounts.in_sandbox(None).cloned(),
    };
    let engines = Engines::find(&config.engines);
    let of_machine = config.features.into_iter().chain(engines.features());
    let features = of_machine.chain(environment::python_features(&settings)).collect();
    let boot = hostler_sys::boot_id().context("cannot read the boot id")?;
    let quiet =
        Quiet::new(config.quiet_machine, &directory, boot.clone(), resources.cpus.clone(), !config.shared_machine);
    let quiet = Arc::new(quiet);
    let node = Arc::new(Node {
        head: Client::new(identity.endpoint()?),
        metrics: Metrics::new(name.as_str()),
        name,
        facts: NodeFacts {
            boot: BootId(boot),
            resources,
            hardware,
            features,
            call_key: (config.calls && gossiping.is_some()).then_some(own.key),
            ..NodeFacts::default()
        },
        gpus,
        launcher,
        program_directory: program_directory(&program),
        program_in_image,
        program,
        cgroups,
        processes,
        leaf_prefix,
        sandbox,
        networks,
        demands_sandbox_of_commands: config.sandboxed_calls,
        sandbox_settings: config.sandbox,
        engines,
        quiet,
        noise_limits: config.noise_limits,
        chunks: ChunkStore::open(&directory.join("chunks"))?.sharing_files(),
        chunk_cap_bytes: CACHE_BYTES,
        environments: Environments::open(&environments, settings, build_sandbox)?,
        images: Images::open(directory.join("images"), directory.join("runs"), config.images)?,
        runs: Runs::open(directory.join("runs"), accounts.has_several_users())?,
        accounts,
        idle: Default::default(),
        new_accounts: config.accounts,
        gossiping: gossiping.clone(),
        accepted: Default::default(),
        usage: Arc::default(),
        activity: Arc::default(),
        has_whole_machine: !config.shared_machine,
    });
    let shares_files = node.chunks.shares_files();
    let (handle, inputs) = Handle::new();
    let adopted = recover::recover(&node, &handle).await?;
    let head = node.head.endpoint().clone();
    let exporter = Arc::new(Exporter::new(Arc::clone(&node), handle.clone()));
    if let Some(port) = metrics_port {
        port.serve(Arc::clone(&exporter)).context("cannot serve the metrics")?;
    }
    let engine = engine::Engine::new(Arc::clone(&node), handle.clone(), adopted);
    let (renew, due) = watch::channel(None);
    if let Some(gossiping) = &gossiping {
        let engine = handle.clone();
        gossiping.start(move || engine.held(), cpus)?;
    }
    if !config.calls {
        tracing::info!("this node does not accept remote commands, as configured");
    } else if let Err(error) = exec::start(Arc::clone(&node), handle.clone(), own, config.socket.as_deref()) {
        tracing::warn!(%error, "this node does not accept remote commands");
    }
    tell_loads(ports, gossiping.as_ref())?;
    tracing::info!(shares_files, "agent started");

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    is_up();
    tokio::select! {
        () = engine.run(inputs) => {}
        () = link::keep(handle, &node, &identity, renew) => {}
        () = renewal::keep(&node.head, &identity, due) => {}
        never = receive_users(config.socket, &head, &node.accounts, gossiping.as_ref(), &exporter) => match never {},
        never = node.usage.keep(machine, &node.head) => match never {},
        never = keep_gossiping(gossiping.as_ref(), &node.head) => match never {},
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("agent stopped; running jobs continue");
    Ok(())
}

/// Limits the processes of everything that agents with this tree start.
fn limit_all_jobs(tree: &cgroup::Tree, processes: &ProcessLimits) {
    match tree.limit_processes(processes.of_all()) {
        // The node reports a missing controller with each job.
        Err(error) if error.kind() != std::io::ErrorKind::Unsupported => {
            tracing::warn!(%error, "cannot limit the processes of all jobs together");
        }
        _ => {}
    }
}

/// Creates the agent's directory. Only the agent can read keys and chunks. If jobs belong to several users, each user
/// can reach their own files through the directory, but cannot list the directory.
fn lay_out(directory: &Path, accounts: &Accounts) -> anyhow::Result<()> {
    let passage = if accounts.has_several_users() { 0o711 } else { 0o700 };
    for (path, mode) in
        [(directory.to_owned(), passage), (directory.join("identity"), 0o700), (directory.join("chunks"), 0o700)]
    {
        hostler_sys::make_directory(&path, mode)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
    }
    if let Some(closed) = accounts.has_several_users().then(|| closed_parent(directory)).flatten() {
        tracing::warn!(
            directory = %closed.display(),
            "jobs of users other than root cannot reach their files, because this directory is closed to them; fix it with chmod o+x"
        );
    }
    Ok(())
}

/// The nearest parent directory that other users cannot pass through.
fn closed_parent(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let is_closed = |path: &&Path| fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o001 == 0);
    directory.ancestors().skip(1).find(is_closed).map(Path::to_owned)
}

/// Serves the socket for local users, if configured. Without the socket, the node still runs jobs.
async fn receive_users(
    socket: Option<PathBuf>,
    head: &Endpoint,
    accounts: &Arc<Accounts>,
    gossiping: Option<&Arc<Gossiping>>,
    exporter: &Arc<Exporter>,
) -> Infallible {
    let Some(path) = socket else { return std::future::pending().await };
    match LocalSocket::open(&path, socket_access(), Descriptors::Refused).await {
        Ok(socket) => {
            tracing::info!(socket = %path.display(), "accepting requests of local users");
            serve_users(socket, head, accounts, gossiping, Some(exporter)).await
        }
        Err(error) => {
            tracing::warn!(socket = %path.display(), %error, "cannot open the socket for local users");
            std::future::pending().await
        }
    }
}

/// Starts load gossip on this node. Without gossip, the node still runs jobs.
fn gossip(
    name: &NodeName,
    resources: &Resources,
    setup: Setup,
    at: &[SocketAddr],
    directory: &Path,
) -> Option<Arc<Gossiping>> {
    if at.is_empty() {
        return None;
    }
    Gossiping::begin(name.clone(), resources.counts(), setup, at, directory)
        .inspect_err(|error| tracing::warn!(%error, "this node does not gossip about its load"))
        .ok()
}

/// Serves the plain-text load ports, if any.
fn tell_loads(ports: Ports, gossiping: Option<&Arc<Gossiping>>) -> anyhow::Result<()> {
    match gossiping {
        Some(gossiping) => ports.start(Arc::clone(gossiping)).context("cannot serve the load ports"),
        None if ports.are_none() => Ok(()),
        None => bail!(
            "the load ports need gossip, which is off on this node: remove the ports, or remove `none` from `gossip` in agent.toml or \
             `--gossip`; if neither is set, see the agent's log for the cause"
        ),
    }
}

/// Keeps the list of gossiping nodes up to date.
async fn keep_gossiping(gossiping: Option<&Arc<Gossiping>>, head: &Client) -> Infallible {
    match gossiping {
        Some(gossiping) => gossiping.keep(head).await,
        None => std::future::pending().await,
    }
}

/// Locks the directory against other agents.
fn lock(directory: &Path) -> anyhow::Result<Flock<File>> {
    let path = directory.join(LOCK);
    // Not readable for others: a process that can open the file could hold the lock.
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err(_) => bail!("another agent is running in {}", directory.display()),
    }
}

/// Prefix for cgroup leaves, derived from the directory's path and inode. Agents of several clusters on one machine
/// have different directories, even if node names or, in containers, paths are equal.
fn leaf_prefix(directory: &Path) -> anyhow::Result<String> {
    let found = directory.canonicalize().and_then(|path| Ok((fs::metadata(&path)?, path)));
    let (metadata, path) = found.with_context(|| format!("cannot find {}", directory.display()))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&metadata.dev().to_le_bytes()).update(&metadata.ino().to_le_bytes());
    let hash = hasher.update(path.as_os_str().as_encoded_bytes()).finalize().to_hex();
    Ok(format!("{}-", &hash[..16]))
}

/// The directory of this executable, unless other users can change it.
fn program_directory(program: &str) -> Option<ProgramDirectory> {
    let found = ProgramDirectory::of(Path::new(program));
    match &found {
        Some(directory) if directory.is_for_all => {}
        Some(ProgramDirectory { path, .. }) => {
            tracing::info!(%path, "jobs of other users do not find `hostler` on their PATH: its directory is private");
        }
        None if is_found_on(&default_path()) => {}
        None => {
            tracing::warn!(%program, "jobs do not find `hostler` on their PATH: other users can change its directory");
        }
    }
    found
}

/// Path of this executable. Read at startup, because an update may replace the file while the agent runs.
fn program() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("cannot find this program")?;
    path.into_os_string()
        .into_string()
        .map_err(|path| anyhow!("the path of this program is not UTF-8: {}", path.display()))
}

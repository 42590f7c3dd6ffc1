//! From a configuration to a running agent.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use hostler_client::{Client, Endpoint};
use hostler_gossip::Policy;
use hostler_model::{BootId, Counted, CpuSet, Feature, Hardware, NodeName, Resources, Topology};
use hostler_shepherd::{Launcher, cgroup};
use hostler_snapshot::ChunkStore;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::account::Accounts;
use crate::directory::Runs;
use crate::door::Door;
use crate::engine::{Engine, Handle, Node};
use crate::environment::{self, Environments};
use crate::gossip::{Away, Gossiping, Machines, Ports, Setup, StatusPorts, Weights};
use crate::gpus::{Gpus, MachineGpu};
use crate::identity::{Identity, LOCK};
use crate::roster::NewAccounts;
use crate::{calls, link, recover, renewal};

/// What an agent is told when it is started.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where everything of this node is kept; one agent at a time.
    pub directory: PathBuf,
    /// Where environments are kept instead; agents of one machine that run as the same user may share it.
    pub environments: Option<PathBuf>,
    /// The node's name, if it must be this one; otherwise it is what the node has joined as.
    pub name: Option<NodeName>,
    /// The CPUs it gives.
    pub cpus: CpuSet,
    /// The memory it gives, in bytes.
    pub memory_bytes: u64,
    /// What it has that other nodes may not have, for jobs that ask for it.
    pub features: BTreeSet<Feature>,
    /// What it has besides, and how many of each, for jobs to hold.
    pub counted: Counted,
    /// How the machine's CPUs sit together.
    pub topology: Topology,
    /// The machine's GPUs, also those that it does not give.
    pub gpus: Vec<MachineGpu>,
    /// Whether jobs of root run too. Without root's rights this means nothing.
    pub root_jobs: bool,
    /// Whether uv may install versions of Python that projects ask for and the node lacks.
    pub install_python: bool,
    /// A file with a join code, for a node that has not joined yet.
    pub join_file: Option<PathBuf>,
    /// A file in which a head on the same machine says its address.
    pub head_file: Option<PathBuf>,
    /// The socket for users of this machine; none when absent.
    pub socket: Option<PathBuf>,
    /// Whether accounts are made for the cluster's users.
    pub accounts: NewAccounts,
    /// Whether what goes on on the machine besides has no say in whether it may be switched off, as it is not only this node's.
    pub shared_machine: bool,
    /// Where it gossips with other nodes: the first of these addresses that is free. Without any it does not.
    pub gossip: Vec<SocketAddr>,
    /// Whether it runs commands for other nodes and sends them some.
    pub calls: bool,
    /// The node's weights, as others are told.
    pub weights: Weights,
    /// How nodes are compared when a command is sent from here.
    pub policy: Policy,
    /// The only machines to which commands are sent from here, and their weights; all nodes when absent.
    pub machines: Option<Machines>,
    /// Where it tells of the others' load in plain text.
    pub status: StatusPorts,
}

/// How much the node keeps of chunks and of environments, in bytes, before the least recently used go.
const CACHE_BYTES: u64 = 10 << 30;

/// Runs an agent until it is told to stop; jobs go on without it.
///
/// Call it while the process has one thread: it forks.
///
/// # Errors
/// When it cannot start: the directory is another agent's, the node has not joined, or the system refuses something.
pub fn run(config: Config) -> anyhow::Result<()> {
    run_and_say(config, || {})
}

/// The same; `is_up` is called as soon as it is certain that it has started: its ports are open, and whatever could be wrong with its
/// directory or its settings is not.
///
/// # Errors
/// As for [`run`].
pub fn run_and_say(config: Config, is_up: impl FnOnce()) -> anyhow::Result<()> {
    let launcher = Launcher::start()?;
    let accounts = Arc::new(Accounts::new(config.root_jobs));
    if accounts.are_many() {
        // A closed one would shut users out of what is theirs; what is not has its own permissions.
        umask(Mode::S_IWGRP | Mode::S_IWOTH);
    }
    allow_many_files();
    lay_out(&config.directory, &accounts)?;
    let _lock = lock(&config.directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config, accounts, launcher, is_up))
}

/// Tells of loads in plain text, as an agent does with [`Config::status`], but as a process beside the agent, which it asks; until it is told
/// to stop. `is_up` is called as soon as the ports are open.
///
/// # Errors
/// When a port cannot be had.
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

/// Every run and every user at the door takes a few, and the usual limit of 1024 is soon reached on a large node. Jobs have the usual
/// limit: their launcher has been forked before.
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
    let identity =
        Identity::obtain(&directory, config.name.as_ref(), config.join_file.as_deref(), config.head_file).await?;
    let name = identity.name().clone();
    let cgroups = cgroup::Tree::find().map_err(|error| error.to_string());
    if let Err(reason) = &cgroups {
        tracing::info!(%reason, "no cgroups for jobs; their processes are tracked by descent");
    }
    let gpus = Gpus::new(config.gpus);
    let hardware = Hardware { topology: config.topology.within(&config.cpus), gpus: gpus.given().cloned().collect() };
    let environments = config.environments.unwrap_or_else(|| directory.join("environments"));
    let settings = environment::Settings {
        node: name.to_string(),
        install_python: config.install_python,
        ..environment::Settings::new(CACHE_BYTES)
    };
    let resources = Resources {
        gpus: gpus.given().map(|gpu| gpu.id.clone()).collect(),
        counted: config.counted,
        ..Resources::new(config.cpus.clone(), config.memory_bytes)
    };
    let setup = Setup { weights: config.weights, policy: config.policy, machines: config.machines };
    let gossiping = gossip(&name, &resources, setup, &config.gossip, &directory);
    let own = calls::Own::obtain(&directory).context("cannot make the key by which other nodes know this one")?;
    let node = Arc::new(Node {
        head: Client::new(identity.endpoint()?),
        name,
        boot: BootId(boot_id()?),
        resources,
        hardware,
        gpus,
        features: config.features.into_iter().chain(environment::python_features(&settings)).collect(),
        launcher,
        program: program()?,
        cgroups,
        leaf_prefix: leaf_prefix(&directory)?,
        chunks: ChunkStore::open(&directory.join("chunks"))?.sharing_files(),
        chunk_cap_bytes: CACHE_BYTES,
        environments: Environments::open(&environments, settings)?,
        runs: Runs::open(directory.join("runs"), accounts.are_many())?,
        accounts,
        idle: Default::default(),
        new_accounts: config.accounts,
        call_key: (config.calls && gossiping.is_some()).then_some(own.key),
        gossiping: gossiping.clone(),
        activity: Arc::default(),
        has_whole_machine: !config.shared_machine,
    });
    let shares_files = node.chunks.shares_files();
    let (handle, inputs) = Handle::new();
    let adopted = recover::recover(&node, &handle).await?;
    let head = node.head.endpoint().clone();
    let engine = Engine::new(Arc::clone(&node), handle.clone(), adopted);
    let (renew, due) = watch::channel(None);
    if let Some(gossiping) = &gossiping {
        gossiping.start(handle.clone(), config.cpus)?;
    }
    if !config.calls {
        tracing::info!("this node takes no calls, as it was told");
    } else if let Err(error) = calls::start(Arc::clone(&node), handle.clone(), own, config.socket.as_deref()) {
        tracing::warn!(%error, "this node takes no calls");
    }
    tell_loads(ports, gossiping.as_ref())?;
    tracing::info!(shares_files, "agent started");

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    is_up();
    tokio::select! {
        () = engine.run(inputs) => {}
        () = link::keep(handle, &node, &identity, renew) => {}
        () = renewal::keep(&node, &identity, due) => {}
        never = receive_users(config.socket, &head, gossiping.as_ref()) => match never {},
        never = keep_gossiping(gossiping.as_ref(), &node.head) => match never {},
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("agent stopped; running jobs go on");
    Ok(())
}

/// Makes the agent's directory. Keys and chunks are for the agent alone; where jobs belong to several users, each passes through
/// to what is theirs, and can list nothing.
fn lay_out(directory: &Path, accounts: &Accounts) -> anyhow::Result<()> {
    let passage = if accounts.are_many() { 0o711 } else { 0o700 };
    for (path, mode) in
        [(directory.to_owned(), passage), (directory.join("identity"), 0o700), (directory.join("chunks"), 0o700)]
    {
        make(&path, mode).with_context(|| format!("cannot make the directory {}", path.display()))?;
    }
    if let Some(closed) = accounts.are_many().then(|| closed_parent(directory)).flatten() {
        tracing::warn!(
            directory = %closed.display(),
            "jobs of other users than root will not reach their files, as this directory is closed to them (chmod o+x opens it)"
        );
    }
    Ok(())
}

/// Makes a directory with exactly these permissions, or gives it them.
fn make(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
    if fs::metadata(path)?.mode() & 0o777 != mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// A directory above this one that others may not pass through.
fn closed_parent(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let is_closed = |path: &&Path| fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o001 == 0);
    directory.ancestors().skip(1).find(is_closed).map(Path::to_owned)
}

/// Keeps a door open for users of this machine, if there is to be one. A node without it still runs jobs.
async fn receive_users(socket: Option<PathBuf>, head: &Endpoint, gossiping: Option<&Arc<Gossiping>>) -> Infallible {
    let Some(path) = socket else { return std::future::pending().await };
    let for_everybody = nix::unistd::geteuid().is_root();
    match Door::open(path.clone(), for_everybody).await {
        Ok(door) => {
            tracing::info!(socket = %door.path().display(), "users of this machine may come in");
            door.serve(head, gossiping).await
        }
        Err(error) => {
            tracing::warn!(socket = %path.display(), %error, "no socket for users of this machine");
            std::future::pending().await
        }
    }
}

/// This node's part in the gossip. A node without it runs jobs all the same.
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

/// Serves the plain-text ports, if there are any.
fn tell_loads(ports: Ports, gossiping: Option<&Arc<Gossiping>>) -> anyhow::Result<()> {
    match gossiping {
        Some(gossiping) => ports.start(Arc::clone(gossiping)).context("cannot serve the ports with loads"),
        None if ports.are_none() => Ok(()),
        None => bail!(
            "there are no loads for the ports to tell of, since this node does not gossip: do without the ports, or without `none` for \
             `gossip` in agent.toml or `--gossip`; if neither says so, the log does"
        ),
    }
}

/// Hears from the head who gossips.
async fn keep_gossiping(gossiping: Option<&Arc<Gossiping>>, head: &Client) -> Infallible {
    match gossiping {
        Some(gossiping) => gossiping.keep(head).await,
        None => std::future::pending().await,
    }
}

/// Makes sure that no other agent works in the directory.
fn lock(directory: &Path) -> anyhow::Result<Flock<File>> {
    let path = directory.join(LOCK);
    // Nobody else is to open it, as whoever does can hold the lock.
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err(_) => bail!("another agent is running in {}", directory.display()),
    }
}

/// Several clusters may share a machine, and their nodes' names may be alike; their directories are not. In containers their paths
/// may be, too.
fn leaf_prefix(directory: &Path) -> anyhow::Result<String> {
    let found = directory.canonicalize().and_then(|path| Ok((fs::metadata(&path)?, path)));
    let (metadata, path) = found.with_context(|| format!("cannot find {}", directory.display()))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&metadata.dev().to_le_bytes()).update(&metadata.ino().to_le_bytes());
    let hash = hasher.update(path.as_os_str().as_encoded_bytes()).finalize().to_hex();
    Ok(format!("{}-", &hash[..16]))
}

/// Where this program is, while it is there: it may be replaced by a newer one while the agent runs.
fn program() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("cannot find this program")?;
    path.into_os_string()
        .into_string()
        .map_err(|path| anyhow!("the path of this program is no text: {}", path.display()))
}

fn boot_id() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("cannot tell which boot this is")?;
    Ok(text.trim().to_owned())
}

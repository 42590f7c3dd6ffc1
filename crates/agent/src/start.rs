//! From a configuration to a running agent.

use std::convert::Infallible;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hostler_client::{Client, Endpoint};
use hostler_model::{BootId, CpuSet, NodeName, Resources};
use hostler_shepherd::{Launcher, cgroup};
use hostler_snapshot::ChunkStore;
use nix::fcntl::{Flock, FlockArg};
use tokio::signal::unix::{SignalKind, signal};

use crate::accounts::Accounts;
use crate::directory::Runs;
use crate::door::Door;
use crate::engine::{Engine, Handle, Node};
use crate::environment;
use crate::identity::Identity;
use crate::{link, recover};

/// What an agent is told when it is started.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where everything of this node is kept; one agent at a time.
    pub directory: PathBuf,
    /// Where environments are kept instead; agents of one machine that run as the same user may share it.
    pub environments: Option<PathBuf>,
    /// The node's name.
    pub name: NodeName,
    /// The CPUs it gives.
    pub cpus: CpuSet,
    /// The memory it gives, in bytes.
    pub memory_bytes: u64,
    /// A file with a join code, for a node that has not joined yet.
    pub join_file: Option<PathBuf>,
    /// A file in which a head on the same machine says its address.
    pub head_file: Option<PathBuf>,
    /// The socket for users of this machine; none when absent.
    pub socket: Option<PathBuf>,
    /// Whether accounts are made for the cluster's users.
    pub accounts: Accounts,
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
    let launcher = Launcher::start()?;
    fs::create_dir_all(&config.directory)
        .with_context(|| format!("cannot make the directory {}", config.directory.display()))?;
    let _lock = lock(&config.directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config, launcher))
}

async fn serve(config: Config, launcher: Launcher) -> anyhow::Result<()> {
    let directory = config.directory;
    let identity =
        Identity::obtain(directory.join("identity"), &config.name, config.join_file.as_deref(), config.head_file)
            .await?;
    let cgroups = cgroup::Tree::find().map_err(|error| error.to_string());
    if let Err(reason) = &cgroups {
        tracing::info!(%reason, "no cgroups for jobs; their processes are tracked by descent");
    }
    let environments = config.environments.unwrap_or_else(|| directory.join("environments"));
    let settings = environment::Settings { node: config.name.to_string(), ..environment::Settings::new(CACHE_BYTES) };
    let node = Arc::new(Node {
        head: Client::new(identity.endpoint()?),
        name: config.name,
        boot: BootId(boot_id()?),
        resources: Resources { cpus: config.cpus, memory_bytes: config.memory_bytes },
        launcher,
        cgroups,
        leaf_prefix: leaf_prefix(&directory)?,
        chunks: ChunkStore::open(&directory.join("chunks"))?.sharing_files(),
        chunk_cap_bytes: CACHE_BYTES,
        environments: environment::Cache::with_settings(&environments, settings)?,
        runs: Runs::open(directory.join("runs"))?,
        idle: Default::default(),
        accounts: config.accounts,
    });
    let shares_files = node.chunks.shares_files();
    let (handle, inputs) = Handle::new();
    let adopted = recover::recover(&node, &handle).await?;
    let head = node.head.endpoint().clone();
    let engine = Engine::new(node, handle.clone(), adopted);
    tracing::info!(shares_files, "agent started");

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        () = engine.run(inputs) => {}
        () = link::keep(handle, &identity) => {}
        never = receive_users(config.socket, &head) => match never {},
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("agent stopped; running jobs go on");
    Ok(())
}

/// Keeps a door open for users of this machine, if there is to be one. A node without it still runs jobs.
async fn receive_users(socket: Option<PathBuf>, head: &Endpoint) -> Infallible {
    let Some(path) = socket else { return std::future::pending().await };
    let for_everybody = nix::unistd::geteuid().is_root();
    match Door::open(path.clone(), for_everybody).await {
        Ok(door) => {
            tracing::info!(socket = %door.path().display(), "users of this machine may come in");
            door.serve(head).await
        }
        Err(error) => {
            tracing::warn!(socket = %path.display(), %error, "no socket for users of this machine");
            std::future::pending().await
        }
    }
}

/// Makes sure that no other agent works in the directory.
fn lock(directory: &Path) -> anyhow::Result<Flock<File>> {
    let path = directory.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err(_) => bail!("another agent is running in {}", directory.display()),
    }
}

/// Several clusters may share a machine, and their nodes' names may be alike; their directories are not.
fn leaf_prefix(directory: &Path) -> anyhow::Result<String> {
    let directory = directory.canonicalize().with_context(|| format!("cannot find {}", directory.display()))?;
    let hash = blake3::hash(directory.as_os_str().as_encoded_bytes()).to_hex();
    Ok(format!("{}-", &hash[..16]))
}

fn boot_id() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("cannot tell which boot this is")?;
    Ok(text.trim().to_owned())
}

//! Startup: from a configuration to a running agent.

use std::convert::Infallible;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use hostler_client::{Client, Endpoint};
use hostler_gossip::Policy;
use hostler_listen::LocalSocket;
use hostler_shepherd::Launcher;
use hostler_sys::{Descriptors, lock_directory};
use nix::fcntl::Flock;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::account::Accounts;
use crate::assemble::{Assembled, assemble};
use crate::config::Config;
use crate::gossip::{Away, Gossiping, Machines, Ports, StatusPorts};
use crate::handle::Handle;
use crate::link::identity::Identity;
use crate::link::{Link, renewal};
use crate::measure::metrics::Exporter;
use crate::measure::metrics::port::Port;
use crate::runs::recover;
use crate::users::local_socket::{serve as serve_users, socket_access};
use crate::{engine, exec};

/// Maximum number of threads for work that may wait for files, once for remote commands and once for all other work. One
/// user has at most 512 remote commands, and as many runs as the node has CPUs.
const BLOCKING_THREADS: usize = 2048;

/// Maximum time for which a stop waits for these threads.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

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
    let ports = Ports::open(config.status)?;
    let metrics_port = config.metrics.map(Port::open).transpose()?;
    let (name, join, head_file) = (config.name.as_ref(), config.join_file.as_deref(), config.head_file.clone());
    let identity = Identity::obtain(&config.directory, name, join, head_file).await?;
    let (calls, socket) = (config.calls, config.socket.clone());
    let Assembled { node, host, own, machine } = assemble(config, accounts, launcher, &identity).await?;
    let gossiping = node.gossiping.clone();
    let shares_files = node.stager.transfer.chunks.shares_files();
    let (handle, inputs) = Handle::new();
    let adopted = recover::recover(&node.supervisor, &handle).await?;
    let head = node.head.endpoint().clone();
    let exporter = Arc::new(Exporter {
        metrics: Arc::clone(&node.metrics),
        resources: node.facts.resources.clone(),
        advisory: node.facts.advisory.clone(),
        engine: handle.clone(),
    });
    if let Some(port) = metrics_port {
        port.serve(Arc::clone(&exporter)).context("cannot serve the metrics")?;
    }
    let engine = engine::Engine::new(Arc::clone(&node), handle.clone(), adopted);
    let (renew, due) = watch::channel(None);
    if let Some(gossiping) = &gossiping {
        let engine = handle.clone();
        gossiping.start(move || engine.held(), node.facts.resources.cpus.clone())?;
    }
    if !calls {
        tracing::info!("this node does not accept remote commands, as configured");
    } else if let Err(error) = exec::start(host, handle.clone(), own, socket.as_deref(), BLOCKING_THREADS) {
        tracing::warn!(%error, "this node does not accept remote commands");
    }
    tell_loads(ports, gossiping.as_ref())?;
    tracing::info!(shares_files, "agent started");
    let link = Link {
        engine: handle,
        head: &node.head,
        identity: &identity,
        renew,
        metrics: &node.metrics,
        gossiping: gossiping.as_deref(),
        has_power: node.has_whole_machine,
    };

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    is_up();
    tokio::select! {
        () = engine.run(inputs) => {}
        () = link.keep() => {}
        () = renewal::keep(&node.head, &identity, due) => {}
        never = receive_users(socket, &head, &node.accounts, gossiping.as_ref(), &exporter) => match never {},
        never = node.usage.keep(machine, &node.head) => match never {},
        never = keep_gossiping(gossiping.as_ref(), &node.head) => match never {},
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("agent stopped; running jobs continue");
    Ok(())
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
    match lock_directory(directory).with_context(|| format!("cannot lock {}", directory.display()))? {
        Some(lock) => Ok(lock),
        None => bail!("another agent is running in {}", directory.display()),
    }
}

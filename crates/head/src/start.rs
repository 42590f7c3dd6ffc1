//! Starting and stopping: the order in which things come up and go down.
//!
//! Up: the store (whose lock keeps a second head away), the state out of it, a new epoch, certificates, the two doors, and last
//! `head.json`, which says that the head is ready and where. Down: doors first, then whoever is still being served, then the loop, so
//! that all that was acknowledged is on disk.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hostler_core::head::Now;
use hostler_model::WallTime;
use hostler_proto::join::Address;
use hostler_store::{SqliteStore, Store, Writer};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::api;
use crate::audit::Audit;
use crate::blobs::Library;
use crate::engine::{Engine, begin_epoch};
use crate::head::Head;
use crate::listen::Doors;
use crate::power;
use crate::reserve;
use crate::restore::restore;
use crate::trust::{Trust, replace_file};

/// What is allocated in a mapping of its own, which goes back to the system when it is freed.
const LARGE_BYTES: i32 = 256 << 10;

/// What may stay free at the end of a heap.
const SPARE_BYTES: i32 = 1 << 20;

/// Threads that serve requests. The head's work is waiting; what computes or blocks runs elsewhere.
const WORKER_THREADS: usize = 2;

/// Threads that may block on the disk at once.
const BLOCKING_THREADS: usize = 16;

/// How long those who are being served when the head stops may take.
const FAREWELL: Duration = Duration::from_secs(3);

/// When what nobody refers to is first collected, and how often after that.
const COLLECT_FIRST: Duration = Duration::from_secs(300);
const COLLECT_EVERY: Duration = Duration::from_secs(3600);

/// The least time between two collections, however much results take.
const COLLECT_PAUSE: Duration = Duration::from_secs(5);

/// How a head is started.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it keeps its state; made if need be.
    pub directory: PathBuf,
    /// Its socket for local users; the directory is made if need be.
    pub socket: PathBuf,
    /// Where it listens for agents; port 0 takes the one it had the last time, or else any that is free.
    pub listen: SocketAddr,
    /// By which addresses nodes reach it, the first one in join codes; what `listen` comes to when there are none.
    pub advertise: Vec<Address>,
    /// How long a node's certificate is good for, in milliseconds on the cluster's clock. Agents renew theirs after two thirds.
    pub certificate_life_ms: u64,
    /// Whether it is part of an embedded cluster, which belongs to one user and stops as a whole.
    pub embedded: bool,
    /// The file that says which nodes can be switched on and off; there need be none.
    pub power: PathBuf,
    /// What results may take, in bytes; half of the disk when absent.
    pub results_cap_bytes: Option<u64>,
}

/// Runs a head until SIGTERM, SIGINT or `POST /shutdown`.
///
/// # Errors
/// When it cannot start: another head runs, the state cannot be read, an address is taken.
pub fn run(config: Config) -> anyhow::Result<()> {
    allow_many_files();
    hand_memory_back();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("head")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let outcome = runtime.block_on(serve(config));
    // Readers that block on a disk that stands still must not keep the process.
    runtime.shutdown_timeout(FAREWELL);
    outcome
}

/// Every follower, agent and upload holds a connection, and the usual limit of 1024 is soon reached in a classroom.
fn allow_many_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Has what was freed go back to the system. By itself the allocator keeps, for each thread that once took the marks of a collection or a
/// large manifest, as much as that was, to use it again: hundreds of megabytes after an hour.
fn hand_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets two numbers of the allocator's, and no other thread is there yet.
    let is_set = unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE_BYTES) == 1
    };
    #[cfg(target_env = "gnu")]
    if !is_set {
        tracing::warn!("the allocator takes no advice: memory that was freed may stay with the head");
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    // Before anything else: a signal during the start must stop it properly, not kill it halfway.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let head = start(config).await?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("stopping: SIGTERM"),
        _ = interrupt.recv() => tracing::info!("stopping: SIGINT"),
        () = head.stop.cancelled() => tracing::info!("stopping: asked to"),
    }
    stop(&head).await;
    Ok(())
}

/// Brings a head up.
async fn start(config: Config) -> anyhow::Result<Arc<Head>> {
    make_private(&config.directory)?;
    if let Some(parent) = config.socket.parent() {
        make_directory(parent, if config.embedded { 0o700 } else { 0o755 })?;
    }
    reserve::release_if_full(&config.directory);
    let mut store = SqliteStore::open(&config.directory.join("head.db")).context("cannot open the store")?;
    let loaded = store.load().context("cannot read the store")?;
    let (mut state, sequence) = restore(&loaded)?;
    let log_begins = loaded.first_sequence();
    drop(loaded);
    let now = Now { at: state.last_event_at, wall: wall_now() };
    store.commit(&begin_epoch(&mut state, sequence, now)).context("cannot write the store")?;
    tracing::info!(epoch = state.epoch.0, jobs = state.job_count(), "state restored");

    let history = store.reader();
    let writer = Writer::start(store)?;
    let cap_bytes = config.results_cap_bytes;
    let library = Library::open(&config.directory.join("chunks"), history.clone(), writer.clone(), cap_bytes)?;
    let trust = Trust::open(&trust_directory(&config.directory), config.listen, &config.advertise)?;
    let audit = Audit::open(config.directory.join("audit.log")).context("cannot write the audit log")?;
    let usual_port = usual_port(&config.directory);
    let doors = Doors::open(&config.socket, config.listen, usual_port, config.embedded).await?;
    let bound = doors.address()?;
    if usual_port != Some(bound.port()) {
        replace_file(&port_file(&config.directory), bound.port().to_string().as_bytes(), 0o600)?;
    }
    let (engine, orders) = Engine::start(state, (log_begins, sequence + 1), writer, history.clone());
    let head = Arc::new(Head::new(config, engine, history, Arc::new(library), trust, audit, bound));
    head.follow_results_cap();
    doors.serve(&head, &api::routes(&head));
    tokio::spawn(collect(Arc::clone(&head)));
    tokio::spawn(power::keep(Arc::clone(&head), orders));
    tokio::spawn(power::measure(Arc::clone(&head)));
    announce(&head)?;
    reserve::hold(&head.config.directory);
    tracing::info!(address = %head.address(), socket = %head.config.socket.display(), "head ready");
    Ok(head)
}

/// Makes what a head needs before it first starts: its directory and the cluster's authority. What is there already stays.
///
/// # Errors
/// When something cannot be made, or what is there cannot be used.
pub fn prepare(directory: &Path, listen: SocketAddr, advertise: &[Address]) -> anyhow::Result<()> {
    make_private(directory)?;
    Trust::open(&trust_directory(directory), listen, advertise).map(drop)
}

fn trust_directory(directory: &Path) -> PathBuf {
    directory.join("trust")
}

/// Takes a head down.
async fn stop(head: &Head) {
    head.stop.cancel();
    head.tasks.close();
    if timeout(FAREWELL, head.tasks.wait()).await.is_err() {
        tracing::info!(connections = head.tasks.len(), "not waiting any longer for connections to end");
    }
    head.engine.stop().await;
    for file in [announcement(&head.config.directory), head.config.socket.clone()] {
        // What is left behind is recognised as stale.
        let _ = fs::remove_file(file);
    }
    tracing::info!("head stopped");
}

/// Where the head remembers its port, so that agents that know only an address find it again after a restart.
fn port_file(directory: &Path) -> PathBuf {
    directory.join("port")
}

/// The port that the last head on this directory had.
fn usual_port(directory: &Path) -> Option<u16> {
    // Without the file, or with nonsense in it, any port will do.
    fs::read_to_string(port_file(directory)).ok()?.trim().parse().ok()
}

/// What `head.json` says.
#[derive(Serialize)]
struct Announcement {
    pid: u32,
    /// When the process started, in the kernel's ticks since boot: with the pid it names a process beyond doubt.
    started_ticks: u64,
    address: String,
    socket: PathBuf,
}

fn announcement(directory: &Path) -> PathBuf {
    directory.join("head.json")
}

/// Says that the head is ready and where.
fn announce(head: &Head) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(&Announcement {
        pid: std::process::id(),
        started_ticks: started_ticks().context("cannot read /proc/self/stat")?,
        address: head.address(),
        socket: head.config.socket.clone(),
    })?;
    replace_file(&announcement(&head.config.directory), &text, 0o644)
}

/// The 22nd field of `/proc/self/stat`, counted behind the name, which may hold anything.
fn started_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Collects now and then what nothing refers to.
async fn collect(head: Arc<Head>) {
    let mut pause = COLLECT_FIRST;
    let mut forgotten = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = COLLECT_EVERY,
            () = head.library.room().wanted() => {}
            () = head.stop.cancelled() => return,
        }
        reserve::hold(&head.config.directory);
        let forgotten_now = head.engine.archive().forgotten();
        if forgotten_now > forgotten {
            head.library.note_change();
        }
        forgotten = forgotten_now;
        let (library, engine) = (Arc::clone(&head.library), head.engine.clone());
        let runtime = tokio::runtime::Handle::current();
        let collected = tokio::task::spawn_blocking(move || {
            library.collect(&engine, |command| runtime.block_on(engine.command(command)).is_ok())
        });
        match collected.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cannot collect what is not needed any more: {error}"),
            Err(error) => tracing::error!("collecting failed: {error}"),
        }
        tokio::select! {
            () = tokio::time::sleep(COLLECT_PAUSE) => {}
            () = head.stop.cancelled() => return,
        }
    }
}

fn wall_now() -> WallTime {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    WallTime(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

fn make_private(directory: &Path) -> anyhow::Result<()> {
    make_directory(directory, 0o700)
}

fn make_directory(directory: &Path, mode: u32) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(directory)
        .with_context(|| format!("cannot create {}", directory.display()))
}

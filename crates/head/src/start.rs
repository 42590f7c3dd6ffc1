//! Start and stop of the head, and their order.
//!
//! Start: open the store (its lock excludes a second head), restore the state, begin a new epoch, load the
//! certificates, open the socket and the port. Last, write `head.json`, which says that the head is ready and where it
//! listens.
//!
//! Stop: close the socket and the port, wait for requests in progress, then stop the engine, so that everything
//! acknowledged is on disk.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hostler_core::head::{Now, State, restore};
use hostler_model::WallTime;
use hostler_proto::join::Address;
use hostler_store::{SqliteStore, Store, Writer};
use hostler_sys::SocketFile;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::api;
use crate::audit::Audit;
use crate::blobs::Library;
use crate::config::Config;
use crate::dashboard;
use crate::engine::{Engine, first_batch};
use crate::head::Head;
use crate::listen::Listeners;
use crate::metrics;
use crate::notify;
use crate::power;
use crate::reserve;
use crate::site::Site;
use crate::trust::{Trust, replace_file};
use crate::usage::UsageHistory;

/// Size above which an allocation gets a separate memory mapping, which returns to the system when it is freed.
const LARGE_BYTES: i32 = 256 << 10;

/// Free memory that the allocator keeps at the end of a heap.
const SPARE_BYTES: i32 = 1 << 20;

/// Number of threads that serve requests. Computation and blocking calls run on other threads.
const WORKER_THREADS: usize = 2;

/// Maximum number of threads that block on the disk.
const BLOCKING_THREADS: usize = 16;

/// Maximum time for which a stop waits for requests in progress.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Delay before the first garbage collection of chunks.
const COLLECT_FIRST: Duration = Duration::from_secs(300);
/// Interval between garbage collections of chunks.
const COLLECT_EVERY: Duration = Duration::from_secs(3600);

/// Minimum time between two collections, even when results reach their limit.
const COLLECT_PAUSE: Duration = Duration::from_secs(5);

/// Runs a head until SIGTERM, SIGINT or `POST /shutdown`.
///
/// # Errors
/// The head cannot start, e.g. because another head runs, the state cannot be read, or an address is in use.
pub fn run(config: Config) -> anyhow::Result<()> {
    allow_many_files();
    return_freed_memory();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("head")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let outcome = runtime.block_on(serve(config));
    // Readers blocked on a hanging disk must not keep the process alive.
    runtime.shutdown_timeout(STOP_TIMEOUT);
    outcome
}

/// Raises the limit of open files: every follower, agent and upload holds a connection, and the usual limit of 1024 is
/// easily reached.
fn allow_many_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files; the number of connections is limited");
    }
}

/// Makes the allocator return freed memory to the system. By default, it keeps the memory of large collections and
/// manifests for each thread: hundreds of megabytes after an hour.
fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` sets two numbers of the allocator, and no other thread exists yet.
    let is_set = unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE_BYTES) == 1
    };
    #[cfg(target_env = "gnu")]
    if !is_set {
        tracing::warn!("cannot configure the allocator; freed memory may stay allocated to the head");
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    // The handlers are installed first, so that a signal during the start causes a clean stop.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (head, socket) = start(config).await?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("stopping: SIGTERM"),
        _ = interrupt.recv() => tracing::info!("stopping: SIGINT"),
        () = head.stop.cancelled() => tracing::info!("stopping: requested by a client"),
    }
    stop(&head).await;
    // Until then, clients take the head for one that restarts.
    drop(socket);
    tracing::info!("head stopped");
    Ok(())
}

/// Starts the head. Returns it with the file of its Unix socket.
async fn start(config: Config) -> anyhow::Result<(Arc<Head>, Arc<SocketFile>)> {
    make_own(&config.directory, &config.socket)?;
    reserve::release_if_full(&config.directory);
    let mut store = SqliteStore::open(&config.directory.join("head.db")).context("cannot open the store")?;
    let loaded = store.load().context("cannot read the store")?;
    let (mut state, sequence) = restore(State::default(), &loaded)?;
    let log_begins = loaded.first_sequence();
    drop(loaded);
    let now = Now { at: state.last_event_at, wall: wall_now() };
    store.commit(&first_batch(&mut state, sequence, now)).context("cannot write the store")?;
    tracing::info!(epoch = state.epoch.0, jobs = state.job_count(), "state restored");

    let history = store.reader();
    let writer = Writer::start(store)?;
    let cap_bytes = config.results_cap_bytes;
    let library = Library::open(&config.directory.join("chunks"), history.clone(), writer.clone(), cap_bytes)?;
    let trust = Trust::open(&trust_directory(&config.directory), config.listen, &config.advertise)?;
    let metrics_token = metrics::Token::obtain(&config.directory)?;
    let audit = Audit::open(config.directory.join("audit.log")).context("cannot write the audit log")?;
    let usual_port = usual_port(&config.directory);
    let listeners =
        Listeners::open(&config.socket, config.listen, usual_port, config.site.http, config.embedded).await?;
    let (bound, socket) = (listeners.address()?, listeners.socket_file());
    let site = Site::open(&config.site, bound.port(), listeners.http_address()?)?;
    if usual_port != Some(bound.port()) {
        replace_file(&port_file(&config.directory), bound.port().to_string().as_bytes(), 0o600)?;
    }
    let epoch = state.epoch.0;
    let (engine, orders) = Engine::start(state, (log_begins, sequence + 1), writer.clone(), history, audit.events());
    if epoch > 1 {
        engine.happened(None, "the head started again".to_owned(), Some(format!("version {}", hostler_proto::BUILD)));
    }
    let usage = UsageHistory::open(&config.directory.join("series.db"), engine.clone())?;
    let trust = (trust, site, metrics_token);
    let head = Arc::new(Head::new(config, engine, Arc::new(library), trust, audit, (usage, writer), bound));
    head.apply_results_cap();
    listeners.serve(&head, &dashboard::routes(api::routes(&head), &head));
    tokio::spawn(collect(Arc::clone(&head)));
    let (switches, library) = (&head.switches, Arc::clone(&head.library));
    tokio::spawn(power::keep::keep(Arc::clone(switches), library, orders, head.stop.clone()));
    tokio::spawn(notify::keep(Arc::clone(&head.notifier)));
    tokio::spawn(power::keep::measure(Arc::clone(switches), head.stop.clone()));
    announce(&head)?;
    reserve::hold(&head.config.directory);
    tracing::info!(address = %head.address(), socket = %head.config.socket.display(), "head ready");
    Ok((head, socket))
}

/// Creates the head's directory and the cluster's certificate authority before the first start. Existing files stay.
///
/// # Errors
/// A file cannot be created, or an existing one cannot be used.
pub fn prepare(directory: &Path, socket: &Path, listen: SocketAddr, advertise: &[Address]) -> anyhow::Result<()> {
    make_own(directory, socket)?;
    Trust::open(&trust_directory(directory), listen, advertise).map(drop)
}

/// Whether [`prepare`] or a start has set up a head in this directory. `true` if this user may not know.
#[must_use]
pub fn is_prepared(directory: &Path) -> bool {
    trust_directory(directory).try_exists().unwrap_or(true)
}

fn trust_directory(directory: &Path) -> PathBuf {
    directory.join("trust")
}

async fn stop(head: &Head) {
    head.stop.cancel();
    head.tasks.close();
    if timeout(STOP_TIMEOUT, head.tasks.wait()).await.is_err() {
        tracing::info!(connections = head.tasks.len(), "stopping with connections still open");
    }
    head.engine.stop().await;
    // The next start replaces a leftover file.
    let _ = fs::remove_file(announcement(&head.config.directory));
}

/// File with the head's last port. A restarted head uses the same port, so that agents find it.
fn port_file(directory: &Path) -> PathBuf {
    directory.join("port")
}

/// The port of the last head that used this directory.
fn usual_port(directory: &Path) -> Option<u16> {
    // Without a valid file, any port is used.
    fs::read_to_string(port_file(directory)).ok()?.trim().parse().ok()
}

/// Content of `head.json`.
#[derive(Serialize)]
struct Announcement {
    pid: u32,
    /// Start time of the process in kernel ticks since boot. With pid and boot id, it identifies the process.
    started_ticks: u64,
    boot: String,
    address: String,
    socket: PathBuf,
}

fn announcement(directory: &Path) -> PathBuf {
    directory.join("head.json")
}

/// Writes `head.json`.
fn announce(head: &Head) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(&Announcement {
        pid: std::process::id(),
        started_ticks: started_ticks().context("cannot read /proc/self/stat")?,
        boot: hostler_sys::boot_id().context("cannot read the boot id")?,
        address: head.address(),
        socket: head.config.socket.clone(),
    })?;
    replace_file(&announcement(&head.config.directory), &text, 0o600)
}

/// Field 22 of `/proc/self/stat`. Fields are counted after the process name, which may contain spaces.
fn started_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Regularly deletes chunks that nothing refers to.
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
            Ok(Ok(soon)) => pause = soon.unwrap_or(pause),
            Ok(Err(error)) => tracing::warn!("cannot delete unused chunks: {error}"),
            Err(error) => tracing::error!("deleting unused chunks failed: {error}"),
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

/// Creates the head's directory, which only the head can list. Others pass through it if the socket for them is in it.
/// Closes an existing directory that is more open, and opens none.
fn make_own(directory: &Path, socket: &Path) -> anyhow::Result<()> {
    let most = if socket.parent() == Some(directory) { 0o711 } else { 0o700 };
    let make = || {
        hostler_sys::create_directory(directory, most)?;
        let mode = fs::metadata(directory)?.permissions().mode() & 0o777;
        if mode & !most == 0 { Ok(()) } else { hostler_sys::make_directory(directory, mode & most) }
    };
    make().with_context(|| format!("cannot create {}", directory.display()))
}

//! Calls: commands that users of this machine run on the node with the most room, and those that other nodes bring here.
//!
//! ```text
//!  user's program ──▶ [`door`] ──▶ [`ask`]: where? ──▶ here: a shepherd with the program's streams ([`run`]), or the program itself ([`here`])
//!                                        └──▶ there: [`trunks`] ══▶ other agent ──▶ [`run`]: account, directory, shepherd, streams
//! ```
//!
//! All of it is on a thread with a runtime of its own, so that a stream of gigabytes holds up no job and no job holds up a key that is pressed.

mod connections;
mod directory;
mod dispatch;
mod listener;
mod local;
mod mirror;
mod peer;
mod run;
mod written;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hostler_gossip::Costs;
use hostler_model::Digest;
use hostler_remote::Credentials;
use hostler_remote::{Counts, Refusal, RefusalKind};

use self::connections::Connections;
use self::dispatch::Directories;
pub(crate) use self::local::live_leaves;
use self::mirror::Mirrors;
use self::written::Written;
use crate::engine::{Handle, Node};
use crate::supervise::IdleShepherds;

/// What one part of this room needs of the others.
pub(crate) struct Exec {
    node: Arc<Node>,
    engine: Handle,
    own: Own,
    connections: Connections,
    idle: IdleShepherds,
    directories: Directories,
    written: Written,
    mirrors: Mirrors,
    /// What commands have cost.
    costs: Mutex<Costs>,
    counts: Mutex<Counts>,
    /// When it began to take calls.
    began: Instant,
    /// Counts what is started here, for names of leaves.
    started: AtomicU64,
}

/// This node as others know it when they have a command for it.
#[derive(Clone)]
pub(crate) struct Own {
    credentials: Credentials,
    /// Its fingerprint.
    pub(crate) key: Digest,
    /// The agent's directory.
    directory: PathBuf,
}

impl Own {
    /// The key of this node, made if there is none: others know it from before a restart.
    pub(crate) fn obtain(directory: &Path) -> io::Result<Self> {
        let path = directory.join("call-key.json");
        let kept = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Credentials>(&text).ok());
        if let Some(credentials) = kept
            && let Ok(key) = credentials.fingerprint()
        {
            return Ok(Self { credentials, key, directory: directory.to_owned() });
        }
        let credentials = Credentials::generate()?;
        let key = credentials.fingerprint()?;
        hostler_sys::replace_file(&path, &serde_json::to_vec(&credentials)?, 0o600)?;
        Ok(Self { credentials, key, directory: directory.to_owned() })
    }
}

/// Begins to take calls: of users of this machine at a socket beside `door`, and of other nodes where this one gossips.
///
/// # Errors
/// When the system has no thread to give, or no port.
pub(crate) fn start(node: Arc<Node>, engine: Handle, own: Own, door: Option<&Path>) -> io::Result<()> {
    let listener = node.gossiping.as_ref().and_then(|gossiping| gossiping.address()).map(listen).transpose()?;
    let door: Option<PathBuf> = door.map(hostler_remote::socket_beside);
    let mirrors = Mirrors::open(&own.directory);
    let exec = Arc::new(Exec {
        node,
        engine,
        own,
        connections: Connections::default(),
        idle: IdleShepherds::default(),
        directories: Directories::default(),
        written: Written::default(),
        mirrors,
        costs: Mutex::default(),
        counts: Mutex::default(),
        began: Instant::now(),
        started: AtomicU64::new(0),
    });
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(async {
                local::take_up(&exec);
                tokio::join!(listener::serve(&exec, door), connections::serve(&exec, listener), listen_to_disks(&exec));
            }),
            Err(error) => tracing::error!(%error, "this node takes no calls"),
        }
    };
    std::thread::Builder::new().name("calls".to_owned()).spawn(serve)?;
    Ok(())
}

/// Hears of what is written on shared disks before too much of it waits.
async fn listen_to_disks(exec: &Arc<Exec>) {
    let mut looks = tokio::time::interval(Duration::from_secs(1));
    loop {
        looks.tick().await;
        if exec.written.is_watching() {
            // A server that does not answer holds up nobody but whoever asks for its files.
            let exec = Arc::clone(exec);
            let _ = tokio::task::spawn_blocking(move || exec.written.hear()).await;
        }
    }
}

/// Listens where the node gossips, at a port of the same number if that is free.
fn listen(gossip: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(gossip).or_else(|_| TcpListener::bind(SocketAddr::new(gossip.ip(), 0)))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As others are told.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// A refusal that says nothing of other nodes.
fn unsuitable(code: u8, message: impl Into<String>) -> Refusal {
    Refusal { kind: RefusalKind::Unsuitable, code, message: message.into(), hints: Vec::new() }
}

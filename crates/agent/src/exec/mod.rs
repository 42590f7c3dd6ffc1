//! Remote commands: runs local users' commands on the best node, and runs commands that other nodes send here.
//!
//! ```text
//! user's program ──▶ [`listener`] ──▶ [`dispatch`]: where? ──▶ here: a shepherd ([`run`]), or the program itself ([`local`])
//!                                         └──▶ there: [`connections`] ══▶ other agent ──▶ [`run`]
//! ```
//!
//! All of this has a runtime thread of its own, so large streams do not delay jobs, and jobs do not delay key
//! strokes.

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

/// State that all parts of the remote command service share.
pub(crate) struct Exec {
    node: Arc<Node>,
    engine: Handle,
    own: Own,
    connections: Connections,
    idle: IdleShepherds,
    directories: Directories,
    written: Written,
    mirrors: Mirrors,
    /// Average costs of each kind of command.
    costs: Mutex<Costs>,
    counts: Mutex<Counts>,
    /// Time at which the remote command service started.
    began: Instant,
    /// Number of started commands, which makes the names of cgroups unique.
    started: AtomicU64,
}

/// This node's identity for other nodes.
#[derive(Clone)]
pub(crate) struct Own {
    credentials: Credentials,
    pub(crate) key: Digest,
    directory: PathBuf,
}

impl Own {
    /// Reads this node's key, or creates one. The key stays the same after a restart, so other nodes still know it.
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

/// Starts to serve remote commands: of local users at a socket next to `door`, and of other nodes if this node
/// gossips.
///
/// # Errors
/// Fails when the system refuses a thread or a port.
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
            Err(error) => tracing::error!(%error, "cannot serve remote commands"),
        }
    };
    std::thread::Builder::new().name("calls".to_owned()).spawn(serve)?;
    Ok(())
}

/// Reads the kernel's notifications about writes on shared disks every second, before their queue grows too long.
async fn listen_to_disks(exec: &Arc<Exec>) {
    let mut looks = tokio::time::interval(Duration::from_secs(1));
    loop {
        looks.tick().await;
        if exec.written.is_watching() {
            // A file server that does not answer must not block this task.
            let exec = Arc::clone(exec);
            let _ = tokio::task::spawn_blocking(move || exec.written.hear()).await;
        }
    }
}

/// Listens (TCP) at the IP address used for gossip, on gossip's port number if that is free.
fn listen(gossip: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(gossip).or_else(|_| TcpListener::bind(SocketAddr::new(gossip.ip(), 0)))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A duration in whole microseconds.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Creates a refusal after which another node may be tried.
fn unsuitable(code: u8, message: impl Into<String>) -> Refusal {
    Refusal { kind: RefusalKind::Unsuitable, code, message: message.into(), hints: Vec::new() }
}

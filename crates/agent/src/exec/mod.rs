//! Remote commands: runs local users' commands on the best node, and runs commands that other nodes send here.
//!
//! ```text
//! user's program ──▶ [`listener`] ──▶ [`dispatch`]: where? ──▶ here: a shepherd ([`run`]), or the program itself ([`local`])
//!                                         └──▶ there: [`connections`] ══▶ other agent: [`incoming`] ──▶ [`run`]
//! ```
//!
//! All of this has a runtime thread of its own, so large streams do not delay jobs, and jobs do not delay key
//! strokes.

mod caller_streams;
pub(crate) mod connections;
mod directory;
mod dispatch;
mod incoming;
mod listener;
mod local;
mod mirror;
mod peer;
mod refusal;
mod run;
mod shared;
mod waits;
mod written;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::dispatch::{explain, how, needs_of, no_suitable_node};
pub(crate) use self::listener::other_build;
pub(crate) use self::local::live_leaves;
use self::shared::Exec;
pub(crate) use self::shared::{Host, Own};
use crate::handle::Handle;

/// Starts to serve remote commands: of local users at a socket next to the agent's `socket`, and of other nodes if this
/// node gossips. Of its threads, `blocking_threads` may wait for files.
///
/// # Errors
/// Fails when the system refuses a thread or a port.
pub(crate) fn start(
    host: Host,
    engine: Handle,
    own: Own,
    socket: Option<&Path>,
    blocking_threads: usize,
) -> io::Result<()> {
    let listener = host.gossiping.as_ref().and_then(|gossiping| gossiping.address()).map(listen).transpose()?;
    let socket: Option<PathBuf> = socket.map(hostler_remote::socket_beside);
    let exec = Arc::new(Exec::new(host, engine, own));
    let serve = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(blocking_threads).enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(async {
                local::take_up(&exec);
                tokio::join!(listener::serve(&exec, socket), incoming::serve(&exec, listener), listen_to_disks(&exec));
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
            exec.written.hear();
        }
    }
}

/// Listens (TCP) at the IP address used for gossip, on gossip's port number if that is free.
fn listen(gossip: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(gossip).or_else(|_| TcpListener::bind(SocketAddr::new(gossip.ip(), 0)))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

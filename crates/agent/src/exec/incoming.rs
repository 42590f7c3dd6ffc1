//! Connections from other nodes, and the commands that they send here.
//!
//! The head has told this node which certificate belongs to which node. When the head no longer names a node, its
//! connection is closed and its commands here end.

use std::collections::BTreeSet;
use std::net::TcpListener as StdListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hostler_core::admission::{ConnectionSlots, Network, UsageLimits};
use hostler_model::{Digest, NodeName};
use hostler_remote::{Frame, Heartbeat, Open, keep_alive, multiplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::run;
use super::shared::Exec;
use crate::mutex::lock;

/// Timeout for the TLS handshake.
const HANDSHAKE_BOUND: Duration = Duration::from_secs(10);

/// Maximum number of connections in their handshake. A further connection closes the oldest one, so silent peers
/// cannot block others.
const MAX_HANDSHAKES: usize = 128;

/// Maximum number of connections from one node. A node needs one, and another one while it tests the first.
const MAX_PER_NODE: usize = 8;

/// Interval between checks that the head still names the peer.
const LOOK: Duration = Duration::from_secs(2);

/// Pause after a failed accept, to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections from other nodes while the future is polled.
pub(super) async fn serve(exec: &Arc<Exec>, listener: Option<StdListener>) {
    let Some(listener) = listener else { return };
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot accept remote commands from other nodes"),
    };
    if let (Some(gossiping), Ok(address)) = (&exec.node.gossiping, listener.local_addr()) {
        tracing::info!(%address, "accepting remote commands from other nodes");
        gossiping.takes_commands_at(address.port());
    }
    let handshakes = ConnectionSlots::new(MAX_HANDSHAKES);
    let nodes = UsageLimits::of(MAX_PER_NODE);
    // Networks from which nodes have connected. Their connections are closed last.
    let known: Arc<Mutex<BTreeSet<Network>>> = Arc::default();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                // A peer without a certificate only occupies a place for a while.
                let network = Network::from(from.ip());
                let (channel, must_go) = oneshot::channel::<()>();
                let place = handshakes.enter(network, lock(&known).contains(&network), channel);
                let (exec, nodes, known) = (Arc::clone(exec), Arc::clone(&nodes), Arc::clone(&known));
                tokio::spawn(async move {
                    let admitted = tokio::select! {
                        admitted = timeout(HANDSHAKE_BOUND, admit(&exec, stream)) => admitted,
                        _ = must_go => return tracing::debug!(
                            %from,
                            "closed a connection during its TLS handshake: too many newer connections"
                        ),
                    };
                    if matches!(admitted, Ok(Ok(_))) {
                        remember(&known, network);
                    }
                    drop(place);
                    match admitted {
                        Ok(Ok((stream, key, node))) => match nodes.take(node.clone()) {
                            Some(_share) => attend(&exec, stream, key, &node).await,
                            None => tracing::warn!(
                                %node,
                                "closed a connection from this node: it has the maximum number of connections already"
                            ),
                        },
                        Ok(Err(error)) => {
                            tracing::debug!(%from, %error, "rejected a connection: the TLS handshake failed");
                        }
                        Err(_) => tracing::debug!(%from, "closed a connection: the TLS handshake timed out"),
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection from another node");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Remembers a network from which a node has connected. The number of remembered networks is bounded.
fn remember(known: &Mutex<BTreeSet<Network>>, network: Network) {
    const MOST: usize = 4096;
    let mut known = lock(known);
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(network);
}

type Admitted = tokio_rustls::server::TlsStream<TcpStream>;

/// Completes the handshake and identifies the node.
async fn admit(exec: &Exec, stream: TcpStream) -> std::io::Result<(Admitted, Digest, NodeName)> {
    keep_alive(&stream);
    let callers = exec.node.gossiping.as_ref().map(|gossiping| gossiping.callers()).unwrap_or_default();
    let config = exec.own.credentials.to_accept(callers.iter().map(|(key, _)| *key).collect())?;
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
    let key = shown.map(|certificate| hostler_tls::fingerprint(certificate));
    let known = key.and_then(|key| callers.into_iter().find(|(known, _)| *known == key));
    let (key, node) = known.ok_or(std::io::ErrorKind::PermissionDenied)?;
    Ok((stream, key, node))
}

/// Serves the commands of a node.
async fn attend(exec: &Arc<Exec>, stream: Admitted, key: Digest, node: &NodeName) {
    let (_own, mut channels, run) = multiplex(stream, Some(Heartbeat::NODE));
    let answer = async {
        while let Some(mut channel) = channels.next().await {
            let exec = Arc::clone(exec);
            let from = node.clone();
            tokio::spawn(async move {
                match channel.receive().await {
                    Some(Frame::Open(Open::Start(start))) => run::run(&exec, channel, *start, &from).await,
                    Some(Frame::Open(Open::Packets(run))) => {
                        if let Ok(networks) = &exec.node.networks {
                            networks.receive(channel, run, &from).await;
                        }
                    }
                    _ => {}
                }
            });
        }
    };
    tokio::select! {
        outcome = run => if let Err(error) = outcome {
            tracing::debug!(%node, %error, "a connection for remote commands broke");
        },
        () = answer => {}
        () = wait_until_unlisted(exec, key) => tracing::info!(%node, "the head has removed this node; ending its remote commands"),
    }
}

/// Returns when the head no longer names the node with this key.
async fn wait_until_unlisted(exec: &Exec, key: Digest) {
    let mut looks = interval(LOOK);
    let is_named = || exec.node.gossiping.as_ref().is_some_and(|gossiping| gossiping.takes_calls_of(key));
    while is_named() {
        looks.tick().await;
    }
}

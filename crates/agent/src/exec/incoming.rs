//! Connections from other nodes, and the commands that they send here.
//!
//! The head has told this node which certificate belongs to which node. When the head no longer names a node, its
//! connection is closed and its commands here end.

use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use hostler_listen::{Admission, Limits, Party, Place};
use hostler_model::{Digest, NodeName};
use hostler_remote::{Frame, Heartbeat, Open, keep_alive, multiplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::interval;
use tokio_rustls::TlsAcceptor;

use super::run;
use super::shared::Exec;

/// The connections of other nodes, unidentified during their TLS handshake.
const LIMITS: Limits = Limits { strangers: 128, time: Duration::from_secs(10), total: 65_536 };

/// Maximum number of connections from one node. A node needs one, and another one while it tests the first.
const MAX_PER_NODE: usize = 8;

/// Interval between checks that the head still names the peer.
const LOOK: Duration = Duration::from_secs(2);

/// Accepts connections from other nodes while the future is polled.
pub(super) async fn serve(exec: &Arc<Exec>, listener: Option<StdListener>) {
    let Some(listener) = listener else { return };
    let mut listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot accept remote commands from other nodes"),
    };
    if let (Some(gossiping), Ok(address)) = (&exec.host.gossiping, listener.local_addr()) {
        tracing::info!(%address, "accepting remote commands from other nodes");
        gossiping.takes_commands_at(address.port());
    }
    let admission = Admission::new(LIMITS.within_descriptors());
    loop {
        let (stream, place) = admission.accept(&mut listener).await;
        let exec = Arc::clone(exec);
        tokio::spawn(async move {
            if let Err(why) = place.hold(serve_peer(&exec, stream, &place)).await {
                tracing::debug!("closed a connection from another machine: {why}");
            }
        });
    }
}

/// Another node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Node(NodeName);

impl Party for Node {
    fn share(&self, _: usize) -> usize {
        MAX_PER_NODE
    }

    fn is_node(&self) -> bool {
        true
    }
}

async fn serve_peer(exec: &Arc<Exec>, stream: TcpStream, place: &Place<Node>) {
    match admit(exec, stream).await {
        Ok((stream, key, node)) => match place.identify(&Node(node.clone())) {
            Ok(()) => attend(exec, stream, key, &node).await,
            Err(full) => tracing::warn!(%node, "closed a connection from this node: {full}"),
        },
        Err(error) => tracing::debug!(%error, "rejected a connection: the TLS handshake failed"),
    }
}

type Admitted = tokio_rustls::server::TlsStream<TcpStream>;

/// Completes the handshake and identifies the node.
async fn admit(exec: &Exec, stream: TcpStream) -> std::io::Result<(Admitted, Digest, NodeName)> {
    keep_alive(&stream);
    let callers = exec.host.gossiping.as_ref().map(|gossiping| gossiping.callers()).unwrap_or_default();
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
                        if let Some(networks) = &exec.host.networks {
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
    let is_named = || exec.host.gossiping.as_ref().is_some_and(|gossiping| gossiping.takes_calls_of(key));
    while is_named() {
        looks.tick().await;
    }
}

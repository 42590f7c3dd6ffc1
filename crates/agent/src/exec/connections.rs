//! Connections between nodes. All commands from one node to another share one connection, which stays open for later
//! commands.
//!
//! Both sides present a certificate. The head has told both nodes which certificate belongs to which node. When the
//! head no longer lists a node, this node closes the connection and ends that node's commands.

use std::collections::{BTreeSet, HashMap};
use std::net::TcpListener as StdListener;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use hostler_core::doorway::{Network, Shares, WaitingRoom};
use hostler_model::{Digest, NodeName};
use hostler_remote::{Channel, Connection, Frame, Heartbeat, Open, explain_tls, keep_alive, multiplex, server_name};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, oneshot};
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{Exec, lock, run};
use crate::gossip::CallDoor;

/// Timeout for connecting to another node.
const REACH_BOUND: Duration = Duration::from_secs(3);

/// Timeout for the TLS handshake.
const HANDSHAKE_BOUND: Duration = Duration::from_secs(10);

/// Maximum number of connections whose handshake is in progress. One more connection closes the oldest of them, so
/// silent peers cannot block others.
const MAX_AT_THE_DOOR: usize = 128;

/// Maximum number of connections from one node. A node needs one connection, and two while it replaces a connection.
const MAX_OF_ONE_NODE: usize = 8;

/// Interval between checks that the head still lists the peer.
const LOOK: Duration = Duration::from_secs(2);

/// Pause after a failed accept, to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that this node has opened to other nodes.
#[derive(Default)]
pub(super) struct Connections(StdMutex<HashMap<NodeName, Arc<Mutex<Option<Known>>>>>);

/// A connection and its address.
struct Known {
    door: CallDoor,
    connection: Connection,
}

/// Why no channel could be opened, as a sentence about the node.
pub(super) enum NoWay {
    /// The node is unreachable. Later commands should avoid the node for a while.
    Unreachable(String),
    /// The node has not received this node's certificate from the head yet. A retry can succeed.
    NotYet(String),
}

impl Connections {
    /// Opens a channel to a node, on the existing connection if the connection still works.
    ///
    /// # Errors
    /// Fails if the node is unreachable or rejects this node.
    pub(super) async fn call(&self, exec: &Exec, node: &NodeName) -> Result<Channel, NoWay> {
        let unreachable = |why: &str| NoWay::Unreachable(why.to_owned());
        let door = exec.node.gossiping.as_ref().and_then(|gossiping| gossiping.door(node));
        let door = door.ok_or_else(|| unreachable("its address for remote commands is unknown"))?;
        let place = Arc::clone(lock(&self.0).entry(node.clone()).or_default());
        let mut known = place.lock().await;
        if let Some(Known { connection, .. }) =
            known.as_ref().filter(|known| known.door == door && !known.connection.is_closed())
            && connection.is_alive(REACH_BOUND).await
        {
            return connection
                .open()
                .ok_or_else(|| unreachable("it already runs the maximum number of commands from this node"));
        }
        *known = None;
        let address = door.address;
        let connection = timeout(REACH_BOUND, dial(exec, door)).await;
        let connection = connection.map_err(|_| unreachable(&format!("no answer from {address}")))?;
        let connection = connection.map_err(|error| unreachable(&format!("cannot connect to {address}: {error}")))?;
        let not_yet = || {
            NoWay::NotYet(format!("the node at {address} has not received this node's certificate from the head yet"))
        };
        if !connection.responds(REACH_BOUND).await {
            return Err(not_yet());
        }
        let channel = connection.open().ok_or_else(not_yet)?;
        *known = Some(Known { door, connection });
        Ok(channel)
    }
}

async fn dial(exec: &Exec, door: CallDoor) -> std::io::Result<Connection> {
    let stream = TcpStream::connect(door.address).await?;
    keep_alive(&stream);
    let config = exec.own.credentials.to_launch(door.key)?;
    let stream = TlsConnector::from(config).connect(server_name(), stream).await.map_err(explain_tls)?;
    let (connection, _calls, run) = multiplex(stream, Some(Heartbeat::NODE));
    tokio::spawn(async move {
        if let Err(error) = run.await {
            tracing::debug!(address = %door.address, %error, "a connection for remote commands broke");
        }
    });
    Ok(connection)
}

/// Accepts connections from other nodes while the future is polled.
pub(super) async fn serve(exec: &Arc<Exec>, listener: Option<StdListener>) {
    let Some(listener) = listener else { return };
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot serve remote commands of other nodes"),
    };
    if let (Some(gossiping), Ok(address)) = (&exec.node.gossiping, listener.local_addr()) {
        tracing::info!(%address, "accepting remote commands from other nodes");
        gossiping.takes_commands_at(address.port());
    }
    let at_the_door = WaitingRoom::new(MAX_AT_THE_DOOR);
    let nodes = Shares::of(MAX_OF_ONE_NODE);
    // Networks from which nodes have connected. Their connections are closed last.
    let known: Arc<StdMutex<BTreeSet<Network>>> = Arc::default();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                // A peer without a certificate only occupies a place for a while.
                let network = Network::from(from.ip());
                let (channel, must_go) = oneshot::channel::<()>();
                let place = at_the_door.enter(network, lock(&known).contains(&network), channel);
                let (exec, nodes, known) = (Arc::clone(exec), Arc::clone(&nodes), Arc::clone(&known));
                tokio::spawn(async move {
                    let admitted = tokio::select! {
                        admitted = timeout(HANDSHAKE_BOUND, admit(&exec, stream)) => admitted,
                        _ = must_go => return tracing::debug!(%from, "closed an unauthenticated connection: too many are open"),
                    };
                    if matches!(admitted, Ok(Ok(_))) {
                        remember(&known, network);
                    }
                    drop(place);
                    match admitted {
                        Ok(Ok((stream, key, node))) => match nodes.take(node.clone()) {
                            Some(_share) => attend(&exec, stream, key, &node).await,
                            None => {
                                tracing::warn!(%node, "closing a connection for remote commands: the node has too many connections");
                            }
                        },
                        Ok(Err(error)) => tracing::debug!(%from, %error, "rejected a connection"),
                        Err(_) => tracing::debug!(%from, "closed a connection: TLS handshake timed out"),
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for remote commands");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Remembers a network from which a node has connected. The number of remembered networks is bounded.
fn remember(known: &StdMutex<BTreeSet<Network>>, network: Network) {
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
                if let Some(Frame::Open(Open::Start(start))) = channel.receive().await {
                    run::run(&exec, channel, *start, &from).await;
                }
            });
        }
    };
    tokio::select! {
        outcome = run => if let Err(error) = outcome {
            tracing::debug!(%node, %error, "a connection for remote commands broke");
        },
        () = answer => {}
        () = expulsion(exec, key) => tracing::info!(%node, "the head has removed this node; ending its remote commands"),
    }
}

/// Waits until the head's node list no longer contains the node with this key.
async fn expulsion(exec: &Exec, key: Digest) {
    let mut looks = interval(LOOK);
    let is_named = || exec.node.gossiping.as_ref().is_some_and(|gossiping| gossiping.takes_calls_of(key));
    while is_named() {
        looks.tick().await;
    }
}

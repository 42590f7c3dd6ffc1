//! Connections to other nodes. All commands from this node to another share one connection, which stays open for later
//! commands.
//!
//! Both sides present a certificate. The head has told both nodes which certificate belongs to which node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use hostler_model::NodeName;
use hostler_remote::{Channel, Connection, Credentials, Heartbeat, explain_tls, keep_alive, multiplex, server_name};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::gossip::{CallEndpoint, Gossiping};
use crate::mutex::lock;

/// Timeout for connecting to another node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Connections to other nodes.
#[derive(Default)]
pub(crate) struct Connections(StdMutex<HashMap<NodeName, Arc<Mutex<Option<Known>>>>>);

/// A connection and its address.
struct Known {
    endpoint: CallEndpoint,
    connection: Connection,
}

/// Why no channel could be opened, as a sentence about the node.
pub(crate) enum OpenError {
    /// The node is unreachable. Later commands should avoid the node for a while.
    Unreachable(String),
    /// The node has not received this node's certificate from the head yet. A retry can succeed.
    NotYet(String),
}

impl Connections {
    /// Opens a channel to a node, on the existing connection if the connection still works.
    ///
    /// # Errors
    /// Returns the reason.
    pub(crate) async fn call(
        &self,
        gossiping: &Gossiping,
        credentials: &Credentials,
        node: &NodeName,
    ) -> Result<Channel, OpenError> {
        let unreachable = |why: &str| OpenError::Unreachable(why.to_owned());
        let endpoint =
            gossiping.call_endpoint(node).ok_or_else(|| unreachable("it does not accept remote commands"))?;
        let place = Arc::clone(lock(&self.0).entry(node.clone()).or_default());
        let mut known = place.lock().await;
        if let Some(Known { connection, .. }) =
            known.as_ref().filter(|known| known.endpoint == endpoint && !known.connection.is_closed())
            && connection.is_alive(CONNECT_TIMEOUT).await
        {
            return connection
                .open()
                .ok_or_else(|| unreachable("it already runs the maximum number of commands from this node"));
        }
        *known = None;
        let address = endpoint.address;
        let connection = timeout(CONNECT_TIMEOUT, dial(credentials, endpoint)).await;
        let connection = connection.map_err(|_| unreachable(&format!("it does not answer at {address}")))?;
        let connection =
            connection.map_err(|error| unreachable(&format!("it cannot be reached at {address}: {error}")))?;
        let not_yet = || {
            OpenError::NotYet(format!(
                "it did not accept the connection at {address}; it may not have received this node's certificate from \
                 the head yet"
            ))
        };
        if !connection.responds(CONNECT_TIMEOUT).await {
            return Err(not_yet());
        }
        let channel = connection.open().ok_or_else(not_yet)?;
        *known = Some(Known { endpoint, connection });
        Ok(channel)
    }
}

async fn dial(credentials: &Credentials, endpoint: CallEndpoint) -> std::io::Result<Connection> {
    let stream = TcpStream::connect(endpoint.address).await?;
    keep_alive(&stream);
    let config = credentials.to_launch(endpoint.key)?;
    let stream = TlsConnector::from(config).connect(server_name(), stream).await.map_err(explain_tls)?;
    let (connection, _calls, run) = multiplex(stream, Some(Heartbeat::NODE));
    tokio::spawn(async move {
        if let Err(error) = run.await {
            tracing::debug!(address = %endpoint.address, %error, "a connection for remote commands broke");
        }
    });
    Ok(connection)
}

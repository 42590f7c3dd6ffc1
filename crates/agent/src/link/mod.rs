//! The link to the head: connects, sends the hello, carries messages in both directions, and reconnects when the link
//! breaks. [`AgentLink`] decides what is sent when, and [`Dialler`] how long to wait before the next connection.
//!
//! [`identity`]: the node's key and certificate; [`renewal`]: renewal of the certificate.

pub(crate) mod identity;
pub(crate) mod renewal;

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use hostler_client::{Client, ClientError, ConnectFailure, Stream};
use hostler_core::agent::Event;
use hostler_core::link::{AgentLink, Attempt, Dialler, HELLO_TIMEOUT, LinkEnd, Terms};
use hostler_proto::link::{AgentMessage, MAX_FRAME_BYTES};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::gossip::Gossiping;
use crate::handle::Handle;
use crate::link::identity::Identity;
use crate::link::renewal::Due;
use crate::measure::metrics::Metrics;
use crate::measure::rapl::{POWERCAP, Rapl};
use crate::random::random;

/// Interval of power reports to the head.
const READING: Duration = Duration::from_secs(60);

/// Read buffer size; most frames are smaller.
const READ_BYTES: usize = 8 << 10;

type Socket = WebSocketStream<Stream>;

/// The link of a node.
pub(crate) struct Link<'a> {
    pub(crate) engine: Handle,
    pub(crate) head: &'a Client,
    pub(crate) identity: &'a Identity,
    /// Receives the time at which the certificate is due for renewal.
    pub(crate) renew: watch::Sender<Due>,
    pub(crate) metrics: &'a Metrics,
    pub(crate) gossiping: Option<&'a Gossiping>,
    /// Whether the machine's power use is that of the node.
    pub(crate) has_power: bool,
}

impl Link<'_> {
    /// Keeps the link open while the agent runs.
    pub(crate) async fn keep(self) {
        let Self { engine, head, identity, metrics, .. } = &self;
        let mut dialler = Dialler::default();
        let (mut complaint, mut remark) = (String::new(), String::new());
        loop {
            match identity.refresh() {
                Ok(true) => {
                    tracing::info!(head = %identity.head(), "this node has joined again, or its head has moved; using the new certificate and address");
                    head.renew_connections();
                    dialler = Dialler::default();
                }
                Ok(false) => {}
                Err(error) => {
                    let text = format!("{error:#}");
                    if remark != text {
                        tracing::warn!("{text}");
                        remark = text;
                    }
                }
            }
            let mut attempt = Attempt::Failed;
            let outcome = self.connect_once(&mut attempt).await;
            metrics.linked(false);
            engine.happened(Event::Disconnected);
            if let Err(error) = outcome {
                if matches!(error.downcast_ref(), Some(LinkEnd::Refused(_))) {
                    attempt = Attempt::Refused;
                }
                let text = format!("{error:#}");
                // Warn once; repeated warnings would hide other messages.
                if complaint == text {
                    tracing::debug!("no link to the head: {text}");
                } else {
                    tracing::warn!("no link to the head, retrying: {text}");
                }
                complaint = text;
            }
            if matches!(attempt, Attempt::Welcomed { .. }) {
                complaint.clear();
            }
            tokio::time::sleep(dialler.pause_after(attempt, random())).await;
        }
    }

    /// Opens one connection and serves it until it ends.
    async fn connect_once(&self, attempt: &mut Attempt) -> anyhow::Result<()> {
        let endpoint = self.identity.head();
        let stream = endpoint.connect().await.map_err(explain_connect_error)?;
        stream.limit_unread();
        let address = stream.local_address();
        let head_address = stream.peer_address();
        let mut config = WebSocketConfig::default();
        config.max_message_size = Some(MAX_FRAME_BYTES);
        config.max_frame_size = Some(MAX_FRAME_BYTES);
        // The library zeroes this buffer before every read.
        config.read_buffer_size = READ_BYTES;
        let uri = format!("ws://hostler{}/agent/link", hostler_proto::api::BASE);
        let connecting = tokio_tungstenite::client_async_with_config(uri, stream, Some(config));
        let connected =
            timeout(HELLO_TIMEOUT, connecting).await.context("the head does not answer the connection request")?;
        let (mut socket, _) = connected.map_err(explain_handshake_error)?;

        let (hello, outgoing) = self.engine.connected(address).await.context("the agent is stopping")?;
        let rapl = if self.has_power { Rapl::find(Path::new(POWERCAP)) } else { None };
        let sending = socket.send(Message::binary(hostler_proto::encode(&hello)));
        timeout(HELLO_TIMEOUT, sending).await.context("the head does not read the hello")??;
        carry(socket, &self.engine, outgoing, rapl, |terms| {
            *attempt = Attempt::Welcomed { return_within: terms.return_within };
            self.renew.send_replace(terms.renew_in);
            self.metrics.linked(true);
            tracing::info!(head = %endpoint, "linked to the head");
            if let Some(gossiping) = self.gossiping {
                gossiping.ask(head_address);
            }
        })
        .await
    }
}

/// Explains a connection error: adds advice if the head belongs to another cluster.
fn explain_connect_error(error: ClientError) -> anyhow::Error {
    let is_distrust = matches!(&error, ClientError::Connect { failure: ConnectFailure::NotTrusted, .. });
    let error = anyhow::Error::from(error);
    if is_distrust {
        return error.context(
            "the head at this address belongs to a different cluster than this node, or its authority was replaced; to move the \
             node to that cluster, run `hostler node invite` on that head, then `hostler agent join` with the code on this machine",
        );
    }
    error
}

/// Explains a handshake error: adds advice if the head rejected this node's certificate. The head's alert arrives after
/// this side's handshake has finished.
fn explain_handshake_error(error: tungstenite::Error) -> anyhow::Error {
    let is_alert = matches!(&error, tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData);
    let error = anyhow::Error::from(error);
    if is_alert {
        return error.context(
            "the head does not accept this node's certificate, which belongs to another cluster; run `hostler node invite` on \
             the head, then `hostler agent join` with the code on this machine",
        );
    }
    error
}

/// Carries messages in both directions until the head closes the link. The hello has just been sent; `welcomed` is
/// called when the head accepts it.
async fn carry(
    mut socket: Socket,
    engine: &Handle,
    mut outgoing: mpsc::UnboundedReceiver<AgentMessage>,
    mut rapl: Option<Rapl>,
    welcomed: impl FnOnce(Terms),
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut link = AgentLink::new(Duration::ZERO);
    let mut welcomed = Some(welcomed);
    let mut reading = start + READING;
    loop {
        tokio::select! {
            message = outgoing.recv() => match message {
                Some(message) => link.send(message, start.elapsed()),
                None => return Ok(()),
            },
            bytes = next_frame(&mut socket) => {
                let Some(bytes) = bytes? else { return Ok(()) };
                match welcomed.take() {
                    Some(welcomed) => welcomed(link.answered(hostler_proto::decode(&bytes)?, start.elapsed())?),
                    None => {
                        let messages = link.receive(hostler_proto::decode(&bytes)?, start.elapsed())?;
                        messages.into_iter().for_each(|message| engine.happened(Event::Received(message)));
                    }
                }
            }
            () = tokio::time::sleep_until(reading), if rapl.is_some() => {
                reading = Instant::now() + READING;
                let milliwatts = rapl.as_mut().and_then(|rapl| rapl.milliwatts(std::time::Instant::now()));
                link.send(AgentMessage::Drawing { milliwatts }, start.elapsed());
            }
            () = tokio::time::sleep_until(start + link.wake_at()) => {}
        }
        while let Ok(message) = outgoing.try_recv() {
            link.send(message, start.elapsed());
        }
        while let Some(frame) = link.next_frame(start.elapsed())? {
            socket.send(Message::binary(hostler_proto::encode(&frame))).await?;
        }
    }
}

/// The next binary message; `None` if the connection is closed.
async fn next_frame<S>(source: &mut S) -> anyhow::Result<Option<Vec<u8>>>
where
    S: StreamExt<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin,
{
    while let Some(message) = source.next().await {
        match message? {
            Message::Binary(bytes) => return Ok(Some(bytes.to_vec())),
            Message::Close(frame) => {
                let reason = frame.map(|frame| frame.reason.to_string()).filter(|reason| !reason.is_empty());
                tracing::info!(reason, "the head closed the link");
                return Ok(None);
            }
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            Message::Text(_) => bail!("the head sent a text message, which the link protocol does not use"),
        }
    }
    Ok(None)
}

//! The link to the head: connects, sends the hello, carries messages in both directions, and reconnects when the link
//! breaks. [`Outgoing`] decides when waiting messages are sent.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use hostler_client::{ClientError, ConnectFailure, Stream};
use hostler_core::link::{Beat, Inbox, Outbox, Outgoing};
use hostler_proto::link::{AgentHello, AgentMessage, Frame, HeadHello, HeadMessage, MAX_FRAME_BYTES};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::engine::{Handle, Node};
use crate::identity::Identity;
use crate::rapl::{POWERCAP, Rapl};
use crate::renewal::Due;

/// Timeout for the head's answer to a hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of power reports to the head.
const READING: Duration = Duration::from_secs(60);

/// First and longest delay between connection attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Longest delay after the head has refused this agent. Retrying helps only if the node joins again.
const REFUSED_PAUSE: Duration = Duration::from_secs(15);

/// Read buffer size; most frames are smaller.
const READ_BYTES: usize = 8 << 10;

type Socket = WebSocketStream<Stream>;

/// Keeps the link open while the agent runs.
pub(crate) async fn keep(engine: Handle, node: &Node, identity: &Identity, renew: watch::Sender<Due>) {
    let mut pause = PAUSES.0;
    let (mut complaint, mut remark) = (String::new(), String::new());
    loop {
        let mut terms = None;
        let mut longest = PAUSES.1;
        match identity.refresh() {
            Ok(true) => {
                tracing::info!("this node has joined again; using its new certificate");
                node.head.renew_connections();
                pause = PAUSES.0;
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
        let outcome = connect_once(&engine, node, identity, &renew, &mut terms).await;
        engine.disconnected();
        if let Err(error) = outcome {
            if error.is::<Refused>() {
                longest = REFUSED_PAUSE;
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
        let wait = match terms {
            Some(Terms { return_within, .. }) => {
                complaint.clear();
                pause = PAUSES.0;
                return_within.max(PAUSES.0).mul_f64(random())
            }
            None => pause.mul_f64((1.0 + random()) / 2.0),
        };
        tokio::time::sleep(wait).await;
        pause = (pause * 2).min(longest);
    }
}

/// The head refuses this agent, for the given reason.
#[derive(Debug, thiserror::Error)]
#[error("the head refuses this agent: {0}")]
struct Refused(String);

/// Parameters from the head's welcome.
#[derive(Debug, Clone, Copy)]
struct Terms {
    heartbeat: Duration,
    /// Time span for a random reconnect delay. It spreads reconnections, because all agents lose a head at the same
    /// time.
    return_within: Duration,
}

/// Random bits from the system, for names and for delays that differ between nodes.
pub(crate) fn random_bits() -> u64 {
    u64::from_ne_bytes(hostler_sys::random())
}

/// A random number from 0 to 1.
pub(crate) fn random() -> f64 {
    (random_bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Opens one connection and serves it until it ends.
async fn connect_once(
    engine: &Handle,
    node: &Node,
    identity: &Identity,
    renew: &watch::Sender<Due>,
    terms: &mut Option<Terms>,
) -> anyhow::Result<()> {
    let endpoint = identity.endpoint()?;
    let stream = endpoint.connect().await.map_err(distrusted)?;
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
    let (mut socket, _) = connected.map_err(unaccepted)?;

    let (hello, outgoing) = engine.connected(address).await.context("the agent is stopping")?;
    let (welcome, renew_in) = timeout(HELLO_TIMEOUT, introduce(&mut socket, &hello))
        .await
        .context("the head does not answer the hello")??;
    *terms = Some(welcome);
    renew.send_replace(renew_in);
    tracing::info!(head = %endpoint, "linked to the head");
    node.ask_for_peers(head_address);
    let rapl = if node.has_whole_machine { Rapl::find(Path::new(POWERCAP)) } else { None };
    carry(socket, engine, outgoing, welcome.heartbeat, rapl).await
}

/// Explains a connection error: adds advice if the head belongs to another cluster.
fn distrusted(error: ClientError) -> anyhow::Error {
    let is_distrust = matches!(&error, ClientError::Connect { failure: ConnectFailure::NotTrusted, .. });
    let error = anyhow::Error::from(error);
    if is_distrust {
        return error.context(
            "the head at this address belongs to a different cluster than this node; to move the node to that cluster, run \
             `hostler node invite` on that head, then `hostler agent join` with the code on this machine",
        );
    }
    error
}

/// Explains a handshake error: adds advice if the head rejected this node's certificate. The head's alert arrives after
/// this side's handshake has finished.
fn unaccepted(error: tungstenite::Error) -> anyhow::Error {
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

/// Sends the hello. Returns the head's terms and the time until the certificate's renewal.
async fn introduce(socket: &mut Socket, hello: &AgentHello) -> anyhow::Result<(Terms, Due)> {
    socket.send(Message::binary(hostler_proto::encode(hello))).await?;
    match next_frame(socket).await? {
        None => bail!("the head closed the connection"),
        Some(bytes) => match hostler_proto::decode(&bytes)? {
            HeadHello::Welcome { heartbeat_ms, renew_in_ms, return_within_ms, .. } => {
                let heartbeat = Duration::from_millis(heartbeat_ms);
                let terms = Terms { heartbeat, return_within: Duration::from_millis(return_within_ms) };
                Ok((terms, renew_in_ms.map(Duration::from_millis)))
            }
            HeadHello::Refused { message } => Err(Refused(message).into()),
        },
    }
}

/// Carries messages in both directions until the head closes the link.
async fn carry(
    socket: Socket,
    engine: &Handle,
    mut outgoing: mpsc::UnboundedReceiver<AgentMessage>,
    heartbeat: Duration,
    mut rapl: Option<Rapl>,
) -> anyhow::Result<()> {
    let (mut sink, mut source) = socket.split();
    let start = Instant::now();
    let beat = &Cell::new(Beat::new(heartbeat, Duration::ZERO));
    let send = async move {
        let mut outbox = Outbox::default();
        let mut waiting = Outgoing::default();
        let mut reading = Instant::now() + READING;
        loop {
            tokio::select! {
                message = outgoing.recv() => match message {
                    Some(message) => waiting.add(message, start.elapsed()),
                    None => return anyhow::Ok(()),
                },
                () = until(waiting.due().map(|due| start + due)) => {}
                () = tokio::time::sleep_until(reading), if rapl.is_some() => {
                    reading = Instant::now() + READING;
                    let milliwatts = rapl.as_mut().and_then(|rapl| rapl.milliwatts(std::time::Instant::now()));
                    waiting.add(AgentMessage::Drawing { milliwatts }, start.elapsed());
                }
                () = tokio::time::sleep_until(start + beat.get().next()) => {
                    waiting.add(AgentMessage::Heartbeat, start.elapsed());
                }
            }
            check_awake(&beat.get(), start.elapsed())?;
            while let Ok(message) = outgoing.try_recv() {
                waiting.add(message, start.elapsed());
            }
            if waiting.due().is_some_and(|due| due <= start.elapsed()) {
                for messages in waiting.take() {
                    sink.feed(Message::binary(hostler_proto::encode(&outbox.frame(messages)))).await?;
                }
                sink.flush().await?;
                let mut spoken = beat.get();
                spoken.spoke(start.elapsed());
                beat.set(spoken);
            }
        }
    };
    let receive = async move {
        let mut inbox = Inbox::default();
        while let Some(bytes) = next_frame(&mut source).await? {
            check_awake(&beat.get(), start.elapsed())?;
            let frame: Frame<HeadMessage> = hostler_proto::decode(&bytes)?;
            for message in inbox.accept(frame)? {
                engine.received(message);
            }
        }
        anyhow::Ok(())
    };
    tokio::select! {
        result = send => result,
        result = receive => result,
    }
}

/// Fails if this agent was suspended for more than half a heartbeat. The head may have given up the link meanwhile and
/// started the same jobs elsewhere, so messages that arrive now may be outdated. The link ends, and the next hello
/// reports the current state. The head's own timeout is longer.
fn check_awake(beat: &Beat, now: Duration) -> anyhow::Result<()> {
    match beat.stood_still(now) {
        Some(late) => bail!("this agent was suspended: its heartbeat is {late:.1?} late"),
        None => Ok(()),
    }
}

/// Waits until `at`, or forever if `at` is `None`.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
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

#[cfg(test)]
mod tests {
    use super::random;

    #[test]
    fn random_reconnect_delays_are_spread_evenly() {
        let mut all: Vec<f64> = (0..1_000).map(|_| random()).collect();
        all.sort_by(f64::total_cmp);
        assert!((0.0..1.0).contains(&all[0]) && (0.0..1.0).contains(&all[999]));
        let widest_gap = all.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(widest_gap < 0.05, "they are spread: {widest_gap}");
    }
}

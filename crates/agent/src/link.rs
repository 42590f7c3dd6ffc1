//! The link to the head: dials, introduces the node, and carries messages both ways until the connection breaks; then dials again.
//!
//! Reports of stages that pass quickly are worth little, so they wait a few milliseconds for a later report of the same run to
//! replace them; endings go at once with all that waits.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use hostler_client::{ClientError, ConnectFailure, Stream};
use hostler_core::link::{Inbox, Outbox};
use hostler_model::RunId;
use hostler_proto::link::{AgentHello, AgentMessage, Frame, HeadHello, HeadMessage, MAX_FRAME_BYTES, RunStatus};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::engine::{Handle, Node};
use crate::identity::Identity;
use crate::rapl::{POWERCAP, Rapl};
use crate::renewal::Due;

/// How long the head may take to answer a hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the head hears what the processors measure.
const READING: Duration = Duration::from_secs(60);

/// How long a report of a passing stage waits for a later one.
const REPORT_DELAY: Duration = Duration::from_millis(5);

/// The first and the longest pause between two attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The longest pause after the head has refused this agent: it will not change its mind by itself, but the node may join again.
const REFUSED_PAUSE: Duration = Duration::from_secs(15);

/// What is put in one frame at most, estimated; far enough below [`MAX_FRAME_BYTES`] for the estimate to be rough.
const FRAME_BYTES: usize = MAX_FRAME_BYTES / 4;

/// What is taken off the connection at once; most frames are smaller.
const READ_BYTES: usize = 8 << 10;

type Socket = WebSocketStream<Stream>;

/// Keeps the link up for as long as the agent lives.
pub(crate) async fn keep(engine: Handle, node: &Node, identity: &Identity, renew: watch::Sender<Due>) {
    let mut pause = PAUSES.0;
    let (mut complaint, mut remark) = (String::new(), String::new());
    loop {
        let mut terms = None;
        let mut longest = PAUSES.1;
        match identity.refresh() {
            Ok(true) => {
                tracing::info!("this node has joined again; going on with its new certificate");
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
            // Said once: the same again and again would hide the rest.
            if complaint == text {
                tracing::debug!("no link to the head: {text}");
            } else {
                tracing::warn!("no link to the head, trying again: {text}");
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

/// The head does not want this agent, and says why.
#[derive(Debug, thiserror::Error)]
#[error("the head refuses this agent: {0}")]
struct Refused(String);

/// What the head said when it welcomed this agent.
#[derive(Debug, Clone, Copy)]
struct Terms {
    /// How often it wants to hear of this node.
    heartbeat: Duration,
    /// Within which time to come back should the link break: all the agents of a head notice at the same moment that it is gone.
    return_within: Duration,
}

/// Others each time and in each process: hash maps take their keys from the system's random bytes.
pub(crate) fn random_bits() -> u64 {
    RandomState::new().hash_one(0)
}

/// Somewhere between 0 and 1.
pub(crate) fn random() -> f64 {
    (random_bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// One connection from its beginning to its end.
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
    // Filled with zeroes before every read.
    config.read_buffer_size = READ_BYTES;
    let uri = format!("ws://hostler{}/agent/link", hostler_proto::api::BASE);
    let connecting = tokio_tungstenite::client_async_with_config(uri, stream, Some(config));
    let connected = timeout(HELLO_TIMEOUT, connecting).await.context("the head does not answer")?;
    let (mut socket, _) = connected.map_err(unaccepted)?;

    let (hello, outgoing) = engine.connected(address).await.context("the agent is stopping")?;
    let (welcome, renew_in) =
        timeout(HELLO_TIMEOUT, introduce(&mut socket, &hello)).await.context("the head says nothing")??;
    *terms = Some(welcome);
    renew.send_replace(renew_in);
    tracing::info!(head = %endpoint, "linked to the head");
    node.ask_for_peers(head_address);
    let rapl = if node.has_whole_machine { Rapl::find(Path::new(POWERCAP)) } else { None };
    carry(socket, engine, outgoing, welcome.heartbeat, rapl).await
}

/// A head whose certificate is not of this node's cluster.
fn distrusted(error: ClientError) -> anyhow::Error {
    let is_distrust = matches!(&error, ClientError::Connect { failure: ConnectFailure::NotTrusted, .. });
    let error = anyhow::Error::from(error);
    if is_distrust {
        return error.context(
            "what answers there is not the head of the cluster that this node has joined; to move the node to that cluster, run \
             `hostler node invite` at its head and `hostler agent join` with the code here",
        );
    }
    error
}

/// A head to which the certificate of this node is not of its cluster: it says so once the handshake is over for this side.
fn unaccepted(error: tungstenite::Error) -> anyhow::Error {
    let is_alert = matches!(&error, tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData);
    let error = anyhow::Error::from(error);
    if is_alert {
        return error.context(
            "the head does not accept this node's certificate, which another cluster has issued; run `hostler node invite` at the \
             head and `hostler agent join` with the code here",
        );
    }
    error
}

/// Sends the hello and takes the answer, with the time in which the node's certificate is to be renewed.
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

/// Carries messages both ways; returns when the head closes the link.
async fn carry(
    socket: Socket,
    engine: &Handle,
    mut outgoing: mpsc::UnboundedReceiver<AgentMessage>,
    heartbeat: Duration,
    mut rapl: Option<Rapl>,
) -> anyhow::Result<()> {
    let (mut sink, mut source) = socket.split();
    let beat = &Cell::new(Instant::now() + heartbeat);
    let send = async move {
        let mut outbox = Outbox::default();
        let mut waiting = Waiting::default();
        let mut reading = Instant::now() + READING;
        loop {
            tokio::select! {
                message = outgoing.recv() => match message {
                    Some(message) => waiting.add(message),
                    None => return anyhow::Ok(()),
                },
                () = waiting.due() => {}
                () = tokio::time::sleep_until(reading), if rapl.is_some() => {
                    reading = Instant::now() + READING;
                    let milliwatts = rapl.as_mut().and_then(|rapl| rapl.milliwatts(std::time::Instant::now()));
                    waiting.add(AgentMessage::Drawing { milliwatts });
                }
                () = tokio::time::sleep_until(beat.get()) => waiting.add(AgentMessage::Heartbeat),
            }
            check_awake(beat.get(), heartbeat)?;
            while let Ok(message) = outgoing.try_recv() {
                waiting.add(message);
            }
            if waiting.is_due() {
                for messages in waiting.take() {
                    sink.feed(Message::binary(hostler_proto::encode(&outbox.frame(messages)))).await?;
                }
                sink.flush().await?;
                // Whatever was said shows that the node lives.
                beat.set(Instant::now() + heartbeat);
            }
        }
    };
    let receive = async move {
        let mut inbox = Inbox::default();
        while let Some(bytes) = next_frame(&mut source).await? {
            check_awake(beat.get(), heartbeat)?;
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

/// An agent that stood still finds, when it goes on, what the head had said meanwhile before it gave the link up. Launches among that
/// may run elsewhere by now, so none of it counts: the link ends, and the next hello tells what is so. The head is slower to give up.
fn check_awake(beat: Instant, heartbeat: Duration) -> anyhow::Result<()> {
    let late = Instant::now().saturating_duration_since(beat);
    if late > heartbeat / 2 {
        bail!("this agent stood still: it should have spoken {late:.1?} ago");
    }
    Ok(())
}

/// The next binary message; `None` when the other side has closed.
async fn next_frame<S>(source: &mut S) -> anyhow::Result<Option<Vec<u8>>>
where
    S: StreamExt<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin,
{
    while let Some(message) = source.next().await {
        match message? {
            Message::Binary(bytes) => return Ok(Some(bytes.to_vec())),
            Message::Close(frame) => {
                let reason = frame.map(|frame| frame.reason.to_string()).filter(|reason| !reason.is_empty());
                tracing::info!(reason, "the head has closed the link");
                return Ok(None);
            }
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            Message::Text(_) => bail!("the other side speaks another protocol"),
        }
    }
    Ok(None)
}

/// Messages that wait to be sent, in order; at most one report a run.
#[derive(Default)]
struct Waiting {
    messages: Vec<AgentMessage>,
    reports: HashMap<RunId, usize>,
    due: Option<Instant>,
}

impl Waiting {
    fn add(&mut self, message: AgentMessage) {
        let now = Instant::now();
        let patience = match &message {
            AgentMessage::Report(report) if !matches!(report.status, RunStatus::Ended(_)) => REPORT_DELAY,
            AgentMessage::Report(_)
            | AgentMessage::Heartbeat
            | AgentMessage::Resting { .. }
            | AgentMessage::Drawing { .. } => Duration::ZERO,
        };
        self.due = Some(self.due.map_or(now + patience, |due| due.min(now + patience)));
        let AgentMessage::Report(report) = &message else { return self.messages.push(message) };
        match self.reports.get(&report.run) {
            Some(&at) => self.messages[at] = message,
            None => {
                self.reports.insert(report.run, self.messages.len());
                self.messages.push(message);
            }
        }
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Ends when something is due.
    async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Everything that waits, cut into frames.
    fn take(&mut self) -> Vec<Vec<AgentMessage>> {
        self.reports.clear();
        self.due = None;
        let mut frames = Vec::new();
        let mut frame = Vec::new();
        let mut size = 0;
        for message in self.messages.drain(..) {
            let message_size = size_of_message(&message);
            if size + message_size > FRAME_BYTES && !frame.is_empty() {
                frames.push(std::mem::take(&mut frame));
                size = 0;
            }
            size += message_size;
            frame.push(message);
        }
        if !frame.is_empty() {
            frames.push(frame);
        }
        frames
    }
}

/// Roughly what a message takes on the wire, in bytes.
fn size_of_message(message: &AgentMessage) -> usize {
    const FIXED: usize = 512;
    match message {
        AgentMessage::Report(report) => match &report.status {
            RunStatus::Ended(end) => {
                let inline: usize = end.result.iter().flat_map(|result| &result.inline).map(|blob| blob.len()).sum();
                FIXED + inline + end.message.as_ref().map_or(0, String::len)
            }
            RunStatus::Accepted | RunStatus::Ready { .. } | RunStatus::Running | RunStatus::Completing => FIXED,
        },
        AgentMessage::Heartbeat | AgentMessage::Drawing { .. } => FIXED,
        AgentMessage::Resting { busy, .. } => FIXED + busy.as_ref().map_or(0, String::len),
    }
}

#[cfg(test)]
mod tests {
    use super::random;

    #[test]
    fn agents_come_back_at_moments_of_their_own() {
        let mut all: Vec<f64> = (0..1_000).map(|_| random()).collect();
        all.sort_by(f64::total_cmp);
        assert!((0.0..1.0).contains(&all[0]) && (0.0..1.0).contains(&all[999]));
        let widest_gap = all.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(widest_gap < 0.05, "they are spread: {widest_gap}");
    }
}

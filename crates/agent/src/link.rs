//! The link to the head: dials, introduces the node, and carries messages both ways until the connection breaks; then dials again.
//!
//! Reports of stages that pass quickly are worth little, so they wait a few milliseconds for a later report of the same run to
//! replace them; endings go at once with all that waits.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use hostler_client::Stream;
use hostler_core::link::{Inbox, Outbox};
use hostler_model::RunId;
use hostler_proto::link::{AgentHello, AgentMessage, Frame, HeadHello, HeadMessage, MAX_FRAME_BYTES, RunStatus};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::engine::Handle;
use crate::identity::Identity;

/// How long the head may take to answer a hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a report of a passing stage waits for a later one.
const REPORT_DELAY: Duration = Duration::from_millis(5);

/// The first and the longest pause between two attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What is put in one frame at most, estimated; far enough below [`MAX_FRAME_BYTES`] for the estimate to be rough.
const FRAME_BYTES: usize = MAX_FRAME_BYTES / 4;

/// What is taken off the connection at once; most frames are smaller.
const READ_BYTES: usize = 8 << 10;

type Socket = WebSocketStream<Stream>;

/// Keeps the link up for as long as the agent lives.
pub(crate) async fn keep(engine: Handle, identity: &Identity) {
    let mut pause = PAUSES.0;
    let mut complained = false;
    loop {
        let began = Instant::now();
        match connect_once(&engine, identity, &mut complained).await {
            Ok(()) => tracing::info!("the head closed the link"),
            Err(error) if complained => tracing::debug!("no link to the head: {error:#}"),
            Err(error) => {
                complained = true;
                tracing::warn!("no link to the head, trying again: {error:#}");
            }
        }
        engine.disconnected();
        if began.elapsed() > PAUSES.1 {
            pause = PAUSES.0;
        }
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Between half of `pause` and all of it, so that a thousand agents do not return in step.
fn jittered(pause: Duration) -> Duration {
    let noise = Instant::now().elapsed().subsec_nanos() ^ std::process::id().wrapping_mul(2_654_435_761);
    pause.mul_f64(0.5 + f64::from(noise % 512) / 1024.0)
}

/// One connection from its beginning to its end.
async fn connect_once(engine: &Handle, identity: &Identity, complained: &mut bool) -> anyhow::Result<()> {
    let endpoint = identity.endpoint()?;
    let stream = endpoint.connect().await?;
    let address = stream.local_address();
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(MAX_FRAME_BYTES);
    config.max_frame_size = Some(MAX_FRAME_BYTES);
    // Filled with zeroes before every read.
    config.read_buffer_size = READ_BYTES;
    let uri = format!("ws://hostler{}/agent/link", hostler_proto::api::BASE);
    let connecting = tokio_tungstenite::client_async_with_config(uri, stream, Some(config));
    let (mut socket, _) = timeout(HELLO_TIMEOUT, connecting).await.context("the head does not answer")??;

    let (hello, outgoing) = engine.connected(address).await.context("the agent is stopping")?;
    let heartbeat = timeout(HELLO_TIMEOUT, introduce(&mut socket, &hello)).await.context("the head says nothing")??;
    *complained = false;
    tracing::info!(head = %endpoint, "linked to the head");
    carry(socket, engine, outgoing, heartbeat).await
}

/// Sends the hello and takes the answer: how often the head wants to hear of this node.
async fn introduce(socket: &mut Socket, hello: &AgentHello) -> anyhow::Result<Duration> {
    socket.send(Message::binary(hostler_proto::encode(hello))).await?;
    match next_frame(socket).await? {
        None => bail!("the head closed the connection"),
        Some(bytes) => match hostler_proto::decode(&bytes)? {
            HeadHello::Welcome { heartbeat_ms, .. } => Ok(Duration::from_millis(heartbeat_ms)),
            HeadHello::Refused { message } => bail!("the head refuses this agent: {message}"),
        },
    }
}

/// Carries messages both ways; returns when the head closes the link.
async fn carry(
    socket: Socket,
    engine: &Handle,
    mut outgoing: mpsc::UnboundedReceiver<AgentMessage>,
    heartbeat: Duration,
) -> anyhow::Result<()> {
    let (mut sink, mut source) = socket.split();
    let beat = &Cell::new(Instant::now() + heartbeat);
    let send = async move {
        let mut outbox = Outbox::default();
        let mut waiting = Waiting::default();
        loop {
            tokio::select! {
                message = outgoing.recv() => match message {
                    Some(message) => waiting.add(message),
                    None => return anyhow::Ok(()),
                },
                () = waiting.due() => {}
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
            Message::Close(_) => return Ok(None),
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
            AgentMessage::Report(_) | AgentMessage::Heartbeat => Duration::ZERO,
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
        AgentMessage::Heartbeat => FIXED,
    }
}

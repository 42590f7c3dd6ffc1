//! The head's side of the agent link: one WebSocket per agent, opened by the agent.
//!
//! Incoming messages become commands, in order. They wait only for space in the engine's queue, because an agent
//! repeats unanswered messages. Outgoing messages come from the engine and are packed into frames. Small results are
//! part of the report. The link checks them, and the engine stores them in the same transaction as the end of the run.
//!
//! A link ends when the agent closes it, violates the protocol or is silent (the engine then drops the sender), or when
//! the head stops.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hostler_core::head::{Command, ConnectionId};
use hostler_core::link::{HELLO_TIMEOUT, HeadLink, Inline, Outbox, Step};
use hostler_model::{Digest, Ending, JobState, NodeName, RunId};
use hostler_proto::link::{
    AgentHello, AgentMessage, Fate, HeadHello, HeadMessage, Launch, RunEnd, RunReport, RunStatus,
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use crate::blobs::name_of;
use crate::engine::{EngineError, Outgoing};
use crate::environments::EnvironmentError;
use crate::head::Head;
use crate::trust::Bearer;

/// Timeout for sending one frame to an agent that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of messages per frame, regardless of their size.
const FRAME_LEN: usize = 1024;

/// Maximum length of the reason in a WebSocket close frame, in bytes.
const MAX_REASON_BYTES: usize = 123;

/// Serves one agent until the link ends.
pub(crate) async fn serve(head: Arc<Head>, bearer: Bearer, connection: ConnectionId, socket: WebSocket) {
    let Bearer { node, key } = bearer;
    let outcome = Link { head: &head, node: &node, key, connection }.serve(socket).await;
    head.engine.unregister(connection);
    head.engine.post(Command::ConnectionEnded { connection }, Vec::new()).await;
    match outcome {
        Ok(()) => tracing::info!(%node, "link ended"),
        Err(error) => tracing::info!(%node, "link broken: {error:#}"),
    }
}

/// One connection of an agent.
struct Link<'a> {
    head: &'a Arc<Head>,
    node: &'a NodeName,
    /// Fingerprint of the key in the agent's certificate.
    key: Digest,
    connection: ConnectionId,
}

impl Link<'_> {
    async fn serve(&self, socket: WebSocket) -> anyhow::Result<()> {
        let (mut sink, mut source) = socket.split();
        let hello = timeout(HELLO_TIMEOUT, next_frame(&mut source)).await.context("no hello from the agent")??;
        let Some(hello) = hello else { return Ok(()) };
        let hello: AgentHello = hostler_proto::decode(&hello)?;
        let (pid, version, runs) = (hello.pid, hello.version.clone(), hello.runs.len());
        let is_over = |report: &&RunReport| matches!(report.status, RunStatus::Ended(_));
        let live: Vec<RunId> = hello.runs.iter().filter(|it| !is_over(it)).map(|report| report.run).collect();
        let mut link = match HeadLink::new(self.connection, self.node, self.key, hello) {
            Ok(link) => link,
            Err(message) => {
                send(&mut sink, &HeadHello::Refused { message: message.clone() }).await?;
                bail!("refused: {message}");
            }
        };
        tracing::info!(node = %self.node, pid, version, runs, "agent linked");
        let outgoing = self.head.engine.register(self.connection);
        self.work(&mut link).await?;
        let (command, blobs) = link.introduction().expect("a new link has a hello");
        if let Err(error) = self.head.engine.command_with_blobs(command, blobs).await {
            if let EngineError::Refused(refusal) = &error {
                send(&mut sink, &HeadHello::Refused { message: refusal.to_string() }).await?;
            }
            return Err(error).context("the agent was not accepted");
        }
        for run in live.into_iter().filter(|run| self.head.engine.state().active(*run).is_none()) {
            let state = self.head.engine.state();
            let is_kept = state.node(self.node).is_some_and(|it| it.drain.is_some() && it.unknown_runs.contains(&run));
            drop(state);
            let does =
                if is_kept { "goes on, and the node gets no other jobs until it is resumed" } else { "ends there" };
            tracing::warn!(node = %self.node, %run, "a node has a run that this head does not know or has given up; it {does}");
            let what = format!("node {} has run {run}, which the head does not know or has given up", self.node);
            self.head.engine.happened(Some(self.node.clone()), what, Some(format!("it {does}")));
        }
        let welcome = link.welcome(&self.head.engine.state(), self.head.engine.now().at);
        send(&mut sink, &welcome).await?;
        tokio::select! {
            outcome = self.send_messages(sink, outgoing) => outcome,
            outcome = self.receive_messages(source, link) => outcome,
        }
    }

    /// Passes messages to the engine until the agent closes the link.
    async fn receive_messages(&self, mut source: Source, mut link: HeadLink) -> anyhow::Result<()> {
        loop {
            self.work(&mut link).await?;
            let Some(bytes) = next_frame(&mut source).await? else { return Ok(()) };
            link.receive(hostler_proto::decode(&bytes)?)?;
        }
    }

    /// Carries out the steps of the link until it waits for the agent or the engine.
    async fn work(&self, link: &mut HeadLink) -> anyhow::Result<()> {
        while let Some(step) = link.next_step() {
            match step {
                Step::Check(mut check) => {
                    let inline = std::mem::take(&mut check.inline);
                    let blobs: Inline = inline.into_iter().map(|blob| (name_of(&blob), blob)).collect();
                    let size = self.complete_size(check.manifest, &blobs).await?;
                    self.head.library.room().came(size.unwrap_or_default());
                    link.checked(check, size.map(|_| blobs));
                }
                Step::Post(command, blobs) => self.head.engine.post(command, blobs).await,
                Step::Resend(run) => {
                    let node = self.node;
                    tracing::info!(%node, %run, "the result of a run is incomplete; asking the agent to send it again");
                    // If the connection is ending, the next hello has the same effect.
                    self.head.engine.send(self.connection, HeadMessage::Resend { run });
                }
            }
        }
        Ok(())
    }

    /// The size of a result, if it is complete on the head.
    async fn complete_size(&self, manifest: Digest, inline: &Inline) -> anyhow::Result<Option<u64>> {
        let library = Arc::clone(&self.head.library);
        library.expect(inline);
        // Everything is in memory, so the disk is not needed.
        if let Some(bytes) = crate::blobs::inline_size(&manifest, inline) {
            return Ok(Some(bytes));
        }
        let inline = inline.clone();
        let outcome = tokio::task::spawn_blocking(move || library.complete_size(&manifest, &inline)).await?;
        outcome.context("cannot check whether a result is complete")
    }

    /// Sends the engine's messages to the agent until the engine closes the link or the head stops.
    async fn send_messages(&self, mut sink: Sink, mut outgoing: UnboundedReceiver<Outgoing>) -> anyhow::Result<()> {
        let mut outbox = Outbox::default();
        let mut messages = Vec::with_capacity(FRAME_LEN);
        loop {
            let count = tokio::select! {
                biased;
                count = outgoing.recv_many(&mut messages, FRAME_LEN) => count,
                () = self.head.stop.cancelled() => 0,
            };
            let mut last_word = (count == 0).then(|| "the head is stopping".to_owned());
            let mut said = Vec::with_capacity(messages.len());
            for outgoing in messages.drain(..) {
                match outgoing {
                    Outgoing::Send(HeadMessage::Launch(launch)) => said.extend(self.with_environment(launch).await?),
                    Outgoing::Send(message) => said.push(message),
                    Outgoing::Close(reason) => last_word = Some(reason),
                }
            }
            for frame in outbox.frames(said) {
                send(&mut sink, &frame).await?;
            }
            if let Some(reason) = last_word {
                tracing::info!(node = %self.node, reason, "closing the link");
                // Both sides know that the link is over, so errors do not matter.
                let _ = timeout(SEND_TIMEOUT, close_with_reason(&mut sink, &reason)).await;
                return Ok(());
            }
        }
    }

    /// Adds the environment to a launch. If the environment is lost, returns `None` and ends the launch's runs as
    /// failed.
    async fn with_environment(&self, mut launch: Launch) -> anyhow::Result<Option<HeadMessage>> {
        let mut filled = self.head.environments.fill_at_once(&mut launch);
        if let Ok(false) = filled {
            let head = Arc::clone(self.head);
            let fill = move || {
                let filled = head.environments.fill(&mut launch).map(|()| true);
                (launch, filled)
            };
            (launch, filled) = tokio::task::spawn_blocking(fill).await?;
        }
        let Err(error) = filled else { return Ok(Some(HeadMessage::Launch(launch))) };
        if let EnvironmentError::Store(error) = error {
            // The agent reconnects, and the head then sends the missing launches again.
            return Err(error).context("cannot read the environment of a job");
        }
        tracing::error!(job = %launch.job.id, %error, "cannot launch a job");
        for placement in launch.runs {
            let fate = Fate::Ended(Ending { state: JobState::Failed, exit_code: None });
            let end = RunEnd::without_result(fate, Some(error.to_string()));
            let message = AgentMessage::Report(RunReport { run: placement.run, status: RunStatus::Ended(end) });
            let command = Command::Message { connection: self.connection, message, result_is_complete: true };
            self.head.engine.post(command, Vec::new()).await;
        }
        Ok(None)
    }
}

type Sink = SplitSink<WebSocket, Message>;
type Source = SplitStream<WebSocket>;

/// Closes the connection with a reason, truncated to 123 bytes.
async fn close_with_reason(sink: &mut Sink, reason: &str) -> Result<(), axum::Error> {
    let reason = &reason[..reason.floor_char_boundary(MAX_REASON_BYTES)];
    sink.send(Message::Close(Some(CloseFrame { code: close_code::NORMAL, reason: reason.into() }))).await?;
    sink.close().await
}

async fn send<T: serde::Serialize>(sink: &mut Sink, value: &T) -> anyhow::Result<()> {
    let message = Message::Binary(hostler_proto::encode(value).into());
    timeout(SEND_TIMEOUT, sink.send(message)).await.context("the agent does not read")?.context("cannot send")
}

/// The next binary message. `None` when the agent has closed the link.
async fn next_frame(source: &mut Source) -> anyhow::Result<Option<bytes::Bytes>> {
    while let Some(message) = source.next().await {
        match message? {
            Message::Binary(bytes) => return Ok(Some(bytes)),
            Message::Close(_) => return Ok(None),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Text(_) => bail!("protocol violation: received a text message instead of a binary frame"),
        }
    }
    Ok(None)
}

//! The head's side of the agent link: one WebSocket per agent, opened by the agent.
//!
//! Incoming messages become commands, in order. They wait only for space in the engine's queue, because an agent
//! repeats unanswered messages. Outgoing messages come from the engine and are packed into frames. Small results are
//! part of the report. The link checks them, and the engine stores them in the same transaction as the end of the run.
//!
//! A link ends when the agent closes it, violates the protocol or is silent (the engine then drops the sender), or when
//! the head stops.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hostler_core::head::{Command, ConnectionId};
use hostler_core::link::{Inbox, Outbox, cut};
use hostler_model::{Digest, Ending, JobState, NodeName, RunId};
use hostler_proto::link::{
    AgentHello, AgentMessage, Fate, Frame, HeadHello, HeadMessage, Launch, PROTOCOL, RunEnd, RunReport, RunStatus,
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use crate::blobs::name_of;
use crate::engine::{EngineError, Outgoing};
use crate::environments::EnvironmentError;
use crate::head::Head;
use crate::trust::Bearer;

const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for sending one frame to an agent that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of messages per frame, regardless of their size.
const FRAME_LEN: usize = 1024;

/// Maximum length of the reason in a WebSocket close frame, in bytes.
const MAX_REASON_BYTES: usize = 123;

/// After the loss of all links, agents reconnect within this time per node, in milliseconds. A TLS handshake takes one
/// or two milliseconds of CPU time.
const RETURN_MS_PER_NODE: u64 = 3;

/// Maximum time for all agents to reconnect. It is short enough that no node counts as silent.
const LONGEST_RETURN_MS: u64 = 5_000;

/// The blobs inside a report, by digest.
type Inline = Vec<(Digest, Vec<u8>)>;

/// Serves one agent until the link ends.
pub(crate) async fn serve(head: Arc<Head>, bearer: Bearer, socket: WebSocket) {
    let connection = head.connection();
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
        let protocol = match agree(&hello, self.node) {
            Ok(protocol) => protocol,
            Err(message) => {
                send(&mut sink, &HeadHello::Refused { message: message.clone() }).await?;
                bail!("refused: {message}");
            }
        };
        let outgoing = self.head.engine.register(self.connection);
        self.welcome(&mut sink, hello, protocol).await?;
        tokio::select! {
            outcome = self.carry_out(sink, outgoing) => outcome,
            outcome = self.carry_in(source) => outcome,
        }
    }

    /// Reports the agent to the engine, and sends the agent a welcome message before any message of the engine.
    async fn welcome(&self, sink: &mut Sink, hello: AgentHello, protocol: u16) -> anyhow::Result<()> {
        tracing::info!(node = %self.node, pid = hello.pid, version = %hello.version, runs = hello.runs.len(), "agent linked");
        let mut complete = BTreeSet::new();
        let mut incomplete = Vec::new();
        let mut blobs = Vec::new();
        let mut came = 0;
        let mut hello = hello;
        for report in &mut hello.runs {
            let Some((manifest, inline)) = take_result(report)? else { continue };
            if let Some(bytes) = self.complete_size(manifest, &inline).await? {
                came += bytes;
                complete.insert(report.run);
                blobs.extend(inline);
            } else {
                incomplete.push(report.run);
            }
        }
        let command = Command::Hello { connection: self.connection, key: self.key, hello: Box::new(hello), complete };
        if let Err(error) = self.head.engine.command_with_blobs(command, blobs).await {
            if let EngineError::Refused(refusal) = &error {
                send(sink, &HeadHello::Refused { message: refusal.to_string() }).await?;
            }
            return Err(error).context("the agent was not accepted");
        }
        self.head.library.room().came(came);
        let now = self.head.engine.now();
        let welcome = {
            let state = self.head.engine.state();
            HeadHello::Welcome {
                protocol,
                epoch: state.epoch,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                heartbeat_ms: state.settings.heartbeat_ms,
                renew_in_ms: state.renew_in_ms(self.node, self.key, now.at),
                return_within_ms: (state.nodes().count() as u64 * RETURN_MS_PER_NODE).min(LONGEST_RETURN_MS),
            }
        };
        send(sink, &welcome).await?;
        incomplete.into_iter().for_each(|run| self.ask_again(run));
        Ok(())
    }

    /// Passes messages to the engine until the agent closes the link.
    async fn carry_in(&self, mut source: Source) -> anyhow::Result<()> {
        let mut inbox = Inbox::default();
        while let Some(bytes) = next_frame(&mut source).await? {
            let frame: Frame<AgentMessage> = hostler_proto::decode(&bytes)?;
            for message in inbox.accept(frame)? {
                self.take(message).await?;
            }
        }
        Ok(())
    }

    async fn take(&self, message: AgentMessage) -> anyhow::Result<()> {
        let AgentMessage::Report(mut report) = message else { return self.post(message, true, Vec::new()).await };
        let Some((manifest, inline)) = take_result(&mut report)? else {
            return self.post(AgentMessage::Report(report), true, Vec::new()).await;
        };
        let run = report.run;
        if let Some(bytes) = self.complete_size(manifest, &inline).await? {
            self.post(AgentMessage::Report(report), true, inline).await?;
            self.head.library.room().came(bytes);
            Ok(())
        } else {
            // The end of the run is not recorded without its result. The message still counts as a heartbeat.
            self.ask_again(run);
            self.post(AgentMessage::Heartbeat, true, Vec::new()).await
        }
    }

    async fn post(&self, message: AgentMessage, result_is_complete: bool, blobs: Inline) -> anyhow::Result<()> {
        let command = Command::Message { connection: self.connection, message, result_is_complete };
        self.head.engine.post(command, blobs).await;
        Ok(())
    }

    fn ask_again(&self, run: RunId) {
        tracing::info!(node = %self.node, %run, "the result of a run is incomplete; asking the agent to send it again");
        // If the connection is ending, the answer to the agent's next hello has the same effect.
        self.head.engine.send(self.connection, HeadMessage::Resend { run });
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
    async fn carry_out(&self, mut sink: Sink, mut outgoing: UnboundedReceiver<Outgoing>) -> anyhow::Result<()> {
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
                    Outgoing::Say(HeadMessage::Launch(launch)) => said.extend(self.with_environment(launch).await?),
                    Outgoing::Say(message) => said.push(message),
                    Outgoing::Close(reason) => last_word = Some(reason),
                }
            }
            for batch in cut(said, size_of_message) {
                send(&mut sink, &outbox.frame(batch)).await?;
            }
            if let Some(reason) = last_word {
                tracing::info!(node = %self.node, reason, "closing the link");
                // Both sides know that the link is over, so errors do not matter.
                let _ = timeout(SEND_TIMEOUT, close_with_reason(&mut sink, &reason)).await;
                return Ok(());
            }
        }
    }

    /// Adds the environment to a launch. If the environment is lost, returns `None` and ends its runs as failed.
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
            let report = RunReport { run: placement.run, status: RunStatus::Ended(end) };
            self.post(AgentMessage::Report(report), true, Vec::new()).await?;
        }
        Ok(None)
    }
}

type Sink = SplitSink<WebSocket, Message>;
type Source = SplitStream<WebSocket>;

/// The protocol version to use, or the reason for rejecting the agent.
fn agree(hello: &AgentHello, certified: &NodeName) -> Result<u16, String> {
    if hello.node != *certified {
        return Err(format!(
            "the agent's name is {}, but its certificate is for node {certified}; create a new join code for the node",
            hello.node
        ));
    }
    let newest = hello.protocol_max.min(*PROTOCOL.end());
    if newest >= hello.protocol_min.max(*PROTOCOL.start()) {
        return Ok(newest);
    }
    let (older, place) = if hello.protocol_max < *PROTOCOL.start() { ("agent", "node") } else { ("head", "head") };
    Err(format!(
        "agent {} speaks versions {} to {} of the link protocol, head {} speaks {} to {}; upgrade the {older}: install the newer \
         hostler on the {place}",
        hello.version,
        hello.protocol_min,
        hello.protocol_max,
        env!("CARGO_PKG_VERSION"),
        PROTOCOL.start(),
        PROTOCOL.end(),
    ))
}

/// Takes the blobs out of the report of a run with a result. Returns the manifest's digest, and the blobs with their
/// computed digests.
fn take_result(report: &mut RunReport) -> anyhow::Result<Option<(Digest, Inline)>> {
    let RunStatus::Ended(end) = &mut report.status else { return Ok(None) };
    let Some(result) = &mut end.result else { return Ok(None) };
    let blobs = std::mem::take(&mut result.inline).into_iter().map(|blob| {
        let blob = blob.into_vec();
        (name_of(&blob), blob)
    });
    Ok(Some((result.manifest, blobs.collect())))
}

/// Approximate encoded size of a message in bytes. Only launches and account lists can be large.
fn size_of_message(message: &HeadMessage) -> usize {
    const FIXED: usize = 256;
    match message {
        HeadMessage::Launch(launch) => hostler_proto::encode(launch).len(),
        // A name has at most 32 bytes.
        HeadMessage::Accounts { accounts, blocked, guarded } => {
            FIXED + 64 * (accounts.len() + blocked.len()) + 5 * guarded.len()
        }
        HeadMessage::End { .. }
        | HeadMessage::Begin { .. }
        | HeadMessage::Forget { .. }
        | HeadMessage::Resend { .. }
        | HeadMessage::Stream(_)
        | HeadMessage::PeersChanged
        | HeadMessage::Rest { .. }
        | HeadMessage::Rise
        | HeadMessage::PowerOff
        | HeadMessage::WakeUp { .. }
        | HeadMessage::Shutdown => FIXED,
    }
}

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

#[cfg(test)]
mod tests {
    use hostler_model::{Attempt, Epoch, JobId, NodeFacts, TaskId};
    use hostler_proto::link::MAX_FRAME_BYTES;

    use super::*;

    fn hello(node: &str, min: u16, max: u16) -> AgentHello {
        let node = node.parse().expect("a valid name");
        let hello = AgentHello::new(node, 1, NodeFacts::default(), Vec::new());
        AgentHello { protocol_min: min, protocol_max: max, version: "9.9.9".to_owned(), ..hello }
    }

    #[test]
    fn link_needs_overlapping_versions_and_matching_node_name() {
        let node: NodeName = "a".parse().expect("a valid name");
        assert_eq!(agree(&hello("a", 1, 7), &node), Ok(2));
        let newer = agree(&hello("a", 5, 7), &node).expect_err("no overlap");
        assert!(newer.contains("5 to 7") && newer.contains("upgrade the head"), "{newer}");
        let older = agree(&hello("a", 0, 0), &node).expect_err("no overlap");
        assert!(older.contains("upgrade the agent"), "{older}");
        let other = agree(&hello("b", 2, 2), &node).expect_err("another node");
        assert!(other.contains("name is b") && other.contains("node a"), "{other}");
    }

    #[test]
    fn agent_of_previous_version_is_told_to_upgrade() {
        let resources = serde_json::json!({ "cpus": "0-1", "memory_bytes": 1 });
        let before = serde_json::json!({
            "protocol_min": 1, "protocol_max": 1, "version": "0.1.0", "node": "a", "boot": "boot", "pid": 1,
            "resources": resources, "advisory": { "cpus": null, "memory": null }, "runs": [],
        });
        let hello: AgentHello =
            hostler_proto::decode(&hostler_proto::encode(&before)).expect("the hello can be decoded");
        let refusal = agree(&hello, &hello.node.clone()).expect_err("the agent supports only version 1");
        assert!(refusal.contains("upgrade the agent"), "{refusal}");
    }

    #[test]
    fn large_batches_are_split_in_order() {
        let run = |index| RunId { task: TaskId { job: JobId(1), index }, attempt: Attempt(1), epoch: Epoch(1) };
        let messages: Vec<HeadMessage> = (0..20_000).map(|index| HeadMessage::Forget { run: run(index) }).collect();
        let batches = cut(messages.clone(), size_of_message);
        assert!(batches.len() > 1);
        for batch in &batches {
            assert!(hostler_proto::encode(&Frame { sequence: 1, messages: batch.clone() }).len() < MAX_FRAME_BYTES);
        }
        assert_eq!(batches.concat(), messages);
    }
}

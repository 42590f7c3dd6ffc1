//! The head's side of the agent link. Mirrors the daemon's link. A hello becomes a command; the answer opens the link.
//! Reports become commands in order. If a result is incomplete, the head requests the report again.

use std::collections::{BTreeSet, VecDeque};

use hostler_core::head::{Answer, Command, ConnectionId};
use hostler_core::link::{Inbox, Outbox};
use hostler_model::{Digest, NodeName, RunId};
use hostler_proto::link::{AgentMessage, Frame, HeadMessage, RunReport, RunStatus};
use hostler_store::Records;

use super::Rule;
use super::disk::content;
use super::head::brief::brief_order;
use super::head::{HeadStep, Input, ReplyTo};
use super::network::{End, HelloPacket, Packet};
use super::world::{MS, World};

/// A connection, as the head sees it.
pub(super) struct Link {
    /// The network connection of this link.
    pub(super) network: u64,
    is_open: bool,
    /// The hello of its agent.
    introduction: Option<(NodeName, Vec<RunId>)>,
    /// Results to request again once the link is open.
    incomplete: Vec<RunId>,
    pub(super) outgoing: Vec<HeadMessage>,
    outbox: Outbox,
    inbox: Inbox,
    /// Queued frames and messages.
    frames: VecDeque<Frame<AgentMessage>>,
    messages: VecDeque<AgentMessage>,
    /// The first message waits for a check of the disk.
    is_checking: bool,
}

/// The blobs of a report, by digest.
type Inline = Vec<(Digest, Vec<u8>)>;

impl World {
    /// Handles a packet from an agent.
    pub(super) fn head_receives(&mut self, network: u64, packet: Packet) {
        let Some(process) = self.head.process.as_mut() else { return };
        if let Packet::Hello(hello) = packet {
            process.connections += 1;
            let connection = ConnectionId(process.connections);
            let link = Link {
                network,
                is_open: false,
                introduction: None,
                incomplete: Vec::new(),
                outgoing: Vec::new(),
                outbox: Outbox::default(),
                inbox: Inbox::default(),
                frames: VecDeque::new(),
                messages: VecDeque::new(),
                is_checking: false,
            };
            process.links.insert(connection, link);
            let delay = self.rng.below(2 * MS);
            return self.head_later(delay, HeadStep::Greet { connection, hello });
        }
        let Some((&connection, link)) = process.links.iter_mut().find(|(_, link)| link.network == network) else {
            return;
        };
        if let Packet::FromAgent(frame) = packet {
            link.frames.push_back(frame);
            self.read_link(connection);
        }
    }

    /// Passes an agent's hello to the loop.
    pub(super) fn greet(&mut self, connection: ConnectionId, hello: HelloPacket) {
        let HelloPacket(mut hello) = hello;
        let (mut complete, mut incomplete, mut blobs) = (BTreeSet::new(), Vec::new(), Vec::new());
        for report in &mut hello.runs {
            if self.breaks(Rule::ReportsNameTheirRun) {
                self.mistake_run(report);
            }
            let Some((manifest, inline)) = take_result(report) else { continue };
            if self.is_complete(&manifest, &inline) {
                complete.insert(report.run);
                blobs.extend(inline);
            } else {
                self.note(format_args!("the result of {} in a hello is incomplete on the head", report.run));
                incomplete.push(report.run);
            }
        }
        let process = self.head.process.as_mut().expect("only a running head executes steps");
        let Some(link) = process.links.get_mut(&connection) else { return };
        link.incomplete = incomplete;
        link.introduction = Some((hello.node.clone(), hello.runs.iter().map(|report| report.run).collect()));
        let key = self.rejoin_if_removed(&hello.node);
        let command = Command::Hello { connection, key, hello: Box::new(hello), complete };
        self.input(Input { blobs, reply: Some(ReplyTo::Hello(connection)), ..Input::of(command) });
    }

    /// Handles the loop's answer to a hello.
    pub(super) fn welcome(&mut self, connection: ConnectionId, answer: &Answer) {
        let heartbeat_ms = self.settings.heartbeat_ms;
        let Some(process) = self.head.process.as_mut() else { return };
        let Some(link) = process.links.get_mut(&connection) else { return };
        if answer.is_err() {
            return self.close_link(connection, "the hello cannot be stored");
        }
        link.is_open = true;
        if let Some((node, holds)) = link.introduction.take() {
            self.books.see_hello(&node, &holds);
        }
        let network = link.network;
        let again = std::mem::take(&mut link.incomplete);
        link.outgoing.extend(again.into_iter().map(|run| HeadMessage::Resend { run }));
        self.transmit(network, End::Agent, Packet::Welcome { heartbeat_ms });
        self.flush_link(connection);
        self.read_link(connection);
    }

    /// Handles the messages of an open link, up to the first that needs a check of the disk.
    fn read_link(&mut self, connection: ConnectionId) {
        let ignores_gaps = self.breaks(Rule::GapsEndConnections);
        loop {
            let process = self.head.process.as_mut().expect("only a running head reads messages");
            let Some(link) = process.links.get_mut(&connection) else { return };
            if !link.is_open || link.is_checking {
                return;
            }
            if let Some(message) = link.messages.pop_front() {
                self.take_message(connection, message);
                continue;
            }
            let Some(frame) = link.frames.pop_front() else { return };
            if ignores_gaps {
                link.messages.extend(frame.messages);
                continue;
            }
            match link.inbox.accept(frame) {
                Ok(messages) => link.messages.extend(messages),
                Err(gap) => return self.close_link(connection, &gap.to_string()),
            }
        }
    }

    fn take_message(&mut self, connection: ConnectionId, message: AgentMessage) {
        if let AgentMessage::Report(report) = &message
            && let RunStatus::Ended(end) = &report.status
            && let Some(result) = &end.result
            && result.inline.is_empty()
        {
            let delay = self.rng.below(3 * MS);
            let process = self.head.process.as_mut().expect("only a running head reads messages");
            let link = process.links.get_mut(&connection).expect("a link exists while its messages are read");
            link.is_checking = true;
            link.messages.push_front(message);
            return self.head_later(delay, HeadStep::Checked { connection });
        }
        self.take_report(connection, message);
    }

    /// Continues a link after the disk check for its first message.
    pub(super) fn checked(&mut self, connection: ConnectionId) {
        let process = self.head.process.as_mut().expect("only a running head executes steps");
        let Some(link) = process.links.get_mut(&connection) else { return };
        link.is_checking = false;
        if let Some(message) = link.messages.pop_front() {
            self.take_report(connection, message);
        }
        self.read_link(connection);
    }

    fn take_report(&mut self, connection: ConnectionId, message: AgentMessage) {
        let AgentMessage::Report(mut report) = message else {
            return self.post(connection, message, Vec::new());
        };
        if self.breaks(Rule::ReportsNameTheirRun) {
            self.mistake_run(&mut report);
        }
        let Some((manifest, inline)) = take_result(&mut report) else {
            return self.post(connection, AgentMessage::Report(report), Vec::new());
        };
        if self.is_complete(&manifest, &inline) {
            return self.post(connection, AgentMessage::Report(report), inline);
        }
        self.note(format_args!("the result of {} is incomplete on the head", report.run));
        let process = self.head.process.as_mut().expect("only a running head reads messages");
        if let Some(link) = process.links.get_mut(&connection) {
            link.outgoing.push(HeadMessage::Resend { run: report.run });
        }
        self.flush_link(connection);
        self.post(connection, AgentMessage::Heartbeat, Vec::new());
    }

    /// Breaks [`Rule::ReportsNameTheirRun`](super::Rule): replaces the run in a report by the current run of the task.
    fn mistake_run(&self, report: &mut RunReport) {
        let process = self.head.process.as_ref().expect("only a running head reads messages");
        let task = report.run.task;
        let active = process.state.job(task.job).and_then(|job| job.active.get(&task.index));
        report.run = active.map_or(report.run, |active| active.run);
    }

    fn post(&mut self, connection: ConnectionId, message: AgentMessage, blobs: Inline) {
        let command = Command::Message { connection, message, result_is_complete: true };
        self.input(Input { blobs, ..Input::of(command) });
    }

    fn is_complete(&mut self, manifest: &Digest, inline: &Inline) -> bool {
        self.breaks(Rule::CompleteResults) || self.head.disk.is_complete(manifest, inline, self.now_us)
    }

    /// Sends the queued messages of an open link, divided into frames.
    pub(super) fn flush_link(&mut self, connection: ConnectionId) {
        let most = self.rng.range(1, 6) as usize;
        let process = self.head.process.as_mut().expect("only a running head sends messages");
        let Some(link) = process.links.get_mut(&connection).filter(|link| link.is_open) else { return };
        let messages = std::mem::take(&mut link.outgoing);
        for message in &messages {
            let HeadMessage::Launch(launch) = message else { continue };
            let store = &self.head.disk.store;
            let is_kept = |digest| store.environment(&digest).is_ok_and(|bytes| bytes.is_some());
            let is_there = launch.environment.is_none_or(is_kept);
            self.books.expect(is_there, || format!("job {} is launched and its environment is gone", launch.job.id));
        }
        let network = link.network;
        for message in &messages {
            self.trace
                .tell(self.now_us, || Some(format!("the head says on connection {network}: {}", brief_order(message))));
        }
        let frames: Vec<Frame<HeadMessage>> =
            messages.chunks(most).map(|messages| link.outbox.frame(messages.to_vec())).collect();
        for frame in frames {
            self.transmit(network, End::Agent, Packet::FromHead(frame));
        }
    }

    /// Ends a link; the loop learns of it after all earlier messages of the link.
    pub(super) fn close_link(&mut self, connection: ConnectionId, why: &str) {
        let process = self.head.process.as_mut().expect("only a running head closes links");
        let Some(link) = process.links.remove(&connection) else { return };
        self.note(format_args!("the head ends connection {}: {why}", link.network));
        self.close_end(link.network, End::Head);
        self.input(Input::of(Command::ConnectionEnded { connection }));
    }

    /// Handles a connection that the head finds broken.
    pub(super) fn head_finds_broken(&mut self, network: u64) {
        let Some(process) = self.head.process.as_ref() else { return };
        let found = process.links.iter().find(|(_, link)| link.network == network).map(|(connection, _)| *connection);
        if let Some(connection) = found {
            self.close_link(connection, "the connection is broken");
        }
    }
}

/// Takes the blobs out of a report with a result.
fn take_result(report: &mut RunReport) -> Option<(Digest, Inline)> {
    let RunStatus::Ended(end) = &mut report.status else { return None };
    let result = end.result.as_mut()?;
    let blobs = std::mem::take(&mut result.inline).into_iter().map(|blob| {
        let blob = blob.into_vec();
        (content::name_of(&blob), blob)
    });
    Some((result.manifest, blobs.collect()))
}

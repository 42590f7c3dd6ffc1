//! The agent's side of the link: connects, introduces the node, exchanges messages, and reconnects. Mirrors the
//! daemon's link.

use std::time::Duration;

use hostler_core::agent::Event;
use hostler_core::link::{Beat, Inbox, Outbox, Outgoing};
use hostler_model::NodeFacts;
use hostler_proto::link::{AgentHello, AgentMessage, Frame};

use super::Rule;
use super::agent::{Agent, AgentStep};
use super::head::brief::brief_report;
use super::network::{End, HelloPacket, Packet};
use super::world::{MS, SECOND, World};

/// How long the head may take to answer a hello.
const HELLO_TIMEOUT: u64 = 10 * SECOND;

/// The first and the longest pause between two connection attempts.
const PAUSES: (u64, u64) = (100 * MS, 5 * SECOND);

/// A connection, as the agent sees it.
pub(super) struct AgentLink {
    pub(super) connection: u64,
    /// The heartbeat timer; present once the head has sent the welcome.
    beat: Option<Beat>,
    outbox: Outbox,
    inbox: Inbox,
    pub(super) waiting: Outgoing,
}

impl Agent {
    /// Whether the head has welcomed the agent.
    pub(super) fn is_linked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.beat.is_some())
    }
}

impl World {
    /// Connects and introduces the node.
    pub(super) fn dial_head(&mut self, node: usize) {
        if self.agent(node).link.is_some() {
            return;
        }
        self.agent(node).dialled_us = self.now_us;
        let Some(connection) = self.dial(node) else { return self.dial_again(node) };
        self.agent_event(node, Event::Connected);
        let machine = &mut self.nodes[node];
        let (boot, resources, hardware, name) =
            (machine.boot_id(), machine.resources.clone(), machine.hardware.clone(), machine.name.clone());
        let agent = self.agent(node);
        agent.link = Some(AgentLink {
            connection,
            beat: None,
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            waiting: Outgoing::default(),
        });
        let facts = NodeFacts { boot, resources, hardware, ..Default::default() };
        let hello = AgentHello::new(name, agent.life as u32, facts, agent.state.reports());
        let held: Vec<String> = hello.runs.iter().map(|report| report.run.to_string()).collect();
        self.note(format_args!("n{node} says hello on connection {connection}, holding [{}]", held.join(", ")));
        self.transmit(connection, End::Head, Packet::Hello(Box::new(HelloPacket(hello))));
        self.agent_later(node, HELLO_TIMEOUT, AgentStep::HelloTimeout { connection });
    }

    pub(super) fn hello_timeout(&mut self, node: usize, connection: u64) {
        let is_waiting = |link: &AgentLink| link.connection == connection && link.beat.is_none();
        if self.agent(node).link.as_ref().is_some_and(is_waiting) {
            self.unlink(node, "the head does not answer");
        }
    }

    /// Handles a packet from the head.
    pub(super) fn agent_receives(&mut self, node: usize, connection: u64, packet: Packet) {
        if self.stood_still(node) {
            return;
        }
        let (ignores_gaps, now_us) = (self.breaks(Rule::GapsEndConnections), self.now_us);
        let Some(agent) = self.nodes[node].agent.as_mut() else { return };
        let Some(link) = agent.link.as_mut().filter(|link| link.connection == connection) else { return };
        match packet {
            Packet::Welcome { heartbeat_ms } => {
                link.beat = Some(Beat::new(Duration::from_millis(heartbeat_ms), Duration::from_micros(now_us)));
                self.heartbeat(node, connection);
            }
            Packet::FromHead(frame) if ignores_gaps => self.agent_takes(node, frame),
            Packet::FromHead(frame) => match link.inbox.accept(frame) {
                Ok(messages) => self.agent_takes(node, Frame { sequence: 0, messages }),
                Err(gap) => self.unlink(node, &gap.to_string()),
            },
            Packet::Hello(_) | Packet::FromAgent(_) => {}
        }
    }

    fn agent_takes(&mut self, node: usize, frame: Frame<hostler_proto::link::HeadMessage>) {
        for message in frame.messages {
            self.agent_event(node, Event::Received(message));
        }
    }

    /// Ends the link if the agent notices that it was suspended. Packets that arrived during the suspension are
    /// ignored.
    fn stood_still(&mut self, node: usize) -> bool {
        let now_us = self.now_us;
        let Some(link) = self.nodes[node].agent.as_ref().and_then(|agent| agent.link.as_ref()) else { return false };
        let is_late = link.beat.is_some_and(|beat| beat.stood_still(Duration::from_micros(now_us)).is_some());
        if is_late {
            self.unlink(node, "the agent was suspended");
        }
        is_late
    }

    pub(super) fn heartbeat(&mut self, node: usize, connection: u64) {
        if self.stood_still(node) {
            return;
        }
        let now = Duration::from_micros(self.now_us);
        let Some(link) = self.agent(node).link.as_mut().filter(|link| link.connection == connection) else { return };
        if link.beat.is_none() {
            return;
        }
        link.waiting.add(AgentMessage::Heartbeat, now);
        self.flush_agent(node, connection);
        let Some(beat) = self.agent(node).link.as_ref().and_then(|link| link.beat) else { return };
        let next = (beat.next() - now).as_micros() as u64;
        self.agent_later(node, next, AgentStep::Heartbeat { connection });
    }

    /// Sends queued messages.
    pub(super) fn flush_agent(&mut self, node: usize, connection: u64) {
        if self.stood_still(node) {
            return;
        }
        let now_us = self.now_us;
        let Some(link) = self.agent(node).link.as_mut().filter(|link| link.connection == connection) else { return };
        // Nothing is sent before the welcome arrives. Queued messages are sent afterwards.
        let now = Duration::from_micros(now_us);
        let Some(beat) = link.beat.as_mut().filter(|_| link.waiting.due().is_some_and(|due| due <= now)) else {
            return;
        };
        beat.spoke(now);
        let frames: Vec<_> = link.waiting.take().into_iter().map(|messages| link.outbox.frame(messages)).collect();
        for frame in frames {
            for message in &frame.messages {
                self.trace.tell(now_us, || Some(format!("n{node} says: {}", brief_report(message)?)));
            }
            self.transmit(connection, End::Head, Packet::FromAgent(frame));
        }
    }

    /// Handles a connection that the agent finds broken.
    pub(super) fn agent_finds_broken(&mut self, node: usize, connection: u64) {
        let Some(agent) = &self.nodes[node].agent else { return };
        if agent.link.as_ref().is_some_and(|link| link.connection == connection) {
            self.unlink(node, "the connection is broken");
        }
    }

    /// Closes the connection and redials after a pause.
    fn unlink(&mut self, node: usize, why: &str) {
        let Some(link) = self.agent(node).link.take() else { return };
        self.note(format_args!("n{node} ends connection {}: {why}", link.connection));
        self.close_end(link.connection, End::Agent);
        self.agent_event(node, Event::Disconnected);
        self.dial_again(node);
    }

    fn dial_again(&mut self, node: usize) {
        let now_us = self.now_us;
        let agent = self.agent(node);
        if now_us - agent.dialled_us > PAUSES.1 || agent.pause_us == 0 {
            agent.pause_us = PAUSES.0;
        }
        let pause = agent.pause_us;
        agent.pause_us = (pause * 2).min(PAUSES.1);
        let jittered = self.rng.range(pause / 2, pause);
        self.agent_later(node, jittered, AgentStep::Dial);
    }
}

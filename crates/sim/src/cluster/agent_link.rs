//! The agent's connection: dials, drives the agent's end of the link, and dials again.

use std::time::Duration;

use hostler_core::agent::Event;
use hostler_core::link::{AgentLink, Attempt, LinkEnd};
use hostler_model::NodeFacts;
use hostler_proto::link::{AgentHello, AgentMessage, RunStatus};

use super::brief::brief_report;
use super::rules::Rule;
use super::world::World;
use super::world::network::{End, Numbers, Packet};
use super::world::node::{AgentLine, AgentStep};

impl World {
    /// Connects to the head and sends the hello.
    pub(super) fn dial_head(&mut self, node: usize) {
        if self.agent(node).line.is_some() {
            return;
        }
        let Some(connection) = self.dial(node) else { return self.dial_again(node, Attempt::Failed) };
        self.agent_event(node, Event::Connected);
        let (forgets_ends, now) = (self.breaks(Rule::EndsAreRepeated), self.agent_now());
        let machine = &mut self.nodes[node];
        let (boot, resources, hardware, name) =
            (machine.boot_id(), machine.resources.clone(), machine.hardware.clone(), machine.name.clone());
        let agent = self.agent(node);
        let mut runs = agent.state.reports();
        runs.retain(|report| !forgets_ends || !matches!(report.status, RunStatus::Ended(_)));
        agent.line = Some(AgentLine {
            connection,
            link: AgentLink::new(now),
            attempt: Attempt::Failed,
            wakes_us: None,
            numbers: Numbers::default(),
        });
        let facts = NodeFacts { boot, resources, hardware, ..Default::default() };
        let hello = AgentHello::new(name, agent.life as u32, facts, runs);
        let held: Vec<String> = hello.runs.iter().map(|report| report.run.to_string()).collect();
        self.note(format_args!("n{node} says hello on connection {connection}, holding [{}]", held.join(", ")));
        self.transmit(connection, End::Head, Packet::Hello(Box::new(hello)));
        self.let_link_sleep(node);
    }

    /// The time on the clock of the agents' links.
    fn agent_now(&self) -> Duration {
        Duration::from_micros(self.now_us)
    }

    /// Handles a packet from the head.
    pub(super) fn agent_receives(&mut self, node: usize, connection: u64, packet: Packet) {
        let (broken, now) = (self.broken_rule(), self.agent_now());
        let Some(line) = self.line(node, connection) else { return };
        let messages = match packet {
            Packet::Answer(answer) => line.link.answered(answer, now).map(|terms| {
                line.attempt = Attempt::Welcomed { return_within: terms.return_within };
                Vec::new()
            }),
            Packet::FromHead(mut frame) => {
                let sequence = frame.sequence;
                frame.sequence = line.numbers.renumber(sequence, broken);
                let messages = line.link.receive(frame, now);
                let is_taken = messages.as_ref().is_ok_and(|messages| !messages.is_empty());
                let is_next = !is_taken || line.numbers.is_next(sequence);
                self.books
                    .expect(is_next, || format!("connection {connection}: frame {sequence} is taken out of order"));
                messages
            }
            Packet::Hello(_) | Packet::FromAgent(_) => return,
        };
        match messages {
            Ok(messages) => {
                messages.into_iter().for_each(|message| self.agent_event(node, Event::Received(message)));
                self.let_link_sleep(node);
            }
            Err(end) => self.unlink(node, &end),
        }
    }

    /// The connection of a node's agent, if it is still this one.
    fn line(&mut self, node: usize, connection: u64) -> Option<&mut AgentLine> {
        let line = self.nodes[node].agent.as_mut()?.line.as_mut()?;
        (line.connection == connection).then_some(line)
    }

    /// Queues a message for the head.
    pub(super) fn agent_says(&mut self, node: usize, message: AgentMessage) {
        let (now, loses_reports) = (self.agent_now(), self.breaks(Rule::ReportsSurviveTheWelcome));
        let Some(line) = &mut self.agent(node).line else { return };
        if line.link.is_open() || !loses_reports {
            line.link.send(message, now);
        }
        self.let_link_sleep(node);
    }

    /// Schedules the time at which the link must send something.
    fn let_link_sleep(&mut self, node: usize) {
        let now_us = self.now_us;
        let Some(line) = &mut self.agent(node).line else { return };
        let at_us = (line.link.wake_at().as_micros() as u64).max(now_us);
        if line.wakes_us.is_none_or(|planned| at_us < planned) {
            line.wakes_us = Some(at_us);
            let connection = line.connection;
            self.agent_later(node, at_us - now_us, AgentStep::LinkWakes { connection });
        }
    }

    /// Sends what is due.
    pub(super) fn link_wakes(&mut self, node: usize, connection: u64) {
        let now = self.agent_now();
        loop {
            let Some(line) = self.line(node, connection) else { return };
            line.wakes_us = None;
            match line.link.next_frame(now) {
                Ok(Some(frame)) => {
                    for message in &frame.messages {
                        self.trace.tell(self.now_us, || Some(format!("n{node} says: {}", brief_report(message)?)));
                    }
                    self.transmit(connection, End::Head, Packet::FromAgent(frame));
                }
                Ok(None) => return self.let_link_sleep(node),
                Err(end) => return self.unlink(node, &end),
            }
        }
    }

    /// Handles a connection that the agent finds broken.
    pub(super) fn agent_finds_broken(&mut self, node: usize, connection: u64) {
        if self.line(node, connection).is_some() {
            self.hang_up(node, "it is broken", None);
        }
    }

    /// Closes the connection for a reason of the link.
    fn unlink(&mut self, node: usize, end: &LinkEnd) {
        let refused = matches!(end, LinkEnd::Refused(_)).then_some(Attempt::Refused);
        self.hang_up(node, &end.to_string(), refused);
    }

    /// Closes the connection and dials again after a pause.
    fn hang_up(&mut self, node: usize, why: &str, attempt: Option<Attempt>) {
        let Some(line) = self.agent(node).line.take() else { return };
        self.note(format_args!("n{node} ends connection {}: {why}", line.connection));
        self.close_end(line.connection, End::Agent);
        self.agent_event(node, Event::Disconnected);
        self.dial_again(node, attempt.unwrap_or(line.attempt));
    }

    fn dial_again(&mut self, node: usize, attempt: Attempt) {
        let random = self.rng.below(1 << 32) as f64 / f64::from(u32::MAX);
        let pause = self.agent(node).dialler.pause_after(attempt, random);
        self.agent_later(node, pause.as_micros() as u64, AgentStep::Dial);
    }
}

//! The head's connections: drives the head's end of each link.

use std::collections::VecDeque;

use hostler_core::head::{Answer, Command, ConnectionId, NotDone};
use hostler_core::link::{Check, HeadLink, Inline, Outbox, Step};
use hostler_proto::link::{AgentHello, AgentMessage, HeadHello, HeadMessage, RunReport};
use hostler_store::Records;

use super::brief::brief_order;
use super::disk::content;
use super::operators::key_of;
use super::rules::Rule;
use super::world::World;
use super::world::head::{HeadLine, HeadStep, Input, ReplyTo};
use super::world::network::{End, Numbers, Packet};
use super::world::time::{MS, SECOND};

impl World {
    /// Handles a packet from an agent.
    pub(super) fn head_receives(&mut self, network: u64, packet: Packet) {
        match packet {
            Packet::Hello(hello) => self.accept_link(network, *hello),
            Packet::FromAgent(mut frame) => {
                for message in &mut frame.messages {
                    if let AgentMessage::Report(report) = message {
                        self.replace_reported_run(report);
                    }
                }
                let lines = self.head.process.as_mut().into_iter().flat_map(|process| &mut process.lines);
                let found = lines.into_iter().find(|(_, line)| line.network == network);
                if let Some((&connection, line)) = found {
                    line.frames.push_back(frame);
                    self.work_link(connection);
                }
            }
            Packet::Answer(_) | Packet::FromHead(_) => {}
        }
    }

    fn accept_link(&mut self, network: u64, mut hello: AgentHello) {
        // The daemon checks the results in a hello before the loop gets the hello, and the disk may be slow.
        let is_slow = !self.is_calm && self.rng.chance(30);
        let delay = self.rng.below(if is_slow { 5 * SECOND } else { 2 * MS });
        hello.runs.iter_mut().for_each(|report| self.replace_reported_run(report));
        let Some(process) = self.head.process.as_mut() else { return };
        let connection = self.network.connections[&network].accepted;
        let node = hello.node.clone();
        let introduction = Some((node.clone(), hello.runs.iter().map(|report| report.run).collect()));
        let link = HeadLink::new(connection, &node, key_of(&node), hello).expect("both ends are of this build");
        let line = HeadLine {
            network,
            link,
            introduction,
            outgoing: Vec::new(),
            outbox: Outbox::default(),
            frames: VecDeque::new(),
            numbers: Numbers::default(),
            is_checking: false,
            ends: None,
        };
        process.lines.insert(connection, line);
        self.head_later(delay, HeadStep::Work { connection });
    }

    /// Carries out the steps of a link until it waits for the agent, the loop or the disk.
    pub(super) fn work_link(&mut self, connection: ConnectionId) {
        let (broken, asks_once) = (self.broken_rule(), self.breaks(Rule::IncompleteResultsAreRepeated));
        while let Some(line) = self.line_of(connection).filter(|line| !line.is_checking) {
            match line.link.next_step() {
                Some(Step::Check(check)) if check.inline.is_empty() => {
                    line.is_checking = true;
                    let delay = self.rng.below(3 * MS);
                    self.head_later(delay, HeadStep::Check { connection, check: Box::new(check) });
                }
                Some(Step::Check(check)) => self.check_result(connection, check),
                Some(Step::Post(command, blobs)) => self.input(Input { blobs, ..Input::of(command) }),
                Some(Step::Resend(_)) if asks_once => {}
                Some(Step::Resend(run)) => {
                    line.outgoing.push(HeadMessage::Resend { run });
                    self.flush_link(connection);
                }
                None => {
                    if let Some((command, blobs)) = line.link.introduction() {
                        let node = line.introduction.as_ref().map(|(node, _)| node.clone());
                        node.iter().for_each(|node| self.rejoin_if_removed(node));
                        self.input(Input { blobs, reply: Some(ReplyTo::Hello(connection)), ..Input::of(command) });
                    } else if !line.link.is_open() {
                        return;
                    } else if let Some(mut frame) = line.frames.pop_front() {
                        frame.sequence = line.numbers.renumber(frame.sequence, broken);
                        if let Err(gap) = line.link.receive(frame) {
                            self.close_link(connection, &gap.to_string());
                        }
                    } else {
                        return;
                    }
                }
            }
        }
    }

    /// An open connection of the running head.
    fn line_of(&mut self, connection: ConnectionId) -> Option<&mut HeadLine> {
        self.head.process.as_mut()?.lines.get_mut(&connection)
    }

    /// Continues a link after it has waited for the disk.
    pub(super) fn checked(&mut self, connection: ConnectionId, check: Check) {
        if let Some(line) = self.line_of(connection) {
            line.is_checking = false;
            self.check_result(connection, check);
            self.work_link(connection);
        }
    }

    /// Looks whether the head has a whole result.
    fn check_result(&mut self, connection: ConnectionId, mut check: Check) {
        let blobs = std::mem::take(&mut check.inline).into_iter();
        let blobs: Inline = blobs.map(|blob| (content::name_of(&blob), blob)).collect();
        let is_complete =
            self.breaks(Rule::CompleteResults) || self.head.disk.is_complete(&check.manifest, &blobs, self.now_us);
        if !is_complete {
            self.note(format_args!("the result of {} is not complete here", check.run()));
        }
        if let Some(line) = self.line_of(connection) {
            line.link.checked(check, is_complete.then_some(blobs));
        }
    }

    /// Breaks a rule on purpose: changes a report to name the current run of its task.
    fn replace_reported_run(&self, report: &mut RunReport) {
        let process = self.head.process.as_ref().filter(|_| self.breaks(Rule::ReportsNameTheirRun));
        let task = report.run.task;
        let job = process.and_then(|process| process.state.job(task.job));
        report.run = job.and_then(|job| job.active.get(&task.index)).map_or(report.run, |active| active.run);
    }

    /// Handles the loop's answer to a hello.
    pub(super) fn welcome(&mut self, connection: ConnectionId, answer: &Answer) {
        let now = self.head_now();
        let Some(process) = self.head.process.as_mut() else { return };
        let Some(line) = process.lines.get_mut(&connection) else { return };
        let network = line.network;
        match answer {
            Ok(_) => {
                let ends = line.ends;
                if let Some((node, holds)) = line.introduction.take() {
                    self.books.see_hello(&node, &holds);
                }
                let welcome = line.link.welcome(&process.state, now.at);
                self.transmit(network, End::Agent, Packet::Answer(welcome));
                self.flush_link(connection);
                match ends {
                    Some(why) => self.close_link(connection, why),
                    None => self.work_link(connection),
                }
            }
            Err(why) => {
                if let NotDone::Refused(refusal) = why {
                    let refused = HeadHello::Refused { message: refusal.to_string() };
                    self.transmit(network, End::Agent, Packet::Answer(refused));
                }
                self.close_link(connection, "the hello cannot be noted");
            }
        }
    }

    /// Sends the queued messages of an open link, divided into frames.
    pub(super) fn flush_link(&mut self, connection: ConnectionId) {
        let most = self.rng.range(1, 6) as usize;
        let Some(line) = self.line_of(connection).filter(|line| line.link.is_open()) else { return };
        let (network, messages) = (line.network, std::mem::take(&mut line.outgoing));
        let frames: Vec<_> = messages.chunks(most).flat_map(|messages| line.outbox.frames(messages.to_vec())).collect();
        for message in &messages {
            self.trace
                .tell(self.now_us, || Some(format!("the head says on connection {network}: {}", brief_order(message))));
            let HeadMessage::Launch(launch) = message else { continue };
            let store = &self.head.disk.store;
            let is_kept = |digest| store.environment(&digest).is_ok_and(|bytes| bytes.is_some());
            let is_there = launch.environment.is_none_or(is_kept);
            self.books.expect(is_there, || format!("job {} is launched, but its environment is gone", launch.job.id));
        }
        for frame in frames {
            self.transmit(network, End::Agent, Packet::FromHead(frame));
        }
    }

    /// Ends a link. As in the daemon, a link whose hello is unanswered first passes the hello on and waits for the answer.
    pub(super) fn end_link(&mut self, connection: ConnectionId, why: &'static str) {
        match self.line_of(connection) {
            Some(line) if line.introduction.is_some() => line.ends = Some(why),
            _ => self.close_link(connection, why),
        }
    }

    /// Ends a link; the loop learns of it after all earlier messages of the link.
    pub(super) fn close_link(&mut self, connection: ConnectionId, why: &str) {
        let process = self.head.process.as_mut().expect("the head closes the link");
        let Some(line) = process.lines.remove(&connection) else { return };
        self.note(format_args!("the head ends connection {}: {why}", line.network));
        self.close_end(line.network, End::Head);
        self.input(Input::of(Command::ConnectionEnded { connection }));
    }

    /// Handles a connection that the head finds broken.
    pub(super) fn head_finds_broken(&mut self, network: u64) {
        let Some(process) = self.head.process.as_ref() else { return };
        let found = process.lines.iter().find(|(_, line)| line.network == network).map(|(connection, _)| *connection);
        if let Some(connection) = found {
            self.end_link(connection, "the connection is broken");
        }
    }
}

//! The head's end of a link: agrees on a protocol, takes the agent's hello and messages in order, and lets no end of a run pass before
//! its result is checked.
//!
//! The shell drives the link with [`HeadLink::next_step`] until nothing is left to do. It then passes on the introduction, or a frame. An
//! end without its whole result does not count; the shell asks the agent for the result again.

use std::collections::{BTreeSet, VecDeque};

use hostler_model::{Digest, NodeName, RunId, Timestamp};
use hostler_proto::link::{AgentHello, AgentMessage, Frame, HeadHello, PROTOCOL, RunReport, RunStatus};
use serde_bytes::ByteBuf;

use super::frames::{Gap, Inbox};
use crate::head::{Command, ConnectionId, State};

/// After a break, agents reconnect within this time per node, in milliseconds. A TLS handshake takes one or two
/// milliseconds of CPU time.
const RETURN_MS_PER_NODE: u64 = 3;

/// Maximum time for all agents to reconnect. It is short enough that no node counts as silent.
const LONGEST_RETURN_MS: u64 = 5_000;

/// The blobs inside a report, by digest.
pub type Inline = Vec<(Digest, Vec<u8>)>;

/// The head's end of one link. Starts when the agent's hello arrives.
#[derive(Debug)]
pub struct HeadLink {
    connection: ConnectionId,
    node: NodeName,
    /// Fingerprint of the key in the agent's certificate.
    key: Digest,
    protocol: u16,
    /// The hello, the runs in it without an incomplete result, and their blobs; absent once introduced.
    hello: Option<(Box<AgentHello>, BTreeSet<RunId>, Inline)>,
    is_open: bool,
    inbox: Inbox,
    /// What to handle next: the runs of the hello, then messages.
    queue: VecDeque<Item>,
    /// Runs whose results are incomplete.
    incomplete: VecDeque<RunId>,
}

#[derive(Debug)]
enum Item {
    Message(AgentMessage),
    /// A report with its blobs, which are absent if the result is incomplete.
    Checked(RunReport, Option<Inline>),
}

/// An action that the head's daemon must carry out.
#[derive(Debug)]
pub enum Step {
    /// See whether the head has the whole result, then call [`HeadLink::checked`].
    Check(Check),
    /// Pass a message to the loop, with blobs for the same transaction. Nothing waits for the answer.
    Post(Command, Inline),
    /// Ask the agent to send the result of this run again.
    Resend(RunId),
}

/// A result to check.
#[derive(Debug)]
pub struct Check {
    report: RunReport,
    /// Hash of the result's manifest.
    pub manifest: Digest,
    /// The parts of the result that came inside the report.
    pub inline: Vec<Vec<u8>>,
}

impl HeadLink {
    /// A link to the node that the agent's certificate names.
    ///
    /// # Errors
    /// The reason for the refusal, if the hello is from another node or protocol.
    pub fn new(connection: ConnectionId, node: &NodeName, key: Digest, mut hello: AgentHello) -> Result<Self, String> {
        let protocol = agree(&hello, node)?;
        let queue = hello.runs.drain(..).map(AgentMessage::Report).map(Item::Message).collect();
        Ok(Self {
            connection,
            node: node.clone(),
            key,
            protocol,
            hello: Some((Box::new(hello), BTreeSet::new(), Vec::new())),
            is_open: false,
            inbox: Inbox::default(),
            queue,
            incomplete: VecDeque::new(),
        })
    }

    /// Takes the next step; none if the link waits for the introduction or a frame.
    pub fn next_step(&mut self) -> Option<Step> {
        if self.is_open
            && let Some(run) = self.incomplete.pop_front()
        {
            return Some(Step::Resend(run));
        }
        while let Some(item) = self.queue.pop_front() {
            let (report, blobs) = match item {
                Item::Checked(report, blobs) => (report, blobs),
                Item::Message(AgentMessage::Report(mut report)) => match take_result(&mut report) {
                    Some((manifest, inline)) => return Some(Step::Check(Check { report, manifest, inline })),
                    None => (report, Some(Vec::new())),
                },
                Item::Message(message) => return Some(self.post(message, Some(Vec::new()))),
            };
            match &mut self.hello {
                Some((hello, complete, stored)) => {
                    if let Some(blobs) = blobs {
                        complete.insert(report.run);
                        stored.extend(blobs);
                    }
                    hello.runs.push(report);
                }
                None => return Some(self.post(AgentMessage::Report(report), blobs)),
            }
        }
        None
    }

    /// Continues after a check. `blobs` are the parts inside the report, if the head has the whole result.
    pub fn checked(&mut self, check: Check, blobs: Option<Inline>) {
        if blobs.is_none() {
            self.incomplete.push_back(check.report.run);
        }
        self.queue.push_front(Item::Checked(check.report, blobs));
    }

    /// The command that introduces the agent to the loop, with blobs for the same transaction; none after the first
    /// call. Once the loop's answer is durable, the shell sends [`HeadLink::welcome`].
    pub fn introduction(&mut self) -> Option<(Command, Inline)> {
        let (hello, complete, blobs) = self.hello.take()?;
        Some((Command::Hello { connection: self.connection, key: self.key, hello, complete }, blobs))
    }

    /// Opens the link. Returns the welcome, which must be sent before any other message.
    pub fn welcome(&mut self, state: &State, now: Timestamp) -> HeadHello {
        self.is_open = true;
        HeadHello::Welcome {
            protocol: self.protocol,
            epoch: state.epoch,
            version: hostler_proto::BUILD.to_owned(),
            heartbeat_ms: state.settings.heartbeat_ms,
            renew_in_ms: state.renew_in_ms(&self.node, self.key, now),
            return_within_ms: (state.nodes().count() as u64 * RETURN_MS_PER_NODE).min(LONGEST_RETURN_MS),
        }
    }

    /// Whether the welcome was sent. Frames must wait for it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes a frame from the agent.
    ///
    /// # Errors
    /// If a frame is missing: the shell closes the connection.
    pub fn receive(&mut self, frame: Frame<AgentMessage>) -> Result<(), Gap> {
        self.queue.extend(self.inbox.accept(frame)?.into_iter().map(Item::Message));
        Ok(())
    }

    /// An end whose result is incomplete has no blobs. It does not count, but it shows that the agent is alive.
    fn post(&self, message: AgentMessage, blobs: Option<Inline>) -> Step {
        let command = Command::Message { connection: self.connection, message, result_is_complete: blobs.is_some() };
        Step::Post(command, blobs.unwrap_or_default())
    }
}

impl Check {
    /// The run that produced the checked result.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.report.run
    }
}

/// Takes the content out of the report of a run with a result. Returns the manifest's digest and the content.
fn take_result(report: &mut RunReport) -> Option<(Digest, Vec<Vec<u8>>)> {
    let RunStatus::Ended(end) = &mut report.status else { return None };
    let result = end.result.as_mut()?;
    let inline = std::mem::take(&mut result.inline);
    Some((result.manifest, inline.into_iter().map(ByteBuf::into_vec).collect()))
}

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
        hostler_proto::BUILD,
        PROTOCOL.start(),
        PROTOCOL.end(),
    ))
}

#[cfg(test)]
mod tests {
    use hostler_model::NodeFacts;

    use super::*;

    fn hello(node: &str, min: u16, max: u16) -> AgentHello {
        let node = node.parse().expect("a valid name");
        let hello = AgentHello::new(node, 1, NodeFacts::default(), Vec::new());
        AgentHello { protocol_min: min, protocol_max: max, version: "9.9.9".to_owned(), ..hello }
    }

    #[test]
    fn link_needs_overlapping_versions_and_matching_node_name() {
        let node: NodeName = "a".parse().expect("a valid name");
        let end = *PROTOCOL.end();
        assert_eq!(agree(&hello("a", 1, end + 1), &node), Ok(end));
        let newer = agree(&hello("a", end + 1, end + 2), &node).expect_err("no overlap");
        assert!(
            newer.contains(&format!("{} to {}", end + 1, end + 2)) && newer.contains("upgrade the head"),
            "{newer}"
        );
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
}

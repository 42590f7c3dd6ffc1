//! The connections of a world and the packets on them.

use std::collections::BTreeMap;

use hostler_core::head::ConnectionId;
use hostler_proto::link::{AgentHello, AgentMessage, Frame, HeadHello, HeadMessage};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::rules::Rule;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Head,
    Agent,
}

/// A packet.
#[derive(Debug, Clone)]
pub(crate) enum Packet {
    Hello(Box<AgentHello>),
    Answer(HeadHello),
    FromAgent(Frame<AgentMessage>),
    FromHead(Frame<HeadMessage>),
}

/// All connections that may still matter.
pub(crate) struct Network {
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) dialled: u64,
    /// Per node: whether it cannot reach the head.
    pub(crate) is_cut_off: Vec<bool>,
    /// The number of frames in a thousand that are lost, delayed or doubled.
    pub(crate) trouble: u64,
}

pub(crate) struct Connection {
    pub(crate) node: usize,
    pub(crate) head_life: u64,
    /// The head's id of the connection. As in the daemon, the head accepts a connection before the agent sends the hello.
    pub(crate) accepted: ConnectionId,
    pub(crate) head_is_open: bool,
    pub(crate) agent_is_open: bool,
    pub(crate) is_severed: bool,
    /// When the last packet arrives at each end.
    pub(crate) last_at_head_us: u64,
    pub(crate) last_at_agent_us: u64,
}

/// Renumbers the frames that one end of a connection receives. Changes nothing unless the end breaks a rule.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) last: u64,
    pub(crate) taken: u64,
    /// The last frame that the end really took.
    pub(crate) followed: u64,
}

impl Packet {
    /// Encodes and decodes the packet.
    pub(crate) fn through_bytes(self) -> Self {
        fn again<T: Serialize + DeserializeOwned>(value: &T) -> T {
            hostler_proto::decode(&hostler_proto::encode(value)).expect("what was sent can be read")
        }
        match self {
            Self::Hello(hello) => Self::Hello(again(&hello)),
            Self::Answer(answer) => Self::Answer(again(&answer)),
            Self::FromAgent(frame) => Self::FromAgent(again(&frame)),
            Self::FromHead(frame) => Self::FromHead(again(&frame)),
        }
    }
}

impl Network {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { connections: BTreeMap::new(), dialled: 0, is_cut_off: vec![false; nodes], trouble: 0 }
    }
}

impl Numbers {
    /// Notes a frame that the end has taken; returns whether it follows the frame before it.
    pub(crate) fn is_next(&mut self, sequence: u64) -> bool {
        std::mem::replace(&mut self.followed, sequence) + 1 == sequence
    }

    /// Returns the number that makes the end take or reject a frame.
    pub(crate) fn renumber(&mut self, sequence: u64, broken: Option<Rule>) -> u64 {
        let is_taken = match sequence.saturating_sub(self.last) {
            0 => broken == Some(Rule::FramesCountOnce),
            1 => true,
            _ => broken == Some(Rule::GapsEndConnections),
        };
        if !is_taken {
            return if sequence <= self.last { self.taken } else { self.taken + 2 };
        }
        self.last = self.last.max(sequence);
        self.taken += 1;
        self.taken
    }
}

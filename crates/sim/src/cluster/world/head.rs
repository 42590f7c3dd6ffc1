//! The head of a world: what its disk and its process hold, and the steps that it takes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use hostler_core::head::{After, ConnectionId, Durability, PendingMoves, Rounds, State};
use hostler_core::link::{Check, HeadLink, Outbox};
use hostler_model::{NodeName, RunId, Timestamp};
use hostler_proto::link::{AgentMessage, Frame, HeadMessage};
use hostler_store::{Committer, MemoryStore, Queue, Work};

use super::network::Numbers;
use crate::cluster::disk::Disk;

/// The head's machine.
#[derive(Default)]
pub(crate) struct Head {
    /// The state that survives a crash.
    pub(crate) disk: Disk,
    /// The state that a crash loses; absent while no head runs.
    pub(crate) process: Option<Process>,
    /// The number of head starts.
    pub(crate) lives: u64,
    /// The offset of the wall clock, in milliseconds.
    pub(crate) wall_offset_ms: i64,
    /// When to kill the head and then its successor; `None` if neither is killed at a step.
    pub(crate) doom: Option<PlannedCrash>,
}

/// When a head is killed, counted in steps, so that a crash can happen between any two steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedCrash {
    pub(crate) steps: u64,
    pub(crate) then: Option<u64>,
}

pub(crate) struct Process {
    pub(crate) life: u64,
    pub(crate) state: State,
    /// The cluster's clock at the process start, and the start time.
    pub(crate) origin: Timestamp,
    pub(crate) started_us: u64,
    pub(crate) queue: VecDeque<Input>,
    pub(crate) round_is_due: bool,
    /// The time of the next timed wake-up of the loop.
    pub(crate) wakes_us: Option<u64>,
    pub(crate) lines: BTreeMap<ConnectionId, HeadLine>,
    pub(crate) connections: u64,
    pub(crate) rounds: Rounds<ReplyTo>,
    pub(crate) durability: Durability,
    /// Jobs that are moving from the state to the disk.
    pub(crate) moves: Mutex<PendingMoves>,
    /// The state is being reloaded, and the loop waits for it.
    pub(crate) is_reloading: bool,
    /// The queue of the writer thread, its current write, and its committer.
    pub(crate) writes: Queue<AfterWrite, ()>,
    pub(crate) current: Option<Work<AfterWrite, ()>>,
    pub(crate) committer: Committer<MemoryStore>,
}

impl Process {
    /// Whether no command or write is pending and the store works.
    pub(crate) fn is_idle(&self) -> bool {
        !self.durability.has_failed() && self.writes.is_empty() && self.current.is_none() && self.queue.is_empty()
    }

    /// Describes work in progress.
    pub(crate) fn busy_reason(&self) -> Option<String> {
        if !self.is_idle() {
            return Some("the head is busy".to_owned());
        }
        let held = self.state.nodes().find(|node| !node.runs.is_empty());
        held.map(|node| format!("the head counts {:?} as held on {}", node.runs, node.name))
    }
}

/// A command for the loop.
pub(crate) type Input = hostler_core::head::Input<ReplyTo>;

/// What waits for a write.
pub(crate) enum AfterWrite {
    /// The replies and messages of a round.
    Round(After<ReplyTo>),
    /// The loop after a reload: it waits for the first event on the reloaded state. The number is the end of that
    /// state's log.
    Epoch(Box<(State, u64)>),
    /// A snapshot: nothing waits for it.
    Snapshot,
}

/// The recipient of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplyTo {
    /// A user's request.
    User(u64),
    /// The hello of an agent.
    Hello(ConnectionId),
}

/// A step of the head.
pub(crate) enum HeadStep {
    Start,
    Round,
    Written,
    /// A timed wake-up of the loop, unless it was rescheduled.
    Wake {
        at_us: u64,
    },
    Encoded {
        sequence: u64,
        bytes: Vec<u8>,
        loads: u64,
    },
    Command(Box<Input>),
    /// Carry out the steps of a link.
    Work {
        connection: ConnectionId,
    },
    /// A link has waited for the disk.
    Check {
        connection: ConnectionId,
        check: Box<Check>,
    },
    Sweep,
}

/// A connection, as the head sees it.
pub(crate) struct HeadLine {
    /// The network connection of this link.
    pub(crate) network: u64,
    pub(crate) link: HeadLink,
    /// The hello of its agent.
    pub(crate) introduction: Option<(NodeName, Vec<RunId>)>,
    /// Messages for the agent.
    pub(crate) outgoing: Vec<HeadMessage>,
    pub(crate) outbox: Outbox,
    /// Frames that nobody has read.
    pub(crate) frames: VecDeque<Frame<AgentMessage>>,
    pub(crate) numbers: Numbers,
    /// The link waits for a check of the disk.
    pub(crate) is_checking: bool,
    /// Why the link ends once its hello is answered.
    pub(crate) ends: Option<&'static str>,
}

//! Events and the changes that follow from them.

use std::sync::Arc;

use hostler_model::{
    Digest, Epoch, IndexSet, JobId, JobSpec, JobState, NodeFacts, NodeName, PowerVerb, Resources, RunId, TaskId,
    Timestamp, WallTime,
};
use hostler_proto::api::Notice;
use hostler_proto::link::{HeadMessage, RunEnd, StepDoor};
use hostler_proto::record::EndedTask;
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::partitions::PartitionsEvent;
use super::power::PowerEvent;
use super::settings::{Setting, SettingValue};
use super::users::UsersEvent;

/// Identifies one connection of an agent; never reused while a head runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionId(pub u64);

/// A key that a client creates for each intended submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubmissionKey(pub u128);

/// The time of an event on two clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// The cluster's clock, for decisions.
    pub at: Timestamp,
    /// The head's wall clock, for display.
    pub wall: WallTime,
}

/// An event with its time; one record of the head's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// The time.
    pub now: Now,
    /// The event.
    pub event: Event,
}

/// A fact about the cluster. Every change of the head's state is one of these events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A head started on this store.
    EpochStarted {
        /// The head's epoch.
        epoch: Epoch,
        /// Whether ended jobs leave the state from now on. Older heads kept them, so in their logs they stay.
        #[serde(default)]
        archives: bool,
        /// The uid that the head runs under. A user with this uid on the head's machine is an admin.
        #[serde(default)]
        owner: Option<u32>,
    },
    /// A job was accepted.
    Submitted {
        /// Its id.
        job: JobId,
        /// The submission's key.
        key: SubmissionKey,
        /// The submitting user.
        user: String,
        /// The user's uid, if known.
        uid: Option<u32>,
        /// The job's specification.
        spec: Arc<JobSpec>,
        /// The digest of the environment variables, which the store has. In older logs they are in `spec`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment: Option<Digest>,
        /// The states of dependencies that had already ended.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        after: Vec<(JobId, JobState)>,
    },
    /// A user cancelled a job, or one task of it.
    Cancelled {
        /// The job.
        job: JobId,
        /// The task; all tasks when absent.
        index: Option<u32>,
    },
    /// A user put a job on hold.
    Held {
        /// The job.
        job: JobId,
    },
    /// A user released a held job.
    Released {
        /// The job.
        job: JobId,
        /// The job, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// A user asked to run a job, or one task of it, again.
    Requeued {
        /// The job.
        job: JobId,
        /// The task; all tasks when absent.
        index: Option<u32>,
        /// The job, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// The scheduler placed tasks.
    Placed {
        /// The placements, in the order of the decisions. A run on several nodes has one per node, ordered by rank.
        starts: Vec<Start>,
    },
    /// The agent has stored the launch on disk.
    Accepted {
        /// The run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
    },
    /// The node is ready, and its process waits for the other nodes.
    Ready {
        /// The run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
        /// A port that is free on the node.
        port: u16,
        /// Where the node accepts steps, if it does.
        #[serde(default)]
        door: Option<StepDoor>,
    },
    /// The run's process has started on the node.
    Running {
        /// The run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
    },
    /// The run's process has ended on the node.
    Completing {
        /// The run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
    },
    /// The run is over on the node and its result is complete.
    Ended {
        /// The run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
        /// How the run ended.
        end: RunEnd,
    },
    /// A node reported its facts, because it is new, has changed or was restarted.
    NodeSeen {
        /// Its name.
        node: NodeName,
        /// The facts that its agent reports.
        facts: NodeFacts,
    },
    /// A node was silent for too long: its runs are given up.
    NodeGivenUp {
        /// Its name.
        node: NodeName,
    },
    /// An operator took a node without runs off the list.
    NodeForgotten {
        /// Its name.
        node: NodeName,
    },
    /// An operator drained a node: it gets no new work.
    NodeDrained {
        /// Its name.
        node: NodeName,
        /// The operator.
        by: String,
        /// The reason, in the operator's words.
        reason: Option<String>,
    },
    /// An operator ended the drain of a node.
    NodeResumed {
        /// Its name.
        node: NodeName,
    },
    /// An admin removed a node: its keys are revoked and its runs given up.
    NodeRemoved {
        /// Its name.
        node: NodeName,
        /// The admin.
        by: String,
    },
    /// A node joined. Earlier keys of its name are revoked.
    NodeJoined {
        /// Its name.
        node: NodeName,
        /// The fingerprint of its public key.
        key: Digest,
        /// How long the key is valid, in milliseconds on the cluster's clock.
        life_ms: u64,
    },
    /// A node got a certificate for a new key. The previous key stays valid until the new one is used.
    KeyRenewed {
        /// Its name.
        node: NodeName,
        /// The fingerprint of the new public key.
        key: Digest,
        /// How long the new key is valid, in milliseconds on the cluster's clock.
        life_ms: u64,
    },
    /// A node used its new key: the previous one is revoked.
    KeyUsed {
        /// Its name.
        node: NodeName,
    },
    /// A client stored results safely.
    Fetched {
        /// The job.
        job: JobId,
        /// The tasks whose results were fetched.
        indices: IndexSet,
        /// The job, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// Fetched results were dropped to free space; how the tasks ended is kept.
    ResultsDropped {
        /// The job.
        job: JobId,
        /// The tasks whose results were dropped.
        indices: IndexSet,
        /// The job, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// An operator changed a setting.
    SettingChanged {
        /// The setting.
        setting: Setting,
        /// The new value; absent means the default.
        value: Option<SettingValue>,
        /// The operator.
        by: String,
    },
    /// Jobs and their results were dropped after their retention.
    Forgotten {
        /// The jobs.
        jobs: Vec<JobId>,
    },
    /// A change of users.
    Users(UsersEvent),
    /// A change of partitions or of nodes' traits.
    Partitions(PartitionsEvent),
    /// An event about power.
    Power(PowerEvent),
    /// An agent has connected. Not durable: connections end with the head.
    Connected {
        /// Its node.
        node: NodeName,
        /// The connection.
        connection: ConnectionId,
        /// The agent's process id.
        pid: u32,
        /// The agent's release.
        version: String,
        /// The runs it holds.
        holds: Vec<RunId>,
    },
    /// An agent's connection has ended. Not durable.
    Disconnected {
        /// The connection.
        connection: ConnectionId,
    },
    /// An agent sent a message. Not durable.
    Heard {
        /// The connection.
        connection: ConnectionId,
    },
    /// A node has been silent up to the first limit. Not durable.
    Silent {
        /// Its name.
        node: NodeName,
    },
    /// A node has been silent up to the second limit and counts as down. Not durable.
    Down {
        /// Its name.
        node: NodeName,
    },
    /// Gossiping nodes were told that their peers changed. Not durable.
    PeersTold,
}

impl Event {
    /// Whether the log must contain the event. The others concern only state that ends with the head's process.
    #[must_use]
    pub const fn is_durable(&self) -> bool {
        match self {
            Self::Power(event) => event.is_durable(),
            Self::Connected { .. }
            | Self::Disconnected { .. }
            | Self::Heard { .. }
            | Self::Silent { .. }
            | Self::Down { .. }
            | Self::PeersTold => false,
            Self::EpochStarted { .. }
            | Self::Submitted { .. }
            | Self::Cancelled { .. }
            | Self::Held { .. }
            | Self::Released { .. }
            | Self::Requeued { .. }
            | Self::Placed { .. }
            | Self::Accepted { .. }
            | Self::Ready { .. }
            | Self::Running { .. }
            | Self::Completing { .. }
            | Self::Ended { .. }
            | Self::NodeSeen { .. }
            | Self::NodeGivenUp { .. }
            | Self::NodeForgotten { .. }
            | Self::NodeDrained { .. }
            | Self::NodeResumed { .. }
            | Self::NodeRemoved { .. }
            | Self::NodeJoined { .. }
            | Self::KeyRenewed { .. }
            | Self::KeyUsed { .. }
            | Self::Fetched { .. }
            | Self::ResultsDropped { .. }
            | Self::SettingChanged { .. }
            | Self::Forgotten { .. }
            | Self::Users(_)
            | Self::Partitions(_) => true,
        }
    }
}

/// A placement of one task on one node, or of its part on one of several nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeName,
    /// The exact CPU ids, memory and GPU ids.
    pub resources: Resources,
}

/// Effects and records that follow from events. Both are carried out only after the events are durable.
#[derive(Debug, Default)]
pub struct Changes {
    /// Effects, in order.
    pub effects: Vec<Effect>,
    /// Records to store in the same transaction as the events.
    pub records: Vec<Record>,
}

/// An action outside of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send a message to an agent. If the connection is gone, the message is dropped: the next hello makes up for it.
    Send {
        /// The agent's connection.
        connection: ConnectionId,
        /// The message.
        message: HeadMessage,
    },
    /// Close a connection.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// The reason, for the agent's log.
        reason: String,
    },
    /// Send a request to a node's power controller. The answer arrives as [`super::PowerCommand::Said`].
    Power {
        /// The node.
        node: NodeName,
        /// The request.
        verb: PowerVerb,
        /// The number of the request.
        ask: u64,
    },
    /// Notify watching clients.
    Notify(Notice),
}

/// A change to the store's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A task has ended.
    Ended(Box<EndedTask>),
    /// An ended task will run again: delete its row.
    Reopened(TaskId),
    /// A job ended, or an ended job changed. From now on the job is in the store and not in the state.
    JobEnded(Arc<Job>),
    /// An ended job will run again: from now on it is in the state.
    JobReopened(JobId),
    /// A job was submitted with environment variables. The store keeps them until the job is forgotten or can no longer run.
    Environment {
        /// The job.
        job: JobId,
        /// The digest of the environment variables.
        digest: Digest,
    },
    /// A job was forgotten: delete everything stored about it.
    Forgotten(JobId),
}

//! Events, and what follows from them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hostler_model::{
    Advisory, BootId, Digest, Epoch, Feature, Hardware, IndexSet, JobId, JobSpec, JobState, NodeName, PowerVerb,
    Resources, RunId, TaskId, Timestamp, WallTime,
};
use hostler_proto::api::Notice;
use hostler_proto::link::{Fate, HeadMessage, StepDoor, Usage};
use hostler_proto::record::EndedTask;
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::partitions::PartitionsEvent;
use super::power::PowerEvent;
use super::settings::{Setting, SettingValue};
use super::users::UsersEvent;

/// Names one connection of an agent; never reused while a head runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionId(pub u64);

/// Made by a client for each intended submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubmissionKey(pub u128);

/// The times at which something happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// On the cluster's clock: decides.
    pub at: Timestamp,
    /// On the head's wall clock: is shown.
    pub wall: WallTime,
}

/// An event with its time: one record of the head's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// When.
    pub now: Now,
    /// What.
    pub event: Event,
}

/// A fact about the cluster. The enum is closed: whatever changes the head's state is one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A head has started on this store.
    EpochStarted {
        /// Its epoch.
        epoch: Epoch,
        /// From now on jobs leave the state when they end. Heads before that kept them there, so in their logs they stay.
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
        /// Who submitted it.
        user: String,
        /// Their uid, if it is known.
        uid: Option<u32>,
        /// What it asked for.
        spec: Arc<JobSpec>,
        /// Its environment, by content; the store has it. Older logs have it in `spec`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment: Option<Digest>,
        /// How the jobs that it depends on had ended, as far as they had.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        after: Vec<(JobId, JobState)>,
    },
    /// A user cancelled a job, or one task of it.
    Cancelled {
        /// The job.
        job: JobId,
        /// The task; all when absent.
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
        /// The job itself, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// A user asked to run a job, or one task of it, again.
    Requeued {
        /// The job.
        job: JobId,
        /// The task; all when absent.
        index: Option<u32>,
        /// The job itself, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// The scheduler placed tasks: each on all of its nodes.
    Placed {
        /// Where, in the order they were decided. A run on several nodes is there once for each, in the order of their ranks.
        starts: Vec<Start>,
    },
    /// The agent has the launch on disk.
    Accepted {
        /// The run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
    },
    /// All is ready on the node, and its process waits for those on the other nodes.
    Ready {
        /// The run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
        /// A port that is free there.
        port: u16,
        /// Where the node takes steps, if it does.
        #[serde(default)]
        door: Option<StepDoor>,
    },
    /// The run's process runs on the node.
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
        /// What became of it.
        fate: Fate,
        /// What a person should know beyond that.
        message: Option<String>,
        /// The result's manifest.
        result: Option<hostler_model::Digest>,
        /// What it used.
        usage: Usage,
    },
    /// A node said what it has: it is new, changed, or has been started again.
    NodeSeen {
        /// Its name.
        node: NodeName,
        /// Its machine's boot.
        boot: BootId,
        /// What it has to give.
        resources: Resources,
        /// What is known of it beyond that.
        #[serde(default)]
        hardware: Hardware,
        /// Which limits it cannot hold jobs to.
        #[serde(default)]
        advisory: Advisory,
        /// What it has that others may not have.
        #[serde(default)]
        features: BTreeSet<Feature>,
        /// Where other nodes reach its jobs.
        #[serde(default)]
        address: Option<IpAddr>,
        /// Where it gossips.
        #[serde(default)]
        gossip_at: Option<SocketAddr>,
        /// By what other nodes know it when they have a command for it.
        #[serde(default)]
        call_key: Option<Digest>,
    },
    /// A node was silent for so long that its runs were given up.
    NodeGivenUp {
        /// Its name.
        node: NodeName,
    },
    /// An operator had a node taken off the list. Nothing was placed there.
    NodeForgotten {
        /// Its name.
        node: NodeName,
    },
    /// An operator wants nothing new on a node.
    NodeDrained {
        /// Its name.
        node: NodeName,
        /// Who wants that.
        by: String,
        /// Why, in their words.
        reason: Option<String>,
    },
    /// An operator lets a drained node take work again.
    NodeResumed {
        /// Its name.
        node: NodeName,
    },
    /// An operator has removed a node: its keys are worth nothing any more and its runs are given up.
    NodeRemoved {
        /// Its name.
        node: NodeName,
        /// Who did.
        by: String,
    },
    /// A node has joined. Whatever keys its name had before are worth nothing any more.
    NodeJoined {
        /// Its name.
        node: NodeName,
        /// The fingerprint of its public key.
        key: Digest,
        /// How long the key is good for, in milliseconds on the cluster's clock.
        life_ms: u64,
    },
    /// A node has been given a certificate for a new key. The one before stays good until this one is used.
    KeyRenewed {
        /// Its name.
        node: NodeName,
        /// The fingerprint of the new public key.
        key: Digest,
        /// How long it is good for, in milliseconds on the cluster's clock.
        life_ms: u64,
    },
    /// A node has used its new key: the one before is worth nothing any more.
    KeyUsed {
        /// Its name.
        node: NodeName,
    },
    /// Results have reached a client safely.
    Fetched {
        /// The job.
        job: JobId,
        /// Which tasks' results.
        indices: IndexSet,
        /// The job itself, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// Fetched results were dropped to make room; that the tasks ended so stays.
    ResultsDropped {
        /// The job.
        job: JobId,
        /// Which tasks' results.
        indices: IndexSet,
        /// The job itself, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// An operator has changed a setting.
    SettingChanged {
        /// Which.
        setting: Setting,
        /// What it is now; as by default when absent.
        value: Option<SettingValue>,
        /// Who.
        by: String,
    },
    /// Jobs and their results were dropped: their retention has ended.
    Forgotten {
        /// The jobs.
        jobs: Vec<JobId>,
    },
    /// Something about users.
    Users(UsersEvent),
    /// Something about partitions, or what is set about nodes.
    Partitions(PartitionsEvent),
    /// Something about power.
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
    /// An agent was heard of. Not durable.
    Heard {
        /// The connection.
        connection: ConnectionId,
    },
    /// A node has been silent for a while. Not durable.
    Silent {
        /// Its name.
        node: NodeName,
    },
    /// A node has been silent for so long that it counts as down. Not durable.
    Down {
        /// Its name.
        node: NodeName,
    },
    /// The nodes that gossip are told that they are others than a moment ago. Not durable.
    PeersTold,
}

impl Event {
    /// Whether the event must be in the log: the others concern only what ends with the head's process.
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

/// One task placed on one node, or its part on one of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The run.
    pub run: RunId,
    /// Where.
    pub node: NodeName,
    /// Exact CPU ids, memory and ids of GPUs.
    pub resources: Resources,
}

/// What follows from events: effects to carry out and records to keep, both only once the events are durable.
#[derive(Debug, Default)]
pub struct Changes {
    /// To be carried out, in order.
    pub effects: Vec<Effect>,
    /// To be stored in the same transaction as the events.
    pub records: Vec<Record>,
}

/// Something to do outside of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell an agent something. When the connection is gone the message is moot: the next hello settles what it would have.
    Send {
        /// The agent's connection.
        connection: ConnectionId,
        /// The message.
        message: HeadMessage,
    },
    /// End a connection.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// Why, for whoever reads the agent's log.
        reason: String,
    },
    /// Ask or tell a node's controller something. What it answers comes back as [`super::PowerCommand::Said`].
    Power {
        /// Whose.
        node: NodeName,
        /// What.
        verb: PowerVerb,
        /// The number of the question.
        ask: u64,
    },
    /// Tell whoever watches.
    Notify(Notice),
}

/// A row of the store's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A task has ended.
    Ended(Box<EndedTask>),
    /// An ended task will run again: its row goes.
    Reopened(TaskId),
    /// A job has ended, or has changed since: the store has it from now on, and the state has not.
    JobEnded(Arc<Job>),
    /// An ended job lives again: the state has it from now on.
    JobReopened(JobId),
    /// A job was submitted with an environment. It is kept until the job is forgotten or can no longer run.
    Environment {
        /// The job.
        job: JobId,
        /// The environment, by content.
        digest: Digest,
    },
    /// A job was dropped: all that is kept of it goes.
    Forgotten(JobId),
}

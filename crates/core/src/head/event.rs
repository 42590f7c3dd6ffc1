//! Events and the changes that follow from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hostler_model::{
    Attempt, Dependency, Digest, Epoch, IndexSet, JobId, JobSpec, JobState, NodeFacts, NodeName, PartitionName,
    PowerVerb, Resources, RunId, TaskId, WallTime,
};
use hostler_proto::api::Notice;
use hostler_proto::link::{HeadMessage, RunEnd, StepEndpoint};
use hostler_proto::notify::{Alert, Message};
use hostler_proto::record::EndedTask;
use serde::{Deserialize, Serialize};

use super::ids::{ConnectionId, Now, SubmissionKey};
use super::jobs::dependency::PastJob;
use super::jobs::job::{Job, KeptFiles};
use super::nodes::partition::PartitionsEvent;
use super::power::PowerEvent;
use super::settings::{Setting, SettingValue};
use super::users::user::UsersEvent;

/// An event with its time; one record of the head's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// When the event happened.
    pub now: Now,
    /// What happened.
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
        /// The uid that the head runs under. A user with this uid on the head's machine is an admin.
        #[serde(default)]
        owner: Option<u32>,
    },
    /// A job was accepted.
    Submitted {
        /// The job's id.
        job: JobId,
        /// The submission's key.
        key: SubmissionKey,
        /// The submitting user.
        user: String,
        /// The user's uid, if known.
        uid: Option<u32>,
        /// The job's specification.
        spec: Arc<JobSpec>,
        /// The digest of the environment variables, which the store has; those in `spec` are empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment: Option<Digest>,
        /// The states of dependencies that had already ended.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        after: Vec<(JobId, JobState)>,
        /// Dependencies among them that are task by task (`aftercorr`) or have a delay.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        past: Vec<(JobId, PastJob)>,
    },
    /// A user cancelled a job, or one task of a job.
    Cancelled {
        /// The job to cancel.
        job: JobId,
        /// The index of the cancelled task; `None`: all tasks.
        index: Option<u32>,
    },
    /// A user cancelled several tasks of an array.
    TasksCancelled {
        /// The array.
        job: JobId,
        /// The cancelled tasks.
        indices: IndexSet,
    },
    /// A user put a job, or one task of a job, on hold.
    Held {
        /// The held job.
        job: JobId,
        /// The index of the held task; `None`: the whole job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        index: Option<u32>,
        /// Whether an operator holds the job of another user.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_operator: bool,
    },
    /// A user released a held job, or one held task of a job.
    Released {
        /// The released job.
        job: JobId,
        /// The index of the released task; `None`: the whole job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        index: Option<u32>,
        /// Whether tasks that an operator holds stay held, because the owner released the job.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keeps_operators: bool,
        /// The job as the store had it, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// A user requeued a job, or one task of a job.
    Requeued {
        /// The requeued job.
        job: JobId,
        /// The index of the requeued task; `None`: all tasks.
        index: Option<u32>,
        /// Whether completed tasks keep their results and do not run again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keeps_completed: bool,
        /// Dependencies on jobs that have not ended: the job waits for them again. Only those on counterparts of its tasks if the job had
        /// not ended itself.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waits_for: Vec<Dependency>,
        /// Results whose files the next attempts of ended tasks start with; those of running tasks follow. `None`: the next
        /// attempts start in the captured folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<Box<KeptFiles>>,
        /// The job as the store had it, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// A user changed a job.
    JobChanged {
        /// The changed job.
        job: JobId,
        /// The job's new specification.
        spec: Arc<JobSpec>,
        /// The states of dependencies that had already ended.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        after: Vec<(JobId, JobState)>,
        /// Dependencies among them that are task by task (`aftercorr`) or have a delay.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        past: Vec<(JobId, PastJob)>,
    },
    /// The scheduler placed tasks.
    Placed {
        /// The placements, in the order of the decisions. A run on several nodes has one per node, ordered by rank.
        starts: Vec<Start>,
    },
    /// The agent has stored the launch on disk.
    Accepted {
        /// The run that the agent accepted.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
    },
    /// The node has the files of the run's captured folder and prepares the environment.
    Staged {
        /// The run that needs only its environment.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
    },
    /// The node has prepared its part of the run and waits for the other nodes.
    Ready {
        /// The prepared run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
        /// A port that is free on the node.
        port: u16,
        /// Port and certificate for steps that other nodes start there; `None` if the node accepts no steps.
        #[serde(default)]
        endpoint: Option<StepEndpoint>,
    },
    /// The run's process has started on the node.
    Running {
        /// The started run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
        /// How long ago, in milliseconds, if the head was away then.
        #[serde(default, skip_serializing_if = "is_zero")]
        ago_ms: u64,
    },
    /// The run's process has ended on the node.
    Completing {
        /// The run whose process ended.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
        /// How long ago, in milliseconds, if the head was away then.
        #[serde(default, skip_serializing_if = "is_zero")]
        ago_ms: u64,
    },
    /// The run has ended on the node, and the head has its complete result.
    Ended {
        /// The ended run.
        run: RunId,
        /// The rank of the node.
        #[serde(default)]
        rank: u32,
        /// How the run ended, and with which result.
        end: RunEnd,
    },
    /// A node reported its facts, because it is new, has changed or was restarted.
    NodeSeen {
        /// The node's name.
        node: NodeName,
        /// The facts that the node's agent reports.
        facts: Box<NodeFacts>,
    },
    /// A node was silent for `lost-after`: the head gives up its runs.
    NodeGivenUp {
        /// The node's name.
        node: NodeName,
        /// When the node's last message arrived, on the wall clock.
        silent_since: WallTime,
    },
    /// A node is down that the head did not switch off, or such a node is back. Operators are notified.
    NodeReported {
        /// The node's name.
        node: NodeName,
        /// Whether the node is down.
        is_down: bool,
    },
    /// The time has come at which a job may start, or at which the delay of one of its dependencies ends.
    BeginTimeCame {
        /// The job.
        job: JobId,
    },
    /// A job has waited for the time of a subscription.
    WaitedLong {
        /// The job that waits.
        job: JobId,
    },
    /// Something began that operators must know.
    AlertRaised {
        /// The alert.
        alert: Alert,
        /// The details, for people.
        text: String,
    },
    /// An alert is over.
    AlertEnded {
        /// The alert.
        alert: Alert,
    },
    /// An operator forgot a node without runs.
    NodeForgotten {
        /// The node's name.
        node: NodeName,
    },
    /// An operator drained a node: it gets no new work.
    NodeDrained {
        /// The node's name.
        node: NodeName,
        /// The operator's name.
        by: String,
        /// The reason, in the operator's words.
        reason: Option<String>,
    },
    /// An operator ended the drain of a node.
    NodeResumed {
        /// The node's name.
        node: NodeName,
    },
    /// An admin removed a node. The node's keys are revoked, and the head gives up the runs on the node.
    NodeRemoved {
        /// The node's name.
        node: NodeName,
        /// The admin's name.
        by: String,
    },
    /// A node joined. Earlier keys of nodes with the same name are revoked.
    NodeJoined {
        /// The node's name.
        node: NodeName,
        /// The fingerprint of the node's public key.
        key: Digest,
        /// How long the key is valid, in milliseconds on the cluster's clock.
        life_ms: u64,
    },
    /// A node got a certificate for a new key. The previous key stays valid until the new one is used.
    KeyRenewed {
        /// The node's name.
        node: NodeName,
        /// The fingerprint of the new public key.
        key: Digest,
        /// How long the new key is valid, in milliseconds on the cluster's clock.
        life_ms: u64,
    },
    /// A node connected with its renewed key. The previous key is revoked.
    KeyUsed {
        /// The node's name.
        node: NodeName,
    },
    /// A client has fetched results and stored them safely.
    Fetched {
        /// The job of the results.
        job: JobId,
        /// The tasks whose results were fetched.
        indices: IndexSet,
        /// The job as the store had it, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// A client has fetched results of an earlier attempt and stored them safely, so the head drops them.
    EarlierFetched {
        /// The job of the results.
        job: JobId,
        /// The attempt that was requeued.
        attempt: Attempt,
        /// The tasks whose results were fetched.
        indices: IndexSet,
        /// The job as the store had it, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// Fetched results were dropped to free disk space. The records of how the tasks ended remain.
    ResultsDropped {
        /// The job of the results.
        job: JobId,
        /// The tasks whose results were dropped.
        indices: IndexSet,
        /// The job as the store had it, if it had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended: Option<Arc<Job>>,
    },
    /// An operator changed a setting.
    SettingChanged {
        /// The changed setting.
        setting: Setting,
        /// The new value; absent means the default.
        value: Option<SettingValue>,
        /// The operator's name.
        by: String,
    },
    /// A node has had a run of a job that this head does not know, because an older backup of the head was restored. New jobs
    /// get later numbers.
    NumbersSkipped {
        /// The last number that is not used.
        last: JobId,
    },
    /// The runs on a node of jobs that this head does not know because it was restored from a backup. They go on until an
    /// operator resumes the node.
    UnknownRuns {
        /// The node's name.
        node: NodeName,
        /// All such runs on the node.
        runs: BTreeSet<RunId>,
    },
    /// Jobs and their results were dropped after their retention.
    Forgotten {
        /// The forgotten jobs.
        jobs: Vec<JobId>,
        /// The users of those among the jobs whose files nobody had fetched.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        unfetched: BTreeMap<JobId, String>,
    },
    /// Accounts, roles, groups or quotas changed.
    Users(UsersEvent),
    /// A change of partitions or of nodes' traits.
    Partitions(PartitionsEvent),
    /// The power state of a node, or what the head knows about it, changed.
    Power(PowerEvent),
    /// An agent has connected. Not durable: connections end when the head stops.
    Connected {
        /// The agent's node.
        node: NodeName,
        /// The new connection's id.
        connection: ConnectionId,
        /// The agent's process id.
        pid: u32,
        /// The agent's release.
        version: String,
        /// The runs that the agent has.
        holds: Vec<RunId>,
    },
    /// An agent's connection has ended. Not durable.
    Disconnected {
        /// The ended connection's id.
        connection: ConnectionId,
    },
    /// An agent sent a message, so its node is not silent. Not durable.
    Heard {
        /// The connection on which the message arrived.
        connection: ConnectionId,
    },
    /// A node was silent for `suspect-after`. Not durable.
    Silent {
        /// The node's name.
        node: NodeName,
    },
    /// A node was silent for `down-after` and counts as down. Not durable.
    Down {
        /// The node's name.
        node: NodeName,
    },
    /// The head informed the gossiping nodes that their peers changed. Not durable.
    PeersTold,
}

impl Event {
    /// Returns whether the log must contain the event. Events that are not durable change only state that ends with the
    /// head's process.
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
            | Self::TasksCancelled { .. }
            | Self::Held { .. }
            | Self::Released { .. }
            | Self::Requeued { .. }
            | Self::JobChanged { .. }
            | Self::Placed { .. }
            | Self::Accepted { .. }
            | Self::Staged { .. }
            | Self::Ready { .. }
            | Self::Running { .. }
            | Self::Completing { .. }
            | Self::Ended { .. }
            | Self::NodeSeen { .. }
            | Self::NodeGivenUp { .. }
            | Self::NodeReported { .. }
            | Self::BeginTimeCame { .. }
            | Self::WaitedLong { .. }
            | Self::AlertRaised { .. }
            | Self::AlertEnded { .. }
            | Self::NodeForgotten { .. }
            | Self::NodeDrained { .. }
            | Self::NodeResumed { .. }
            | Self::NodeRemoved { .. }
            | Self::NodeJoined { .. }
            | Self::KeyRenewed { .. }
            | Self::KeyUsed { .. }
            | Self::Fetched { .. }
            | Self::EarlierFetched { .. }
            | Self::ResultsDropped { .. }
            | Self::SettingChanged { .. }
            | Self::Forgotten { .. }
            | Self::NumbersSkipped { .. }
            | Self::UnknownRuns { .. }
            | Self::Users(_)
            | Self::Partitions(_) => true,
        }
    }
}

/// The placement of a task on a node. A task on several nodes has one such placement per node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The run that starts.
    pub run: RunId,
    /// The node that executes this part of the run.
    pub node: NodeName,
    /// The CPU ids, memory, GPU ids and counted resources of the run on this node.
    pub resources: Resources,
}

/// The consequences of events. The shell carries them out only after the events are durable.
#[derive(Debug, Default)]
pub struct Changes {
    /// Effects, in the order in which they must be carried out.
    pub effects: Vec<Effect>,
    /// Records to store in the same transaction as the events.
    pub records: Vec<Record>,
}

/// An action that the shell carries out for the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send a message to an agent. If the connection is closed, the message is dropped; the agent's next hello restores
    /// the missing information.
    Send {
        /// The agent's connection.
        connection: ConnectionId,
        /// The message to send.
        message: HeadMessage,
    },
    /// Close a connection.
    Close {
        /// The connection to close.
        connection: ConnectionId,
        /// The reason, for the agent's log.
        reason: String,
    },
    /// Send a request to a node's power controller. The answer arrives as [`super::PowerCommand::Said`].
    Power {
        /// The node that the controller reports on or switches on or off.
        node: NodeName,
        /// Query the state, switch on, or switch off.
        verb: PowerVerb,
        /// The number of the request, which the answer repeats.
        ask: u64,
    },
    /// Notify clients that watch the cluster.
    Notify(Notice),
    /// Count what happened to tasks, for the head's metrics.
    Count(TaskCount),
    /// Deliver the new messages in the outbox.
    Deliver,
    /// Log that a node is down that the head did not switch off, or that such a node is back.
    ReportNode {
        /// The node's name.
        node: NodeName,
        /// Whether the node is down.
        is_down: bool,
        /// The tasks that the node has.
        tasks: Vec<TaskId>,
    },
}

/// What happened to tasks of one job, for the head's metrics. Counted once the events are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCount {
    /// The partition of the job, if any.
    pub partition: Option<PartitionName>,
    /// What happened.
    pub what: TaskChange,
}

/// A kind of [`TaskCount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskChange {
    /// Tasks were submitted.
    Submitted {
        /// The number of tasks.
        tasks: u64,
    },
    /// The first attempt of a task was placed.
    Placed {
        /// The time since the submission, in milliseconds on the wall clock.
        waited_ms: u64,
    },
    /// Tasks ended.
    Ended {
        /// The final state of the tasks.
        state: JobState,
        /// The number of tasks.
        tasks: u64,
    },
}

/// A change to the store's tables of ended tasks and jobs, in the same transaction as the events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A task has ended: add a row for the task.
    Ended(Box<EndedTask>),
    /// An ended task without a result that waits for its user is requeued: delete its row.
    Reopened(TaskId),
    /// An ended task is requeued before its result was fetched: move its row to the earlier attempts.
    SetAside(TaskId),
    /// A run was requeued while it ran, and has a result: add a row to the earlier attempts.
    EarlierEnded(Box<EndedTask>),
    /// The result of an earlier attempt was fetched: delete its row.
    EarlierFetched(TaskId, Attempt),
    /// A job ended, or an ended job changed: store the job, which the head's state no longer contains.
    JobEnded(Arc<Job>),
    /// An ended job is requeued: delete it from the store. The head's state contains it again.
    JobReopened(JobId),
    /// A job was submitted with environment variables. The store keeps them until the job is forgotten or can no longer run.
    Environment {
        /// The job that was submitted.
        job: JobId,
        /// The digest of the environment variables.
        digest: Digest,
    },
    /// A job was forgotten: delete all stored data of the job.
    Forgotten(JobId),
    /// Users or operators must be notified: add the message to the outbox.
    Message {
        /// The message's number, which identifies it.
        number: u64,
        /// The message.
        message: Box<Message>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

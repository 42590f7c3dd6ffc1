//! Commands to the head, and the reasons for refusing them.

use std::collections::BTreeSet;
use std::sync::Arc;

use hostler_model::{Digest, IndexSet, JobId, JobSpec, NodeName, PartitionName, Reason, RunId, Timestamp};
use hostler_proto::api::JobAction;
use hostler_proto::link::{AgentHello, AgentMessage};
use hostler_sched::NeverFits;

use super::event::{ConnectionId, SubmissionKey};
use super::job::Job;
use super::member::Unwelcome;
use super::partitions::PartitionsCommand;
use super::power::PowerCommand;
use super::settings::Setting;
use super::users::{UsersCommand, UsersRefusal};

/// The user behind a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's name.
    pub user: String,
    /// The user's uid, if the authentication provides it.
    pub uid: Option<u32>,
    /// Whether the caller may act on other users' jobs.
    pub operator: bool,
}

impl Caller {
    /// Whether the job belongs to this caller: same name, and same uid where both are known. The same name on another machine may
    /// belong to another person.
    #[must_use]
    pub fn owns(&self, job: &Job) -> bool {
        let is_same_uid = !matches!((self.uid, job.uid), (Some(own), Some(theirs)) if own != theirs);
        self.user == job.user && is_same_uid
    }

    /// Whether this caller may see and change the job.
    #[must_use]
    pub fn may_touch(&self, job: &Job) -> bool {
        self.operator || self.owns(job)
    }

    /// The refusal for a job of another user.
    #[must_use]
    pub fn refused(&self, job: &Job) -> Refusal {
        let owner = match job.uid {
            Some(uid) if job.user == self.user => format!("{}, whose uid is {uid}", job.user),
            _ if self.user.strip_prefix(&job.user).is_some_and(|rest| rest.starts_with('@')) => {
                format!("{} (through a node you are {}; `hostler login` makes you {0})", job.user, self.user)
            }
            Some(_) | None => job.user.clone(),
        };
        Refusal::NotYours { job: job.id, owner }
    }
}

/// A request or a message to the head.
#[derive(Debug, Clone)]
pub enum Command {
    /// A user submits a job.
    Submit {
        /// The submitting user.
        caller: Caller,
        /// Makes retries idempotent: unique per intended submission.
        key: SubmissionKey,
        /// The job's specification.
        spec: Arc<JobSpec>,
        /// The digest of the job's environment variables, which the shell stores with the job.
        environment: Option<Digest>,
        /// Whether the head has the complete project folder that the job names.
        snapshot_is_complete: bool,
    },
    /// A user acts on a job.
    Act {
        /// The user.
        caller: Caller,
        /// The job.
        job: JobId,
        /// One task of the job; all tasks when absent.
        index: Option<u32>,
        /// The action.
        action: JobAction,
    },
    /// A client has stored results safely.
    Fetched {
        /// The user.
        caller: Caller,
        /// The job.
        job: JobId,
        /// The tasks whose results were fetched.
        indices: IndexSet,
    },
    /// Drop jobs in this list after their retention.
    Forget {
        /// Jobs, each with the time at which it ended.
        jobs: Vec<(JobId, Timestamp)>,
    },
    /// Drop fetched results to free disk space, even before their retention ends.
    DropResults {
        /// The job.
        job: JobId,
        /// The tasks to drop results of; unfetched results stay.
        indices: IndexSet,
    },
    /// An operator takes a node off the list; it returns when its agent connects again.
    ForgetNode {
        /// The node.
        node: NodeName,
    },
    /// An operator drains a node: it gets no new work; its runs continue.
    DrainNode {
        /// The node.
        node: NodeName,
        /// The operator.
        by: String,
        /// The reason, in the operator's words.
        reason: Option<String>,
    },
    /// An operator ends the drain of a node.
    ResumeNode {
        /// The node.
        node: NodeName,
    },
    /// An admin removes a node from the cluster, at once and permanently.
    RemoveNode {
        /// The node.
        node: NodeName,
        /// The admin.
        by: String,
    },
    /// A machine with a valid invitation becomes a node.
    Join {
        /// The node.
        node: NodeName,
        /// The fingerprint of its public key.
        key: Digest,
        /// How long the key is valid, in milliseconds on the cluster's clock.
        life_ms: u64,
        /// Whether the invitation names this node, so that the machine may replace an existing node of that name.
        may_replace: bool,
    },
    /// An agent requests a certificate for a new key.
    Renew {
        /// Its node.
        node: NodeName,
        /// The fingerprint of the agent's current key.
        with: Digest,
        /// The fingerprint of the new key.
        key: Digest,
        /// How long the new key is valid, in milliseconds on the cluster's clock.
        life_ms: u64,
    },
    /// An operator changes a setting.
    Set {
        /// The operator.
        by: String,
        /// The setting.
        setting: Setting,
        /// The value as typed; absent resets the setting to its default.
        value: Option<String>,
    },
    /// A change of a partition or of a node's traits.
    Partitions(PartitionsCommand),
    /// A command about power.
    Power(PowerCommand),
    /// A change of users. The shell has already checked that the caller may do it.
    Users(UsersCommand),
    /// An agent opens a connection.
    Hello {
        /// The connection.
        connection: ConnectionId,
        /// The fingerprint of the agent's public key.
        key: Digest,
        /// The content of the hello.
        hello: Box<AgentHello>,
        /// Ended runs in the hello whose results are complete on the head.
        complete: BTreeSet<RunId>,
    },
    /// An agent sends a message.
    Message {
        /// The connection.
        connection: ConnectionId,
        /// The message.
        message: AgentMessage,
        /// For the end of a run with a result: whether the head has the complete result.
        result_is_complete: bool,
    },
    /// An agent's connection has ended.
    ConnectionEnded {
        /// The connection.
        connection: ConnectionId,
    },
    /// Check for silent nodes. Due at [`super::State::next_deadline`]; harmless earlier.
    Tick,
}

/// Why a command is refused. The text is for people; [`Refusal::code`] is for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No node is large enough for the job.
    #[error("no node can ever run this job: it {0}")]
    NeverFits(Box<NeverFits>),
    /// A job of root, and no node that it may use accepts jobs of root.
    #[error("no node that this job may use runs jobs of root")]
    NotForRoot,
    /// A job of a node's root, submitted through that node: no other node has this account.
    #[error("jobs of a node's root are not run; submit it as another user, or on the head's machine")]
    NotForRootOfNode,
    /// A job submitted through a node by an account with more rights than a user, under the account's name on that node.
    #[error(
        "the account that runs the head, and accounts with a role above user, cannot submit jobs through a node, because the node's root \
        could impersonate them; you are {0} here"
    )]
    NotThroughNodes(String),
    /// The job exceeds a quota of its user.
    #[error("{0}")]
    OverQuota(String),
    /// The user's waiting jobs reach the limit that bounds the head's memory.
    #[error("{0}")]
    TooMuchWaits(String),
    /// The head does not have the complete project folder.
    #[error("the captured folder is not on the head yet")]
    SnapshotMissing,
    /// The job does not exist, or no longer.
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    /// The job has no task with this index.
    #[error("job {job} has no task {index}")]
    NoSuchTask {
        /// The job.
        job: JobId,
        /// The requested index.
        index: u32,
    },
    /// The job depends on a job that does not exist.
    #[error("it depends on job {0}, which does not exist")]
    NoSuchDependency(JobId),
    /// The job belongs to another user.
    #[error("job {job} belongs to {owner}")]
    NotYours {
        /// The job.
        job: JobId,
        /// The job's owner.
        owner: String,
    },
    /// The action does not apply to the job's state.
    #[error("job {job} {why}")]
    WrongState {
        /// The job.
        job: JobId,
        /// The reason, as the rest of a sentence.
        why: &'static str,
    },
    /// The specification is invalid.
    #[error("{0}")]
    BadSpec(String),
    /// A job of several processes has a terminal.
    #[error("a job of several processes cannot have a terminal; leave out one of the two")]
    TerminalForSeveral,
    /// The setting's new value is invalid, or conflicts with another setting.
    #[error("{0}")]
    BadSetting(String),
    /// The partition does not exist.
    #[error("there is no partition {partition}")]
    NoSuchPartition {
        /// The name.
        partition: PartitionName,
        /// The partitions that exist.
        there: Vec<PartitionName>,
    },
    /// A partition with this name exists.
    #[error("there is a partition {0} already")]
    PartitionExists(PartitionName),
    /// The partition does not accept the job.
    #[error("partition {partition} {why}")]
    PartitionRefuses {
        /// The partition.
        partition: PartitionName,
        /// The reason, as the rest of a sentence.
        why: String,
    },
    /// The partition cannot be removed while jobs wait in it.
    #[error("{jobs} {} in partition {partition}", if *.jobs == 1 { "job waits" } else { "jobs wait" })]
    PartitionInUse {
        /// The partition.
        partition: PartitionName,
        /// How many jobs wait in the partition.
        jobs: usize,
    },
    /// The values for a partition or a node are invalid.
    #[error("{0}")]
    BadPartition(String),
    /// The cluster has no node that the job may use.
    #[error("no node can ever run this job: {0}")]
    NoNodes(Reason),
    /// The node does not exist, or no longer.
    #[error("there is no node {0}")]
    NoSuchNode(NodeName),
    /// The head cannot power the node on or off: it is not configured.
    #[error("node {0} cannot be switched on or off: it is not in the head's power.toml")]
    NoPower(NodeName),
    /// The node cannot be forgotten while it is in use.
    #[error("node {node} {why}")]
    NodeInUse {
        /// The node.
        node: NodeName,
        /// The reason, as the rest of a sentence.
        why: String,
    },
    /// A node with this name exists, and the invitation does not name it.
    #[error("there is a node {0} already")]
    NameTaken(NodeName),
    /// The node's key is not valid, or no longer.
    #[error(transparent)]
    Unwelcome(#[from] Unwelcome),
    /// A change of users is refused.
    #[error(transparent)]
    Users(#[from] UsersRefusal),
    /// Another connection has taken over the node's name.
    #[error("a message on a connection that is no longer the node's")]
    Stale,
}

impl Refusal {
    /// A stable code for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NeverFits(_) => "never_fits",
            Self::NotForRoot | Self::NotForRootOfNode => "not_for_root",
            Self::NotThroughNodes(_) => "not_through_nodes",
            Self::OverQuota(_) | Self::TooMuchWaits(_) => "over_quota",
            Self::SnapshotMissing => "snapshot_missing",
            Self::NoSuchJob(_) => "no_such_job",
            Self::NoSuchTask { .. } => "no_such_task",
            Self::NoSuchDependency(_) => "no_such_dependency",
            Self::NotYours { .. } => "not_yours",
            Self::WrongState { .. } => "wrong_state",
            Self::BadSpec(_) | Self::TerminalForSeveral => "bad_spec",
            Self::BadSetting(_) => "bad_setting",
            Self::NoSuchPartition { .. } => "no_such_partition",
            Self::PartitionExists(_) => "partition_exists",
            Self::PartitionRefuses { .. } => "partition_refuses",
            Self::PartitionInUse { .. } => "partition_in_use",
            Self::BadPartition(_) => "bad_partition",
            Self::NoNodes(_) => "never_fits",
            Self::NoSuchNode(_) => "no_such_node",
            Self::NoPower(_) => "no_power",
            Self::NodeInUse { .. } => "node_in_use",
            Self::NameTaken(_) => "name_taken",
            Self::Unwelcome(_) => "unwelcome",
            Self::Users(refusal) => refusal.code(),
            Self::Stale => "stale",
        }
    }
}

//! What somebody wants of the head or says to it, and why it may be refused.

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

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's name.
    pub user: String,
    /// The uid that belongs to it, if whoever let them in knows it.
    pub uid: Option<u32>,
    /// Whether they may touch other users' jobs.
    pub operator: bool,
}

impl Caller {
    /// Whether a job is this caller's: of the same name, and of the same uid where both are known. On another machine the name may be
    /// another person's.
    #[must_use]
    pub fn owns(&self, job: &Job) -> bool {
        let is_same_uid = !matches!((self.uid, job.uid), (Some(own), Some(theirs)) if own != theirs);
        self.user == job.user && is_same_uid
    }

    /// Whether this caller may see what is in a job and tell it what to do.
    #[must_use]
    pub fn may_touch(&self, job: &Job) -> bool {
        self.operator || self.owns(job)
    }

    /// The refusal for a job that is not theirs.
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

/// What somebody wants or says.
#[derive(Debug, Clone)]
pub enum Command {
    /// A user submits a job.
    Submit {
        /// Who.
        caller: Caller,
        /// Unique for the intended submission.
        key: SubmissionKey,
        /// What to run.
        spec: Arc<JobSpec>,
        /// Its environment, by content, which the shell stores with it.
        environment: Option<Digest>,
        /// Whether the captured folder it names is complete on the head.
        snapshot_is_complete: bool,
    },
    /// A user wants something done to a job.
    Act {
        /// Who.
        caller: Caller,
        /// The job.
        job: JobId,
        /// One task of it; all when absent.
        index: Option<u32>,
        /// What to do.
        action: JobAction,
    },
    /// A client has results safely.
    Fetched {
        /// Who.
        caller: Caller,
        /// The job.
        job: JobId,
        /// Which tasks' results.
        indices: IndexSet,
    },
    /// These jobs ended then. Those whose retention is over are to go.
    Forget {
        /// The jobs.
        jobs: Vec<(JobId, Timestamp)>,
    },
    /// Room is needed: results that have been fetched are to go, whatever their retention.
    DropResults {
        /// The job.
        job: JobId,
        /// Which tasks' results; those that were not fetched stay.
        indices: IndexSet,
    },
    /// An operator wants a node off the list; it comes back when its agent connects again.
    ForgetNode {
        /// The node.
        node: NodeName,
    },
    /// An operator wants nothing new on a node; what runs there runs on.
    DrainNode {
        /// The node.
        node: NodeName,
        /// Who wants that.
        by: String,
        /// Why, in their words.
        reason: Option<String>,
    },
    /// An operator lets a drained node take work again.
    ResumeNode {
        /// The node.
        node: NodeName,
    },
    /// An operator wants a node out of the cluster, at once and for good.
    RemoveNode {
        /// The node.
        node: NodeName,
        /// Who wants that.
        by: String,
    },
    /// A machine with a valid invitation becomes a node.
    Join {
        /// The node.
        node: NodeName,
        /// The fingerprint of its public key.
        key: Digest,
        /// How long the key is good for, in milliseconds on the cluster's clock.
        life_ms: u64,
        /// Whether the invitation was made for this name, so that it may take the place of a node that has it.
        may_replace: bool,
    },
    /// An agent wants a certificate for a new key.
    Renew {
        /// Its node.
        node: NodeName,
        /// The fingerprint of the key with which it asks.
        with: Digest,
        /// That of the new one.
        key: Digest,
        /// How long that is good for, in milliseconds on the cluster's clock.
        life_ms: u64,
    },
    /// An operator changes a setting.
    Set {
        /// Who.
        by: String,
        /// Which.
        setting: Setting,
        /// The value as people write it; as by default when absent.
        value: Option<String>,
    },
    /// An operator wants something about partitions, or sets something about a node.
    Partitions(PartitionsCommand),
    /// Something about power.
    Power(PowerCommand),
    /// Something is to be done about users; the shell has seen to who may want it.
    Users(UsersCommand),
    /// An agent opens a connection.
    Hello {
        /// The connection.
        connection: ConnectionId,
        /// The fingerprint of the public key with which it came.
        key: Digest,
        /// What it says.
        hello: Box<AgentHello>,
        /// The ended runs of the hello whose results are complete on the head.
        complete: BTreeSet<RunId>,
    },
    /// An agent says something.
    Message {
        /// The connection.
        connection: ConnectionId,
        /// What it says.
        message: AgentMessage,
        /// For an ending with a result: whether the result is complete on the head.
        result_is_complete: bool,
    },
    /// An agent's connection has ended.
    ConnectionEnded {
        /// The connection.
        connection: ConnectionId,
    },
    /// Time has passed: see who is silent. Due at [`super::State::next_deadline`]; harmless earlier.
    Tick,
}

/// Why a command is refused. The text is for the user; [`Refusal::code`] is for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No node could ever run it.
    #[error("no node can ever run this job: it {0}")]
    NeverFits(Box<NeverFits>),
    /// It is root's, and no node that it may use runs jobs of root.
    #[error("no node that this job may use runs jobs of root")]
    NotForRoot,
    /// It was submitted by root through a node, whom no other node knows.
    #[error("jobs of a node's root are not run; submit it as another user, or on the head's machine")]
    NotForRootOfNode,
    /// It was submitted through a node by an account that has more power than a user, under the name that it has there.
    #[error(
        "the account that runs the head, and accounts with a role above user, submit no jobs through a node, whose root could claim to be \
         them: here you are {0}"
    )]
    NotThroughNodes(String),
    /// It is more than its user may have.
    #[error("{0}")]
    OverQuota(String),
    /// Its user has as many jobs waiting as the head's memory has room for.
    #[error("{0}")]
    TooMuchWaits(String),
    /// The captured folder is not here, or not all of it.
    #[error("the captured folder is not on the head yet")]
    SnapshotMissing,
    /// There is no such job, or not any more.
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    /// The job has no such task.
    #[error("job {job} has no task {index}")]
    NoSuchTask {
        /// The job.
        job: JobId,
        /// The index asked for.
        index: u32,
    },
    /// It depends on a job that does not exist.
    #[error("it depends on job {0}, which does not exist")]
    NoSuchDependency(JobId),
    /// The job is another user's.
    #[error("job {job} belongs to {owner}")]
    NotYours {
        /// The job.
        job: JobId,
        /// Its user.
        owner: String,
    },
    /// The action makes no sense in the job's state.
    #[error("job {job} {why}")]
    WrongState {
        /// The job.
        job: JobId,
        /// Why not, as the rest of a sentence.
        why: &'static str,
    },
    /// The specification contradicts itself.
    #[error("{0}")]
    BadSpec(String),
    /// The setting cannot be that, or not while others are what they are.
    #[error("{0}")]
    BadSetting(String),
    /// There is no such partition.
    #[error("there is no partition {partition}")]
    NoSuchPartition {
        /// The name.
        partition: PartitionName,
        /// Those that there are.
        there: Vec<PartitionName>,
    },
    /// There is such a partition.
    #[error("there is a partition {0} already")]
    PartitionExists(PartitionName),
    /// The partition does not take the job.
    #[error("partition {partition} {why}")]
    PartitionRefuses {
        /// The partition.
        partition: PartitionName,
        /// Why not, as the rest of a sentence.
        why: String,
    },
    /// The partition cannot go now.
    #[error("{jobs} {} in partition {partition}", if *.jobs == 1 { "job waits" } else { "jobs wait" })]
    PartitionInUse {
        /// The partition.
        partition: PartitionName,
        /// How many jobs wait in it.
        jobs: usize,
    },
    /// No partition, or node, can be like that.
    #[error("{0}")]
    BadPartition(String),
    /// No node that the job may use is in the cluster.
    #[error("no node can ever run this job: {0}")]
    NoNodes(Reason),
    /// There is no such node, or not any more.
    #[error("there is no node {0}")]
    NoSuchNode(NodeName),
    /// Nothing is known of how the node could be switched.
    #[error("node {0} cannot be switched on or off: it is not in the head's power.toml")]
    NoPower(NodeName),
    /// The node cannot be forgotten now.
    #[error("node {node} {why}")]
    NodeInUse {
        /// The node.
        node: NodeName,
        /// Why not, as the rest of a sentence.
        why: String,
    },
    /// A node with this name is in the cluster, and the invitation was not made for it.
    #[error("there is a node {0} already")]
    NameTaken(NodeName),
    /// The node's key is not, or no longer, good.
    #[error(transparent)]
    Unwelcome(#[from] Unwelcome),
    /// It is not done about users.
    #[error(transparent)]
    Users(#[from] UsersRefusal),
    /// The node's name is taken by an agent that is connected.
    #[error("a message on a connection that is no longer the node's")]
    Stale,
}

impl Refusal {
    /// A stable word for programs.
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
            Self::BadSpec(_) => "bad_spec",
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

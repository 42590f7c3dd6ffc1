//! Commands to the head, and the reasons for refusing them.

use std::collections::BTreeSet;
use std::sync::Arc;

use hostler_model::{
    Ability, Attempt, Dependency, Digest, IndexSet, JobId, JobSpec, NodeName, PartitionName, Reason, RunId, TaskId,
    Timestamp, UserName, WallTime, plural,
};
use hostler_proto::api::JobAction;
use hostler_proto::jobs::JobChange;
use hostler_proto::link::{AgentHello, AgentMessage};
use hostler_proto::notify::Alert;
use hostler_sched::NeverFits;

use super::ids::{ConnectionId, SubmissionKey};
use super::jobs::job::{Job, KeptFiles};
use super::nodes::member::KeyRefusal;
use super::nodes::partition::PartitionsCommand;
use super::power::PowerCommand;
use super::settings::Setting;
use super::users::user::{UsersCommand, UsersRefusal};

/// The user who sends a command, as the shell authenticated the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's name; `NAME@NODE` for a user who comes through a node.
    pub user: String,
    /// The user's uid, if the authentication provides it.
    pub uid: Option<u32>,
    /// Whether the caller may act on other users' jobs.
    pub operator: bool,
}

impl Caller {
    /// Returns whether the job belongs to this caller: same name, and same uid where both are known. The same name on
    /// another machine may belong to another person.
    #[must_use]
    pub fn owns(&self, job: &Job) -> bool {
        let is_same_uid = !matches!((self.uid, job.uid), (Some(own), Some(theirs)) if own != theirs);
        self.user == job.user && is_same_uid
    }

    /// Returns whether this caller may see and change the job.
    #[must_use]
    pub fn may_touch(&self, job: &Job) -> bool {
        self.operator || self.owns(job)
    }

    /// Returns the error for a caller who is not the job's owner.
    #[must_use]
    pub fn refused(&self, job: &Job) -> Refusal {
        let owner = match job.uid {
            Some(uid) if job.user == self.user => format!("{}, whose uid is {uid}", job.user),
            _ if self
                .user
                .strip_prefix(&job.user)
                .and_then(|rest| rest.strip_prefix('@'))
                .is_some_and(is_node_name) =>
            {
                format!(
                    "{} (requests through this node come from {}; `hostler login` gives you the identity {0})",
                    job.user, self.user
                )
            }
            Some(_) | None => job.user.clone(),
        };
        Refusal::NotYours { job: job.id, owner }
    }
}

/// Whether a text may be the name of a node.
fn is_node_name(text: &str) -> bool {
    text.parse::<NodeName>().is_ok()
}

/// Which existing node of its name a machine may replace that joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaces {
    /// None: the invitation is for new nodes.
    Nothing,
    /// One that is down or off and has no tasks: the join code is that of a partition.
    Away,
    /// Any: the invitation names this node.
    Any,
}

/// A command that the head decides: a user's request, or an agent's message.
#[derive(Debug, Clone)]
pub enum Command {
    /// A user submits a job.
    Submit {
        /// The user who submits.
        caller: Caller,
        /// Idempotency key: unique per intended submission, and the same in each retry.
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
        /// The user who acts.
        caller: Caller,
        /// The job to act on.
        job: JobId,
        /// One task of the job; all tasks when absent.
        index: Option<u32>,
        /// Cancel, hold, release or requeue.
        action: JobAction,
    },
    /// A user cancels several tasks of an array.
    CancelTasks {
        /// The user who cancels.
        caller: Caller,
        /// The array.
        job: JobId,
        /// The tasks. Those that have ended or do not exist are ignored.
        indices: IndexSet,
    },
    /// A user requeues a job, whose next attempts start with the files of the last ones.
    RequeueWithFiles {
        /// The user who acts.
        caller: Caller,
        /// The job to requeue.
        job: JobId,
        /// One task of the job; all tasks when absent.
        index: Option<u32>,
        /// How to requeue.
        action: JobAction,
        /// The results of ended tasks that are on the head.
        files: KeptFiles,
    },
    /// A user changes a job.
    Change {
        /// The user who changes the job.
        caller: Caller,
        /// The job to change.
        job: JobId,
        /// The new values.
        change: Box<JobChange>,
    },
    /// A client has fetched results and stored them safely.
    Fetched {
        /// The user who fetched the results.
        caller: Caller,
        /// The job of the results.
        job: JobId,
        /// The tasks whose results were fetched.
        indices: IndexSet,
        /// The earlier attempt of the results; `None` for the last attempt of each task.
        attempt: Option<Attempt>,
    },
    /// Forget ended jobs whose retention is over.
    Forget {
        /// Jobs to check, each with the time at which it ended.
        jobs: Vec<(JobId, Timestamp)>,
    },
    /// Delete ended jobs whose files nobody has fetched, if the setting `unfetched-retention` allows it or the disk needs their
    /// space.
    ForgetUnfetched {
        /// Jobs to check.
        jobs: Vec<JobId>,
        /// Whether the disk needs space. Then the retention of the jobs is enough.
        for_space: bool,
    },
    /// Drop fetched results to free disk space, even before their retention ends.
    DropResults {
        /// The job whose results are dropped.
        job: JobId,
        /// The tasks whose results are dropped. Unfetched results stay.
        indices: IndexSet,
    },
    /// The shell has noticed that an alert begins, or is over.
    Alert {
        /// The alert.
        alert: Alert,
        /// The details, for people; `None` when the alert is over.
        text: Option<String>,
    },
    /// An operator forgets a node; the head lists the node again when its agent connects.
    ForgetNode {
        /// The node to forget.
        node: NodeName,
    },
    /// An operator drains a node: it gets no new work; its runs continue.
    DrainNode {
        /// The node to drain.
        node: NodeName,
        /// The operator's name.
        by: String,
        /// The reason, in the operator's words.
        reason: Option<String>,
    },
    /// An operator ends the drain of a node.
    ResumeNode {
        /// The node whose drain ends.
        node: NodeName,
    },
    /// An admin removes a node from the cluster, at once and permanently.
    RemoveNode {
        /// The node to remove.
        node: NodeName,
        /// The admin's name.
        by: String,
    },
    /// A machine with a valid invitation becomes a node.
    Join {
        /// The new node's name.
        node: NodeName,
        /// The fingerprint of the machine's public key.
        key: Digest,
        /// How long the key is valid, in milliseconds on the cluster's clock.
        life_ms: u64,
        /// Which existing node of this name the machine may replace.
        replaces: Replaces,
    },
    /// An agent requests a certificate for a new key.
    Renew {
        /// The agent's node.
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
        /// The operator's name.
        by: String,
        /// The setting to change.
        setting: Setting,
        /// The value as typed; absent resets the setting to its default.
        value: Option<String>,
    },
    /// An operator changes a partition or a node's traits (features, weight).
    Partitions(PartitionsCommand),
    /// An operator's command about power, a power controller's answer, or a power measurement.
    Power(PowerCommand),
    /// An admin or a user changes accounts. The shell has already checked that the caller may do so.
    Users(UsersCommand),
    /// An agent opens a connection.
    Hello {
        /// The new connection's id.
        connection: ConnectionId,
        /// The fingerprint of the agent's public key.
        key: Digest,
        /// The hello message: the node's facts and the runs that the agent has.
        hello: Box<AgentHello>,
        /// Runs in the hello whose results are complete on the head, or that have none.
        complete: BTreeSet<RunId>,
    },
    /// An agent sends a message.
    Message {
        /// The connection on which the message arrived.
        connection: ConnectionId,
        /// The agent's message.
        message: AgentMessage,
        /// For the end of a run with a result: whether the head has the complete result.
        result_is_complete: bool,
    },
    /// An agent's connection has ended.
    ConnectionEnded {
        /// The ended connection's id.
        connection: ConnectionId,
    },
    /// Check for nodes that have been silent for too long. Due at [`super::State::next_deadline`]; an earlier check has
    /// no effect.
    Tick,
}

/// Why a command is refused. The text is for people; [`Refusal::code`] is for programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No node is large enough for the job.
    #[error("no node can ever run this job: the job {0}")]
    NeverFits(Box<NeverFits>),
    /// The job needs an ability, and no node that it may use has it.
    #[error("no node that this job may use {}; node {node}: {why}", ability.verb())]
    NoAbility {
        /// The ability.
        ability: Ability,
        /// One of the nodes.
        node: NodeName,
        /// Why it lacks the ability, and what to do.
        why: String,
    },
    /// The job belongs to root, and no node that the job may use runs jobs of root.
    #[error("no node that this job may use runs jobs of root")]
    NotForRoot,
    /// The job belongs to the root account of a node and was submitted through that node. No other node has this
    /// account.
    #[error("jobs of a node's root account are not run; submit the job as another user, or on the head's machine")]
    NotForRootOfNode,
    /// An account with more rights than a user submitted a job through a node. The text holds the account's name on
    /// that node.
    #[error(
        "jobs of {0} are refused: the root of a node could submit jobs in the name of a privileged account \
         (the head's own account, or one with a role above user)"
    )]
    NotThroughNodes(String),
    /// The job exceeds a quota.
    #[error("{why}")]
    OverQuota {
        /// Whose quota allows how much, as a sentence.
        why: String,
        /// The group whose quota refuses the job; `None` if it is the user's own quota.
        group: Option<UserName>,
    },
    /// A system account, which an admin has not added as a user, submits a job.
    #[error("system accounts may not run jobs on this cluster, and {user} (uid {uid}) is one")]
    SystemAccount {
        /// The account's name.
        user: String,
        /// The account's uid.
        uid: u32,
    },
    /// The user's waiting jobs reach the limit that bounds the head's memory.
    #[error("{0}")]
    TooManyWaiting(String),
    /// The job's priority is above the limit for users, and the caller is not an operator.
    #[error("users may set a priority of at most {most}, and this job has the priority {priority}")]
    PriorityTooHigh {
        /// The job's priority.
        priority: i32,
        /// The highest priority that users may set.
        most: u32,
    },
    /// The job's project folder is not completely uploaded to the head.
    #[error("the captured folder is not on the head yet")]
    SnapshotMissing,
    /// The job does not exist, or its retention is over.
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    /// The head has deleted the job, and nobody had fetched its files.
    #[error("job {job} was deleted, and nobody had fetched its results")]
    Deleted {
        /// The deleted job.
        job: JobId,
        /// When the head deleted the job.
        at: WallTime,
    },
    /// The job has no task with this index.
    #[error("job {job} has no task {index}")]
    NoSuchTask {
        /// The existing job.
        job: JobId,
        /// The index that the command names.
        index: u32,
    },
    /// The job names a dependency on a job that does not exist.
    #[error("the job depends on job {0}, which does not exist")]
    NoSuchDependency(JobId),
    /// The job names a dependency on a task that does not exist.
    #[error("the job depends on task {0}, and job {job} has no such task", job = .0.job)]
    NoSuchTaskDependency(TaskId),
    /// The job belongs to another user.
    #[error("job {job} belongs to {owner}")]
    NotYours {
        /// The job that the caller may not change.
        job: JobId,
        /// The owner's name.
        owner: String,
    },
    /// The job's state does not allow the action.
    #[error("job {job} {why}")]
    WrongState {
        /// The job that the action names.
        job: JobId,
        /// The reason, as the rest of a sentence.
        why: &'static str,
    },
    /// The state of one task does not allow the action.
    #[error("task {job}_{index} {why}")]
    WrongTaskState {
        /// The job that the action names.
        job: JobId,
        /// The index of the task.
        index: u32,
        /// The reason, as the rest of a sentence.
        why: &'static str,
    },
    /// Only operators may do this. The text is the whole sentence.
    #[error("{0}")]
    NotAllowed(&'static str),
    /// A requeue would only affect completed tasks.
    #[error("the ended tasks of job {0} have completed, and a requeue keeps completed tasks and their results")]
    OnlyCompleted(JobId),
    /// A requeue would delete results that nobody has fetched.
    #[error(
        "running completed tasks again deletes their results, and {owner} has not fetched the results of {} of job {job}",
        plural(tasks, "task")
    )]
    ResultsNotFetched {
        /// The job.
        job: JobId,
        /// The owner's name: only they mark results as fetched.
        owner: String,
        /// The number of tasks with such results.
        tasks: u64,
    },
    /// A dependent job cannot be queued again, because another job did not end as required.
    #[error("job {job} stays cancelled: {dependency} can never be satisfied")]
    NeverStarts {
        /// The dependent job.
        job: JobId,
        /// The dependency that can never be satisfied.
        dependency: Dependency,
    },
    /// The job's specification is invalid.
    #[error("{0}")]
    BadSpec(String),
    /// Parts of the job's specification are each valid, but contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The setting's new value is invalid, or conflicts with another setting.
    #[error("{0}")]
    BadSetting(String),
    /// The job or the command names a partition that does not exist.
    #[error("there is no partition {partition}")]
    NoSuchPartition {
        /// The requested name.
        partition: PartitionName,
        /// The names of all existing partitions.
        there: Vec<PartitionName>,
    },
    /// A partition with this name exists.
    #[error("there is a partition {0} already")]
    PartitionExists(PartitionName),
    /// The partition does not accept the job.
    #[error("partition {partition} {why}")]
    PartitionRefuses {
        /// The partition that does not accept the job.
        partition: PartitionName,
        /// The reason, as the rest of a sentence.
        why: String,
    },
    /// The partition cannot be removed while jobs wait in it.
    #[error("cannot remove partition {partition}: {jobs} {} in it", if *.jobs == 1 { "job waits" } else { "jobs wait" })]
    PartitionInUse {
        /// The partition to remove.
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
    /// The node does not exist, or was removed.
    #[error("there is no node {0}")]
    NoSuchNode(NodeName),
    /// The head cannot power the node on or off: `power.toml` does not name the node.
    #[error("node {0} cannot be switched on or off: it is not in the head's power.toml")]
    NoPower(NodeName),
    /// The node cannot be forgotten while it is in use.
    #[error("node {node} {why}")]
    NodeInUse {
        /// The node to forget.
        node: NodeName,
        /// The reason, as the rest of a sentence.
        why: String,
    },
    /// A node with this name exists, and the invitation is not for this name.
    #[error("there is a node {0} already")]
    NameTaken(NodeName),
    /// A node with this name exists that the join code of a partition does not replace.
    #[error(
        "node {0} is there; with the join code of a partition, a machine replaces it only when it is down or off and has no tasks"
    )]
    NodePresent(NodeName),
    /// The head would take a user for an account of the new node, and refuse the user.
    #[error("a node cannot have the name {node}: user {user} would count as an account of that node")]
    NameOfUser {
        /// The name of the new node.
        node: NodeName,
        /// The user whose name ends in `@` and the name of the node.
        user: UserName,
    },
    /// The agent's key is expired, revoked or unknown.
    #[error(transparent)]
    KeyRefusal(#[from] KeyRefusal),
    /// A command about accounts is refused.
    #[error(transparent)]
    Users(#[from] UsersRefusal),
    /// The message came from a connection that is older than the newest one of the same node.
    #[error("this connection was replaced by a newer connection of the same node")]
    Stale,
}

impl Refusal {
    /// Returns the stable error code of the API.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NeverFits(_) => "never_fits",
            Self::NoAbility { ability: Ability::Sandbox, .. } => "no_sandbox",
            Self::NoAbility { ability: Ability::Image, .. } => "no_image",
            Self::NoAbility { ability: Ability::QuietMachine, .. } => "no_quiet_machine",
            Self::NoAbility { ability: Ability::JobNetwork, .. } => "no_job_network",
            Self::NotForRoot | Self::NotForRootOfNode => "not_for_root",
            Self::SystemAccount { .. } => "system_account",
            Self::NotThroughNodes(_) => "not_through_nodes",
            Self::OverQuota { .. } | Self::TooManyWaiting(_) => "over_quota",
            Self::PriorityTooHigh { .. } => "priority_too_high",
            Self::SnapshotMissing => "snapshot_missing",
            Self::NoSuchJob(_) => "no_such_job",
            Self::Deleted { .. } => "job_deleted",
            Self::NoSuchTask { .. } => "no_such_task",
            Self::NoSuchDependency(_) | Self::NoSuchTaskDependency(_) => "no_such_dependency",
            Self::NotYours { .. } => "not_yours",
            Self::WrongState { .. }
            | Self::WrongTaskState { .. }
            | Self::OnlyCompleted(_)
            | Self::NeverStarts { .. } => "wrong_state",
            Self::NotAllowed(_) => "forbidden",
            Self::ResultsNotFetched { .. } => "results_not_fetched",
            Self::BadSpec(_) | Self::Contradiction(_) => "bad_spec",
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
            Self::NameTaken(_) | Self::NodePresent(_) | Self::NameOfUser { .. } => "name_taken",
            Self::KeyRefusal(_) => "unwelcome",
            Self::Users(refusal) => refusal.code(),
            Self::Stale => "stale",
        }
    }
}

//! Notifications: messages in the head's outbox, and destinations and dead letters as the API shows them.

use hostler_model::{DestinationName, JobId, JobOccasion, JobState, NodeName, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A message in the head's outbox: one or more news for one recipient. Stored until it is delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The recipient.
    pub to: Recipient,
    /// The news, oldest first; at least one.
    pub news: Vec<News>,
    /// The number of further news that the message leaves out.
    #[serde(default)]
    pub omitted: u64,
    /// The number of failed deliveries.
    #[serde(default)]
    pub tries: u32,
    /// Why and when the head gave up the delivery; absent while it tries.
    #[serde(default)]
    pub given_up: Option<GivenUp>,
}

/// The recipient of a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Recipient {
    /// A user, who subscribed to the job's events.
    User {
        /// The user's name.
        user: String,
        /// The destination.
        to: DestinationName,
        /// The address at the destination.
        address: Option<String>,
    },
    /// The cluster's operators; the head's configuration names their destinations.
    Operators,
    /// The cluster's operators, at one of their destinations.
    OperatorsAt {
        /// The destination.
        to: DestinationName,
        /// The address at the destination.
        address: Option<String>,
    },
}

/// The end of the attempts to deliver a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// The reason, for people.
    pub why: String,
    /// When the head gave up.
    pub at: WallTime,
}

/// An event that a notification reports, and when it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// When it happened.
    pub at: WallTime,
    /// What happened.
    #[serde(flatten)]
    pub what: Happening,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Happening {
    /// An event of a job.
    Job(JobNews),
    /// A node is down, though the head did not switch it off.
    NodeDown {
        /// The node's name.
        node: NodeName,
        /// The number of tasks on the node.
        tasks: u64,
    },
    /// A node that was down is back.
    NodeBack {
        /// The node's name.
        node: NodeName,
    },
    /// An alert was raised, or is over.
    Alert {
        /// The alert.
        alert: Alert,
        /// The details, for people; absent when the alert is over.
        text: Option<String>,
    },
    /// An operator's test.
    Test {
        /// The operator's name.
        by: String,
    },
}

/// An event of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNews {
    /// The job's id.
    pub job: JobId,
    /// The job's name.
    pub name: String,
    /// The job's owner.
    pub user: String,
    /// The event.
    pub event: JobOccasion,
    /// The job's state.
    pub state: JobState,
    /// The number of the job's tasks; 1 unless the job is an array.
    pub tasks: u64,
    /// The number of ended tasks in each final state, for an array.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endings: Vec<(JobState, u64)>,
    /// The exit code of the job; absent for an array.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// The nodes of a job that has just started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// When the job was submitted.
    pub submitted_at: WallTime,
    /// When the job's first task started.
    #[serde(default)]
    pub started_at: Option<WallTime>,
    /// When the head deletes the job's files although nobody has fetched them, for a job that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<WallTime>,
}

/// A state of the head that operators must know. The head reports when it begins and when it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Alert {
    /// The head's disk will soon be too full for submissions.
    DiskNearlyFull,
    /// The head refuses submissions.
    SubmissionsRefused,
}

/// Notifications of the cluster, in the answer of `GET /notifications`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Notifications {
    /// The destinations, by name.
    pub destinations: Vec<DestinationView>,
    /// Messages that the head could not deliver, oldest first: all for operators, the caller's own for others.
    pub dead_letters: Vec<DeadLetter>,
    /// The number of messages that the head has dropped since its start, because too many waited or had failed.
    pub dropped: u64,
    /// Why the head ignores `notify.toml`; absent if the file is valid. Only for operators.
    pub trouble: Option<String>,
}

/// A destination of notifications, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestinationView {
    /// The name.
    pub name: DestinationName,
    /// The kind: `mail`, `webhook`, `ntfy`, `slack` or `matrix`.
    pub kind: String,
    /// The domains at which users may name a mail address; empty if users name no address.
    pub domains: Vec<String>,
    /// The operators' own messages go to this destination.
    pub for_operators: bool,
    /// The number of messages that wait for delivery.
    pub waiting: u64,
    /// Why the last delivery failed; absent if it succeeded.
    pub fault: Option<String>,
    /// Whether the head sends nothing to this destination, because the receiver has answered that it is gone.
    pub disabled: bool,
}

/// A message that the head could not deliver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetter {
    /// The message's id.
    pub id: String,
    /// The destination; absent for operators without a destination.
    pub to: Option<DestinationName>,
    /// The user whose job the message is about; absent for messages to operators.
    pub user: Option<String>,
    /// The message in one line.
    pub summary: String,
    /// Why the delivery failed.
    pub why: String,
    /// When the head gave up, in milliseconds since the Unix epoch.
    pub at: WallTime,
}

/// The body of `POST /notifications/test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TestMessage {
    /// The destination.
    pub to: DestinationName,
    /// The address at the destination.
    #[serde(default)]
    #[schema(max_length = 254)]
    pub address: Option<String>,
}

//! The agent link: messages between an agent and its head over the WebSocket that the agent opens.
//!
//! The first frame in each direction is a hello ([`AgentHello`], then [`HeadHello`]). Every later frame is a [`Frame`]
//! with a batch of messages. Each direction of a connection numbers its frames from 1. The receiver ignores a repeated
//! number and closes the connection at a gap, so messages on one connection arrive once and in order. After a
//! reconnection, neither side blindly resends messages: the hello lists all runs of the agent, and the head answers
//! with the differences.
//!
//! The link carries only control messages. Chunks, output streams and terminals use connections of their own.

use std::net::IpAddr;
use std::sync::Arc;

use hostler_model::{
    Digest, Ending, Epoch, JobId, JobSpec, JobState, NodeFacts, NodeName, Resources, RunId, SignalNumber, SignalTarget,
    UserName, is_system_uid,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::certificate::Certificate;
use crate::forward::Destination;
pub use crate::step_record::{SCRIPT_STEP, StepRecord};

/// Link protocol versions that this build supports. Before the first release, there is only one.
pub const PROTOCOL: std::ops::RangeInclusive<u16> = 9..=9;

/// Maximum size of a frame in bytes. Senders split batches to stay below it.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// The first frame of a connection, from the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// Oldest supported protocol version.
    pub protocol_min: u16,
    /// Newest supported protocol version.
    pub protocol_max: u16,
    /// Release of the agent, for people.
    pub version: String,
    /// Name of the node; it must match the agent's certificate.
    pub node: NodeName,
    /// Process id of the agent, for people.
    pub pid: u32,
    /// Facts of the node. Decoding accepts a hello without them, so that the head can answer agents of protocol version
    /// 1 with a refusal.
    #[serde(default)]
    pub facts: NodeFacts,
    /// All runs on the node, including ended ones that the head has not acknowledged.
    pub runs: Vec<RunReport>,
    /// How long ago the processes of these runs started and ended: the head may have been away then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ages: Vec<RunAge>,
    /// The latest job that the node ever had a run of. A head that was restored from a backup may not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_job: Option<JobId>,
}

/// Times since the start and the end of a run's process, measured with the node's monotonic clock when it sent the hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAge {
    /// Id of the run.
    pub run: RunId,
    /// Time since the start, in milliseconds.
    pub started_ms: u64,
    /// Time since the end, in milliseconds; absent while the process runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited_ms: Option<u64>,
}

impl AgentHello {
    /// Creates the hello of this release.
    #[must_use]
    pub fn new(node: NodeName, pid: u32, facts: NodeFacts, runs: Vec<RunReport>) -> Self {
        let (protocol_min, protocol_max) = (*PROTOCOL.start(), *PROTOCOL.end());
        Self {
            protocol_min,
            protocol_max,
            version: crate::BUILD.to_owned(),
            node,
            pid,
            facts,
            runs,
            ages: Vec::new(),
            last_job: None,
        }
    }
}

/// The head's answer to [`AgentHello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadHello {
    /// The head accepts the link.
    Welcome {
        /// Protocol version for this connection.
        protocol: u16,
        /// Epoch of the head.
        epoch: Epoch,
        /// Release of the head, for people.
        version: String,
        /// Heartbeat interval in milliseconds: after this long without another message, the agent sends a heartbeat.
        heartbeat_ms: u64,
        /// Time until the agent should request a new certificate, in milliseconds; absent for never.
        #[serde(default)]
        renew_in_ms: Option<u64>,
        /// If this link breaks, the agent reconnects at a random time within this span, in milliseconds. The span grows
        /// with the number of agents, so that not all agents reconnect at once.
        #[serde(default)]
        return_within_ms: u64,
    },
    /// The head refuses the link. The agent logs the message and retries later.
    Refused {
        /// What happened, why, and what to do.
        message: String,
    },
}

/// A numbered batch of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame<M> {
    /// Number of the frame: counts from 1 in each direction of a connection.
    pub sequence: u64,
    /// At least one message, in order.
    pub messages: Vec<M>,
}

/// A message from an agent to its head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentMessage {
    /// Tells the head that the agent lives. Sent if the agent has sent nothing else for one heartbeat interval.
    Heartbeat,
    /// Status of a run.
    Report(RunReport),
    /// The answer to [`HeadMessage::Rest`].
    Resting {
        /// Number from the head's request.
        ask: u64,
        /// What is still active on the node, such as a run. Absent if nothing is active; the agent then starts nothing
        /// new.
        busy: Option<String>,
        /// Whether the machine is shutting down.
        #[serde(default)]
        is_leaving: bool,
    },
    /// Power use that the node's processors measure.
    Drawing {
        /// Mean power use of about the last minute, in milliwatts; absent once the processors no longer report their
        /// power use.
        milliwatts: Option<u64>,
    },
}

/// A message from the head to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadMessage {
    /// Start these runs of one job.
    Launch(Launch),
    /// Start the processes of a run on several nodes, because all these nodes are ready.
    Begin {
        /// Id of the run.
        run: RunId,
        /// A port on the run's first node that was free when that node became ready.
        port: u16,
        /// Ports and certificates for steps, one per node by rank; empty if the run accepts no steps.
        #[serde(default)]
        endpoints: Vec<StepEndpoint>,
    },
    /// End a run: send TERM to its processes, then KILL. The agent reports the end of the run as usual.
    End {
        /// Id of the run.
        run: RunId,
        /// Why the run ends, from which the agent derives the run's outcome.
        cause: EndCause,
        /// Time between TERM and KILL, in milliseconds.
        grace_ms: u64,
    },
    /// The run has another time limit, counted from its start as before. Sent again after each reconnection.
    TimeLimit {
        /// Id of the run.
        run: RunId,
        /// The time limit in milliseconds; absent for none.
        #[serde(default)]
        time_limit_ms: Option<u64>,
    },
    /// Send a signal to processes of a run, if it has a process. It is not repeated if the connection breaks.
    Signal {
        /// Id of the run.
        run: RunId,
        /// The signal.
        signal: SignalNumber,
        /// Which processes get it.
        to: SignalTarget,
        /// Of the steps, only the one with this number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<u32>,
    },
    /// Kill the run's remaining processes and remove its data: the head has stored the end of the run, or does not know
    /// the run.
    Forget {
        /// Id of the run.
        run: RunId,
    },
    /// Upload the result of this ended run again, because the result is incomplete on the head. Then report the end
    /// again.
    Resend {
        /// Id of the run.
        run: RunId,
    },
    /// Open a connection and send the output of a run.
    Stream(StreamRequest),
    /// Open a connection and send what is measured every second, of a run or of the node. The agent opens the connection
    /// as for [`HeadMessage::Stream`], and sends each measurement as a line of JSON.
    Watch {
        /// Id of the reader at the head that waits for this stream.
        stream: String,
        /// Id of the run; absent for the node.
        #[serde(default)]
        run: Option<RunId>,
    },
    /// The accounts that the machine should have, sent after the hello and after every change. An agent that is
    /// configured to create accounts creates the missing ones. No agent removes accounts.
    Accounts {
        /// All accounts that the machine should have.
        accounts: Vec<Account>,
        /// Accounts that an admin has blocked. The agent starts no jobs and no remote commands of these accounts.
        #[serde(default)]
        blocked: Vec<Account>,
        /// Uids of accounts with a role above user, and of the account that runs the head. The agent refuses requests
        /// of other nodes in the name of these accounts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        guarded: Vec<u32>,
        /// The system accounts whose jobs and remote commands the agent starts.
        #[serde(default)]
        system: SystemAccounts,
    },
    /// The list of gossiping nodes has changed, and the agent should request it soon. Sent only to agents that gossip.
    PeersChanged,
    /// Asks whether anything is active on the node, because the head wants to switch the node off. If nothing is
    /// active, the agent says so and starts no new runs and commands.
    Rest {
        /// Number of the question, which the answer repeats.
        ask: u64,
    },
    /// Start new runs and commands again: the head will not switch the node off after all.
    Rise,
    /// Shut the machine down. Sent if no power controller can switch the machine off.
    PowerOff,
    /// Send a magic packet (Wake-on-LAN) to another machine in this node's network segment.
    WakeUp {
        /// MAC address of the other machine's network card.
        mac: [u8; 6],
        /// Broadcast address of the packet; all network segments of this node if absent.
        broadcast: Option<IpAddr>,
        /// Destination UDP port.
        port: u16,
    },
    /// Stop the agent. Running jobs continue under their shepherds.
    Shutdown,
}

/// A user's account, which is the same on every machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Name of the user.
    pub name: UserName,
    /// Uid of the user.
    pub uid: u32,
}

/// The system accounts that may run jobs and commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemAccounts {
    /// All system accounts.
    All,
    /// The system accounts with these uids.
    Only(Vec<u32>),
}

impl SystemAccounts {
    /// Returns whether an account may run jobs and commands. Only system accounts are restricted.
    #[must_use]
    pub fn allow(&self, uid: u32) -> bool {
        *self == Self::All || !is_system_uid(uid) || self.uids().contains(&uid)
    }

    /// Returns the uids of the allowed accounts; empty if all are allowed.
    #[must_use]
    pub fn uids(&self) -> &[u32] {
        match self {
            Self::All => &[],
            Self::Only(uids) => uids,
        }
    }
}

/// None: no head has allowed any.
impl Default for SystemAccounts {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

/// Runs of one job to start on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The data that all the runs share.
    pub job: JobLaunch,
    /// Each run's id and resources.
    pub runs: Vec<Placement>,
    /// Hash of the environment variables. The head puts the variables into the specification when it sends this message;
    /// agents never see the hash.
    #[serde(skip)]
    pub environment: Option<Digest>,
}

/// The data of a launch that all runs of a job share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLaunch {
    /// Job id.
    pub id: JobId,
    /// User who owns the job.
    pub user: String,
    /// Uid of the user in the cluster, if known. An account with the same name and another uid may belong to another
    /// person.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Specification of the job.
    pub spec: Arc<JobSpec>,
    /// Number of tasks in the job's array.
    pub array_len: u64,
    /// Limit for each stored output, in bytes; [`OUTPUT_CAP_BYTES`] if absent.
    #[serde(default)]
    pub output_cap_bytes: Option<u64>,
}

impl JobLaunch {
    /// Returns the limit for each stored output, in bytes.
    #[must_use]
    pub fn output_cap_bytes(&self) -> u64 {
        self.output_cap_bytes.unwrap_or(OUTPUT_CAP_BYTES)
    }
}

/// Default limit for each stored output of a run, in bytes.
pub const OUTPUT_CAP_BYTES: u64 = 1 << 30;

/// The id and the resources of a run on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Id of the run.
    pub run: RunId,
    /// Allocated CPU ids, memory and GPU ids.
    pub resources: Resources,
    /// All nodes of a run on several nodes, or of an allocation that a client holds; absent for other runs. With it, a run
    /// waits for [`HeadMessage::Begin`] before its processes start.
    #[serde(default)]
    pub gang: Option<Gang>,
    /// Hash of the result of an earlier attempt, whose files the run starts with; absent for the captured folder alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Digest>,
}

/// The nodes of a run on several nodes, or of an allocation that a client holds, and the rank of the node that receives this
/// message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// Rank of the receiving node.
    pub rank: u32,
    /// All nodes by rank.
    pub nodes: Vec<Peer>,
}

/// One node of a run on several nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Name of the node.
    pub name: NodeName,
    /// Address at which the other nodes reach the node; absent if the node's agent has reported none.
    pub address: Option<IpAddr>,
}

/// Port at which a node accepts steps of one run, and the certificate that authenticates the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEndpoint {
    /// Port on the node's address.
    pub port: u16,
    /// Fingerprint of the certificate that the node created for this run. The certificate's private key never leaves
    /// the node.
    pub certificate: Digest,
}

/// Why the head asks an agent to end a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// A user cancelled the job.
    Cancelled,
    /// A user requeued the job.
    Requeued,
    /// The run's part on another node has failed or was cancelled.
    Broken,
    /// The program ran on the first node only and ended successfully, so the parts on other nodes end too.
    Finished,
}

/// Status of one run on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    /// Id of the run.
    pub run: RunId,
    /// Status of the run.
    pub status: RunStatus,
}

/// The stages of a run, in order; a report may skip stages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The launch is stored on the node's disk. The agent prepares the folder and the environment.
    Accepted,
    /// The node has the files of the run's captured folder. The agent prepares the environment.
    Staged,
    /// Folder and environment are prepared. A run on several nodes waits for [`HeadMessage::Begin`]. For runs on one
    /// node, sent only by allocations without a program, which do not wait.
    Ready {
        /// A port that is free on the node.
        port: u16,
        /// Port and certificate for steps of this run; absent if the node accepts no steps.
        #[serde(default)]
        endpoint: Option<StepEndpoint>,
    },
    /// The process runs.
    Running,
    /// The process has ended; the agent collects and uploads the results.
    Completing,
    /// The run has ended, and its results are uploaded.
    Ended(RunEnd),
}

/// How a run ended on a node. The agent sends the value to the head, which stores it in its log and tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Whether the run ended, was lost, or is requeued.
    pub fate: Fate,
    /// Details for people: why the run could not start, or what could not be captured.
    pub message: Option<String>,
    /// The result; absent if nothing could be collected.
    pub result: Option<RunResult>,
    /// Resource usage of the run.
    pub usage: Usage,
    /// The steps of the run, in the order of their ends; at most [`MAX_STEP_RECORDS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRecord>,
    /// How quiet the node was; only for exclusive jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Box<Certificate>>,
}

/// The largest number of steps that a node reports about a run.
pub const MAX_STEP_RECORDS: usize = 1_000;

impl RunEnd {
    /// Creates an end without a result and without resource usage.
    #[must_use]
    pub fn without_result(fate: Fate, message: Option<String>) -> Self {
        Self { fate, message, result: None, usage: Usage::default(), steps: Vec::new(), certificate: None }
    }

    /// Returns whether the run completed: exit code 0 and a complete result.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        matches!(self.fate, Fate::Ended(Ending { state: JobState::Completed, .. }))
    }

    /// Returns the hash of the result's manifest, if there is a result.
    #[must_use]
    pub fn manifest(&self) -> Option<Digest> {
        self.result.as_ref().map(|result| result.manifest)
    }

    /// Returns the state and exit code of an ended run; `None` if it was lost or requeued.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        match self.fate {
            Fate::Ended(ending) => Some(ending),
            Fate::Lost | Fate::Requeued => None,
        }
    }

    /// Copies the end without the inline content of its result, which is stored elsewhere.
    #[must_use]
    pub fn without_content(&self) -> Self {
        let result = self.manifest().map(|manifest| RunResult { manifest, inline: Vec::new() });
        Self {
            fate: self.fate,
            message: self.message.clone(),
            result,
            usage: self.usage,
            steps: self.steps.clone(),
            certificate: self.certificate.clone(),
        }
    }
}

/// Whether a run ended, was lost, or is requeued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The process of the run ended by itself, or the agent ended it.
    Ended(Ending),
    /// The run vanished: the machine restarted, or the shepherd was killed.
    Lost,
    /// The run was ended because its task was requeued.
    Requeued,
}

/// Result of a run: a manifest and its chunks. The head has both once the report of the end has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// Hash of the [`crate::manifest::ResultManifest`].
    pub manifest: Digest,
    /// Manifest and chunks, if they are small. Empty if the agent has uploaded them before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inline: Vec<serde_bytes::ByteBuf>,
}

/// Resource usage of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Time from start to end of the process, in milliseconds.
    pub wall_ms: u64,
    /// CPU time in user mode, in milliseconds.
    pub user_ms: u64,
    /// CPU time in the kernel, in milliseconds.
    pub system_ms: u64,
    /// Largest resident memory of a single process, in bytes.
    pub max_rss_bytes: u64,
    /// Peak memory of all processes together, including files in memory, in bytes. Absent if the kernel does not report
    /// it.
    #[serde(default)]
    pub memory_peak_bytes: Option<u64>,
    /// Disk reads and writes; absent if the kernel does not report them.
    #[serde(default)]
    pub io: Option<IoUsage>,
}

/// Disk reads and writes of a run. Reads and writes served from memory do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IoUsage {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// How the bytes were counted.
    pub source: IoSource,
}

/// How disk reads and writes were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IoSource {
    /// From the cgroup, which covers all processes.
    Cgroup,
    /// From the kernel's process accounting. It covers processes that their parent waited for, and counts writes when
    /// they reach the page cache.
    Processes,
}

impl Usage {
    /// Combines the usage of parts that ran in parallel: the longest time, the largest memory of a part, and the sums
    /// of CPU time and disk IO.
    #[must_use]
    pub fn of_all(all: impl IntoIterator<Item = Self>) -> Self {
        let both = |sum: Self, one: Self| Self {
            wall_ms: sum.wall_ms.max(one.wall_ms),
            user_ms: sum.user_ms.saturating_add(one.user_ms),
            system_ms: sum.system_ms.saturating_add(one.system_ms),
            max_rss_bytes: sum.max_rss_bytes.max(one.max_rss_bytes),
            memory_peak_bytes: sum.memory_peak_bytes.max(one.memory_peak_bytes),
            io: sum.io.zip(one.io).map(|(sum, one)| IoUsage {
                read_bytes: sum.read_bytes.saturating_add(one.read_bytes),
                write_bytes: sum.write_bytes.saturating_add(one.write_bytes),
                // The sum is only as reliable as its least reliable part.
                source: if sum.source == one.source { sum.source } else { IoSource::Processes },
            }),
        };
        all.into_iter().reduce(both).unwrap_or_default()
    }
}

/// Request for a run's output. The agent opens a connection to `/api/v1/agent/streams/{stream}` and sends the output
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRequest {
    /// Id of the reader at the head that waits for this stream.
    pub stream: String,
    /// Id of the run.
    pub run: RunId,
    /// What to send.
    pub what: StreamKind,
}

/// What an agent sends over a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamKind {
    /// Bytes of one output, starting at `from`.
    Output {
        /// Which output to send.
        output: Output,
        /// Offset of the first byte to send.
        from: u64,
        /// Whether to continue until the run ends; otherwise the stream stops at the current end.
        follow: bool,
        /// Start this many bytes before the current end instead of at `from`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tail: Option<u64>,
        /// Maximum number of bytes to send.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
    /// Input and output of the job's terminal, over a WebSocket.
    Terminal {
        /// Height of the terminal in lines.
        rows: u16,
        /// Width of the terminal in characters.
        columns: u16,
    },
    /// The steps that the run has started, as a JSON array of [`StepRecord`]; at most [`MAX_STEP_RECORDS`].
    Steps,
    /// A connection to a TCP port or a Unix socket on which the run listens, over a WebSocket; see [`crate::forward`].
    Forward {
        /// The port; 0 for a socket.
        port: u16,
        /// The path of the socket. Agents that do not know this field find nothing on port 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        socket: Option<String>,
    },
    /// A listener for programs of the run, over a WebSocket; see [`crate::forward`].
    Listen {
        /// The TCP port; 0 for any free one, and for a socket.
        port: u16,
        /// The path of the Unix socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        socket: Option<String>,
    },
    /// A connection that a program of the run has made to a listener, over a WebSocket.
    Accepted {
        /// Its number on the node.
        number: u64,
    },
}

impl From<Destination> for StreamKind {
    fn from(destination: Destination) -> Self {
        match destination {
            Destination::Port(port) => Self::Forward { port, socket: None },
            Destination::Socket(path) => Self::Forward { port: 0, socket: Some(path) },
            Destination::Accepted(number) => Self::Accepted { number },
        }
    }
}

/// A stored output of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Standard output, or the terminal's output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Output of the environment setup.
    Setup,
}

impl Output {
    /// Name of the output in API paths and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Setup => "setup",
        }
    }
}

//! The agent link: what an agent and its head say to each other over the WebSocket that the agent dials.
//!
//! The first frame each way is a hello ([`AgentHello`], then [`HeadHello`]); after that every frame is a [`Frame`] with a batch of
//! messages. Frames are numbered from 1 in each direction of one connection: a repeated number is ignored, a gap ends the
//! connection, so what is said on a connection arrives once and in order or the connection is gone. After a reconnection nothing is
//! resent blindly: the hello lists every run the agent holds and the head answers with what differs.
//!
//! Only control goes over the link. Chunks, output streams and terminals travel on connections of their own.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hostler_model::{
    Advisory, BootId, Digest, Ending, Epoch, Feature, Hardware, JobId, JobSpec, NodeName, Resources, RunId, UserName,
};
use serde::{Deserialize, Serialize};

/// The oldest and newest version of the link protocol that this build speaks.
pub const PROTOCOL: std::ops::RangeInclusive<u16> = 1..=1;

/// The largest frame either side accepts, in bytes. Batches are cut so as to stay below it.
pub const MAX_FRAME_BYTES: usize = 4 << 20;

/// The first frame of a connection, from the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// Oldest protocol version it speaks.
    pub protocol_min: u16,
    /// Newest protocol version it speaks.
    pub protocol_max: u16,
    /// The agent's release, for people.
    pub version: String,
    /// Its node's name, which must be the one in its certificate.
    pub node: NodeName,
    /// The machine's boot.
    pub boot: BootId,
    /// The agent's process id, for people.
    pub pid: u32,
    /// What the node has to give.
    pub resources: Resources,
    /// What is known of it beyond that.
    #[serde(default)]
    pub hardware: Hardware,
    /// Which limits it cannot hold jobs to.
    pub advisory: Advisory,
    /// What it has that others may not have.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// Where other nodes reach its jobs: the address from which it dials the head.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Where it gossips with other nodes about their load, by UDP; absent when it does not. An unspecified address stands for the one from
    /// which it dials the head.
    #[serde(default)]
    pub gossip_at: Option<SocketAddr>,
    /// By what other nodes know it when they have a command for it: BLAKE3 of its certificate for that; absent when it takes none.
    #[serde(default)]
    pub call_key: Option<Digest>,
    /// Every run it holds, ended ones included until the head has taken note.
    pub runs: Vec<RunReport>,
}

/// The head's answer to [`AgentHello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadHello {
    /// The link is open.
    Welcome {
        /// The version both will speak.
        protocol: u16,
        /// The head's epoch.
        epoch: Epoch,
        /// The head's release, for people.
        version: String,
        /// An agent that has said nothing for this long says that it lives, in milliseconds.
        heartbeat_ms: u64,
        /// In how long the agent should ask for a new certificate, in milliseconds; never when absent.
        #[serde(default)]
        renew_in_ms: Option<u64>,
        /// Should this link break, the agent comes back at a moment of its choice within this time, in milliseconds: more agents, more
        /// time, so that they do not come all at once.
        #[serde(default)]
        return_within_ms: u64,
    },
    /// The link is refused; the agent logs why and tries again later.
    Refused {
        /// What happened, why and what to do.
        message: String,
    },
}

/// A numbered batch of messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame<M> {
    /// Counts from 1 in each direction of a connection.
    pub sequence: u64,
    /// At least one, in order.
    pub messages: Vec<M>,
}

/// From an agent to its head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentMessage {
    /// Nothing to say but alive; sent when nothing else was for a heartbeat's time.
    Heartbeat,
    /// Where a run stands.
    Report(RunReport),
    /// The answer to [`HeadMessage::Rest`].
    Resting {
        /// The number of the question.
        ask: u64,
        /// What goes on there, as the rest of a sentence; nothing, and nothing will begin.
        busy: Option<String>,
        /// The machine is shutting down.
        #[serde(default)]
        is_leaving: bool,
    },
    /// What its processors measure themselves; nothing when they do no longer.
    Drawing {
        /// The mean of the last minute or so, in milliwatts.
        milliwatts: Option<u64>,
    },
}

/// From the head to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadMessage {
    /// Start these runs of one job.
    Launch(Launch),
    /// All nodes of a run on several have said that they are ready: start its processes.
    Begin {
        /// The run.
        run: RunId,
        /// A port on the first node, which was free there when it was ready.
        port: u16,
        /// Where each of its nodes takes steps, in the order of their ranks; none when it takes none.
        #[serde(default)]
        doors: Vec<StepDoor>,
    },
    /// End a run: TERM, then KILL. The agent reports its ending as for any run.
    End {
        /// The run.
        run: RunId,
        /// Why, which the ending will say.
        cause: EndCause,
        /// Milliseconds between TERM and KILL.
        grace_ms: u64,
    },
    /// The head has the run's ending on disk, or knows nothing of the run: the agent kills what is left of it and removes it.
    Forget {
        /// The run.
        run: RunId,
    },
    /// The result of this ended run is not complete on the head: upload it again, then report the ending again.
    Resend {
        /// The run.
        run: RunId,
    },
    /// Open a connection and send a run's output.
    Stream(StreamRequest),
    /// Accounts that the machine should have, all of them; said after the hello and whenever they change. An agent that may creates
    /// those that are missing; none is ever removed.
    Accounts {
        /// By name.
        accounts: Vec<Account>,
        /// Accounts that an admin keeps out: no job of theirs begins and no command of theirs is run.
        #[serde(default)]
        blocked: Vec<Account>,
        /// The uids of accounts that can do more in the cluster than a user: no other node's word is taken for a command of theirs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        guarded: Vec<u32>,
    },
    /// The nodes that gossip with each other are others than a moment ago: ask for them, at leisure. Said only to agents that gossip.
    PeersChanged,
    /// The machine is to be switched off if nothing goes on there: say whether something does, and if not let nothing begin.
    Rest {
        /// The number of the question.
        ask: u64,
    },
    /// It is not to be switched off, or not any more.
    Rise,
    /// Shut the machine down: it has nobody else who could be asked to.
    PowerOff,
    /// Wake another machine of this node's segment with a magic packet.
    WakeUp {
        /// The address of its network card.
        mac: [u8; 6],
        /// Where to send the packet; all segments when absent.
        broadcast: Option<IpAddr>,
        /// UDP port.
        port: u16,
    },
    /// Stop: finish nothing, leave running jobs to their shepherds.
    Shutdown,
}

/// A user's account on every machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The user's name.
    pub name: UserName,
    /// The user's id.
    pub uid: u32,
}

/// Runs of one job to start on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The job.
    pub job: JobId,
    /// Whose it is.
    pub user: String,
    /// What to run.
    pub spec: Arc<JobSpec>,
    /// How many tasks its array has.
    pub array_len: u64,
    /// The runs and what each may use.
    pub runs: Vec<Placement>,
    /// The uid that the user has in the cluster, if it is known: an account of the name with another may be another person's.
    #[serde(default)]
    pub uid: Option<u32>,
    /// How much is kept of each of its outputs, in bytes; [`OUTPUT_CAP_BYTES`] when absent.
    #[serde(default)]
    pub output_cap_bytes: Option<u64>,
    /// The environment, by content: the head puts it into `spec` when it sends this. Agents never see it.
    #[serde(skip)]
    pub environment: Option<Digest>,
}

/// How much is kept of each output of a run when nobody has said how much, in bytes.
pub const OUTPUT_CAP_BYTES: u64 = 1 << 30;

/// One run and the resources allocated to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The run.
    pub run: RunId,
    /// Exact CPU ids, memory and ids of GPUs.
    pub resources: Resources,
    /// The other nodes, for a run on several. It begins with [`HeadMessage::Begin`].
    #[serde(default)]
    pub gang: Option<Gang>,
}

/// The nodes of a run on several, as one of them is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// The rank of this node.
    pub rank: u32,
    /// All of them, in the order of their ranks.
    pub nodes: Vec<Peer>,
}

/// One node of a run on several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub name: NodeName,
    /// Where the others reach it, as far as its agent has said.
    pub address: Option<IpAddr>,
}

/// Where a node takes the steps of one run, and how it is known there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDoor {
    /// The port, on the node's address.
    pub port: u16,
    /// The fingerprint of the certificate that the node has made for this run. Its key never leaves the node.
    pub certificate: Digest,
}

/// Why the head ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// A user cancelled the job.
    Cancelled,
    /// A user asked to run it again from the start.
    Requeued,
    /// Its part on another node has ended otherwise than completed.
    Broken,
    /// Its program, which was on the first node only, has ended well: the others need wait for nothing more.
    Finished,
}

/// Where one run stands on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    /// The run.
    pub run: RunId,
    /// Its status.
    pub status: RunStatus,
}

/// The stages of a run, in order; a report may skip stages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The launch is on the node's disk; its folder and environment are being made ready.
    Accepted,
    /// All is ready; the process waits for [`HeadMessage::Begin`]. Only runs on several nodes wait.
    Ready {
        /// A port that is free on the node.
        port: u16,
        /// Where it takes the steps of the others, if it does.
        #[serde(default)]
        door: Option<StepDoor>,
    },
    /// Its process runs.
    Running,
    /// Its process has ended; results are being collected and sent.
    Completing,
    /// All is over, results included.
    Ended(RunEnd),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// What became of it.
    pub fate: Fate,
    /// What a person should know beyond the state: the reason it could not start, what could not be captured.
    pub message: Option<String>,
    /// The result, when there is one.
    pub result: Option<RunResult>,
    /// What it used.
    pub usage: Usage,
}

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It ended by itself or at our hand.
    Ended(Ending),
    /// It vanished: its machine restarted, or its shepherd was killed.
    Lost,
    /// It was ended so that it can run again.
    Requeued,
}

/// A run's result: a manifest and its chunks, on the head before the ending is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResult {
    /// The hash of the [`crate::manifest::ResultManifest`].
    pub manifest: Digest,
    /// The manifest and chunks themselves when they are small; otherwise they were uploaded before.
    pub inline: Vec<serde_bytes::ByteBuf>,
}

/// What a run used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// From start to end of its process, in milliseconds.
    pub wall_ms: u64,
    /// CPU time in user mode, in milliseconds.
    pub user_ms: u64,
    /// CPU time in the kernel, in milliseconds.
    pub system_ms: u64,
    /// Largest resident memory of one of its processes, in bytes.
    pub max_rss_bytes: u64,
    /// The most memory that all its processes had in use at once, files in memory included, in bytes; absent where the kernel does
    /// not tell.
    #[serde(default)]
    pub memory_peak_bytes: Option<u64>,
    /// What it read from and wrote to disks; absent where the kernel does not tell.
    #[serde(default)]
    pub io: Option<IoUsage>,
}

/// What a run read from and wrote to disks, as opposed to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoUsage {
    /// Read, in bytes.
    pub read_bytes: u64,
    /// Written, in bytes.
    pub write_bytes: u64,
    /// Who counted.
    pub source: IoSource,
}

/// Who counted what a run read and wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoSource {
    /// The kernel, for all processes together.
    Cgroup,
    /// The kernel, for each process that its parent waited for; what was written counts when it was still in memory.
    Processes,
}

impl Usage {
    /// What the parts of a run used side by side: the longest time, the largest memory on a node, all CPU time and all that went to disks.
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
                // All are known only as well as the one known least.
                source: if sum.source == one.source { sum.source } else { IoSource::Processes },
            }),
        };
        all.into_iter().reduce(both).unwrap_or_default()
    }
}

/// Ask for a run's output: the agent answers with a connection to `/api/v1/agent/streams/{stream}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRequest {
    /// Names the waiting reader at the head.
    pub stream: String,
    /// The run.
    pub run: RunId,
    /// What to send.
    pub what: StreamKind,
}

/// What a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamKind {
    /// The bytes of an output from `from` on, until the run has ended.
    Output {
        /// Which output.
        output: Output,
        /// Offset of the first byte.
        from: u64,
        /// Go on until the run has ended; otherwise stop at what is there now.
        follow: bool,
    },
    /// The job's terminal, both ways, as a WebSocket.
    Terminal {
        /// Lines.
        rows: u16,
        /// Characters a line.
        columns: u16,
    },
}

/// One of a run's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
    /// What preparing the environment wrote.
    Setup,
}

impl Output {
    /// The word for it in paths and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Setup => "setup",
        }
    }
}

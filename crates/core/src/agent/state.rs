//! What an agent knows, what can happen to it, and what it can ask its shell to do.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use hostler_model::{JobSpec, Resources, RunId};
use hostler_proto::link::{
    Account, AgentMessage, EndCause, Gang, HeadMessage, OUTPUT_CAP_BYTES, RunEnd, RunReport, RunResult, RunStatus,
    StepDoor, StreamRequest, Usage,
};
use serde::{Deserialize, Serialize};

/// Everything the agent knows about runs.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub(super) runs: BTreeMap<RunId, Run>,
    /// Whether the link to the head is open.
    pub(super) connected: bool,
    /// The machine is shutting down.
    pub(super) is_leaving: bool,
}

/// One run on this node.
#[derive(Debug, Clone)]
pub struct Run {
    /// What was launched.
    pub launch: Arc<RunLaunch>,
    /// How far it is.
    pub stage: Stage,
    /// The head wants it to end.
    pub ending: Option<EndCause>,
    /// The head knows nothing of it, or has taken note of its end: it goes as soon as nothing of it runs.
    pub forgotten: bool,
}

/// What an agent needs to know to start one run; stored in the run's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLaunch {
    /// The run.
    pub run: RunId,
    /// Whose it is.
    pub user: String,
    /// What to run.
    pub spec: Arc<JobSpec>,
    /// How many tasks its array has.
    pub array_len: u64,
    /// What it may use.
    pub resources: Resources,
    /// The other nodes, for a run on several.
    #[serde(default)]
    pub gang: Option<Gang>,
    /// The uid that its user has in the cluster, if it is known.
    #[serde(default)]
    pub uid: Option<u32>,
    /// How much is kept of each of its outputs, in bytes, if the head has said so.
    #[serde(default)]
    pub output_cap_bytes: Option<u64>,
}

impl RunLaunch {
    /// How much is kept of each of its outputs, in bytes.
    #[must_use]
    pub fn output_cap_bytes(&self) -> u64 {
        self.output_cap_bytes.unwrap_or(OUTPUT_CAP_BYTES)
    }
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Its folder and environment are being made ready.
    Staging,
    /// All is ready; it waits for the other nodes.
    Ready {
        /// A port that was free here.
        port: u16,
        /// Where the node takes steps, if it does.
        door: Option<StepDoor>,
    },
    /// Its shepherd has it.
    Running,
    /// Its process has ended; its results are being collected and uploaded.
    Collecting(Exit),
    /// All is over; reported until the head has taken note.
    Over(RunEnd),
}

/// How a run's process ended, as far as the node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Why it ended.
    pub why: Why,
    /// What a person should know beyond that.
    pub message: Option<String>,
    /// What it used.
    pub usage: Usage,
}

/// Why a run's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// By itself, with this exit code (128 plus the signal when it was killed by somebody else).
    Exited(i32),
    /// Its time was up; with what it left as exit code.
    TimeLimit(i32),
    /// The head had asked; with what it left as exit code.
    Asked(i32),
    /// The kernel ended it because it used more memory than it may.
    OutOfMemory(i32),
    /// It could not be started or made ready.
    NotStarted,
    /// Its shepherd vanished, or the machine has restarted.
    Lost,
}

/// What a restarted agent found of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A launch and nothing more.
    Launch,
    /// A shepherd that goes on; it has been adopted.
    Shepherd,
    /// Its process has ended, results are not yet collected.
    Exit(Exit),
    /// All was over and waits for the head to take note.
    Over(RunEnd),
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// The link is open; the hello has been sent.
    Connected,
    /// The link is gone.
    Disconnected,
    /// The head says something.
    Received(HeadMessage),
    /// A restarted agent found this run.
    Recovered {
        /// Its launch.
        launch: Arc<RunLaunch>,
        /// How far it had come.
        found: Found,
    },
    /// Its folder and environment are ready, and it must wait for the other nodes.
    Ready {
        /// The run.
        run: RunId,
        /// A port that is free here.
        port: u16,
        /// Where the node takes steps, if it does.
        door: Option<StepDoor>,
    },
    /// Its folder and environment are ready and its shepherd has started its process.
    Started {
        /// The run.
        run: RunId,
    },
    /// The machine was to shut down, and nothing here can do that.
    CannotPowerOff,
    /// Its process has ended, or never started.
    Exited {
        /// The run.
        run: RunId,
        /// How.
        exit: Exit,
    },
    /// Its results are on the head, or travel with the report; or they cannot be had, with the reason.
    Collected {
        /// The run.
        run: RunId,
        /// The result and what could not be captured; or why it is not the whole result.
        result: Result<(RunResult, Option<String>), Uncollected>,
    },
}

/// A run's results could not all be collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncollected {
    /// Why, as a fragment.
    pub reason: String,
    /// What could be.
    pub rest: Option<RunResult>,
}

/// Work for the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Store the launch, make everything ready and start it; answer with `Started` or `Exited`. A run on several nodes answers with
    /// `Ready` first, and waits for `Begin`.
    Start(Arc<RunLaunch>),
    /// The other nodes are ready too: go on; answer with `Started` or `Exited`.
    Begin {
        /// The run.
        run: RunId,
        /// A port on the first node.
        port: u16,
        /// Where each node takes steps, if they do.
        doors: Vec<StepDoor>,
    },
    /// Stop making it ready, or TERM and then KILL its processes; the answer is `Exited`.
    End {
        /// The run.
        run: RunId,
        /// Milliseconds between TERM and KILL.
        grace_ms: u64,
    },
    /// Collect and upload its results; answer with `Collected`.
    Collect {
        /// The run.
        launch: Arc<RunLaunch>,
    },
    /// Store the end so that it is reported again after a restart of the agent: no exit record says the same.
    StoreEnd {
        /// The run.
        run: RunId,
        /// The end.
        end: RunEnd,
    },
    /// Nothing of it runs and nobody wants to know more: remove its directory.
    Remove {
        /// The run.
        launch: Arc<RunLaunch>,
    },
    /// Tell the head.
    Send(AgentMessage),
    /// Answer a request for output.
    Stream(StreamRequest),
    /// See to it that the machine has these accounts, if this agent may, and keep others out.
    Accounts {
        /// Those that belong on it.
        accounts: Vec<Account>,
        /// Those that are kept out.
        blocked: Vec<Account>,
        /// The uids of those whose commands are not taken from other nodes.
        guarded: Vec<u32>,
    },
    /// Ask the head which nodes gossip.
    AskForPeers,
    /// Let nothing begin any more unless something besides runs goes on, and tell the head with `Resting`.
    Rest {
        /// The number of its question.
        ask: u64,
    },
    /// Let everything begin again.
    Rise,
    /// Shut the machine down.
    PowerOff,
    /// Send a magic packet.
    WakeUp {
        /// To which network card.
        mac: [u8; 6],
        /// Where; all segments when absent.
        broadcast: Option<IpAddr>,
        /// UDP port.
        port: u16,
    },
    /// Stop the agent; shepherds go on.
    Stop,
}

impl State {
    /// Where every run stands, for the hello.
    #[must_use]
    pub fn reports(&self) -> Vec<RunReport> {
        let held = self.runs.iter().filter(|(_, run)| !run.forgotten);
        held.map(|(&id, run)| RunReport { run: id, status: run.stage.status() }).collect()
    }

    /// A run by id.
    #[must_use]
    pub fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    /// Every run.
    pub fn runs(&self) -> impl Iterator<Item = (&RunId, &Run)> {
        self.runs.iter()
    }
}

impl Stage {
    /// What the head is told of it.
    pub(super) fn status(&self) -> RunStatus {
        match self {
            Self::Staging => RunStatus::Accepted,
            Self::Ready { port, door } => RunStatus::Ready { port: *port, door: *door },
            Self::Running => RunStatus::Running,
            Self::Collecting(_) => RunStatus::Completing,
            Self::Over(end) => RunStatus::Ended(end.clone()),
        }
    }
}

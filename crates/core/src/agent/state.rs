//! State, events and effects of the agent.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use hostler_model::{JobSpec, RunId};
use hostler_proto::link::{
    Account, AgentMessage, EndCause, HeadMessage, JobLaunch, Placement, RunEnd, RunReport, RunResult, RunStatus,
    StepDoor, StreamRequest, Usage,
};
use serde::{Deserialize, Serialize};

/// All runs that the agent has.
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
    /// The launch.
    pub launch: Arc<RunLaunch>,
    /// How far the run is.
    pub stage: Stage,
    /// Why the head wants the run to end, if it does.
    pub ending: Option<EndCause>,
    /// The head does not know the run or has recorded its end. The agent removes the run as soon as no process of it is left.
    pub forgotten: bool,
}

/// Everything an agent needs to start one run; stored in the run's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLaunch {
    /// The part that all runs of the job share.
    pub job: Arc<JobLaunch>,
    /// The run and its resources.
    pub placement: Placement,
}

impl RunLaunch {
    /// The run.
    #[must_use]
    pub const fn run(&self) -> RunId {
        self.placement.run
    }

    /// What to run.
    #[must_use]
    pub fn spec(&self) -> &JobSpec {
        &self.job.spec
    }
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The run's folder and environment are being prepared.
    Staging,
    /// The run is prepared and waits for the other nodes.
    Ready {
        /// A port that was free on this node.
        port: u16,
        /// Where the node accepts steps, if it does.
        door: Option<StepDoor>,
    },
    /// The run's shepherd has started the process.
    Running,
    /// The process has ended; its results are being collected and uploaded.
    Collecting(Exit),
    /// The run has ended, and the head requested its results again: the agent collects them once more.
    Recollecting(RunEnd),
    /// The run has ended. The agent reports it until the head has recorded the end.
    Over(RunEnd),
}

/// How a run's process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The cause.
    pub why: Why,
    /// More details, for people.
    pub message: Option<String>,
    /// Resources that the process used.
    pub usage: Usage,
}

/// Why a run's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It exited with this code; 128 plus the signal if a signal killed it.
    Exited(i32),
    /// It reached its time limit; the exit code of the killed process.
    TimeLimit(i32),
    /// The head asked for it; the exit code of the ended process.
    Asked(i32),
    /// The kernel killed it because it exceeded its memory limit; its exit code.
    OutOfMemory(i32),
    /// It could not be prepared or started.
    NotStarted,
    /// Its shepherd vanished, or the machine restarted.
    Lost,
}

/// The state of a run that a restarted agent finds on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Only the launch.
    Launch,
    /// A live shepherd, which the agent has adopted.
    Shepherd,
    /// The process has ended; results are not yet collected.
    Exit(Exit),
    /// The run has ended; the head has not recorded the end yet.
    Over(RunEnd),
}

/// An input of the agent's state machine.
#[derive(Debug, Clone)]
pub enum Event {
    /// The connection to the head is open and the hello has been sent.
    Connected,
    /// The connection to the head is lost.
    Disconnected,
    /// The head sent a message.
    Received(HeadMessage),
    /// A restarted agent found this run on disk.
    Recovered {
        /// Its launch.
        launch: Arc<RunLaunch>,
        /// How far the run was.
        found: Found,
    },
    /// The run is prepared and must wait for the other nodes.
    Ready {
        /// The run.
        run: RunId,
        /// A port that is free on this node.
        port: u16,
        /// Where the node accepts steps, if it does.
        door: Option<StepDoor>,
    },
    /// The run is prepared and its shepherd has started the process.
    Started {
        /// The run.
        run: RunId,
    },
    /// The agent cannot shut the machine down.
    CannotPowerOff,
    /// The run's process has ended, or never started.
    Exited {
        /// The run.
        run: RunId,
        /// How the process ended.
        exit: Exit,
    },
    /// The results were uploaded, travel with the report, or could not be collected.
    Collected {
        /// The run.
        run: RunId,
        /// The result, and a note about files that could not be captured; or the error.
        result: Result<(RunResult, Option<String>), Uncollected>,
    },
}

/// The error when a run's results could not all be collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncollected {
    /// The cause, as a sentence fragment.
    pub reason: String,
    /// The part of the results that was collected.
    pub rest: Option<RunResult>,
}

/// An action for the agent process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Store the launch, prepare the run and start it; answer with `Started` or `Exited`. A run on several nodes answers with `Ready`
    /// first and waits for `Begin`.
    Start(Arc<RunLaunch>),
    /// All nodes are ready: start the processes; answer with `Started` or `Exited`.
    Begin {
        /// The run.
        run: RunId,
        /// A port that is free on the first node.
        port: u16,
        /// Where each node accepts steps, if the nodes do.
        doors: Vec<StepDoor>,
    },
    /// Stop the preparation, or send TERM and later KILL to the processes; the answer is `Exited`.
    End {
        /// The run.
        run: RunId,
        /// Milliseconds between TERM and KILL.
        grace_ms: u64,
    },
    /// Collect and upload the results; answer with `Collected`.
    Collect {
        /// The run.
        launch: Arc<RunLaunch>,
    },
    /// Store the end, so that a restarted agent can report it: the exit record does not contain it.
    StoreEnd {
        /// The run.
        run: RunId,
        /// The end.
        end: RunEnd,
    },
    /// No process of the run is left, and the head needs nothing more: remove its directory.
    Remove {
        /// The run.
        launch: Arc<RunLaunch>,
    },
    /// Send a message to the head.
    Send(AgentMessage),
    /// Send output to the head.
    Stream(StreamRequest),
    /// Create and update these accounts on the machine if the agent is allowed to, and block others.
    Accounts {
        /// Accounts that the machine needs.
        accounts: Vec<Account>,
        /// Accounts that are blocked.
        blocked: Vec<Account>,
        /// Uids whose commands from other nodes are refused.
        guarded: Vec<u32>,
    },
    /// Ask the head which nodes gossip.
    AskForPeers,
    /// Stop accepting new commands and runs, unless something other than a run is active. Tell the head with `Resting`.
    Rest {
        /// The number of the head's request.
        ask: u64,
    },
    /// Accept new work again.
    Rise,
    /// Shut the machine down.
    PowerOff,
    /// Send a magic packet.
    WakeUp {
        /// The hardware address of the network card.
        mac: [u8; 6],
        /// The broadcast address; all network segments when absent.
        broadcast: Option<IpAddr>,
        /// The UDP port.
        port: u16,
    },
    /// Stop the agent. Shepherds continue.
    Stop,
}

impl State {
    /// The status of every run, for the hello.
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
    /// The status that the head gets for this stage.
    pub(super) fn status(&self) -> RunStatus {
        match self {
            Self::Staging => RunStatus::Accepted,
            Self::Ready { port, door } => RunStatus::Ready { port: *port, door: *door },
            Self::Running => RunStatus::Running,
            Self::Collecting(_) | Self::Recollecting(_) => RunStatus::Completing,
            Self::Over(end) => RunStatus::Ended(end.clone()),
        }
    }
}

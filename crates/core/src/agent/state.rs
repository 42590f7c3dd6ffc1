//! State, events and effects of the agent.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use hostler_model::{JobSpec, RunId, SignalNumber, SignalTarget};
use hostler_proto::certificate::Certificate;
use hostler_proto::link::{
    Account, AgentMessage, EndCause, HeadMessage, JobLaunch, Placement, RunEnd, RunReport, RunResult, RunStatus,
    StepEndpoint, StepRecord, StreamRequest, SystemAccounts, Usage,
};
use serde::{Deserialize, Serialize};

/// The agent's state: its runs, and whether it is connected to the head.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub(super) runs: BTreeMap<RunId, Run>,
    /// Whether the link to the head is open.
    pub(super) connected: bool,
    /// Whether the machine is shutting down.
    pub(super) is_leaving: bool,
}

/// A run that the agent executes, as the agent's state machine sees it.
#[derive(Debug, Clone)]
pub struct Run {
    /// Job, placement and resources of the run, as the head sent them.
    pub launch: Arc<RunLaunch>,
    /// How far the run has progressed.
    pub stage: Stage,
    /// Why the head asked the agent to end the run; `None` if it did not ask.
    pub ending: Option<EndCause>,
    /// The time limit in milliseconds that replaces the one of the launch; `None` if the head changed none.
    pub new_limit: Option<Option<u64>>,
    /// Whether the head does not know the run or has recorded the run's end. The agent then removes the run as soon as
    /// no process of the run is left.
    pub forgotten: bool,
}

/// Everything an agent needs to start one run; stored in the run's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLaunch {
    /// The data of the job that all runs of the job on this node share.
    pub job: Arc<JobLaunch>,
    /// The run's id, its resources on this node, and the rank of this node among the nodes of the run.
    pub placement: Placement,
}

impl RunLaunch {
    /// Returns the run's id.
    #[must_use]
    pub const fn run(&self) -> RunId {
        self.placement.run
    }

    /// Returns the specification of the run's job.
    #[must_use]
    pub fn spec(&self) -> &JobSpec {
        &self.job.spec
    }
}

/// The progress of a run on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The files of the run's captured folder are being fetched.
    Staging,
    /// The files are on this node; the environment is being prepared.
    Building,
    /// The run is prepared and waits until the run's other nodes are prepared too.
    Ready {
        /// A port that was free on this node when the run was prepared.
        port: u16,
        /// Port and certificate for steps that other nodes start here; `None` if the node accepts no steps.
        endpoint: Option<StepEndpoint>,
    },
    /// The run's shepherd has started the process.
    Running,
    /// The process has ended; its results are being collected and uploaded.
    Collecting(Exit),
    /// The run has ended, and the head requested the results again: the agent collects the results once more.
    Recollecting(RunEnd),
    /// The run has ended. The agent reports it until the head has recorded the end.
    Over(RunEnd),
}

/// The end of a run's process, before its results are collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Whether the process exited, was killed, or never started.
    pub why: Why,
    /// Details for the user, such as an error message.
    pub message: Option<String>,
    /// CPU time, memory and disk transfers of the process.
    pub usage: Usage,
    /// The steps of the run.
    pub steps: Vec<StepRecord>,
    /// How quiet the node was; only for exclusive jobs.
    pub certificate: Option<Box<Certificate>>,
}

/// Why a run's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The process exited with this code; 128 plus the signal number if a signal killed it.
    Exited(i32),
    /// The shepherd killed the process at its time limit; this is the exit code.
    TimeLimit(i32),
    /// The agent ended the process because the head asked for it; this is the exit code.
    Asked(i32),
    /// The kernel killed the process because it exceeded its memory limit; this is the exit code.
    OutOfMemory(i32),
    /// The agent could not prepare the run or start its process.
    NotStarted,
    /// The run's shepherd vanished, or the machine restarted.
    Lost,
}

/// What a restarted agent finds on disk about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Only the launch: no shepherd has taken the run, and none can take it any longer.
    Launch {
        /// The machine has not restarted since the launch was stored.
        is_of_this_boot: bool,
    },
    /// A live shepherd, which the agent has adopted.
    Shepherd,
    /// The process has ended, and its results are not yet collected; or it is lost.
    Exit(Exit),
    /// The stored end of the run, which the head may not have recorded yet.
    Over(RunEnd),
}

/// An event that changes the agent's state; see [`update`](super::update()).
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
        /// The launch stored in the run's directory.
        launch: Arc<RunLaunch>,
        /// What else the run's directory contains.
        found: Found,
    },
    /// The files of a run's captured folder are on this node.
    Staged {
        /// The run that needs only its environment.
        run: RunId,
    },
    /// A run on several nodes is prepared and waits until the other nodes are prepared too.
    Ready {
        /// The prepared run.
        run: RunId,
        /// A port that is free on this node.
        port: u16,
        /// Port and certificate for steps that other nodes start here; `None` if the node accepts no steps.
        endpoint: Option<StepEndpoint>,
    },
    /// The run is prepared and its shepherd has started the process.
    Started {
        /// The started run.
        run: RunId,
    },
    /// An attempt to shut the machine down failed.
    CannotPowerOff,
    /// The run's process has ended, or could not be started.
    Exited {
        /// The run whose process ended.
        run: RunId,
        /// Why the process ended, and what it used.
        exit: Exit,
    },
    /// Collecting a run's results has ended: they are uploaded, are small enough to be part of the report, or are lost.
    Collected {
        /// The run whose results were collected.
        run: RunId,
        /// The result and an optional note about files that could not be captured; or the error.
        result: Result<(RunResult, Option<String>), Uncollected>,
    },
}

/// Error: not all results of a run could be collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncollected {
    /// The cause, to follow "the run's results could not be collected: ".
    pub reason: String,
    /// The results that could be collected despite the error.
    pub rest: Option<RunResult>,
}

/// An action that the agent process must carry out for its state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Store the launch, prepare the run and start it; answer with `Started` or `Exited`. A run on several nodes answers with `Ready`
    /// first and waits for `Begin`.
    Start(Arc<RunLaunch>),
    /// All nodes are ready: start the processes; answer with `Started` or `Exited`.
    Begin {
        /// The run that starts.
        run: RunId,
        /// A port that is free on the run's first node.
        port: u16,
        /// Ports and certificates for steps, by rank of the node; empty if the nodes accept no steps.
        endpoints: Vec<StepEndpoint>,
    },
    /// Stop the preparation, or send TERM and later KILL to the processes; the answer is `Exited`.
    End {
        /// The run to end.
        run: RunId,
        /// Why; `None` if the head has forgotten the run.
        cause: Option<EndCause>,
        /// Time between TERM and KILL, in milliseconds.
        grace_ms: u64,
    },
    /// Replace the time limit of a run whose process has started. The time counts from the start of the run.
    ChangeLimit {
        /// The run.
        run: RunId,
        /// The new limit in milliseconds; `None` for none.
        time_limit_ms: Option<u64>,
    },
    /// Send a signal to processes of a run, if it has any.
    Signal {
        /// The run.
        run: RunId,
        /// The signal.
        signal: SignalNumber,
        /// Which processes get it.
        to: SignalTarget,
        /// Of the steps, only this one.
        step: Option<u32>,
    },
    /// Collect and upload the results; answer with `Collected`.
    Collect {
        /// The launch of the run whose results are collected.
        launch: Arc<RunLaunch>,
    },
    /// Store the run's end on disk, so that a restarted agent can report the end. The exit record of the process does
    /// not contain it.
    StoreEnd {
        /// The run that has ended.
        run: RunId,
        /// How the run ended.
        end: RunEnd,
    },
    /// Remove the run's directory: no process of the run is left, and the head needs no report about it.
    Remove {
        /// The launch of the run to remove.
        launch: Arc<RunLaunch>,
    },
    /// Send a message to the head.
    Send(AgentMessage),
    /// Open a connection to the head and send a run's output over it.
    Stream(StreamRequest),
    /// Send what is measured every second to the head.
    Watch {
        /// Id of the reader at the head.
        stream: String,
        /// The run to measure; `None` for the node.
        run: Option<RunId>,
    },
    /// Create and update accounts on the machine, if the agent is allowed to, and block accounts.
    Accounts {
        /// Accounts that must exist on the machine.
        accounts: Vec<Account>,
        /// Accounts that must be blocked on the machine.
        blocked: Vec<Account>,
        /// Uids whose remote commands this node refuses.
        guarded: Vec<u32>,
        /// The system accounts that may run jobs and commands on this node.
        system: SystemAccounts,
    },
    /// Ask the head for the list of gossiping nodes.
    AskForPeers,
    /// Stop accepting new commands and runs, unless anything besides runs is active on the node. Answer the head with
    /// `Resting`.
    Rest {
        /// The number of the head's request, which `Resting` repeats.
        ask: u64,
    },
    /// Accept new commands and runs again, after `Rest`.
    Rise,
    /// Shut the machine down.
    PowerOff,
    /// Send a Wake-on-LAN packet to another machine.
    WakeUp {
        /// The hardware (MAC) address of the machine's network card.
        mac: [u8; 6],
        /// The broadcast address; `None`: all network segments of this node.
        broadcast: Option<IpAddr>,
        /// The UDP port of the packet.
        port: u16,
    },
    /// Stop the agent. Shepherds continue.
    Stop,
}

impl State {
    /// Returns the status of every run, for the hello message to the head.
    #[must_use]
    pub fn reports(&self) -> Vec<RunReport> {
        let held = self.runs.iter().filter(|(_, run)| !run.forgotten);
        held.map(|(&id, run)| RunReport { run: id, status: run.stage.status() }).collect()
    }

    /// Looks up a run by id.
    #[must_use]
    pub fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    /// Iterates over all runs by id.
    pub fn runs(&self) -> impl Iterator<Item = (&RunId, &Run)> {
        self.runs.iter()
    }
}

impl Stage {
    /// Returns the status to report to the head for this stage.
    pub(super) fn status(&self) -> RunStatus {
        match self {
            Self::Staging => RunStatus::Accepted,
            Self::Building => RunStatus::Staged,
            Self::Ready { port, endpoint } => RunStatus::Ready { port: *port, endpoint: *endpoint },
            Self::Running => RunStatus::Running,
            Self::Collecting(_) | Self::Recollecting(_) => RunStatus::Completing,
            Self::Over(end) => RunStatus::Ended(end.clone()),
        }
    }
}

//! Shepherds: starts one for each run, receives the run's end, and keeps idle shepherds for later runs.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use hostler_core::agent::{Event, Exit, RunLaunch, Why};
use hostler_model::{CpuSet, format_bytes};
use hostler_proto::link::{IoSource, IoUsage, StepDoor, Usage};
use hostler_shepherd::cgroup::LeafSpec;
use hostler_shepherd::{
    Adopted, Cause, Event as ShepherdEvent, ExitRecord, Io, Launch, LaunchError, Lost, LostReason, RunningRecord,
    Shepherd, Status, adopt,
};
use tokio::sync::mpsc;

use crate::engine::{Handle, Node};
use crate::readiness::Readiness;

/// Timeout for an idle shepherd to confirm its next run. After the timeout, the agent uses another shepherd.
const NEXT_BOUND: Duration = Duration::from_secs(10);

/// How long an idle shepherd waits for another run. Shepherds are reused because starting one and creating its leaf
/// takes longer than a short command.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// How long the agent gives runs to an idle shepherd: slightly shorter than [`LINGER`], when the shepherd exits.
const STAYS: Duration = Duration::from_secs(9);

/// Delay between attempts to determine the state of a run.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Maximum number of idle shepherds; each takes a fraction of a mebibyte.
const MAX_IDLE: usize = 64;

/// Order of the engine for a run that the agent watches.
pub(crate) enum Order {
    /// All nodes of the run are ready: begin.
    Begin {
        /// Port on the first node at which the run's processes can connect to each other.
        port: u16,
        /// Where each node accepts steps, if the run uses them.
        doors: Vec<StepDoor>,
    },
    /// Send TERM now, and KILL after `grace`.
    End {
        /// Time between TERM and KILL; zero to send KILL immediately.
        grace: Duration,
    },
}

/// Shepherds that have finished a run and wait for the next one, newest last.
#[derive(Default)]
pub(crate) struct IdleShepherds {
    waiting: Mutex<Vec<Idle>>,
}

/// A shepherd with a connection that is registered with the async runtime.
pub(crate) struct Watched {
    shepherd: Shepherd,
    /// The control connection; `None` if no file descriptor was free. The agent then polls the run's journal.
    connection: Option<Readiness<OwnedFd>>,
    has_started: bool,
}

impl Watched {
    /// Registers the connection with the runtime.
    pub(crate) fn new(shepherd: Shepherd) -> Self {
        let connection = shepherd.connection().try_clone_to_owned().and_then(Readiness::of);
        if let Err(error) = &connection {
            tracing::error!(%error, "cannot watch a shepherd's connection");
        }
        Self { has_started: shepherd.child().is_some(), shepherd, connection: connection.ok() }
    }

    /// Hands another run to the shepherd. Returns whether the shepherd confirmed the start.
    async fn take(&mut self, orders: &Launch) -> bool {
        // Pending events belong to the previous run.
        while let Ok(Some(_)) = self.shepherd.try_next_event() {}
        self.shepherd.launch_next(orders).is_ok() && self.says_started().await
    }

    /// Hands another remote command to the shepherd, optionally in a mount namespace. Returns whether the shepherd
    /// confirmed the start.
    pub(crate) async fn take_call(
        &mut self,
        orders: &Launch,
        stdio: [BorrowedFd<'_>; 3],
        namespace: Option<BorrowedFd<'_>>,
    ) -> bool {
        while let Ok(Some(_)) = self.shepherd.try_next_event() {}
        self.shepherd.call_next(orders, stdio, namespace).is_ok() && self.says_started().await
    }

    async fn says_started(&mut self) -> bool {
        match tokio::time::timeout(NEXT_BOUND, self.next_event()).await {
            Ok(Some(ShepherdEvent::Started(started))) => {
                self.has_started = started.child.is_some();
                true
            }
            _ => false,
        }
    }

    /// Whether the last program could be started.
    pub(crate) const fn has_started(&self) -> bool {
        self.has_started
    }

    pub(crate) const fn shepherd(&self) -> &Shepherd {
        &self.shepherd
    }

    /// The next event from the shepherd; `None` if the shepherd has ended or is unreachable.
    pub(crate) async fn next_event(&mut self) -> Option<ShepherdEvent> {
        let connection = self.connection.as_ref()?;
        loop {
            match self.shepherd.try_next_event() {
                Ok(Some(event)) => return Some(event),
                Ok(None) => connection.readable().await,
                Err(_) => return None,
            }
        }
    }
}

struct Idle {
    shepherd: Watched,
    /// The cgroup leaf of the last run. The shepherd's next run reuses this leaf at no cost.
    leaf: Option<LeafSpec>,
    /// CPUs of the leaf.
    cpus: CpuSet,
    /// User of the last run; `None` for the agent's own user. The shepherd serves only this user.
    owner: Option<u32>,
    since: Instant,
}

impl IdleShepherds {
    /// Takes an idle shepherd of the user `owner`, preferably one whose leaf has the CPUs `cpus`, and the leaf.
    pub(crate) fn take(&self, cpus: &CpuSet, owner: Option<u32>) -> Option<(Watched, Option<LeafSpec>)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|idle| idle.since.elapsed() < STAYS);
        let best = waiting.iter().rposition(|idle| idle.owner == owner && idle.cpus == *cpus);
        let at = best.or_else(|| waiting.iter().rposition(|idle| idle.owner == owner))?;
        let Idle { shepherd, leaf, .. } = waiting.remove(at);
        Some((shepherd, leaf))
    }

    /// Keeps a shepherd with its leaf, the leaf's CPUs, and the user of the last run.
    pub(crate) fn put(&self, shepherd: Watched, leaf: Option<LeafSpec>, cpus: CpuSet, owner: Option<u32>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|idle| idle.since.elapsed() < STAYS);
        if waiting.len() >= MAX_IDLE {
            // Dropping the connection ends the shepherd.
            waiting.remove(0);
        }
        waiting.push(Idle { shepherd, leaf, cpus, owner, since: Instant::now() });
    }
}

pub(crate) enum LaunchOutcome {
    /// The run has started under this shepherd.
    Started(Watched),
    /// The run began and has ended, or its state is unknown. In both cases the agent must not start the run again.
    Ended(Exit),
}

/// Starts a run with an idle shepherd or a new one.
///
/// # Errors
/// If no shepherd claimed the run. Nothing is running then, and nothing will start later.
pub(crate) async fn launch(node: &Node, launch: &RunLaunch, orders: &mut Launch) -> anyhow::Result<LaunchOutcome> {
    if orders.options.linger.is_some()
        && let Some((mut shepherd, leaf)) = node.idle.take(&launch.placement.resources.cpus, owner_of(orders))
    {
        let own_leaf = std::mem::replace(&mut orders.options.leaf, leaf);
        if shepherd.take(orders).await {
            return Ok(LaunchOutcome::Started(shepherd));
        }
        // The shepherd has probably exited. The run must neither begin late nor twice.
        match determine_state(node, launch).await {
            RunState::Running(shepherd) => return Ok(LaunchOutcome::Started(shepherd)),
            RunState::Ended(exit) => return Ok(LaunchOutcome::Ended(exit)),
            RunState::NeverBegan => {
                orders.options.identity = node.runs.of(launch.run()).begin(launch, &node.facts.boot)?;
            }
        }
        orders.options.leaf = own_leaf;
    }
    match node.launcher.launch(orders) {
        Ok(shepherd) => Ok(LaunchOutcome::Started(Watched::new(shepherd))),
        Err(LaunchError::NoAnswer(error)) => match determine_state(node, launch).await {
            RunState::Running(shepherd) => Ok(LaunchOutcome::Started(shepherd)),
            RunState::Ended(exit) => Ok(LaunchOutcome::Ended(exit)),
            RunState::NeverBegan => Err(error).context("no answer from the job's shepherd"),
        },
        Err(error) => Err(error.into()),
    }
}

/// Uid of the user who runs `orders`; `None` for the agent's own user.
pub(crate) fn owner_of(orders: &Launch) -> Option<u32> {
    orders.options.credentials.as_ref().map(|user| user.uid)
}

/// The shepherd of a watched run, with the data that the shepherd's next run needs.
pub(crate) struct Kept {
    pub(crate) shepherd: Watched,
    /// Leaf and user of the run; `None` for an adopted shepherd, for which they are unknown.
    pub(crate) place: Option<(Option<LeafSpec>, Option<u32>)>,
}

/// Watches a run until all its processes are gone, and reports its end to the engine.
pub(crate) async fn watch(
    node: Arc<Node>,
    handle: Handle,
    launch: Arc<RunLaunch>,
    Kept { mut shepherd, place }: Kept,
    mut orders: mpsc::Receiver<Order>,
) {
    let run = launch.run();
    let record = loop {
        match follow(&mut shepherd, &mut orders).await {
            Some(record) => break Ok(record),
            // The connection closed without a report: check the disk and the kernel.
            None => match determine_state(&node, &launch).await {
                RunState::Running(again) => {
                    if again.connection.is_none() {
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                    shepherd = again;
                }
                RunState::Ended(exit) => break Err(exit),
                RunState::NeverBegan => break Err(lost(&node, LostReason::NeverStarted)),
            },
        }
    };
    let exit = match record {
        Ok(record) => {
            let exit = exit_of(&record, &launch);
            if let Some((leaf, owner)) = place
                && launch.spec().pty.is_none()
                && leaf.is_some() == node.cgroups.is_ok()
            {
                let cpus = launch.placement.resources.cpus.clone();
                node.idle.put(shepherd, leaf, cpus, owner);
            }
            exit
        }
        Err(exit) => exit,
    };
    handle.happened(Event::Exited { run, exit: with_disk(&node, exit) });
}

/// Adds a note that the disk is full to a failed run, because the run's own message may not have fit on the disk.
fn with_disk(node: &Node, mut exit: Exit) -> Exit {
    if exit.why != Why::Exited(0) && node.runs.disk_is_full() {
        let full = format!("the disk of node {} is full", node.name);
        exit.message = Some(exit.message.map_or_else(|| full.clone(), |message| format!("{message}; {full}")));
    }
    exit
}

/// Executes orders until the shepherd reports the end; `None` if its connection breaks first.
async fn follow(shepherd: &mut Watched, orders: &mut mpsc::Receiver<Order>) -> Option<Box<ExitRecord>> {
    loop {
        tokio::select! {
            event = shepherd.next_event() => match event {
                Some(ShepherdEvent::Finished(record)) => return Some(record),
                Some(_) => {}
                None => return None,
            },
            Some(order) = orders.recv() => match order {
                // If the run has just ended, its report is on the way.
                Order::End { grace } => drop(shepherd.shepherd.terminate(Cause::Cancelled, grace)),
                // The run has already begun.
                Order::Begin { .. } => {}
            },
        }
    }
}

/// State of a run after its shepherd stopped responding.
pub(crate) enum RunState {
    /// The run continues under this shepherd.
    Running(Watched),
    /// The run has ended.
    Ended(Exit),
    /// The run never began, and cannot begin without a new journal.
    NeverBegan,
}

/// Determines the state of a run. Retries after system errors, such as a lack of file descriptors.
pub(crate) async fn determine_state(node: &Node, launch: &RunLaunch) -> RunState {
    let directory = node.runs.of(launch.run());
    loop {
        match adopt(directory.path()) {
            Ok(Adopted::Running(shepherd)) => return RunState::Running(Watched::new(shepherd)),
            Ok(Adopted::Ended(record)) => return RunState::Ended(exit_of(&record, launch)),
            Ok(Adopted::Lost(Lost { reason: LostReason::NeverStarted, .. })) => return RunState::NeverBegan,
            Ok(Adopted::Lost(found)) => {
                end_leaf(node, found.record.as_ref());
                return RunState::Ended(lost(node, found.reason));
            }
            Err(error) => {
                tracing::warn!(run = %launch.run(), %error, "cannot determine the state of a run; retrying");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }
}

/// Kills processes that a lost run left in its leaf: its main process died with the shepherd, but others may remain.
fn end_leaf(node: &Node, record: Option<&RunningRecord>) {
    if let (Ok(tree), Some(leaf)) = (&node.cgroups, record.and_then(|record| record.leaf.as_ref()))
        && !tree.end(leaf)
    {
        tracing::warn!(leaf = %leaf.display(), "cannot kill the processes of a lost run");
    }
}

/// Exit of a lost run, with a message for the user.
pub(crate) fn lost(node: &Node, reason: LostReason) -> Exit {
    let what = match reason {
        LostReason::Rebooted => "was restarted while the job ran",
        LostReason::ShepherdGone | LostReason::PidReused => {
            "does not know the job's exit status: its shepherd (the supervising process) was killed, or the machine's job service was stopped"
        }
        LostReason::NeverStarted => "never started the job",
        LostReason::Damaged => "has damaged files of this run",
    };
    Exit { why: Why::Lost, message: Some(format!("node {} {what}", node.name)), usage: Usage::default() }
}

/// Converts an exit record to the report for the head.
pub(crate) fn exit_of(record: &ExitRecord, launch: &RunLaunch) -> Exit {
    let code = record.status.exit_code();
    let why = match &record.cause {
        _ if record.oom_kill == Some(true) && code != 0 => Why::OutOfMemory(code),
        None => Why::Exited(code),
        Some(Cause::TimeLimit) => Why::TimeLimit(code),
        // Not requested by anybody: the run failed, and the message says why.
        Some(Cause::OutputLimit | Cause::Other(_)) => Why::Exited(if code == 0 { 1 } else { code }),
        Some(Cause::Cancelled | Cause::Preempted | Cause::Superseded | Cause::NodeShutdown) => Why::Asked(code),
    };
    let mut messages = Vec::new();
    if matches!(why, Why::OutOfMemory(_)) {
        let limit = format_bytes(launch.placement.resources.memory_bytes);
        messages.push(format!("the job exceeded its memory limit of {limit}; request more with --memory"));
    }
    if record.cause == Some(Cause::OutputLimit) {
        let cap = format_bytes(launch.job.output_cap_bytes());
        messages.push(format!(
            "the job wrote more than {cap} of output (setting output-cap), and this file system cannot discard the rest"
        ));
    }
    if let Status::StartFailed { message, .. } = &record.status {
        messages.push(message.clone());
    }
    if let Status::Signaled { signal, .. } = &record.status
        && record.cause.is_none()
    {
        messages.push(format!("ended by signal {signal}"));
    }
    if !record.unkillable.is_empty() {
        messages.push(format!("processes {:?} of the job could not be killed", record.unkillable));
    }
    messages.extend(record.log_error.iter().map(|error| format!("the job's output is incomplete: {error}")));
    Exit {
        why,
        message: (!messages.is_empty()).then(|| messages.join("; ")),
        usage: Usage {
            wall_ms: millis(record.wall_time),
            user_ms: millis(record.user_time),
            system_ms: millis(record.system_time),
            max_rss_bytes: record.max_rss_bytes,
            memory_peak_bytes: record.memory_peak_bytes,
            io: record.io.map(io_of),
        },
    }
}

fn io_of(io: Io) -> IoUsage {
    let source = match io.source {
        hostler_shepherd::IoSource::Leaf => IoSource::Cgroup,
        hostler_shepherd::IoSource::Processes => IoSource::Processes,
    };
    IoUsage { read_bytes: io.read_bytes, write_bytes: io.write_bytes, source }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

//! Shepherds: starting one for a run, hearing how the run ended, and keeping those that wait for another run.

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

/// How long a lingering shepherd may take to start its next run before another is asked.
const NEXT_BOUND: Duration = Duration::from_secs(10);

/// How long a shepherd stays for another run: starting one with its leaf costs more than a short command.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// How long it is counted on: a little less.
const STAYS: Duration = Duration::from_secs(9);

/// Between two looks at a run of which nothing can be told.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The most shepherds kept waiting; each takes a fraction of a mebibyte.
const MAX_IDLE: usize = 64;

/// What a watched run can be told.
pub(crate) enum Order {
    /// The other nodes of the run are ready too: begin.
    Begin {
        /// A port on the first of them.
        port: u16,
        /// Where each of them takes steps, if they do.
        doors: Vec<StepDoor>,
    },
    /// TERM now, KILL after `grace`.
    End {
        /// At once when it is zero.
        grace: Duration,
    },
}

/// Shepherds that have finished a run and wait for the next one, newest last.
#[derive(Default)]
pub(crate) struct IdleShepherds {
    waiting: Mutex<Vec<Idle>>,
}

/// A shepherd, and its connection as the runtime waits for it.
pub(crate) struct Watched {
    shepherd: Shepherd,
    /// `None` when the system has no descriptor left for it: then the run's journal is looked at now and then.
    connection: Option<Readiness<OwnedFd>>,
    has_started: bool,
}

impl Watched {
    /// Registers the connection with the runtime.
    pub(crate) fn new(shepherd: Shepherd) -> Self {
        let connection = shepherd.connection().try_clone_to_owned().and_then(Readiness::of);
        if let Err(error) = &connection {
            tracing::error!(%error, "cannot listen to a shepherd");
        }
        Self { has_started: shepherd.child().is_some(), shepherd, connection: connection.ok() }
    }

    /// Hands it another run; whether it says that it took it.
    async fn take(&mut self, orders: &Launch) -> bool {
        // Nothing it may still have said is about this run.
        while let Ok(Some(_)) = self.shepherd.try_next_event() {}
        self.shepherd.launch_next(orders).is_ok() && self.says_started().await
    }

    /// Hands it another call, perhaps in a mount namespace; whether it says that it took it.
    pub(crate) async fn take_call(
        &mut self,
        orders: &Launch,
        stdio: [BorrowedFd<'_>; 3],
        namespace: Option<BorrowedFd<'_>>,
    ) -> bool {
        while let Ok(Some(_)) = self.shepherd.try_next_event() {}
        let asked = match namespace {
            Some(namespace) => self.shepherd.call_next_in(orders, stdio, namespace),
            None => self.shepherd.call_next(orders, stdio),
        };
        asked.is_ok() && self.says_started().await
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

    /// Whether the program that it was given last could be started.
    pub(crate) const fn has_started(&self) -> bool {
        self.has_started
    }

    /// The shepherd itself, to be told something.
    pub(crate) const fn shepherd(&self) -> &Shepherd {
        &self.shepherd
    }

    /// The next thing the shepherd says; `None` when it is gone or cannot be heard.
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

/// One shepherd between two runs.
struct Idle {
    shepherd: Watched,
    /// The cgroup leaf it sits beside: its next run gets the same one, which costs nothing.
    leaf: Option<LeafSpec>,
    /// The CPUs that leaf is held to.
    cpus: CpuSet,
    /// Whose run it was: `None` for the agent's own user. No other's will follow.
    owner: Option<u32>,
    since: Instant,
}

impl IdleShepherds {
    /// One that had runs of the same user, best on these CPUs; and the leaf that it sits beside.
    pub(crate) fn take(&self, cpus: &CpuSet, owner: Option<u32>) -> Option<(Watched, Option<LeafSpec>)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|idle| idle.since.elapsed() < STAYS);
        let best = waiting.iter().rposition(|idle| idle.owner == owner && idle.cpus == *cpus);
        let at = best.or_else(|| waiting.iter().rposition(|idle| idle.owner == owner))?;
        let Idle { shepherd, leaf, .. } = waiting.remove(at);
        Some((shepherd, leaf))
    }

    /// Keeps one that sits beside a leaf that is held to these CPUs, and whose last run was this user's.
    pub(crate) fn put(&self, shepherd: Watched, leaf: Option<LeafSpec>, cpus: CpuSet, owner: Option<u32>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|idle| idle.since.elapsed() < STAYS);
        if waiting.len() >= MAX_IDLE {
            // A dropped connection ends it.
            waiting.remove(0);
        }
        waiting.push(Idle { shepherd, leaf, cpus, owner, since: Instant::now() });
    }
}

/// What asking for a run came to.
pub(crate) enum Asked {
    /// A shepherd has it.
    Took(Watched),
    /// It began and is over, or nobody can tell: it must not begin again.
    Over(Exit),
}

/// Starts a run: with a shepherd that has just finished another one, or with a new one.
///
/// # Errors
/// When no shepherd took it; nothing runs then, and nothing will.
pub(crate) async fn launch(node: &Node, launch: &RunLaunch, orders: &mut Launch) -> anyhow::Result<Asked> {
    if orders.options.linger.is_some()
        && let Some((mut shepherd, leaf)) = node.idle.take(&launch.resources.cpus, owner_of(orders))
    {
        let own_leaf = std::mem::replace(&mut orders.options.leaf, leaf);
        if shepherd.take(orders).await {
            return Ok(Asked::Took(shepherd));
        }
        // It had most likely stopped waiting. What it has been sent must not begin late, or a second time.
        match what_became_of(node, launch).await {
            Became::GoesOn(shepherd) => return Ok(Asked::Took(shepherd)),
            Became::Over(exit) => return Ok(Asked::Over(exit)),
            Became::NeverBegan => orders.options.identity = node.runs.of(launch.run).begin(launch, &node.boot)?,
        }
        orders.options.leaf = own_leaf;
    }
    match node.launcher.launch(orders) {
        Ok(shepherd) => Ok(Asked::Took(Watched::new(shepherd))),
        Err(LaunchError::NoAnswer(error)) => match what_became_of(node, launch).await {
            Became::GoesOn(shepherd) => Ok(Asked::Took(shepherd)),
            Became::Over(exit) => Ok(Asked::Over(exit)),
            Became::NeverBegan => Err(error).context("no answer from its shepherd"),
        },
        Err(error) => Err(error.into()),
    }
}

/// The user that a run is to become; `None` is the agent's own.
pub(crate) fn owner_of(orders: &Launch) -> Option<u32> {
    orders.options.credentials.as_ref().map(|user| user.uid)
}

/// A shepherd with what is known of it.
pub(crate) struct Kept {
    pub(crate) shepherd: Watched,
    /// The leaf it sits beside, and the user whose run it has: known of those that were not adopted.
    pub(crate) place: Option<(Option<LeafSpec>, Option<u32>)>,
}

/// Watches a run until nothing of it is left, and tells the loop how it ended.
pub(crate) async fn watch(
    node: Arc<Node>,
    handle: Handle,
    launch: Arc<RunLaunch>,
    Kept { mut shepherd, place }: Kept,
    mut orders: mpsc::Receiver<Order>,
) {
    let run = launch.run;
    let record = loop {
        match follow(&mut shepherd, &mut orders).await {
            Some(record) => break Ok(record),
            // The connection broke without a word: the disk and the kernel know more.
            None => match what_became_of(&node, &launch).await {
                Became::GoesOn(again) => {
                    if again.connection.is_none() {
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                    shepherd = again;
                }
                Became::Over(exit) => break Err(exit),
                Became::NeverBegan => break Err(lost(&node, LostReason::NeverStarted)),
            },
        }
    };
    let exit = match record {
        Ok(record) => {
            let exit = exit_of(&record, &launch);
            if let Some((leaf, owner)) = place
                && launch.spec.pty.is_none()
                && leaf.is_some() == node.cgroups.is_ok()
            {
                let cpus = launch.resources.cpus.clone();
                node.idle.put(shepherd, leaf, cpus, owner);
            }
            exit
        }
        Err(exit) => exit,
    };
    handle.happened(Event::Exited { run, exit: with_disk(&node, exit) });
}

/// Adds that the disk is full to how a run failed: its own words about that may have found no room.
fn with_disk(node: &Node, mut exit: Exit) -> Exit {
    if exit.why != Why::Exited(0) && node.runs.disk_is_full() {
        let full = format!("the disk of node {} is full", node.name);
        exit.message = Some(exit.message.map_or_else(|| full.clone(), |message| format!("{message}; {full}")));
    }
    exit
}

/// Carries out orders until the shepherd reports the end; `None` when its connection breaks first.
async fn follow(shepherd: &mut Watched, orders: &mut mpsc::Receiver<Order>) -> Option<Box<ExitRecord>> {
    loop {
        tokio::select! {
            event = shepherd.next_event() => match event {
                Some(ShepherdEvent::Finished(record)) => return Some(record),
                Some(_) => {}
                None => return None,
            },
            Some(order) = orders.recv() => match order {
                // It may just have ended; then its report is on the way.
                Order::End { grace } => drop(shepherd.shepherd.terminate(Cause::Cancelled, grace)),
                // Said twice.
                Order::Begin { .. } => {}
            },
        }
    }
}

/// What became of a run whose shepherd no longer speaks.
pub(crate) enum Became {
    /// It goes on, with this shepherd.
    GoesOn(Watched),
    /// It is over.
    Over(Exit),
    /// It never began, and cannot until its journal is begun anew.
    NeverBegan,
}

/// Finds out what became of a run, for as long as that takes: while the system lacks what is needed to look, nothing is known.
pub(crate) async fn what_became_of(node: &Node, launch: &RunLaunch) -> Became {
    let directory = node.runs.of(launch.run);
    loop {
        match adopt(directory.path()) {
            Ok(Adopted::Running(shepherd)) => return Became::GoesOn(Watched::new(shepherd)),
            Ok(Adopted::Ended(record)) => return Became::Over(exit_of(&record, launch)),
            Ok(Adopted::Lost(Lost { reason: LostReason::NeverStarted, .. })) => return Became::NeverBegan,
            Ok(Adopted::Lost(found)) => {
                end_leaf(node, found.record.as_ref());
                return Became::Over(lost(node, found.reason));
            }
            Err(error) => {
                tracing::warn!(run = %launch.run, %error, "cannot tell what became of a run; looking again");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }
}

/// Ends what a lost run has left in its leaf: its main process went with the shepherd, others need not have.
fn end_leaf(node: &Node, record: Option<&RunningRecord>) {
    if let (Ok(tree), Some(leaf)) = (&node.cgroups, record.and_then(|record| record.leaf.as_ref()))
        && !tree.end(leaf)
    {
        tracing::warn!(leaf = %leaf.display(), "processes of a lost run could not be ended");
    }
}

/// How a lost run ended, for the person whose job it is.
pub(crate) fn lost(node: &Node, reason: LostReason) -> Exit {
    let what = match reason {
        LostReason::Rebooted => "was restarted while it ran",
        LostReason::ShepherdGone | LostReason::PidReused => {
            "does not know how it ended: the shepherd, the process that supervises it, was killed or the machine's job service was stopped"
        }
        LostReason::NeverStarted => "never started it",
        LostReason::Damaged => "has damaged files of it",
    };
    Exit { why: Why::Lost, message: Some(format!("node {} {what}", node.name)), usage: Usage::default() }
}

/// What the head is told of an exit record.
pub(crate) fn exit_of(record: &ExitRecord, launch: &RunLaunch) -> Exit {
    let code = record.status.exit_code();
    let why = match &record.cause {
        _ if record.oom_kill == Some(true) && code != 0 => Why::OutOfMemory(code),
        None => Why::Exited(code),
        Some(Cause::TimeLimit) => Why::TimeLimit(code),
        // Nobody asked for that: the run failed, and the message says how.
        Some(Cause::OutputLimit | Cause::Other(_)) => Why::Exited(if code == 0 { 1 } else { code }),
        Some(Cause::Cancelled | Cause::Preempted | Cause::Superseded | Cause::NodeShutdown) => Why::Asked(code),
    };
    let mut messages = Vec::new();
    if matches!(why, Why::OutOfMemory(_)) {
        let limit = format_bytes(launch.resources.memory_bytes);
        messages.push(format!("it needed more than its {limit} of memory; ask for more with --memory"));
    }
    if record.cause == Some(Cause::OutputLimit) {
        let cap = format_bytes(launch.output_cap_bytes());
        messages.push(format!(
            "it wrote more than {cap} of output (setting output-cap), and this disk cannot drop the rest"
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
        messages.push(format!("processes {:?} could not be killed", record.unkillable));
    }
    messages.extend(record.log_error.iter().map(|error| format!("its output is incomplete: {error}")));
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

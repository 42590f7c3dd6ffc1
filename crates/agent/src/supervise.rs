//! Supervision: starts a shepherd for each run, and receives the run's end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hostler_core::agent::{Event, Exit, RunLaunch, Why};
use hostler_model::format_bytes;
use hostler_proto::link::{IoSource, IoUsage, StepEndpoint, StepRecord, Usage};
use hostler_shepherd::cgroup::LeafSpec;
use hostler_shepherd::journal::JournalContent;
use hostler_shepherd::{
    Adopted, Cause, Event as ShepherdEvent, ExitRecord, Io, Launch, LaunchError, Lost, LostReason, RunSignal,
    RunningRecord, Status, adopt,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::certificate::{self, Measuring};
use crate::ending::{Ending, or_end};
use crate::handle::Handle;
use crate::node::Node;
use crate::shepherds::{self, Watched};
use crate::usage::{RunPlace, leaf_at};
use crate::{engines, quiet, steps};

/// Queued orders per run: one to end it, one to end it at once, and a reserve.
const ORDERS_LEN: usize = 8;

/// How long a request for the running steps waits for the one before.
const STEPS_TURN: Duration = Duration::from_secs(5);

/// How long a connection to a port or socket waits for those before it to be made.
const CONNECT_TURN: Duration = Duration::from_secs(5);

/// The most connections at once that a run makes to its listeners. Further ones wait in their queues.
const MOST_ACCEPTED: usize = 100;

/// Delay between attempts to determine the state of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How often the agent tries again to end the processes of a lost run.
const LEAF_RETRY: Duration = Duration::from_secs(60);

/// Order for a run.
pub(crate) enum Order {
    /// All nodes of the run are ready: begin.
    Begin {
        /// Port on the first node at which the run's processes can connect to each other.
        port: u16,
        /// Where each node accepts steps, if the run uses them.
        endpoints: Vec<StepEndpoint>,
    },
    /// Send a signal.
    Signal(RunSignal),
    /// Replace the time limit; `None` means no limit.
    ChangeLimit(Option<Duration>),
    /// Send TERM now, and KILL after `grace`.
    End {
        /// Time between TERM and KILL; zero to send KILL immediately.
        grace: Duration,
    },
}

/// Controls a run that is starting or running.
#[derive(Clone)]
pub(crate) struct Control {
    ending: Arc<Ending>,
    orders: mpsc::Sender<Order>,
    /// Locked while a thread reads the run's list of steps.
    steps: Arc<tokio::sync::Mutex<()>>,
    /// Locked while a thread connects to a port or socket of the run.
    connecting: Arc<tokio::sync::Mutex<()>>,
    /// Places for connections that the run makes to its listeners.
    pub(crate) accepted: Arc<tokio::sync::Semaphore>,
}

/// Receiving ends of a [`Control`].
pub(crate) struct Controlled {
    pub(crate) ending: Arc<Ending>,
    pub(crate) orders: mpsc::Receiver<Order>,
}

pub(crate) fn control() -> (Control, Controlled) {
    let (orders, receiver) = mpsc::channel(ORDERS_LEN);
    let ending = Arc::new(Ending::new());
    let control = Control {
        ending: Arc::clone(&ending),
        orders,
        steps: Arc::default(),
        connecting: Arc::default(),
        accepted: Arc::new(tokio::sync::Semaphore::new(MOST_ACCEPTED)),
    };
    (control, Controlled { ending, orders: receiver })
}

impl Control {
    pub(crate) fn order(&self, order: Order) {
        if let Order::End { .. } = order {
            self.ending.order();
        }
        // The receiver is gone if the run is just ending. If the queue is full, earlier orders to end the run are
        // pending.
        let _ = self.orders.try_send(order);
    }

    /// Reads files of the host on this node. They are in a directory of the user, who can mount a file system there that
    /// never answers, so only one thread reads them, and others wait for a while.
    pub(crate) async fn of_step_host<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        alone(&self.steps, STEPS_TURN, "the directory with the lists of steps does not answer", read).await
    }

    /// Connects to a port or socket of the run. That takes as long as its user makes it take, so only one thread per run does it.
    pub(crate) async fn connect<T: Send + 'static>(
        &self,
        connect: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        alone(&self.connecting, CONNECT_TURN, "too many connections are being made", connect).await
    }
}

/// Does `work` on a thread when nothing else holds `turns`. Waits for at most `patience`, and then fails with `busy`.
async fn alone<T: Send + 'static>(
    turns: &Arc<tokio::sync::Mutex<()>>,
    patience: Duration,
    busy: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let turn = timeout(patience, Arc::clone(turns).lock_owned()).await.context(busy)?;
    let work = move || {
        let _turn = turn;
        work()
    };
    Ok(tokio::task::spawn_blocking(work).await?)
}

/// State of a run that has begun.
pub(crate) enum RunState {
    /// It runs under this shepherd.
    Running(Watched),
    /// It has ended, or its state is unknown: it must not begin again.
    Ended(Exit),
}

/// Starts a run with an idle shepherd or a new one. Ends the run if it should end before its program has started.
///
/// # Errors
/// If no shepherd took the run; nothing is running then, and nothing will start later.
pub(crate) async fn launch(
    node: &Arc<Node>,
    launch: &RunLaunch,
    orders: &mut Launch,
    ending: &Ending,
) -> anyhow::Result<RunState> {
    let spent = orders.options.time_spent;
    ending.begin(spent, orders.options.time_limit.map(|limit| limit.saturating_add(spent)));
    match or_end(node, launch, ending, begin(node, launch, orders)).await {
        Some(state) => state,
        None => determine_state(node, launch).await.context("the run was ended before its start"),
    }
}

async fn begin(node: &Node, launch: &RunLaunch, orders: &mut Launch) -> anyhow::Result<RunState> {
    // A measured run has a new cgroup to itself, whose counters begin at zero.
    if orders.options.linger.is_some()
        && !launch.spec().exclusive
        && let Some((mut shepherd, leaf)) = node.idle.take(&launch.placement.resources.cpus, owner_of(orders))
    {
        let own_leaf = std::mem::replace(&mut orders.options.leaf, leaf);
        if shepherd.take(orders).await {
            return Ok(RunState::Running(shepherd));
        }
        // The shepherd has probably exited. The run must neither begin late nor twice.
        if let Some(state) = determine_state(node, launch).await {
            return Ok(state);
        }
        orders.options.identity = node.runs.of(launch.run()).begin(launch, &node.facts.boot)?;
        orders.options.leaf = own_leaf;
    }
    match shepherds::start(&node.launcher, orders, &[]).await {
        Ok(shepherd) => Ok(RunState::Running(shepherd)),
        Err(LaunchError::NoAnswer(error)) => match determine_state(node, launch).await {
            Some(state) => Ok(state),
            None => Err(error).context("no answer from its shepherd"),
        },
        Err(error) => Err(error.into()),
    }
}

/// Uid of the user who runs `orders`; `None` for the agent's own user.
pub(crate) fn owner_of(orders: &Launch) -> Option<u32> {
    orders.options.credentials.as_ref().map(|user| user.uid)
}

/// Watches a run until all its processes are gone, and reports its end to the engine. `place` is the shepherd's leaf and
/// the user of the run; unknown for adopted shepherds.
pub(crate) async fn watch(
    node: Arc<Node>,
    handle: Handle,
    launch: Arc<RunLaunch>,
    mut shepherd: Watched,
    place: Option<(Option<LeafSpec>, Option<u32>)>,
    mut controlled: Controlled,
    mut measuring: Option<Measuring>,
) {
    let _measured = node.usage.begin(launch.run(), measured_at(&node, &launch, &shepherd, place.as_ref()));
    if let Ok(networks) = &node.networks {
        networks.carry(launch.run(), shepherd.shepherd().pid());
    }
    let mut new_limit = None;
    let exit = loop {
        let (has_started, ending) = (shepherd.has_started(), Arc::clone(&controlled.ending));
        let followed = follow(&mut shepherd, &mut controlled, &mut new_limit);
        let record =
            if has_started { followed.await } else { or_end(&node, &launch, &ending, followed).await.flatten() };
        if let Some(record) = record {
            if let Some(measuring) = measuring.take() {
                let leaf = place.as_ref().and_then(|(leaf, _)| leaf.as_ref()).map(|leaf| leaf.path.clone());
                measuring.finish(&node, &launch, &record, leaf).await;
            }
            if let Some((leaf, owner)) = place
                && launch.spec().pty.is_none()
                && leaf.is_some() == node.cgroups.is_ok()
            {
                node.idle.put(shepherd, leaf, launch.placement.resources.cpus.clone(), owner);
            }
            break exit_of(&node, &record, &launch).await;
        }
        // The connection closed without a report: check the disk and the kernel.
        match determine_state(&node, &launch).await {
            Some(RunState::Running(again)) => {
                // A shepherd of an older build closes the connection when it gets a new limit.
                if !again.is_connected() || new_limit.is_some() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                shepherd = again;
            }
            Some(RunState::Ended(exit)) => break exit,
            None => break lost(&node, LostReason::NeverStarted),
        }
    };
    engines::end(&node, &launch, exit.why).await;
    // Also if its shepherd was killed. If there is an exit record, that was done before.
    quiet::end(&node, &launch).await;
    let exit = with_disk(&node, exit);
    handle.happened(Event::Exited { run: launch.run(), exit });
}

/// Watches a run that an earlier agent started. Without `shepherd`, first determines its state, however long that takes:
/// the shepherd lives, so the run must not be given up. Orders wait meanwhile, except that the run ends if its program has
/// not started.
pub(crate) async fn watch_recovered(
    node: Arc<Node>,
    handle: Handle,
    launch: Arc<RunLaunch>,
    shepherd: Option<Watched>,
    controlled: Controlled,
) {
    let _membership = node.networks.as_ref().ok().and_then(|networks| networks.enter(&launch));
    let limit = launch.spec().time_limit_ms.map(Duration::from_millis);
    controlled.ending.begin(time_since_claim(&node, &launch), limit);
    let state = match shepherd {
        Some(shepherd) => Some(RunState::Running(shepherd)),
        None => match or_end(&node, &launch, &controlled.ending, determine_state(&node, &launch)).await {
            Some(state) => state,
            None => determine_state(&node, &launch).await,
        },
    };
    let exit = match state {
        // The leaf of this shepherd is unknown, so it is not kept for later runs.
        Some(RunState::Running(shepherd)) => {
            return watch(node, handle, launch, shepherd, None, controlled, None).await;
        }
        Some(RunState::Ended(exit)) => exit,
        None => lost(&node, LostReason::NeverStarted),
    };
    engines::end(&node, &launch, exit.why).await;
    quiet::end(&node, &launch).await;
    handle.happened(Event::Exited { run: launch.run(), exit });
}

/// Time since a shepherd claimed the run; zero if that is not known.
fn time_since_claim(node: &Node, launch: &RunLaunch) -> Duration {
    let content = JournalContent::read(node.runs.of(launch.run()).path()).unwrap_or_default();
    content.taken.map_or(Duration::ZERO, |record| record.taken.elapsed())
}

/// Where a run can be measured.
fn measured_at(
    node: &Node,
    launch: &RunLaunch,
    shepherd: &Watched,
    place: Option<&(Option<LeafSpec>, Option<u32>)>,
) -> RunPlace {
    let adopted = || {
        let path = JournalContent::read(node.runs.of(launch.run()).path()).ok()?.taken?.leaf?;
        leaf_at(node.cgroups.as_ref().ok()?, &path)
    };
    RunPlace {
        leaf: place.map_or_else(adopted, |(leaf, _)| leaf.clone()),
        shepherd: shepherd.shepherd().pid(),
        gpus: launch.placement.resources.gpus.clone(),
    }
}

/// Adds a note that the disk is full to a failed run, because the run's own message may not have fit on the disk.
fn with_disk(node: &Node, mut exit: Exit) -> Exit {
    if exit.why != Why::Exited(0) && node.runs.disk_is_full() {
        let full = format!("the disk of node {} is full", node.name);
        exit.message = Some(exit.message.map_or_else(|| full.clone(), |message| format!("{message}; {full}")));
    }
    exit
}

/// Executes orders until the shepherd reports the end; `None` if its connection breaks first. `new_limit` is the last time limit
/// that was ordered: the shepherd gets it again on each new connection.
async fn follow(
    shepherd: &mut Watched,
    controlled: &mut Controlled,
    new_limit: &mut Option<Option<Duration>>,
) -> Option<Box<ExitRecord>> {
    let change_limit = |shepherd: &Watched, limit| {
        if let Err(error) = shepherd.shepherd().change_limit(limit) {
            tracing::warn!(%error, "a new time limit did not reach a run");
        }
    };
    if let Some(limit) = *new_limit {
        change_limit(shepherd, limit);
    }
    loop {
        tokio::select! {
            event = shepherd.next_event() => match event {
                Some(ShepherdEvent::Finished(record)) => return Some(record),
                Some(_) => {}
                None => return None,
            },
            Some(order) = controlled.orders.recv() => match order {
                // If the run has just ended, its report is on the way.
                Order::End { grace } => drop(shepherd.shepherd().terminate(Cause::Cancelled, grace)),
                Order::Signal(signal) => {
                    if let Err(error) = shepherd.shepherd().signal_run(&signal) {
                        tracing::warn!(%error, "a signal did not reach a run");
                    }
                }
                Order::ChangeLimit(limit) => {
                    *new_limit = Some(limit);
                    controlled.ending.change_limit(limit);
                    change_limit(shepherd, limit);
                }
                // The run has already begun.
                Order::Begin { .. } => {}
            },
        }
    }
}

/// Determines the state of a run whose shepherd does not respond; `None` if the run never began, and cannot begin
/// without a new journal. Retries as long as the system lacks the resources to find out.
pub(crate) async fn determine_state(node: &Node, launch: &RunLaunch) -> Option<RunState> {
    let directory = node.runs.of(launch.run());
    loop {
        let path = directory.path().to_owned();
        // Waits for an answer of the shepherd, which the file system of its program may delay.
        let adopted = tokio::task::spawn_blocking(move || adopt(&path)).await;
        match adopted.map_err(anyhow::Error::from).and_then(|adopted| Ok(adopted?)) {
            Ok(Adopted::Running(shepherd)) => return Some(RunState::Running(Watched::new(shepherd))),
            Ok(Adopted::Ended(record)) => return Some(RunState::Ended(exit_of(node, &record, launch).await)),
            Ok(Adopted::Lost(Lost { reason: LostReason::NeverStarted, .. })) => return None,
            Ok(Adopted::Lost(found)) => {
                end_leaf(node, found.record.as_ref());
                return Some(RunState::Ended(lost(node, found.reason)));
            }
            Err(error) => {
                tracing::warn!(run = %launch.run(), %error, "cannot determine the state of a run; retrying");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}

/// Kills processes that a lost run left in its leaf: its main process died with the shepherd, but others may remain. Retries
/// in the background, because a process on a file system that does not answer ends later.
pub(crate) fn end_leaf(node: &Node, record: Option<&RunningRecord>) {
    let (Ok(tree), Some(leaf)) = (&node.cgroups, record.and_then(|record| record.leaf.clone())) else { return };
    if tree.end(&leaf) {
        return;
    }
    tracing::warn!(leaf = %leaf.display(), "cannot kill the processes of a lost run; retrying");
    let tree = tree.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LEAF_RETRY).await;
            let (tree, leaf) = (tree.clone(), leaf.clone());
            if tokio::task::spawn_blocking(move || tree.end(&leaf)).await.unwrap_or(true) {
                return;
            }
        }
    });
}

/// Exit of a lost run, with a message for the user.
fn lost(node: &Node, reason: LostReason) -> Exit {
    let what = match reason {
        LostReason::Rebooted => "was restarted while the job ran",
        LostReason::ShepherdGone | LostReason::PidReused => {
            "does not know the job's exit status: its shepherd (the supervising process) was killed, or the machine's job service was stopped"
        }
        LostReason::NeverStarted => "never started the job",
        LostReason::Damaged => "has damaged files of this run",
    };
    let message = Some(format!("node {} {what}", node.name));
    Exit { why: Why::Lost, message, usage: Usage::default(), steps: Vec::new(), certificate: None }
}

/// Converts an exit record to the report for the head, after restoring what was changed for the run.
async fn exit_of(node: &Node, record: &ExitRecord, launch: &RunLaunch) -> Exit {
    quiet::end(node, launch).await;
    let memory = memory_message(record, launch.placement.resources.memory_bytes);
    let mut messages: Vec<String> = memory.into_iter().collect();
    if record.cause == Some(Cause::OutputLimit) {
        let cap = format_bytes(launch.job.output_cap_bytes());
        messages.push(format!(
            "the job wrote more than {cap} of output (setting output-cap), and this file system cannot discard the rest"
        ));
    }
    messages.extend(engines::explain(launch, &record.status));
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
        why: why_of(record),
        message: (!messages.is_empty()).then(|| messages.join("; ")),
        usage: Usage {
            wall_ms: millis(record.wall_time),
            user_ms: millis(record.user_time),
            system_ms: millis(record.system_time),
            max_rss_bytes: record.max_rss_bytes,
            memory_peak_bytes: record.memory_peak_bytes,
            io: record.io.map(io_of),
        },
        steps: steps_of(node, launch).await,
        certificate: certificate::of_ended(node, launch, record),
    }
}

/// The run's steps. Their file is in a directory of the user, who can mount a file system there that never answers.
async fn steps_of(node: &Node, launch: &RunLaunch) -> Vec<StepRecord> {
    if !launch.spec().first_node {
        return Vec::new();
    }
    let directory = node.runs.of(launch.run());
    tokio::task::spawn_blocking(move || steps::records(&directory)).await.unwrap_or_default()
}

/// Determines why a run ended.
fn why_of(record: &ExitRecord) -> Why {
    let code = record.status.exit_code();
    match &record.cause {
        None if is_out_of_memory(record) => Why::OutOfMemory(code),
        None => Why::Exited(code),
        Some(Cause::TimeLimit) => Why::TimeLimit(code),
        // Not requested by anybody: the run failed, and the message says why.
        Some(Cause::OutputLimit | Cause::Other(_)) => Why::Exited(if code == 0 { 1 } else { code }),
        Some(Cause::Cancelled | Cause::Preempted | Cause::Superseded | Cause::NodeShutdown) => Why::Asked(code),
    }
}

/// Whether the memory limit ended the run itself: its main process was killed, or passed on the exit code of a killed
/// process. [`ExitRecord::oom_kill`] alone does not say so: the run may have continued after the kernel killed one of
/// its processes.
pub(crate) fn is_out_of_memory(record: &ExitRecord) -> bool {
    const SIGKILL: i32 = nix::libc::SIGKILL;
    const KILLED: i32 = 128 + SIGKILL;
    let was_killed =
        matches!(record.status, Status::Signaled { signal: SIGKILL, .. } | Status::Exited { code: KILLED });
    record.oom_kill == Some(true) && record.cause.is_none() && was_killed
}

/// Message about processes that the kernel killed because of the memory limit.
fn memory_message(record: &ExitRecord, limit_bytes: u64) -> Option<String> {
    let limit = format_bytes(limit_bytes);
    if is_out_of_memory(record) {
        return Some(format!("the job exceeded its memory limit of {limit}; request more with --memory"));
    }
    // The reader must not take this for the cause of another end.
    let before = if record.cause.is_some() { "earlier, " } else { "" };
    (record.oom_kill == Some(true)).then(|| {
        format!(
            "{before}the memory limit of {limit} was exceeded, and a process of the job was killed; request more with --memory"
        )
    })
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

#[cfg(test)]
mod tests {
    use hostler_shepherd::{Containment, Limits, Moment};

    use super::*;

    /// The record of a run in which the kernel killed a process because of the memory limit.
    fn record_with_oom_kill(status: Status, cause: Option<Cause>) -> ExitRecord {
        let moment = Moment { boottime_ns: 1, unix_ms: 2 };
        ExitRecord {
            identity: "7.1".to_owned(),
            status,
            cause,
            started: moment,
            ended: moment,
            wall_time: Duration::from_secs(1),
            user_time: Duration::ZERO,
            system_time: Duration::ZERO,
            max_rss_bytes: 4096,
            stdout_bytes: 0,
            stderr_bytes: 0,
            oom_kill: Some(true),
            leftovers: 0,
            unkillable: Vec::new(),
            containment: Containment::Descent { reason: "a test".to_owned() },
            memory_peak_bytes: None,
            io: None,
            events: None,
            limits: Limits::default(),
            log_error: None,
        }
    }

    fn signaled(signal: i32) -> Status {
        Status::Signaled { signal, core_dumped: false }
    }

    #[test]
    fn killed_main_process_ends_the_run_as_out_of_memory() {
        for status in [signaled(9), Status::Exited { code: 137 }] {
            let record = record_with_oom_kill(status, None);
            assert_eq!(why_of(&record), Why::OutOfMemory(137));
            let message = memory_message(&record, 100 << 20);
            assert_eq!(
                message.as_deref(),
                Some("the job exceeded its memory limit of 100M; request more with --memory")
            );
            assert_eq!(why_of(&ExitRecord { oom_kill: Some(false), ..record.clone() }), Why::Exited(137));
            assert_eq!(why_of(&ExitRecord { oom_kill: None, ..record }), Why::Exited(137));
        }
    }

    #[test]
    fn killed_child_does_not_change_why_the_run_ended() {
        let exited = |code| Status::Exited { code };
        for (status, cause, why) in [
            (signaled(15), Some(Cause::TimeLimit), Why::TimeLimit(143)),
            (signaled(9), Some(Cause::TimeLimit), Why::TimeLimit(137)),
            (signaled(15), Some(Cause::Cancelled), Why::Asked(143)),
            (signaled(9), Some(Cause::Cancelled), Why::Asked(137)),
            (exited(0), Some(Cause::OutputLimit), Why::Exited(1)),
            (exited(3), None, Why::Exited(3)),
            (exited(0), None, Why::Exited(0)),
            (signaled(15), None, Why::Exited(143)),
        ] {
            let record = record_with_oom_kill(status, cause);
            assert_eq!(why_of(&record), why, "{record:?}");
            let message = memory_message(&record, 100 << 20).expect("a process was killed");
            let earlier = if record.cause.is_some() { "earlier, " } else { "" };
            let start = format!("{earlier}the memory limit of 100M was exceeded, and a process");
            assert!(message.starts_with(&start), "{message}");
            assert_eq!(memory_message(&ExitRecord { oom_kill: Some(false), ..record }, 100 << 20), None);
        }
    }
}

//! The engine loop: takes commands, makes their events durable, and carries out the effects.
//!
//! One thread owns all changes. It sleeps until a command is queued or a deadline of the state passes. It takes the
//! queued commands and passes them to the [`Rounds`] of the core, which decide, apply and schedule. The store's writer
//! gets the batch of each round. When the writer has answered, [`Durability`] releases or discards replies and
//! effects. So a client or agent never learns of an event that a crash could undo. The loop does not wait for the
//! writer; it continues with the next round.
//!
//! The simulator drives the same state machines. This module adds the locks, threads, clocks and channels.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
pub(crate) use hostler_core::head::Done;
use hostler_core::head::{
    Command, Commit, ConnectionId, Delivery, Durability, Effect, Ended, Input, NotDone, Now, Refusal, Rounds, State,
    begin_epoch, epoch_starts, restore,
};
use hostler_model::{Digest, NodeName, Timestamp, WallTime};
use hostler_proto::api::Notice;
use hostler_proto::link::HeadMessage;
use hostler_proto::stored::Batch;
use hostler_store::{Reader, Writer};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};

use crate::archive::{Archive, ArchiveError};
use crate::audit::Events;
use crate::metrics::Metrics;
use crate::power::order::Order;

/// Maximum number of commands that wait for the loop. If the queue is full, callers wait for under a second, because
/// the head decides thousands of commands per second.
const QUEUE_LEN: usize = 4096;

/// Maximum number of commands per round: enough to share one fsync, few enough to keep the round short.
const ROUND_LEN: usize = 1024;

/// Maximum number of notices kept for a slow watcher. A watcher that falls further behind learns that it missed some.
const NOTICES_LEN: usize = 4096;

/// The reason that agents get when the head reloads its state after a failed write.
const RELOADING: &str = "the head loads its state again after a failed write; reconnect";

/// A handle on the engine loop; cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    inputs: mpsc::Sender<Request>,
    shared: Arc<Shared>,
}

/// State shared by the loop and its readers.
struct Shared {
    state: RwLock<State>,
    archive: Archive,
    agents: Mutex<HashMap<ConnectionId, mpsc::UnboundedSender<Outgoing>>>,
    notices: broadcast::Sender<Notice>,
    /// Marked as changed after each command that may change the rights of callers.
    rights: watch::Sender<()>,
    metrics: Metrics,
    /// Requests to power controllers.
    power: mpsc::UnboundedSender<Order>,
    /// What is durable. Lock order: this lock first, then the lock of [`Archive::moves`].
    durability: Mutex<Durability>,
    /// Notifies the loop that a batch was not stored.
    failure: Notify,
    /// Notifies the task that delivers messages that the outbox has new ones.
    new_messages: Arc<Notify>,
    events: Events,
    clock: Clock,
}

/// An input of the sender task of an agent's connection.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Send this message.
    Send(HeadMessage),
    /// Close the connection for this reason.
    Close(String),
}

/// An input of the engine loop.
#[expect(clippy::large_enum_variant, reason = "nearly all requests are commands; boxing each would cost more memory")]
enum Request {
    Command(Input<ReplyTo>),
    Stop(oneshot::Sender<()>),
}

type ReplyTo = oneshot::Sender<Reply>;

/// The outcome of a command, once it is durable.
pub(crate) type Reply = Result<Done, EngineError>;

/// A command that the engine will carry out.
#[derive(Debug)]
pub(crate) struct Queued(oneshot::Receiver<Reply>);

impl Queued {
    /// Waits until the command is carried out and durable.
    pub(crate) async fn done(self) -> Reply {
        self.0.await.unwrap_or(Err(EngineError::Stopping))
    }
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The command is invalid or not allowed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The command could not be made durable, so it has no effect.
    #[error("the head cannot store anything at the moment: {0}")]
    NotStored(String),
    /// The job that the command refers to cannot be read.
    #[error("the head cannot read its store: {0}")]
    NotRead(#[from] ArchiveError),
    #[error("the head is stopping")]
    Stopping,
}

impl From<NotDone> for EngineError {
    fn from(why: NotDone) -> Self {
        match why {
            NotDone::Refused(refusal) => Self::Refused(refusal),
            NotDone::NotStored(why) => Self::NotStored(why),
        }
    }
}

/// Begins an epoch on a state whose log ends before `next_sequence`. Returns the batch that must be stored first.
pub(crate) fn first_batch(state: &mut State, next_sequence: u64, now: Now) -> Batch {
    let first = epoch_starts(state, now, Some(nix::unistd::geteuid().as_raw()));
    begin_epoch(state, next_sequence, &first)
}

/// The cluster's clock: continues from the last event of the log, by the machine's monotonic clock.
struct Clock {
    origin: Timestamp,
    started: Instant,
}

impl Clock {
    fn now(&self) -> Now {
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall = WallTime(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
        Now { at: self.origin.plus_ms(elapsed), wall }
    }

    /// Converts a time on this clock to an instant.
    fn instant(&self, at: Timestamp) -> Option<Instant> {
        self.started.checked_add(Duration::from_millis(at.ms_since(self.origin)))
    }
}

impl Engine {
    /// Starts the loop on a state that was just loaded. The log of the state has the events from `first_sequence` to
    /// before `next_sequence`. Also returns the requests to power controllers. `history` reads what `writer` stores, and `events` takes what
    /// happens to the cluster.
    pub(crate) fn start(
        state: State,
        (first_sequence, next_sequence): (u64, u64),
        writer: Writer,
        history: Reader,
        events: Events,
    ) -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (inputs, queue) = mpsc::channel(QUEUE_LEN);
        #[expect(clippy::disallowed_methods, reason = "the core sends at most one order per node at a time")]
        let (power, orders) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            clock: Clock { origin: state.last_event_at, started: Instant::now() },
            state: RwLock::new(state),
            archive: Archive::new(history),
            agents: Mutex::default(),
            notices: broadcast::channel(NOTICES_LEN).0,
            rights: watch::Sender::new(()),
            metrics: Metrics::new(),
            power,
            durability: Mutex::default(),
            failure: Notify::new(),
            new_messages: Arc::default(),
            events,
        });
        let engine = Self { inputs, shared: Arc::clone(&shared) };
        let rounds = Rounds::new(first_sequence, next_sequence);
        let own = Loop { shared, queue, writer, rounds, saving: Arc::default() };
        let timers = Handle::current();
        let run = move || timers.block_on(own.run());
        std::thread::Builder::new().name("engine".into()).spawn(run).expect("a thread can be started");
        (engine, orders)
    }

    /// Writes what happened to a node, or to the cluster, to the audit log.
    pub(crate) fn happened(&self, node: Option<NodeName>, what: String, about: Option<String>) {
        self.shared.events.write(self.shared.clock.now(), node, what, about);
    }

    /// Carries out `command`; returns when it is durable.
    pub(crate) async fn command(&self, command: Command) -> Reply {
        self.command_with_blobs(command, Vec::new()).await
    }

    /// Like [`Self::command`], with small blobs that are stored in the same transaction.
    pub(crate) async fn command_with_blobs(&self, command: Command, blobs: Vec<(Digest, Vec<u8>)>) -> Reply {
        self.queue(command, blobs, None).await?.done().await
    }

    /// Queues a submission. The job and its environment are stored together. Job ids rise in the order of the calls.
    pub(crate) async fn submit(
        &self,
        command: Command,
        environment: Option<(Digest, Bytes)>,
    ) -> Result<Queued, EngineError> {
        self.queue(command, Vec::new(), environment).await
    }

    async fn queue(
        &self,
        command: Command,
        blobs: Vec<(Digest, Vec<u8>)>,
        environment: Option<(Digest, Bytes)>,
    ) -> Result<Queued, EngineError> {
        let (reply, answer) = oneshot::channel();
        let input = Input { command, blobs, environment, reply: Some(reply) };
        self.inputs.send(Request::Command(input)).await.map_err(|_| EngineError::Stopping)?;
        Ok(Queued(answer))
    }

    /// Queues `command` without waiting for the outcome. Suits messages of agents, because agents repeat a message
    /// until the head answers.
    pub(crate) async fn post(&self, command: Command, blobs: Vec<(Digest, Vec<u8>)>) {
        // A closed queue means that the head is stopping; the agent notices by itself.
        let input = Input { command, blobs, environment: None, reply: None };
        let _ = self.inputs.send(Request::Command(input)).await;
    }

    /// Locks the state for reading. Hold the lock only briefly.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.shared.state()
    }

    /// Ended jobs, which are not in the state.
    pub(crate) fn archive(&self) -> &Archive {
        &self.shared.archive
    }

    /// Returns the current time on the cluster's clock and on the wall clock.
    pub(crate) fn now(&self) -> Now {
        self.shared.clock.now()
    }

    /// Subscribes to all changes from now on.
    pub(crate) fn notices(&self) -> broadcast::Receiver<Notice> {
        self.shared.notices.subscribe()
    }

    /// Subscribes to possible changes of callers' rights from now on.
    pub(crate) fn changes_of_rights(&self) -> watch::Receiver<()> {
        self.shared.rights.subscribe()
    }

    /// Converts a time on the cluster's clock to an instant.
    pub(crate) fn instant(&self, at: Timestamp) -> Option<Instant> {
        self.shared.clock.instant(at)
    }

    /// What the head counts for `/metrics`.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The number of connected agents.
    pub(crate) fn links(&self) -> usize {
        self.shared.agents().len()
    }

    /// The number of clients that watch for changes.
    pub(crate) fn watchers(&self) -> usize {
        self.shared.notices.receiver_count()
    }

    /// Is notified when the outbox has new messages.
    pub(crate) fn new_messages(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.new_messages)
    }

    /// Registers the sender task of an agent's connection.
    pub(crate) fn register(&self, connection: ConnectionId) -> mpsc::UnboundedReceiver<Outgoing> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the loop must not wait for an agent, whose runs limit the queue"
        )]
        let (sender, receiver) = mpsc::unbounded_channel();
        self.shared.agents().insert(connection, sender);
        self.shared.metrics.agent_connected();
        receiver
    }

    /// Removes an agent's connection; later messages to it are dropped.
    pub(crate) fn unregister(&self, connection: ConnectionId) {
        self.shared.agents().remove(&connection);
    }

    /// Sends an agent a message that needs no event. Returns `false` if the connection is gone.
    pub(crate) fn send(&self, connection: ConnectionId, message: HeadMessage) -> bool {
        self.shared.agents().get(&connection).is_some_and(|agent| agent.send(Outgoing::Send(message)).is_ok())
    }

    /// Returns the error because of which nothing can be stored at the moment, or `None` if the store works.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.shared.durability().trouble().map(str::to_owned)
    }

    /// Waits until the current state is durable, including history rows.
    pub(crate) async fn settled(&self) -> Result<(), EngineError> {
        // The answer to a tick comes after all earlier batches. A tick only does what is due anyway.
        self.command(Command::Tick).await.map(drop)
    }

    /// Stops the loop after the current rounds; drops commands that are still queued.
    pub(crate) async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.inputs.send(Request::Stop(done)).await.is_ok() {
            let _ = stopped.await;
        }
    }
}

impl Shared {
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn agents(&self) -> MutexGuard<'_, HashMap<ConnectionId, mpsc::UnboundedSender<Outgoing>>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn durability(&self) -> MutexGuard<'_, Durability> {
        self.durability.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out the effects and sends the replies of a round. Runs on the writer's thread, to save the detour
    /// through the loop's queue.
    fn deliver(&self, Delivery { effects, replies }: Delivery<ReplyTo>) {
        self.perform(effects);
        for (reply, answer) in replies {
            // The client may have disconnected.
            let _ = reply.send(answer.map_err(EngineError::from));
        }
    }

    /// Carries out effects whose events are durable.
    fn perform(&self, effects: Vec<Effect>) {
        let mut agents = self.agents();
        for effect in effects {
            match effect {
                Effect::Send { connection, message } => {
                    if let Some(agent) = agents.get(&connection) {
                        // The connection may be about to end. The answer to the agent's next hello then replaces the
                        // message.
                        let _ = agent.send(Outgoing::Send(message));
                    }
                }
                Effect::Close { connection, reason } => {
                    if let Some(agent) = agents.remove(&connection) {
                        // The connection is already gone.
                        let _ = agent.send(Outgoing::Close(reason));
                    }
                }
                Effect::Power { node, verb, ask } => {
                    // When the head stops, the receiver no longer exists. The next head sends the order again.
                    let _ = self.power.send(Order { node, verb, ask });
                }
                Effect::Deliver => self.new_messages.notify_one(),
                Effect::ReportNode { node, is_down, tasks } => {
                    let ids = || tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                    let tasks = (!tasks.is_empty()).then(ids);
                    let what = match is_down {
                        true => {
                            tracing::warn!(%node, tasks, "node is down");
                            format!("node {node} is down")
                        }
                        false => {
                            tracing::info!(%node, tasks, "node is back");
                            format!("node {node} is back")
                        }
                    };
                    self.events.write(self.clock.now(), Some(node), what, tasks.map(|ids| format!("tasks {ids}")));
                }
                Effect::Notify(notice) => {
                    // There may be no watcher.
                    let _ = self.notices.send(notice);
                }
                Effect::Count(count) => self.metrics.count_tasks(&count),
            }
        }
    }
}

/// Whether a command may change who somebody is, or what somebody may do.
fn may_change_rights(command: &Command) -> bool {
    use Command::{ForgetNode, Join, RemoveNode, Renew, Set, Users};
    matches!(command, Users(_) | Set { .. } | RemoveNode { .. } | ForgetNode { .. } | Join { .. } | Renew { .. })
}

/// The state of the loop's thread.
struct Loop {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Request>,
    writer: Writer,
    rounds: Rounds<ReplyTo>,
    /// Shared with the thread that encodes a snapshot, until the snapshot is saved.
    saving: Arc<()>,
}

impl Loop {
    /// Runs rounds until the engine is stopped. Uses its own thread, which may block; only the wait for inputs is
    /// asynchronous.
    async fn run(mut self) {
        let mut requests = Vec::with_capacity(ROUND_LEN);
        loop {
            requests.clear();
            if !self.wait(&mut requests).await {
                return;
            }
            let refuse = self.shared.durability().has_failed() && !self.recover();
            for request in requests.drain(..) {
                match request {
                    Request::Command(input) if refuse => self.refuse(input.reply),
                    Request::Command(input) => self.take(input),
                    Request::Stop(done) => {
                        if !refuse {
                            self.finish();
                        }
                        self.writer.shutdown();
                        let _ = done.send(());
                        return;
                    }
                }
            }
            if !refuse {
                self.forget_old_jobs();
                self.finish();
            }
        }
    }

    /// Waits for inputs, for a deadline, or for a failure of the store. Returns `false` when the queue is closed.
    async fn wait(&mut self, requests: &mut Vec<Request>) -> bool {
        let wake_at = self.wake_at();
        let deadline = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            count = self.queue.recv_many(requests, ROUND_LEN) => return count > 0,
            () = self.shared.failure.notified() => {}
            () = deadline => {}
        }
        // While the store fails, this round only tries to recover.
        requests.push(Request::Command(Input::of(Command::Tick)));
        true
    }

    /// The time of the next deadline.
    fn wake_at(&self) -> Option<Instant> {
        let recovers_at = self.shared.durability().recovers_at();
        let at = recovers_at.or_else(|| self.rounds.wake_at(&self.shared.state(), self.shared.clock.now()))?;
        self.shared.clock.instant(at)
    }

    /// Decides the outcome of one command and applies the events.
    fn take(&mut self, input: Input<ReplyTo>) {
        let now = self.shared.clock.now();
        // Only this thread changes the state, so the state stays the same until this thread locks it for writing.
        let ended = match self.look_up(&input.command) {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "cannot read jobs that have ended");
                if let Some(reply) = input.reply {
                    let _ = reply.send(Err(error.into()));
                }
                return;
            }
        };
        let moves = self.shared.archive.moves_lock();
        let may_change_rights = may_change_rights(&input.command);
        if let Some(refusal) = self.rounds.take(&mut self.shared.state_mut(), moves, &ended, input, now) {
            tracing::debug!(%refusal, "ignored");
        }
        if may_change_rights {
            self.shared.rights.send_replace(());
        }
    }

    /// Looks up the ended jobs that a command refers to.
    fn look_up(&self, command: &Command) -> Result<Ended, ArchiveError> {
        let state = self.shared.state();
        let moves = self.shared.archive.moves();
        Ended::look_up(&state, &moves, &self.shared.archive, command)
    }

    /// Drops jobs whose retention time is over, if a check is due.
    fn forget_old_jobs(&mut self) {
        let now = self.shared.clock.now();
        let archive = &self.shared.archive;
        let forget = self.rounds.forget(&self.shared.state(), &archive.moves(), archive, now);
        match forget {
            Ok(Some(command)) => self.take(Input::of(command)),
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "cannot find the jobs whose retention time is over"),
        }
    }

    /// Schedules, then hands the round to the writer. The writer's thread sends replies and effects once the round is
    /// durable.
    fn finish(&mut self) {
        let now = self.shared.clock.now();
        let began = Instant::now();
        let schedules = {
            let mut state = self.shared.state_mut();
            let schedules = state.needs_pass();
            self.rounds.follow_up(&mut state, self.shared.archive.moves_lock(), now);
            schedules
        };
        if schedules {
            self.shared.metrics.scheduled(began.elapsed());
        }
        let Some(Commit { batch, after }) = self.rounds.finish() else { return };
        let shared = Arc::clone(&self.shared);
        let began = Instant::now();
        self.writer.commit(batch, move |stored| {
            shared.metrics.committed(began.elapsed());
            if let Err(error) = &stored {
                tracing::error!(%error, "cannot store events; loading the last stored state");
            }
            let has_failed = stored.is_err();
            let stored = stored.map_err(|error| error.to_string());
            let delivery = shared.durability().stored(after, stored, shared.archive.moves_lock());
            if has_failed {
                shared.failure.notify_one();
            }
            shared.deliver(delivery);
        });
        self.snapshot_if_due();
    }

    /// Replaces a long log by a snapshot of the state. The copy shares all jobs with the state. A separate thread
    /// encodes the copy, because neither this loop nor the writer may block that long.
    fn snapshot_if_due(&mut self) {
        // At most one at a time, because each holds a copy of the state and its encoding.
        let is_saving = Arc::strong_count(&self.saving) > 1;
        if is_saving || !self.rounds.snapshot_is_due(&self.shared.state()) {
            return;
        }
        let saving = Arc::clone(&self.saving);
        let copy = self.shared.state().clone();
        let sequence = self.rounds.begin_snapshot();
        let (writer, shared) = (self.writer.clone(), Arc::clone(&self.shared));
        let loads = shared.durability().loads();
        let encode = move || {
            let bytes = hostler_proto::encode(&copy);
            let durability = shared.durability();
            if !durability.may_save(loads) {
                return;
            }
            writer.snapshot(sequence, bytes, move |saved| {
                match saved {
                    Ok(()) => tracing::debug!(sequence, "snapshot saved"),
                    // The log is still complete; the next snapshot replaces it.
                    Err(error) => tracing::warn!(%error, sequence, "cannot save a snapshot"),
                }
                drop(saving);
            });
        };
        if let Err(error) = std::thread::Builder::new().name("snapshot".into()).spawn(encode) {
            tracing::warn!(%error, "cannot start a thread to save a snapshot");
        }
    }

    /// Discards the state and loads the stored one, as a restart does; agents must reconnect. Returns whether that
    /// worked. The next round retries, at most once per recovery pause.
    fn recover(&mut self) -> bool {
        if !self.shared.durability().begin_recovery(self.shared.clock.now().at) {
            return false;
        }
        for (_, agent) in self.shared.agents().drain() {
            // The connection is already gone.
            let _ = agent.send(Outgoing::Close(RELOADING.to_owned()));
        }
        match self.reload() {
            Ok((state, next_sequence)) => {
                tracing::info!("the store works again");
                {
                    let mut shared = self.shared.state_mut();
                    self.rounds.restart(&mut shared, state, next_sequence);
                    self.shared.archive.moves().clear();
                }
                self.shared.durability().recovered();
                self.shared.rights.send_replace(());
                true
            }
            Err(error) => {
                tracing::warn!("cannot load the last stored state yet: {error:#}");
                self.shared.durability().not_recovered(format!("{error:#}"));
                false
            }
        }
    }

    /// Loads the stored state and begins an epoch on it. The first event of the epoch is stored, so the store accepts
    /// events again. When this function returns, all earlier batches are stored or have failed.
    fn reload(&self) -> anyhow::Result<(State, u64)> {
        let (sender, loaded) = std::sync::mpsc::sync_channel(1);
        self.writer.reload(move |outcome| {
            // Sending cannot fail, because the receiver waits below.
            let _ = sender.send(outcome);
        });
        let (mut state, next_sequence) = restore(State::default(), &loaded.recv()??)?;
        let first = first_batch(&mut state, next_sequence, self.shared.clock.now());
        self.writer.commit_and_wait(first)?;
        Ok((state, next_sequence + 1))
    }

    /// Refuses a command while nothing can be stored.
    fn refuse(&self, reply: Option<ReplyTo>) {
        if let Some(reply) = reply {
            let _ = reply.send(Err(self.shared.durability().refusal().into()));
        }
    }
}

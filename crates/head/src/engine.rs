//! The loop: commands in, events made durable, effects out.
//!
//! One thread owns all changes. It sleeps until something is queued or until the state says that time alone matters. It takes what has
//! queued up, decides and applies it, runs a scheduling pass when something could start, and hands the events of the whole round to the store's writer as one batch. Replies and effects wait for that batch to be
//! on disk, so nobody ever hears of something that a crash could undo; the loop itself does not wait and goes on with the next round.
//!
//! When a batch cannot be stored, the state in memory is ahead of the disk and therefore wrong: it is thrown away and loaded
//! again, exactly as after a restart, and agents reconnect to say what has become of their runs.

mod batch;
mod ended;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hostler_core::head::{
    Changes, Command, ConnectionId, Effect, Moves, Now, Record, Refusal, Stamped, State, decide, follow_up, update,
};
use hostler_model::{Digest, JobId, Timestamp, WallTime};
use hostler_proto::api::Notice;
use hostler_proto::link::HeadMessage;
use hostler_store::{Reader, Writer};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};

use self::batch::batch;
pub(crate) use self::batch::begin_epoch;
use crate::archive::{Archive, ArchiveError};
use crate::power::Order;
use crate::restore::restore;

/// Commands waiting for the loop. A full queue slows callers down instead of growing without bound; at the measured thousands of
/// commands a second this is under a second of work.
const QUEUE_LEN: usize = 4096;

/// Commands taken in one round: enough to share an fsync among many, few enough to keep the round short.
const ROUND_LEN: usize = 1024;

/// Notices kept for slow watchers before they are told that they missed some.
const NOTICES_LEN: usize = 4096;

/// A snapshot is written when the log has this many events more than the state has jobs: a head that starts reads no more than that.
const EVENTS_BETWEEN_SNAPSHOTS: u64 = 10_000;

/// How often a store that failed is tried again.
const RECOVERY_PAUSE: Duration = Duration::from_secs(1);

/// A handle on the loop; cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    inputs: mpsc::Sender<Input>,
    shared: Arc<Shared>,
}

/// What the loop and its readers share.
struct Shared {
    state: RwLock<State>,
    archive: Archive,
    agents: Mutex<HashMap<ConnectionId, mpsc::UnboundedSender<Outgoing>>>,
    notices: broadcast::Sender<Notice>,
    /// What controllers are to be asked and told.
    power: mpsc::UnboundedSender<Order>,
    /// Why nothing can be stored at the moment.
    trouble: Mutex<Option<String>>,
    /// A batch could not be stored, and the state has not been loaded again yet.
    failed: AtomicBool,
    /// Tells the loop that `failed` was set.
    failure: Notify,
    clock: Clock,
}

/// Something for the sending side of an agent's connection.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// To be said.
    Say(HeadMessage),
    /// The last word: why the connection ends.
    Close(String),
}

/// Something for the loop.
#[expect(clippy::large_enum_variant, reason = "nearly all are commands; a box each would cost more than the room")]
enum Input {
    Command {
        command: Command,
        blobs: Vec<(Digest, Vec<u8>)>,
        environment: Option<(Digest, Bytes)>,
        reply: Option<oneshot::Sender<Reply>>,
    },
    Stop(oneshot::Sender<()>),
}

/// What became of a command, once it is durable.
pub(crate) type Reply = Result<Done, EngineError>;

/// A command that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    /// The job of a submission, and whether its key was known before.
    pub(crate) submitted: Option<(JobId, bool)>,
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// It makes no sense, or is not allowed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be made durable, so it has not happened.
    #[error("the head cannot store anything at the moment: {0}")]
    NotStored(String),
    /// What it is about cannot be read.
    #[error("the head cannot read its store: {0}")]
    NotRead(#[from] ArchiveError),
    /// The head is stopping.
    #[error("the head is stopping")]
    Stopping,
}

/// The cluster's clock: goes on from the last event of the log, by the machine's monotonic clock.
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
}

impl Engine {
    /// Starts the loop on a state that was just loaded, whose log goes from the one number to before the other; and what it wants
    /// controllers to be told. `history` reads what `writer` stores.
    pub(crate) fn start(
        state: State,
        (first_sequence, next_sequence): (u64, u64),
        writer: Writer,
        history: Reader,
    ) -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (inputs, queue) = mpsc::channel(QUEUE_LEN);
        #[expect(clippy::disallowed_methods, reason = "a node's controller is asked one thing at a time")]
        let (power, orders) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            clock: Clock { origin: state.last_event_at, started: Instant::now() },
            state: RwLock::new(state),
            archive: Archive::new(history),
            agents: Mutex::default(),
            notices: broadcast::channel(NOTICES_LEN).0,
            power,
            trouble: Mutex::default(),
            failed: AtomicBool::new(false),
            failure: Notify::new(),
        });
        let engine = Self { inputs, shared: Arc::clone(&shared) };
        let round = Loop {
            shared,
            queue,
            writer,
            next_sequence,
            snapshot_sequence: first_sequence,
            loads: Arc::default(),
            last_recovery: None,
            rounds: 0,
            // Looked up when something that ended then would go.
            first_ended: Some(Timestamp(0)),
            forget_from: Timestamp(0),
        };
        let timers = Handle::current();
        let run = move || timers.block_on(round.run());
        std::thread::Builder::new().name("engine".into()).spawn(run).expect("a thread can be started");
        (engine, orders)
    }

    /// Has `command` carried out; answers when it is durable.
    pub(crate) async fn command(&self, command: Command) -> Reply {
        self.command_with_blobs(command, Vec::new()).await
    }

    /// The same, with small blobs that are stored together with it.
    pub(crate) async fn command_with_blobs(&self, command: Command, blobs: Vec<(Digest, Vec<u8>)>) -> Reply {
        self.ask(command, blobs, None).await
    }

    /// Submits a job with an environment, which is stored together with it.
    pub(crate) async fn submit(&self, command: Command, environment: Option<(Digest, Bytes)>) -> Reply {
        self.ask(command, Vec::new(), environment).await
    }

    async fn ask(
        &self,
        command: Command,
        blobs: Vec<(Digest, Vec<u8>)>,
        environment: Option<(Digest, Bytes)>,
    ) -> Reply {
        let (reply, answer) = oneshot::channel();
        let input = Input::Command { command, blobs, environment, reply: Some(reply) };
        self.inputs.send(input).await.map_err(|_| EngineError::Stopping)?;
        answer.await.unwrap_or(Err(EngineError::Stopping))
    }

    /// Has `command` carried out and waits only for its place in the queue: for what agents say, which they repeat until answered.
    pub(crate) async fn post(&self, command: Command, blobs: Vec<(Digest, Vec<u8>)>) {
        // A closed queue means the head is stopping; the agent will find out by itself.
        let _ = self.inputs.send(Input::Command { command, blobs, environment: None, reply: None }).await;
    }

    /// The state, for reading; hold it briefly.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.shared.state()
    }

    /// Jobs that are not in the state because they have ended.
    pub(crate) fn archive(&self) -> &Archive {
        &self.shared.archive
    }

    /// The time now.
    pub(crate) fn now(&self) -> Now {
        self.shared.clock.now()
    }

    /// Everything that changes from now on.
    pub(crate) fn notices(&self) -> broadcast::Receiver<Notice> {
        self.shared.notices.subscribe()
    }

    /// Enters the sending side of an agent's connection.
    pub(crate) fn register(&self, connection: ConnectionId) -> mpsc::UnboundedReceiver<Outgoing> {
        #[expect(clippy::disallowed_methods, reason = "the loop never waits for one agent; its runs bound what waits")]
        let (sender, receiver) = mpsc::unbounded_channel();
        self.shared.agents().insert(connection, sender);
        receiver
    }

    /// Removes an agent's connection; what is still sent to it goes nowhere.
    pub(crate) fn unregister(&self, connection: ConnectionId) {
        self.shared.agents().remove(&connection);
    }

    /// Says something to an agent that needs no event; `false` when the connection is gone.
    pub(crate) fn send(&self, connection: ConnectionId, message: HeadMessage) -> bool {
        self.shared.agents().get(&connection).is_some_and(|agent| agent.send(Outgoing::Say(message)).is_ok())
    }

    /// Why nothing can be stored at the moment, if so.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.shared.trouble()
    }

    /// Waits until everything that the state holds now is durable, history rows included.
    pub(crate) async fn settled(&self) -> Result<(), EngineError> {
        // A tick changes nothing that was not due anyway, and its answer comes behind all that was handed over before.
        self.command(Command::Tick).await.map(drop)
    }

    /// Ends the loop after the rounds that have begun; what is queued behind is dropped.
    pub(crate) async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.inputs.send(Input::Stop(done)).await.is_ok() {
            let _ = stopped.await;
        }
    }
}

impl Shared {
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn agents(&self) -> std::sync::MutexGuard<'_, HashMap<ConnectionId, mpsc::UnboundedSender<Outgoing>>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Carries out effects whose events are durable.
    fn perform(&self, effects: Vec<Effect>) {
        let mut agents = self.agents();
        for effect in effects {
            match effect {
                Effect::Send { connection, message } => {
                    if let Some(agent) = agents.get(&connection) {
                        // A connection that is just ending: its agent's next hello settles what this would have.
                        let _ = agent.send(Outgoing::Say(message));
                    }
                }
                Effect::Close { connection, reason } => {
                    if let Some(agent) = agents.remove(&connection) {
                        // Gone already: then nobody need be told.
                        let _ = agent.send(Outgoing::Close(reason));
                    }
                }
                Effect::Power { node, verb, ask } => {
                    // Nobody listens when the head is stopping: the next one asks again.
                    let _ = self.power.send(Order { node, verb, ask });
                }
                Effect::Notify(notice) => {
                    // Nobody may be watching.
                    let _ = self.notices.send(notice);
                }
            }
        }
    }
}

/// The loop's own side.
struct Loop {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Input>,
    writer: Writer,
    next_sequence: u64,
    snapshot_sequence: u64,
    /// How often the state was loaded again: a snapshot of what was thrown away must not be saved. Held while one is handed over.
    loads: Arc<Mutex<u64>>,
    last_recovery: Option<Instant>,
    /// How many have begun.
    rounds: u64,
    /// No job that has ended and is still kept ended earlier; absent when there is none.
    first_ended: Option<Timestamp>,
    /// Those whose retention is over are not looked for before this: looking has failed.
    forget_from: Timestamp,
}

/// What one round has come to.
#[derive(Default)]
struct Round {
    events: Vec<Stamped>,
    changes: Changes,
    blobs: Vec<(Digest, Vec<u8>)>,
    environments: HashMap<Digest, Bytes>,
    replies: Vec<(oneshot::Sender<Reply>, Reply)>,
}

impl Loop {
    /// Rounds until it is told to stop. On its own thread, where it may block; it only waits for its inputs as a future.
    async fn run(mut self) {
        let mut inputs = Vec::with_capacity(ROUND_LEN);
        loop {
            inputs.clear();
            if !self.wait(&mut inputs).await {
                return;
            }
            let refuse = self.shared.failed.load(Ordering::Acquire) && !self.recover();
            let mut round = Round::default();
            self.rounds += 1;
            for input in inputs.drain(..) {
                match input {
                    Input::Command { reply, .. } if refuse => self.refuse(reply),
                    Input::Command { command, blobs, environment, reply } => {
                        self.take(&mut round, &command, blobs, environment, reply);
                    }
                    Input::Stop(done) => {
                        if !refuse {
                            self.finish(round);
                        }
                        self.writer.shutdown();
                        let _ = done.send(());
                        return;
                    }
                }
            }
            if !refuse {
                self.forget_old_jobs(&mut round);
                self.finish(round);
            }
        }
    }

    /// Waits for inputs, for the time at which time alone matters, or for word that the store has failed; says whether to go on.
    async fn wait(&mut self, inputs: &mut Vec<Input>) -> bool {
        let wake_at = self.wake_at();
        let deadline = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            count = self.queue.recv_many(inputs, ROUND_LEN) => return count > 0,
            () = self.shared.failure.notified() => {}
            () = deadline => {}
        }
        // While the store fails this is a round in which only that is looked at.
        inputs.push(Input::Command { command: Command::Tick, blobs: Vec::new(), environment: None, reply: None });
        true
    }

    /// When the loop must look without being asked to.
    fn wake_at(&self) -> Option<Instant> {
        if self.shared.failed.load(Ordering::Acquire) {
            return Some(self.last_recovery.map_or_else(Instant::now, |tried| tried + RECOVERY_PAUSE));
        }
        let deadline = {
            let state = self.shared.state();
            state.next_deadline().into_iter().chain(self.forget_at(&state)).min()?
        };
        let clock = &self.shared.clock;
        clock.started.checked_add(Duration::from_millis(deadline.ms_since(clock.origin)))
    }

    /// Decides and applies one command.
    fn take(
        &self,
        round: &mut Round,
        command: &Command,
        blobs: Vec<(Digest, Vec<u8>)>,
        environment: Option<(Digest, Bytes)>,
        reply: Option<oneshot::Sender<Reply>>,
    ) {
        let now = self.shared.clock.now();
        // Nobody else changes the state, so it is the same when it is locked again to be changed.
        let ended = match self.look_up(command) {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "cannot read jobs that have ended");
                if let Some(reply) = reply {
                    round.replies.push((reply, Err(error.into())));
                }
                return;
            }
        };
        let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
        let known = match command {
            Command::Submit { key, .. } => state.job_of_key(*key).or(ended.of_key()),
            _ => None,
        };
        let outcome = match decide(&state, command, &ended, now) {
            Ok(events) => {
                for event in events {
                    self.apply(&mut state, round, Stamped { now, event });
                }
                round.blobs.extend(blobs);
                round.environments.extend(environment);
                let submitted = match command {
                    // One that could never run has ended already.
                    Command::Submit { key, .. } => known
                        .or_else(|| state.job_of_key(*key))
                        .or_else(|| self.shared.archive.moves().job_of_key(*key))
                        .map(|job| (job, known.is_some())),
                    _ => None,
                };
                Ok(Done { submitted })
            }
            Err(refusal) => {
                if reply.is_none() {
                    tracing::debug!(%refusal, "ignored");
                }
                Err(EngineError::Refused(refusal))
            }
        };
        if let Some(reply) = reply {
            round.replies.push((reply, outcome));
        }
    }

    /// Applies an event and keeps it for the log if it belongs there.
    fn apply(&self, state: &mut State, round: &mut Round, stamped: Stamped) {
        let noted = round.changes.records.len();
        update(state, &stamped, &mut round.changes);
        self.shared.archive.note(&round.changes.records[noted..], self.rounds);
        if stamped.event.is_durable() {
            round.events.push(stamped);
        }
    }

    /// Schedules, then hands the round to the writer; replies and effects follow when it is durable.
    fn finish(&mut self, mut round: Round) {
        {
            let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
            loop {
                let now = self.shared.clock.now();
                let events = follow_up(&mut state, now);
                if events.is_empty() {
                    break;
                }
                for event in events {
                    self.apply(&mut state, &mut round, Stamped { now, event });
                }
            }
        }
        let Round { events, changes, blobs, environments, replies } = round;
        let Changes { effects, records } = changes;
        if events.is_empty() && effects.is_empty() && records.is_empty() && blobs.is_empty() && replies.is_empty() {
            // A heartbeat is no reason to wake the writer.
            return;
        }
        let just_ended = records.iter().filter_map(|record| match record {
            Record::JobEnded(job) => job.ended,
            _ => None,
        });
        self.first_ended = just_ended.chain(self.first_ended).min();
        let batch = batch(self.next_sequence, &events, records, blobs, &environments);
        let number = self.rounds;
        self.next_sequence += batch.events.len() as u64;
        let shared = Arc::clone(&self.shared);
        let is_empty = batch.events.is_empty();
        self.writer.commit(batch, move |stored| {
            let outcome = match stored {
                // A batch without events is stored even behind one that was not, but what it says may rest on that one.
                Ok(()) if shared.failed.load(Ordering::Acquire) => Err(shared.trouble().unwrap_or_default()),
                Ok(()) => Ok(()),
                Err(error) => {
                    tracing::error!(%error, "cannot store events; going back to what is on disk");
                    shared.set_trouble(Some(error.to_string()));
                    // The loop sees this before its next round.
                    shared.failed.store(true, Ordering::Release);
                    shared.failure.notify_one();
                    Err(error.to_string())
                }
            };
            if let Err(why) = outcome {
                for (reply, _) in replies {
                    let _ = reply.send(Err(EngineError::NotStored(why.clone())));
                }
                return;
            }
            if !is_empty {
                shared.set_trouble(None);
            }
            shared.archive.moves().settle(number);
            shared.perform(effects);
            for (reply, outcome) in replies {
                let _ = reply.send(outcome);
            }
        });
        self.snapshot_if_due();
    }

    /// Replaces a long log by a snapshot of the state. The copy shares every job with the state; encoding it takes a thread of its
    /// own, since neither this loop nor the writer may stand still for it.
    fn snapshot_if_due(&mut self) {
        let jobs = self.shared.state().job_count() as u64;
        if self.next_sequence - self.snapshot_sequence < EVENTS_BETWEEN_SNAPSHOTS + jobs {
            return;
        }
        let copy = self.shared.state().clone();
        self.snapshot_sequence = self.next_sequence;
        let (writer, sequence) = (self.writer.clone(), self.next_sequence - 1);
        let loads = Arc::clone(&self.loads);
        let begun = *loads.lock().unwrap_or_else(PoisonError::into_inner);
        let encode = move || {
            let bytes = hostler_proto::encode(&copy);
            let loads = loads.lock().unwrap_or_else(PoisonError::into_inner);
            if *loads != begun {
                return;
            }
            // Queued before any reload that follows, so the writer refuses it if its events were not stored.
            writer.snapshot(sequence, bytes, move |saved| match saved {
                Ok(()) => tracing::debug!(sequence, "snapshot saved"),
                // The log is still whole; the next snapshot will do.
                Err(error) => tracing::warn!(%error, sequence, "cannot save a snapshot"),
            });
        };
        if let Err(error) = std::thread::Builder::new().name("snapshot".into()).spawn(encode) {
            tracing::warn!(%error, "cannot start a thread to save a snapshot");
        }
    }

    /// Throws the state away and loads what the disk has, as a restart would; agents must introduce themselves again. Says whether
    /// that worked; it is tried again with the next round, but not more often than the disk may be asked.
    fn recover(&mut self) -> bool {
        if self.last_recovery.is_some_and(|tried| tried.elapsed() < RECOVERY_PAUSE) {
            return false;
        }
        self.last_recovery = Some(Instant::now());
        self.shared.agents().clear();
        *self.loads.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        match self.reload() {
            Ok((state, next_sequence)) => {
                tracing::info!("the store works again");
                self.next_sequence = next_sequence;
                self.snapshot_sequence = self.snapshot_sequence.min(next_sequence);
                {
                    let mut shared = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
                    *shared = state;
                    *self.shared.archive.moves() = Moves::default();
                }
                self.first_ended = Some(Timestamp(0));
                self.shared.set_trouble(None);
                self.shared.failed.store(false, Ordering::Release);
                true
            }
            Err(error) => {
                tracing::warn!("cannot go back to what is on disk yet: {error:#}");
                self.shared.set_trouble(Some(format!("{error:#}")));
                false
            }
        }
    }

    /// Reads the state back and begins an epoch on it, which shows that the store takes events again. Everything that was handed
    /// over before has failed or is stored by then.
    fn reload(&self) -> anyhow::Result<(State, u64)> {
        let (sender, loaded) = std::sync::mpsc::sync_channel(1);
        self.writer.reload(move |outcome| {
            // The receiver waits below.
            let _ = sender.send(outcome);
        });
        let (mut state, next_sequence) = restore(&loaded.recv()??)?;
        let first = begin_epoch(&mut state, next_sequence, self.shared.clock.now());
        self.writer.commit_and_wait(first)?;
        Ok((state, next_sequence + 1))
    }

    /// Answers a command while nothing can be stored.
    fn refuse(&self, reply: Option<oneshot::Sender<Reply>>) {
        if let Some(reply) = reply {
            let _ = reply.send(Err(EngineError::NotStored(self.shared.trouble().unwrap_or_default())));
        }
    }
}

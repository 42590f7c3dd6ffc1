//! The head's process: the daemon's loop ([`Rounds`], [`Durability`]) and group commit ([`Committer`]) on a virtual
//! clock. Each step of the loop, the writer thread or the disk takes some time. The head may be killed between any two
//! steps.

pub(super) mod brief;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use hostler_core::head::{
    After, Answer, Command, Commit, ConnectionId, Delivery, Durability, Effect, Ended, Moves, NotDone, Now, Rounds,
    Stamped, State, begin_epoch, epoch_starts, restore,
};
use hostler_model::{NodeState, TaskId, Timestamp, WallTime};
use hostler_proto::stored::{Batch, Change, Loaded};
use hostler_store::{Committer, MemoryStore, Queue, Request, Store, Work};

use self::brief::brief;
use super::Rule;
use super::disk::{Disk, empty_state};
use super::faults::Fault;
use super::head_link::Link;
use super::network::HelloPacket;
use super::world::{Happening, MS, SECOND, World};

/// The maximum delay of a timed wake-up of the loop.
const LATE: u64 = 50 * MS;

/// A sweep keeps blobs that were touched this recently.
const YOUNG: u64 = 500 * MS;

/// The head's machine.
#[derive(Default)]
pub(super) struct Head {
    /// The state that survives a crash.
    pub(super) disk: Disk,
    /// The state that a crash loses; absent while no head runs.
    pub(super) process: Option<Process>,
    /// The number of head starts.
    pub(super) lives: u64,
    /// The offset of the wall clock, in milliseconds.
    pub(super) wall_offset_ms: i64,
    /// Events that are delayed while the process is frozen.
    pub(super) frozen: Option<Vec<Happening>>,
    /// The number of steps until the head is killed, and the number of steps of its successor.
    pub(super) doom: Option<Doom>,
}

/// A planned crash: the number of steps until the head is killed and, in `then`, the same for its successor. Counting
/// steps allows a crash between any two steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doom {
    pub(super) steps: u64,
    pub(super) then: Option<u64>,
}

pub(super) struct Process {
    life: u64,
    pub(super) state: State,
    /// The cluster's clock at the process start, and the start time.
    origin: Timestamp,
    started_us: u64,
    queue: VecDeque<Input>,
    round_is_due: bool,
    /// The time of the next timed wake-up of the loop.
    wakes_us: Option<u64>,
    pub(super) links: BTreeMap<ConnectionId, Link>,
    pub(super) connections: u64,
    rounds: Rounds<ReplyTo>,
    durability: Durability,
    /// Jobs that are moving from the state to the disk.
    moves: Mutex<Moves>,
    /// The state is being reloaded, and the loop waits for it.
    is_reloading: bool,
    /// The queue of the writer thread, its current write, and its committer.
    writes: Queue<Waits, ()>,
    current: Option<Work<Waits, ()>>,
    committer: Committer<MemoryStore>,
}

/// A command for the loop.
pub(super) type Input = hostler_core::head::Input<ReplyTo>;

/// What happens when a write is complete.
enum Waits {
    /// The replies and messages of a round.
    Round(After<ReplyTo>),
    /// After a reload: the loop continues with the reloaded state, whose first event was written. The number is the end
    /// of that state's log.
    Epoch(Box<(State, u64)>),
    /// Nothing, because the write was a snapshot.
    Snapshot,
}

/// The recipient of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReplyTo {
    /// A user's request.
    User(u64),
    /// The hello of an agent.
    Hello(ConnectionId),
}

/// A step of the head.
pub(super) enum HeadStep {
    Start,
    Round,
    Written,
    /// A timed wake-up of the loop, unless it was rescheduled.
    Wake {
        at_us: u64,
    },
    Encoded {
        sequence: u64,
        bytes: Vec<u8>,
        loads: u64,
    },
    Command(Box<Input>),
    Greet {
        connection: ConnectionId,
        hello: Box<HelloPacket>,
    },
    Checked {
        connection: ConnectionId,
    },
    Sweep,
}

impl Process {
    /// Whether no command or write is pending and the store works.
    fn is_idle(&self) -> bool {
        !self.durability.has_failed() && self.writes.is_empty() && self.current.is_none() && self.queue.is_empty()
    }

    /// Describes work in progress.
    pub(super) fn unrest(&self) -> Option<String> {
        if !self.is_idle() {
            return Some("the head is busy".to_owned());
        }
        let held = self.state.nodes().find(|node| !node.runs.is_empty());
        held.map(|node| format!("the head counts {:?} as held on {}", node.runs, node.name))
    }
}

impl World {
    /// Starts a head from the data on the disk.
    pub(super) fn start_head(&mut self) {
        self.head.lives += 1;
        let life = self.head.lives;
        let mut committer = Committer::new(self.head.disk.store.clone());
        let began = committer.reload().map_err(|error| error.to_string()).and_then(|loaded| {
            let Some((mut state, next)) = self.read_back(&loaded) else { return Err("its log is damaged".to_owned()) };
            let origin = state.last_event_at;
            let first = epoch_starts(&state, self.now_after(origin, self.now_us), None);
            let first = begin_epoch(&mut state, next, &first);
            committer.commit(&[first]).remove(0).map_err(|error| error.to_string())?;
            Ok((state, origin, loaded.first_sequence(), next + 1))
        });
        let (state, origin, first_sequence, next_sequence) = match began {
            Ok(began) => began,
            // The daemon does not start if it cannot write to the disk.
            Err(why) => {
                self.watch_log();
                self.note(format_args!("head {life} cannot start: {why}"));
                return self.head_later(SECOND, HeadStep::Start);
            }
        };
        self.head.process = Some(Process {
            life,
            origin,
            started_us: self.now_us,
            state,
            queue: VecDeque::new(),
            round_is_due: false,
            wakes_us: None,
            links: BTreeMap::new(),
            connections: 0,
            rounds: Rounds::new(first_sequence, next_sequence),
            durability: Durability::default(),
            moves: Mutex::default(),
            is_reloading: false,
            writes: Queue::default(),
            current: None,
            committer,
        });
        self.watch_log();
        let epoch = self.process().state.epoch;
        self.note(format_args!("head {life} starts in epoch {}", epoch.0));
        let first_sweep = self.rng.skewed(200 * MS);
        self.head_later(first_sweep, HeadStep::Sweep);
        self.let_loop_sleep();
    }

    /// Checks loaded data with the books; returns the state and the number of its next event.
    fn read_back(&mut self, loaded: &Loaded) -> Option<(State, u64)> {
        self.watch_log();
        match restore(empty_state(&self.settings), loaded) {
            Ok((state, next)) => {
                self.books.check_loaded(&state, &self.head.disk);
                Some((state, next))
            }
            Err(error) => {
                self.books.wrong(format!("the stored data cannot be loaded: {error}"));
                None
            }
        }
    }

    /// The current time for a process that started at `started_us` on a log whose last event has the time `origin`.
    fn now_after(&self, origin: Timestamp, started_us: u64) -> Now {
        let elapsed_ms = (self.now_us - started_us) / MS;
        // Virtual time begins in 2026, shifted by the offset of the clock.
        let wall = 1_770_000_000_000 + (self.now_us / MS) as i64 + self.head.wall_offset_ms;
        Now { at: origin.plus_ms(elapsed_ms), wall: WallTime(wall) }
    }

    fn head_now(&self) -> Now {
        let process = self.head.process.as_ref().expect("only a running head executes steps");
        self.now_after(process.origin, process.started_us)
    }

    /// Passes each new event of the log to the books.
    fn watch_log(&mut self) {
        for bytes in self.head.disk.store.events_after(self.books.events()) {
            let Ok(stamped) = hostler_proto::decode::<Stamped>(&bytes) else {
                return self.books.wrong("an event in the log cannot be read".to_owned());
            };
            self.trace.add(self.now_us, format_args!("stored: {}", brief(&stamped.event)));
            self.books.see(&stamped, &self.head.disk);
        }
    }

    /// Kills the head: memory is lost, and a write in progress is either stored or lost.
    pub(super) fn crash_head(&mut self) {
        self.head.frozen = None;
        let Some(mut process) = self.head.process.take() else { return };
        let mut what = "no write was in progress";
        if let Some(Work::Commits { batches, .. }) = &process.current {
            what = "the write in progress is lost";
            if self.rng.chance(500) {
                process.committer.commit(batches);
                what = "the write in progress may be stored";
            }
        }
        if self.rng.chance(500) && self.head.disk.store.show_unconfirmed() {
            what = "a failed write is stored after all";
        }
        self.note(format_args!("head {} is killed: {what}", process.life));
        self.watch_log();
        if self.rng.chance(300) {
            self.head.disk.lose_unsynced();
        }
        self.head_vanishes();
    }

    /// Schedules a step of the current head process.
    pub(super) fn head_later(&mut self, in_us: u64, step: HeadStep) {
        let life = self.head.lives;
        self.later(in_us, Happening::Head { life, step });
    }

    pub(super) fn head_step(&mut self, life: u64, step: HeadStep) {
        if let Some(waiting) = &mut self.head.frozen {
            return waiting.push(Happening::Head { life, step });
        }
        if life != self.head.lives {
            return;
        }
        if matches!(step, HeadStep::Start) && self.head.process.is_none() {
            return self.start_head();
        }
        if self.head.process.is_none() || self.meets_doom() {
            return;
        }
        match step {
            HeadStep::Start => {}
            HeadStep::Round => self.round(),
            HeadStep::Written => self.written(),
            HeadStep::Wake { at_us } => self.wake(at_us),
            HeadStep::Encoded { sequence, bytes, loads } => self.encoded(sequence, bytes, loads),
            HeadStep::Command(input) => self.input(*input),
            HeadStep::Greet { connection, hello } => self.greet(connection, *hello),
            HeadStep::Checked { connection } => self.checked(connection),
            HeadStep::Sweep => self.sweep(),
        }
    }

    /// Counts a step toward a planned crash. Kills the head and returns true if this step was the last.
    fn meets_doom(&mut self) -> bool {
        let Some(doom) = &mut self.head.doom else { return false };
        if doom.steps > 0 {
            doom.steps -= 1;
            return false;
        }
        let then = doom.then;
        self.crash_head();
        self.head.doom = then.map(|steps| Doom { steps, then: None });
        let down = self.rng.skewed(SECOND);
        self.later(down, Happening::Fault(Fault::StartHead));
        true
    }

    fn process(&mut self) -> &mut Process {
        self.head.process.as_mut().expect("only a running head executes steps")
    }

    /// Adds a command to the loop's queue.
    pub(super) fn input(&mut self, input: Input) {
        let process = self.process();
        process.queue.push_back(input);
        self.let_loop_run();
    }

    fn let_loop_run(&mut self) {
        let delay = self.rng.below(300);
        let process = self.process();
        if !process.queue.is_empty() && !process.round_is_due && !process.is_reloading {
            process.round_is_due = true;
            self.head_later(delay, HeadStep::Round);
        }
    }

    /// The time of the next timed wake-up.
    fn wake_at(&self) -> Option<u64> {
        let process = self.head.process.as_ref()?;
        let recovers_at = process.durability.recovers_at();
        let at = recovers_at.or_else(|| process.rounds.wake_at(&process.state))?;
        Some(process.started_us + at.ms_since(process.origin).saturating_mul(MS))
    }

    /// Schedules the timed wake-up. A scheduled wake-up may move to an earlier time, but never to a later one.
    fn let_loop_sleep(&mut self) {
        let late = self.rng.skewed(LATE);
        let now_us = self.now_us;
        let Some(at_us) = self.wake_at().map(|at_us| at_us.max(now_us)) else { return };
        let process = self.process();
        if process.wakes_us.is_none_or(|planned| at_us < planned) {
            process.wakes_us = Some(at_us);
            self.head_later(at_us - now_us + late, HeadStep::Wake { at_us });
        }
    }

    /// Queues a tick when a timed wake-up is due, unless the wake-up was rescheduled.
    fn wake(&mut self, at_us: u64) {
        let has_come = self.wake_at().is_some_and(|at| at <= self.now_us);
        let process = self.process();
        if process.wakes_us != Some(at_us) {
            return;
        }
        process.wakes_us = None;
        if has_come {
            return self.input(Input::of(Command::Tick));
        }
        self.let_loop_sleep();
    }

    fn round(&mut self) {
        let most = self.rng.range(1, 32) as usize;
        let now = self.head_now();
        let process = self.process();
        process.round_is_due = false;
        if process.durability.has_failed() {
            if process.durability.begin_recovery(now.at) {
                return self.begin_reload();
            }
            self.refuse_all();
            return self.let_loop_sleep();
        }
        let count = process.queue.len().min(most);
        let inputs: Vec<Input> = process.queue.drain(..count).collect();
        inputs.into_iter().for_each(|input| self.take(input, now));
        let Head { disk, process: Some(process), .. } = &mut self.head else { return };
        let moves = process.moves.lock().expect("no thread panics while it holds the lock");
        let forget = process.rounds.forget(&process.state, &moves, disk, now);
        drop(moves);
        // A failed lookup is repeated later.
        if let Ok(Some(command)) = forget {
            self.take(Input::of(command), now);
        }
        self.finish(now);
        self.let_loop_run();
        self.let_loop_sleep();
    }

    /// Decides and applies one command.
    fn take(&mut self, input: Input, now: Now) {
        let looks_at_moves = !self.breaks(Rule::LookWhereJobsMove);
        let Head { disk, process: Some(process), .. } = &mut self.head else { return };
        let ended = {
            let no_moves = Moves::default();
            let moves = process.moves.lock().expect("no thread panics while it holds the lock");
            let moves = if looks_at_moves { &*moves } else { &no_moves };
            Ended::look_up(&process.state, moves, disk, &input.command)
        };
        match ended {
            Ok(ended) => {
                process.rounds.take(&mut process.state, &process.moves, &ended, input, now);
            }
            Err(error) => {
                if let Some(reply) = input.reply {
                    self.reply(reply, Err(NotDone::NotStored(error.to_string())));
                }
            }
        }
    }

    /// Runs the scheduler and hands the round to the writer.
    fn finish(&mut self, now: Now) {
        let takes_snapshot = self.rng.chance(50);
        let process = self.process();
        process.rounds.follow_up(&mut process.state, &process.moves, now);
        let Some(Commit { mut batch, mut after }) = process.rounds.finish() else { return };
        let takes_snapshot = takes_snapshot || process.rounds.snapshot_is_due(&process.state);
        if self.breaks(Rule::KeepEnvironments) {
            forget_environments(&mut batch);
        }
        if self.breaks(Rule::ReplyAfterDurable) {
            let replies = std::mem::take(&mut after.replies);
            replies.into_iter().for_each(|(to, outcome)| self.reply(to, outcome.map_err(NotDone::Refused)));
        }
        if self.breaks(Rule::SendAfterDurable) {
            let effects = std::mem::take(&mut after.effects);
            self.perform(effects);
        }
        self.order(Request::Commit { batch, done: Waits::Round(after) });
        if takes_snapshot {
            self.take_snapshot();
        }
    }

    /// Copies the state; another thread then needs some time to encode the copy.
    fn take_snapshot(&mut self) {
        let delay = if self.rng.chance(400) { self.rng.below(6 * SECOND) } else { self.rng.below(20 * MS) };
        let process = self.process();
        let bytes = hostler_proto::encode(&process.state);
        let (sequence, loads) = (process.rounds.begin_snapshot(), process.durability.loads());
        self.head_later(delay, HeadStep::Encoded { sequence, bytes, loads });
    }

    /// Saves an encoded snapshot.
    fn encoded(&mut self, sequence: u64, bytes: Vec<u8>, loads: u64) {
        if self.process().durability.may_save(loads) || self.breaks(Rule::SnapshotsOfThisLoad) {
            self.order(Request::Snapshot { sequence, bytes, done: Waits::Snapshot });
        }
    }

    /// Hands a request to the writer.
    fn order(&mut self, request: Request<Waits, ()>) {
        self.process().writes.push(request);
        self.let_writer_work();
    }

    fn let_writer_work(&mut self) {
        let most = self.rng.range(1, 6) as usize;
        let usual = if self.rng.chance(20) { 100 * MS } else { 3 * MS };
        let delay = self.rng.below(usual);
        let process = self.process();
        if process.current.is_some() {
            return;
        }
        let Some(work) = process.writes.take_at_most(most) else { return };
        let is_nothing = match &work {
            Work::Commits { batches, .. } => {
                batches.iter().all(|batch| batch.events.is_empty() && batch.changes.is_empty())
            }
            Work::Snapshot { .. } | Work::Reload(()) => false,
        };
        process.current = Some(work);
        self.head_later(if is_nothing { 0 } else { delay }, HeadStep::Written);
    }

    /// Handles a completed write.
    fn written(&mut self) {
        match self.process().current.take().expect("a write was in progress") {
            Work::Commits { batches, dones } => self.commit(&batches, dones),
            Work::Snapshot { sequence, bytes, .. } => self.save_snapshot(sequence, &bytes),
            Work::Reload(()) => self.reload(),
        }
        self.let_writer_work();
    }

    /// Stores a group of batches; each batch may fail separately.
    fn commit(&mut self, batches: &[Batch], dones: Vec<Waits>) {
        let outcomes = self.process().committer.commit(batches);
        for (batch, _) in batches.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()) {
            self.head.disk.note_blobs(batch, self.now_us);
        }
        self.watch_log();
        for (outcome, done) in outcomes.into_iter().zip(dones) {
            let outcome = outcome.map_err(|error| error.to_string());
            match done {
                Waits::Round(after) => self.deliver(after, outcome),
                Waits::Epoch(loaded) => self.recovered(*loaded, outcome),
                Waits::Snapshot => {}
            }
        }
    }

    /// Sends the replies and messages of a round as far as the outcome permits.
    fn deliver(&mut self, after: After<ReplyTo>, outcome: Result<(), String>) {
        let (process, has_failed) = (self.process(), outcome.is_err());
        if has_failed && !process.durability.has_failed() {
            self.note(format_args!("the head cannot store events"));
        }
        let process = self.process();
        let Delivery { effects, replies } = process.durability.stored(after, outcome, &process.moves);
        if has_failed {
            self.let_loop_sleep();
        }
        self.perform(effects);
        replies.into_iter().for_each(|(to, answer)| self.reply(to, answer));
    }

    fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) {
        if self.process().committer.save_snapshot(sequence, bytes).is_ok() {
            self.note(format_args!("a snapshot replaces the log up to event {sequence}"));
            if let Ok(loaded) = self.head.disk.store.load() {
                self.read_back(&loaded);
            }
        }
    }

    /// Ends every link and starts to reload the state from the disk.
    fn begin_reload(&mut self) {
        let process = self.process();
        process.is_reloading = true;
        let links: Vec<ConnectionId> = process.links.keys().copied().collect();
        links.into_iter().for_each(|connection| self.close_link(connection, "the head reloads its state"));
        self.order(Request::Reload(()));
    }

    /// Begins an epoch on the state from the disk.
    fn reload(&mut self) {
        let loaded = match self.process().committer.reload() {
            Ok(loaded) => loaded,
            Err(error) => return self.end_reload(Err(error.to_string())),
        };
        let Some((mut state, next)) = self.read_back(&loaded) else { return };
        let first = epoch_starts(&state, self.head_now(), None);
        let batch = begin_epoch(&mut state, next, &first);
        self.order(Request::Commit { batch, done: Waits::Epoch(Box::new((state, next + 1))) });
    }

    /// Replaces the state with the one from the disk if the disk accepts events again.
    fn recovered(&mut self, (state, next_sequence): (State, u64), outcome: Result<(), String>) {
        if outcome.is_ok() {
            let process = self.process();
            process.rounds.restart(next_sequence);
            process.state = state;
            process.moves.lock().expect("no thread panics while it holds the lock").clear();
        }
        self.end_reload(outcome);
    }

    fn end_reload(&mut self, outcome: Result<(), String>) {
        match &outcome {
            Ok(()) => self.note(format_args!("the head continues with the stored state")),
            Err(why) => self.note(format_args!("the head cannot continue with the stored state yet: {why}")),
        }
        let process = self.process();
        process.is_reloading = false;
        match outcome {
            Ok(()) => {
                process.durability.recovered();
                self.let_loop_run();
            }
            Err(why) => {
                process.durability.not_recovered(why);
                self.refuse_all();
            }
        }
        self.let_loop_sleep();
    }

    /// Refuses all queued requests while writes fail.
    fn refuse_all(&mut self) {
        let process = self.process();
        let refusal = process.durability.refusal();
        let inputs = std::mem::take(&mut process.queue);
        for reply in inputs.into_iter().filter_map(|input| input.reply) {
            self.reply(reply, Err(refusal.clone()));
        }
    }

    fn reply(&mut self, to: ReplyTo, answer: Answer) {
        match to {
            ReplyTo::User(request) => self.answer_user(request, answer),
            ReplyTo::Hello(connection) => self.welcome(connection, &answer),
        }
    }

    /// Carries out effects of durable events.
    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { connection, message } => {
                    if let Some(link) = self.process().links.get_mut(&connection) {
                        link.outgoing.push(message);
                    }
                }
                Effect::Close { connection, .. } => {
                    self.flush_link(connection);
                    self.close_link(connection, "the head closed the link");
                }
                Effect::Power { node, verb, ask } => self.controller_hears(&node, verb, ask),
                Effect::Notify(_) => {}
            }
        }
        let links: Vec<ConnectionId> = self.process().links.keys().copied().collect();
        links.into_iter().for_each(|connection| self.flush_link(connection));
    }

    /// Removes unreferenced blobs once all writes are complete.
    fn sweep(&mut self) {
        let before_us = self.now_us.saturating_sub(YOUNG);
        let forget_results = self.breaks(Rule::KeepResults);
        let process = self.process();
        if !process.is_idle() {
            return;
        }
        // An operator takes a down node off the list. The node may reconnect before the decision.
        let down = process.state.nodes().find(|node| node.state() == NodeState::Down).map(|node| node.name.clone());
        if let Some(node) = down
            && !self.comes_back_only_by_hand(&node)
        {
            self.input(Input::of(Command::ForgetNode { node }));
        }
        // Drops the results of one ended job. The next sweep deletes their blobs.
        let ended = self.head.disk.jobs();
        let fetched = ended.values().filter(|job| !job.fetched_results().is_empty());
        let fetched = fetched.min_by_key(|job| (job.ended, job.id)).map(|job| (job.id, job.results.clone()));
        if let Some((job, indices)) = fetched {
            self.input(Input::of(Command::DropResults { job, indices }));
        }
        let Head { disk, process: Some(Process { state, .. }), .. } = &mut self.head else { return };
        let has_result = |task: TaskId| {
            let job = state.job(task.job).or_else(|| ended.get(&task.job));
            job.is_some_and(|job| job.results.contains(task.index))
        };
        let removed = disk.sweep(before_us, state.early_results(), |task| !forget_results && has_result(task));
        if removed > 0 {
            self.note(format_args!("{removed} blobs are collected"));
        }
    }
}

/// Breaks [`Rule::KeepEnvironments`](super::Rule): deletes the environment of every ended job in the batch.
fn forget_environments(batch: &mut Batch) {
    for change in &mut batch.changes {
        if let Change::JobEnded(job) = change {
            job.keeps_environment = false;
        }
    }
}

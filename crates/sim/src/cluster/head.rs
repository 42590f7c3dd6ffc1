//! The head's shell: rounds of commands, group commit, and what happens when the disk says no. Mirrors the daemon's engine.

mod brief;
mod ended;

use std::collections::{BTreeMap, VecDeque};

use hostler_core::head::{
    Changes, Command, ConnectionId, Effect, Ended, Event, Moves, Now, Refusal, Stamped, State, decide, follow_up,
    update,
};
use hostler_model::{Digest, JobId, NodeState, TaskId, Timestamp, WallTime};

use self::brief::brief;
use super::Rule;
use super::disk::{Batch, Disk, Logged, Order, Work, Writer};
use super::faults::Fault;
use super::head_link::Link;
use super::network::HelloPacket;
use super::world::{Happening, MS, SECOND, World};

/// How late the loop may wake up when its time has come.
const LATE: u64 = 50 * MS;

/// How often a store that failed is tried again.
const RECOVERY_PAUSE: u64 = SECOND;

/// Blobs that were touched this recently are left alone by a sweep.
const YOUNG: u64 = 500 * MS;

/// The head's machine.
#[derive(Default)]
pub(super) struct Head {
    /// What survives.
    pub(super) disk: Disk,
    /// What does not; absent while no head runs.
    pub(super) process: Option<Process>,
    /// How many have started.
    pub(super) lives: u64,
    /// How far the wall clock is off, in milliseconds.
    pub(super) wall_offset_ms: i64,
    /// The process stands still, and this waits for it.
    pub(super) frozen: Option<Vec<Happening>>,
    /// From this life on jobs leave the state when they end; those before are of an older release.
    pub(super) archives_from: u64,
    /// It is killed after so many more steps, and its successor so many steps after its start.
    pub(super) doom: Option<Doom>,
}

/// When a head is killed, counted in its steps, so that any two of them may be torn apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doom {
    pub(super) steps: u64,
    pub(super) then: Option<u64>,
}

/// A running head.
pub(super) struct Process {
    life: u64,
    pub(super) state: State,
    /// The cluster's clock when the process started, and when that was.
    origin: Timestamp,
    started_us: u64,
    queue: VecDeque<Input>,
    round_is_due: bool,
    /// When the loop wakes up by itself.
    wakes_us: Option<u64>,
    pub(super) links: BTreeMap<ConnectionId, Link>,
    pub(super) connections: u64,
    writer: Writer,
    next_sequence: u64,
    /// A batch could not be stored, and the state has not been loaded again yet.
    has_failed: bool,
    is_reloading: bool,
    last_reload_us: Option<u64>,
    loads: u64,
    /// Jobs between the state and the disk.
    moves: Moves,
    rounds: u64,
}

/// Something for the loop.
pub(super) struct Input {
    pub(super) command: Command,
    pub(super) blobs: Vec<(Digest, Vec<u8>)>,
    pub(super) reply: Option<ReplyTo>,
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReplyTo {
    /// A user's request.
    User(u64),
    /// The greeting of an agent.
    Hello(ConnectionId),
}

/// What became of a command.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// Carried out; the job of a submission.
    Done(Option<JobId>),
    /// It makes no sense, or is not allowed.
    Refused(Refusal),
    /// It could not be made durable.
    NotStored,
}

/// What happens in the head.
pub(super) enum HeadStep {
    Start,
    Round,
    Written,
    /// The loop wakes up by itself, if that is still what it is waiting for.
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
    fn now(&self, now_us: u64, wall_offset_ms: i64) -> Now {
        let elapsed_ms = (now_us - self.started_us) / MS;
        // Virtual time begins some time in 2026, give or take what the clock is off.
        let wall = 1_770_000_000_000 + (now_us / MS) as i64 + wall_offset_ms;
        Now { at: self.origin.plus_ms(elapsed_ms), wall: WallTime(wall) }
    }

    /// What is still going on here.
    pub(super) fn unrest(&self) -> Option<String> {
        if self.has_failed || !self.writer.is_idle() || !self.queue.is_empty() {
            return Some("the head is busy".to_owned());
        }
        let held = self.state.nodes().find(|node| !node.runs.is_empty());
        held.map(|node| format!("the head counts {:?} as held on {}", node.runs, node.name))
    }
}

impl World {
    /// Starts a head on what the disk has.
    pub(super) fn start_head(&mut self) {
        self.head.lives += 1;
        let life = self.head.lives;
        let Some(state) = self.load() else { return };
        let mut process = Process {
            life,
            origin: state.last_event_at,
            started_us: self.now_us,
            state,
            queue: VecDeque::new(),
            round_is_due: false,
            wakes_us: None,
            links: BTreeMap::new(),
            connections: 0,
            writer: Writer::default(),
            next_sequence: self.head.disk.last_sequence() + 1,
            has_failed: false,
            is_reloading: false,
            last_reload_us: None,
            loads: 0,
            moves: Moves::default(),
            rounds: 0,
        };
        // The daemon does not start on a disk that takes nothing.
        if !self.begin_epoch(&mut process) {
            self.note(format_args!("head {life} cannot start: its disk is full"));
            self.head_later(SECOND, HeadStep::Start);
            return;
        }
        self.note(format_args!("head {life} starts in epoch {}", process.state.epoch.0));
        self.head.process = Some(process);
        let first_sweep = self.rng.skewed(200 * MS);
        self.head_later(first_sweep, HeadStep::Sweep);
        self.let_loop_sleep();
    }

    /// Loads what is stored, as the books see to it.
    fn load(&mut self) -> Option<State> {
        match self.head.disk.load(&self.settings) {
            Ok(state) => {
                self.books.check_loaded(&state, &self.head.disk);
                Some(state)
            }
            Err(error) => {
                self.books.wrong(format!("what is stored cannot be loaded: {error}"));
                None
            }
        }
    }

    /// Stores and applies the event with which an epoch begins; says whether the disk took it.
    fn begin_epoch(&mut self, process: &mut Process) -> bool {
        if self.head.disk.is_full {
            return false;
        }
        let now = process.now(self.now_us, self.head.wall_offset_ms);
        let archives = process.life >= self.head.archives_from;
        let stamped =
            Stamped { now, event: Event::EpochStarted { epoch: process.state.next_epoch(), archives, owner: None } };
        let logged = apply(&mut process.state, &stamped, &mut Vec::new());
        let first_sequence = self.head.disk.last_sequence() + 1;
        self.store(&[Batch { first_sequence, events: logged.into_iter().collect(), ..Batch::default() }]);
        process.next_sequence = first_sequence + 1;
        true
    }

    /// Ends the head at once: what is in memory is gone, what was just being written is there or not.
    pub(super) fn crash_head(&mut self) {
        self.head.frozen = None;
        let Some(process) = self.head.process.take() else { return };
        let mut became_durable = false;
        if let Some(Work::Group(batches)) = process.writer.current
            && !self.head.disk.is_full
            && !process.writer.is_stopped
            && self.rng.chance(500)
        {
            self.store(&batches);
            became_durable = true;
        }
        self.note(format_args!("head {} is killed, its last write {became_durable}", process.life));
        let loses_power = self.rng.chance(300);
        self.head.disk.blobs.retain(|_, blob| blob.is_synced || !loses_power);
        self.head_vanishes();
    }

    /// Lets something happen in the present life of the head.
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
            HeadStep::Encoded { sequence, bytes, loads } => self.order(Order::Snapshot { sequence, bytes, loads }),
            HeadStep::Command(input) => self.input(*input),
            HeadStep::Greet { connection, hello } => self.greet(connection, *hello),
            HeadStep::Checked { connection } => self.checked(connection),
            HeadStep::Sweep => self.sweep(),
        }
    }

    /// Counts a step of a head that is to be killed; says whether this was the last.
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
        self.head.process.as_mut().expect("steps are for a running head")
    }

    /// Puts something into the loop's queue.
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

    /// Plans when the loop wakes up by itself, which may be earlier than was planned before but need not be later.
    fn let_loop_sleep(&mut self) {
        let late = self.rng.skewed(LATE);
        let now_us = self.now_us;
        let deadline = self.deadline();
        let process = self.process();
        let at_us = if process.has_failed {
            Some(process.last_reload_us.map_or(now_us, |last| last + RECOVERY_PAUSE))
        } else {
            let elapsed_ms = |at: Timestamp| at.ms_since(process.origin);
            deadline.map(|at| process.started_us + elapsed_ms(at).saturating_mul(MS))
        };
        let Some(at_us) = at_us.map(|at_us| at_us.max(now_us)) else { return };
        if process.wakes_us.is_none_or(|planned| at_us < planned) {
            process.wakes_us = Some(at_us);
            self.head_later(at_us - now_us + late, HeadStep::Wake { at_us });
        }
    }

    /// The time has come, unless it was put off.
    fn wake(&mut self, at_us: u64) {
        let now_us = self.now_us;
        let deadline = self.deadline();
        let process = self.process();
        if process.wakes_us != Some(at_us) {
            return;
        }
        process.wakes_us = None;
        let has_come = |at: Timestamp| process.started_us + at.ms_since(process.origin).saturating_mul(MS) <= now_us;
        if process.has_failed || deadline.is_some_and(has_come) {
            return self.input(Input { command: Command::Tick, blobs: Vec::new(), reply: None });
        }
        self.let_loop_sleep();
    }

    /// One round of the loop.
    fn round(&mut self) {
        let now_us = self.now_us;
        let most = self.rng.range(1, 32) as usize;
        let process = self.process();
        process.round_is_due = false;
        if process.has_failed {
            if process.last_reload_us.is_none_or(|last| now_us >= last + RECOVERY_PAUSE) {
                return self.begin_reload();
            }
            self.refuse_all();
            return self.let_loop_sleep();
        }
        let count = process.queue.len().min(most);
        let inputs: Vec<Input> = process.queue.drain(..count).collect();
        process.rounds += 1;
        let mut batch = Batch { round: process.rounds, ..Batch::default() };
        for input in inputs {
            self.take(&mut batch, input);
        }
        let process = self.head.process.as_ref().expect("it runs");
        let jobs: Vec<(JobId, Timestamp)> = self.ended_on_disk(process).collect();
        self.take(&mut batch, Input { command: Command::Forget { jobs }, blobs: Vec::new(), reply: None });
        self.finish(batch);
        self.let_loop_run();
        self.let_loop_sleep();
    }

    /// Decides and applies one command.
    fn take(&mut self, batch: &mut Batch, input: Input) {
        let (now_us, offset) = (self.now_us, self.head.wall_offset_ms);
        let Input { command, blobs, reply } = input;
        let looks_at_moves = !self.breaks(Rule::LookWhereJobsMove);
        let Head { disk, process: Some(process), .. } = &mut self.head else { return };
        let now = process.now(now_us, offset);
        let no_moves = Moves::default();
        let moves = if looks_at_moves { &process.moves } else { &no_moves };
        let Ok(ended) = Ended::look_up(&process.state, moves, disk, &command);
        let answer = match decide(&process.state, &command, &ended, now) {
            Ok(events) => {
                for event in events {
                    process.apply(batch, &Stamped { now, event });
                }
                batch.blobs.extend(blobs);
                let job = match &command {
                    Command::Submit { key, .. } => {
                        let moved = || process.moves.job_of_key(*key);
                        ended.of_key().or_else(|| process.state.job_of_key(*key)).or_else(moved)
                    }
                    _ => None,
                };
                Answer::Done(job)
            }
            Err(refusal) => Answer::Refused(refusal),
        };
        if let Some(reply) = reply {
            batch.replies.push((reply, answer));
        }
    }

    /// Schedules, then hands the round to the writer.
    fn finish(&mut self, mut batch: Batch) {
        let (now_us, offset) = (self.now_us, self.head.wall_offset_ms);
        let snapshot = self.rng.chance(50);
        let process = self.process();
        loop {
            let now = process.now(now_us, offset);
            let events = follow_up(&mut process.state, now);
            if events.is_empty() {
                break;
            }
            for event in events {
                process.apply(&mut batch, &Stamped { now, event });
            }
        }
        batch.first_sequence = process.next_sequence;
        process.next_sequence += batch.events.len() as u64;
        if self.breaks(Rule::ReplyAfterDurable) {
            let replies = std::mem::take(&mut batch.replies);
            replies.into_iter().for_each(|(to, answer)| self.reply(to, answer));
        }
        if self.breaks(Rule::SendAfterDurable) {
            let effects = std::mem::take(&mut batch.effects);
            self.perform(effects);
        }
        self.order(Order::Commit(batch));
        if snapshot {
            self.take_snapshot();
        }
    }

    /// Copies the state, which takes another thread a while to encode.
    fn take_snapshot(&mut self) {
        let delay = if self.rng.chance(400) { self.rng.below(6 * SECOND) } else { self.rng.below(20 * MS) };
        let process = self.process();
        let bytes = hostler_proto::encode(&process.state);
        let step = HeadStep::Encoded { sequence: process.next_sequence - 1, bytes, loads: process.loads };
        self.head_later(delay, step);
    }

    /// Hands something to the writer.
    fn order(&mut self, order: Order) {
        self.process().writer.queue.push_back(order);
        self.let_writer_work();
    }

    fn let_writer_work(&mut self) {
        let most = self.rng.range(1, 6);
        let usual = if self.rng.chance(20) { 100 * MS } else { 3 * MS };
        let delay = self.rng.below(usual);
        let writer = &mut self.process().writer;
        if writer.current.is_some() {
            return;
        }
        let is_nothing = match writer.take(most) {
            None => return,
            Some(Work::Group(batches)) => batches.iter().all(|batch| batch.events.is_empty() && batch.blobs.is_empty()),
            Some(Work::Snapshot { .. } | Work::Reload) => false,
        };
        self.head_later(if is_nothing { 0 } else { delay }, HeadStep::Written);
    }

    /// The writer is done with something.
    fn written(&mut self) {
        match self.process().writer.current.take().expect("something was being written") {
            Work::Group(batches) => self.commit(batches),
            Work::Snapshot { sequence, bytes, loads } => self.save_snapshot(sequence, bytes, loads),
            Work::Reload => self.reload(),
        }
        if self.head.process.is_some() {
            self.let_writer_work();
        }
    }

    /// A group of batches is stored, or each fails for itself.
    fn commit(&mut self, batches: Vec<Batch>) {
        for batch in batches {
            let is_full = self.head.disk.is_full;
            let writer = &mut self.process().writer;
            let needs_room = !batch.events.is_empty() || !batch.blobs.is_empty();
            let fails = needs_room && is_full || batch.is_sequenced() && writer.is_stopped;
            if fails && batch.is_sequenced() {
                writer.is_stopped = true;
                if !self.process().has_failed {
                    self.note(format_args!("a batch from event {} on cannot be stored", batch.first_sequence));
                }
                self.process().has_failed = true;
                self.let_loop_sleep();
            }
            // What was not stored, or may rest on what was not, never happened.
            if fails || self.process().has_failed {
                batch.replies.into_iter().for_each(|(to, _)| self.reply(to, Answer::NotStored));
                continue;
            }
            let batch = {
                let stored = [batch];
                self.store(&stored);
                let [batch] = stored;
                batch
            };
            self.process().moves.settle(batch.round);
            self.perform(batch.effects);
            batch.replies.into_iter().for_each(|(to, answer)| self.reply(to, answer));
        }
    }

    /// Puts batches on the disk, and has the books see it.
    fn store(&mut self, batches: &[Batch]) {
        for batch in batches {
            if let Err(what) = self.head.disk.commit(batch, self.now_us) {
                return self.books.wrong(what);
            }
            if self.breaks(Rule::KeepEnvironments) {
                let ended = &self.head.disk.jobs;
                self.head.disk.environments.retain(|job, _| !ended.contains_key(job));
            }
            for logged in &batch.events {
                self.trace.add(self.now_us, format_args!("durable: {}", brief(&logged.stamped.event)));
                self.books.see(logged, &self.head.disk);
            }
        }
    }

    fn save_snapshot(&mut self, sequence: u64, bytes: Vec<u8>, loads: u64) {
        let is_stale = loads != self.process().loads && !self.breaks(Rule::SnapshotsOfThisLoad);
        if self.process().writer.is_stopped || self.head.disk.is_full || is_stale {
            return;
        }
        if self.head.disk.save_snapshot(sequence, bytes) {
            self.note(format_args!("a snapshot replaces the log up to event {sequence}"));
            self.load();
        }
    }

    /// Ends every link and asks for what the disk has.
    fn begin_reload(&mut self) {
        let now_us = self.now_us;
        let process = self.process();
        process.last_reload_us = Some(now_us);
        process.is_reloading = true;
        let links: Vec<ConnectionId> = process.links.keys().copied().collect();
        links.into_iter().for_each(|connection| self.close_link(connection, "the state is thrown away"));
        self.order(Order::Reload);
    }

    /// Throws the state away and goes on with what the disk has.
    fn reload(&mut self) {
        let Some(state) = self.load() else { return };
        let mut process = self.head.process.take().expect("it runs");
        process.is_reloading = false;
        process.loads += 1;
        process.writer.is_stopped = false;
        let before = std::mem::replace(&mut process.state, state);
        let moves_before = std::mem::take(&mut process.moves);
        let goes_on = self.begin_epoch(&mut process);
        if goes_on {
            process.has_failed = false;
        } else {
            process.state = before;
            process.moves = moves_before;
            process.writer.is_stopped = true;
        }
        self.head.process = Some(process);
        self.note(format_args!("the head goes back to what is stored: {goes_on}"));
        if goes_on {
            self.let_loop_run();
        } else {
            self.refuse_all();
        }
        self.let_loop_sleep();
    }

    /// Answers everything that waits while nothing can be stored.
    fn refuse_all(&mut self) {
        let inputs = std::mem::take(&mut self.process().queue);
        for reply in inputs.into_iter().filter_map(|input| input.reply) {
            self.reply(reply, Answer::NotStored);
        }
    }

    fn reply(&mut self, to: ReplyTo, answer: Answer) {
        match to {
            ReplyTo::User(request) => self.answer_user(request, answer),
            ReplyTo::Hello(connection) => self.welcome(connection, &answer),
        }
    }

    /// Carries out effects whose events are durable.
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
                    self.close_link(connection, "the head is done with it");
                }
                Effect::Power { node, verb, ask } => self.controller_hears(&node, verb, ask),
                Effect::Notify(_) => {}
            }
        }
        let links: Vec<ConnectionId> = self.process().links.keys().copied().collect();
        links.into_iter().for_each(|connection| self.flush_link(connection));
    }

    /// Removes blobs that nothing refers to, once everything that was handed over is settled.
    fn sweep(&mut self) {
        let before_us = self.now_us.saturating_sub(YOUNG);
        let forget_results = self.breaks(Rule::KeepResults);
        let process = self.process();
        if process.has_failed || !process.writer.is_idle() || !process.queue.is_empty() {
            return;
        }
        // Somebody tidies up the list of nodes, whatever is connected by the time this is decided.
        let down = process.state.nodes().find(|node| node.state() == NodeState::Down).map(|node| node.name.clone());
        if let Some(node) = down
            && !self.comes_back_only_by_hand(&node)
        {
            self.input(Input { command: Command::ForgetNode { node }, blobs: Vec::new(), reply: None });
        }
        // What is dropped now to make room is swept the next time.
        let fetched = self.head.disk.jobs.values().filter(|job| !job.fetched_results().is_empty());
        let fetched = fetched.min_by_key(|job| (job.ended, job.id)).map(|job| (job.id, job.results.clone()));
        if let Some((job, indices)) = fetched {
            self.input(Input { command: Command::DropResults { job, indices }, blobs: Vec::new(), reply: None });
        }
        let Head { disk, process: Some(Process { state, .. }), .. } = &mut self.head else { return };
        let ended = disk.jobs.clone();
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

/// Applies an event; it comes back if it belongs in the log.
fn apply(state: &mut State, stamped: &Stamped, effects: &mut Vec<Effect>) -> Option<Logged> {
    let mut changes = Changes::default();
    update(state, stamped, &mut changes);
    effects.extend(changes.effects);
    assert!(stamped.event.is_durable() || changes.records.is_empty(), "a record rests on an event that is not stored");
    stamped.event.is_durable().then(|| Logged {
        bytes: hostler_proto::encode(stamped),
        stamped: stamped.clone(),
        records: changes.records,
    })
}

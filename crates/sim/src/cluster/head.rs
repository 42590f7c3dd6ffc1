//! The head's process: the daemon's loop ([`Rounds`], [`Durability`]) and group commit ([`Committer`]) on a virtual
//! clock. Each step of the loop, the writer thread or the disk takes some time. The head may be killed between any two
//! steps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use hostler_core::head::{
    Answer, ConnectionId, Durability, Effect, Now, Rounds, Stamped, State, begin_epoch, epoch_starts, restore,
};
use hostler_model::{Timestamp, WallTime};
use hostler_proto::stored::Loaded;
use hostler_store::{Committer, Queue, Work};

use super::brief::brief;
use super::disk::empty_state;
use super::world::faults::Fault;
use super::world::head::{HeadStep, Input, PlannedCrash, Process, ReplyTo};
use super::world::time::{MS, SECOND};
use super::world::{ScheduledEvent, World};

impl World {
    /// Starts a head from the data on the disk.
    pub(super) fn start_head(&mut self) {
        self.head.lives += 1;
        let life = self.head.lives;
        let mut committer = Committer::new(self.head.disk.store.clone());
        let began = committer.reload().map_err(|error| error.to_string()).and_then(|loaded| {
            let Some((mut state, next)) = self.read_back(&loaded) else { return Err("the log is damaged".to_owned()) };
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
            lines: BTreeMap::new(),
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
        self.schedule_wake_up();
    }

    /// Checks loaded data with the books; returns the state and the number of its next event.
    pub(super) fn read_back(&mut self, loaded: &Loaded) -> Option<(State, u64)> {
        self.watch_log();
        match restore(empty_state(&self.settings), loaded) {
            Ok((state, next)) => {
                self.books.check_loaded(&state, &self.head.disk);
                Some((state, next))
            }
            Err(error) => {
                self.books.record_violation(format!("the stored data cannot be loaded: {error}"));
                None
            }
        }
    }

    /// The current time for a process that started at `started_us` on a log whose last event has the time `origin`.
    pub(super) fn now_after(&self, origin: Timestamp, started_us: u64) -> Now {
        let elapsed_ms = (self.now_us - started_us) / MS;
        // Virtual time begins in 2026, shifted by the offset of the clock.
        let wall = 1_770_000_000_000 + (self.now_us / MS) as i64 + self.head.wall_offset_ms;
        Now { at: origin.plus_ms(elapsed_ms), wall: WallTime(wall) }
    }

    pub(super) fn head_now(&self) -> Now {
        let process = self.head.process.as_ref().expect("steps are for a running head");
        self.now_after(process.origin, process.started_us)
    }

    /// Passes each new event of the log to the books.
    pub(super) fn watch_log(&mut self) {
        for bytes in self.head.disk.store.events_after(self.books.events()) {
            let Ok(stamped) = hostler_proto::decode::<Stamped>(&bytes) else {
                return self.books.record_violation("an event in the log cannot be read".to_owned());
            };
            self.trace.add(self.now_us, format_args!("stored: {}", brief(&stamped.event)));
            self.books.see(&stamped, &self.head.disk, Timestamp(self.now_us / MS));
        }
    }

    /// Kills the head: memory is lost, and a write in progress is either stored or lost.
    pub(super) fn crash_head(&mut self) {
        self.frozen_head = None;
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
        self.close_head_connections();
    }

    /// Schedules a step of the current head process.
    pub(super) fn head_later(&mut self, in_us: u64, step: HeadStep) {
        let life = self.head.lives;
        self.later(in_us, ScheduledEvent::Head { life, step });
    }

    pub(super) fn head_step(&mut self, life: u64, step: HeadStep) {
        if let Some(waiting) = &mut self.frozen_head {
            return waiting.push(ScheduledEvent::Head { life, step });
        }
        if life != self.head.lives {
            return;
        }
        if matches!(step, HeadStep::Start) && self.head.process.is_none() {
            return self.start_head();
        }
        if self.head.process.is_none() || self.count_crash_step() {
            return;
        }
        match step {
            HeadStep::Start => {}
            HeadStep::Round => self.round(),
            HeadStep::Written => self.written(),
            HeadStep::Wake { at_us } => self.wake(at_us),
            HeadStep::Encoded { sequence, bytes, loads } => self.encoded(sequence, bytes, loads),
            HeadStep::Command(input) => self.input(*input),
            HeadStep::Work { connection } => self.work_link(connection),
            HeadStep::Check { connection, check } => self.checked(connection, *check),
            HeadStep::Sweep => self.sweep(),
        }
    }

    /// Counts a step of a doomed head; returns whether this was the last.
    pub(super) fn count_crash_step(&mut self) -> bool {
        let Some(doom) = &mut self.head.doom else { return false };
        if doom.steps > 0 {
            doom.steps -= 1;
            return false;
        }
        let then = doom.then;
        self.crash_head();
        self.head.doom = then.map(|steps| PlannedCrash { steps, then: None });
        let down = self.rng.skewed(SECOND);
        self.later(down, ScheduledEvent::Fault(Fault::StartHead));
        true
    }

    pub(super) fn process(&mut self) -> &mut Process {
        self.head.process.as_mut().expect("steps are for a running head")
    }

    /// Adds a command to the loop's queue.
    pub(super) fn input(&mut self, input: Input) {
        let process = self.process();
        process.queue.push_back(input);
        self.let_loop_run();
    }

    pub(super) fn reply(&mut self, to: ReplyTo, answer: Answer) {
        match to {
            ReplyTo::User(request) => self.answer_user(request, answer),
            ReplyTo::Hello(connection) => self.welcome(connection, &answer),
        }
    }

    /// Carries out effects of durable events.
    pub(super) fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { connection, message } => {
                    let line = self.process().lines.get_mut(&connection);
                    if let Some(line) = line.filter(|line| line.ends.is_none()) {
                        line.outgoing.push(message);
                    }
                }
                Effect::Close { connection, .. } => {
                    self.flush_link(connection);
                    self.end_link(connection, "the head closed the link");
                }
                Effect::Power { node, verb, ask } => self.controller_receives(&node, verb, ask),
                Effect::Notify(_) | Effect::Count(_) | Effect::Deliver | Effect::ReportNode { .. } => {}
            }
        }
        let links: Vec<ConnectionId> = self.process().lines.keys().copied().collect();
        links.into_iter().for_each(|connection| self.flush_link(connection));
    }
}

//! The head's loop without its IO: what one round of commands comes to.
//!
//! A round takes commands ([`Rounds::take`]), adds what follows from them ([`Rounds::follow_up`]) and ends as one [`Commit`]
//! ([`Rounds::finish`]). The shell stores the batch of the commit. Effects and replies wait in [`After`], and [`super::Durability`] says
//! what becomes of them when the store has answered. The loop itself does not wait and begins the next round.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use hostler_model::{Digest, JobId, Timestamp};
use hostler_proto::stored::Batch;

use super::command::{Command, Refusal};
use super::decide::decide;
use super::ended::{Ended, EndedJobs, Moves};
use super::event::{Changes, Effect, Now, Record, Stamped};
use super::schedule::follow_up;
use super::state::State;
use super::stored::batch;
use super::update::update;

/// A snapshot is due when the log has this many more events than the state has jobs. It bounds what a starting head reads.
const EVENTS_BETWEEN_SNAPSHOTS: u64 = 10_000;

/// How many jobs are dropped at once when their retention is over, so that a large backlog does not stall the loop.
const FORGET_AT_ONCE: usize = 1_000;

/// When jobs whose retention is over are looked for again after that failed, in milliseconds.
const FORGET_AGAIN_MS: u64 = 60_000;

/// A command for the loop, and what comes with it. `R` is how the shell finds whoever waits for the answer.
#[derive(Debug)]
pub struct Input<R> {
    /// The command.
    pub command: Command,
    /// Small blobs, stored in the same transaction.
    pub blobs: Vec<(Digest, Vec<u8>)>,
    /// The environment of a submission, stored in the same transaction.
    pub environment: Option<(Digest, Bytes)>,
    /// Where the answer goes; nobody waits when absent.
    pub reply: Option<R>,
}

impl<R> Input<R> {
    /// A command that nobody waits for.
    #[must_use]
    pub fn of(command: Command) -> Self {
        Self { command, blobs: Vec::new(), environment: None, reply: None }
    }
}

/// A command that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The job of a submission, and whether its key was known before.
    pub submitted: Option<(JobId, bool)>,
}

/// The end of a round: what to store, and what waits for that.
#[derive(Debug)]
pub struct Commit<R> {
    /// To be stored. It may be empty: replies and effects wait for earlier batches all the same.
    pub batch: Batch,
    /// To be given to [`super::Durability::stored`] with the outcome.
    pub after: After<R>,
}

/// Effects and replies of a round, which wait until its batch is durable.
#[derive(Debug)]
pub struct After<R> {
    pub(super) round: u64,
    pub(super) has_events: bool,
    /// To be carried out.
    pub effects: Vec<Effect>,
    /// To be answered.
    pub replies: Vec<(R, Result<Done, Refusal>)>,
}

/// Turns commands into commits. One thread owns it.
#[derive(Debug)]
pub struct Rounds<R> {
    /// Counts rounds.
    number: u64,
    next_sequence: u64,
    snapshot_sequence: u64,
    /// No job that has ended and is still kept ended earlier; absent when there is none.
    first_ended: Option<Timestamp>,
    /// Jobs whose retention is over are not looked for before this, because looking has failed.
    forget_from: Timestamp,
    events: Vec<Stamped>,
    changes: Changes,
    blobs: Vec<(Digest, Vec<u8>)>,
    environments: BTreeMap<Digest, Bytes>,
    replies: Vec<(R, Result<Done, Refusal>)>,
}

impl<R> Rounds<R> {
    /// Rounds on a log that begins with the event of one number and ends before that of another.
    #[must_use]
    pub fn new(first_sequence: u64, next_sequence: u64) -> Self {
        Self {
            number: 1,
            next_sequence,
            snapshot_sequence: first_sequence,
            // Looked up when a job that ended then would go.
            first_ended: Some(Timestamp(0)),
            forget_from: Timestamp(0),
            events: Vec::new(),
            changes: Changes::default(),
            blobs: Vec::new(),
            environments: BTreeMap::new(),
            replies: Vec::new(),
        }
    }

    /// Goes on from a state that was loaded again, whose log ends before `next_sequence`.
    pub fn restart(&mut self, next_sequence: u64) {
        self.next_sequence = next_sequence;
        self.snapshot_sequence = self.snapshot_sequence.min(next_sequence);
        self.first_ended = Some(Timestamp(0));
    }

    /// Decides and applies a command about these `ended` jobs. Gives back the refusal of a command that nobody waits for.
    pub fn take(
        &mut self,
        state: &mut State,
        moves: &Mutex<Moves>,
        ended: &Ended,
        input: Input<R>,
        now: Now,
    ) -> Option<Refusal> {
        let Input { command, blobs, environment, reply } = input;
        let known = match &command {
            Command::Submit { key, .. } => state.job_of_key(*key).or(ended.of_key()),
            _ => None,
        };
        let outcome = decide(state, &command, ended, now).map(|events| {
            for event in events {
                self.apply(state, moves, Stamped { now, event });
            }
            self.blobs.extend(blobs);
            self.environments.extend(environment);
            let submitted = match &command {
                // A job that can never run has ended already.
                Command::Submit { key, .. } => known
                    .or_else(|| state.job_of_key(*key))
                    .or_else(|| lock(moves).job_of_key(*key))
                    .map(|job| (job, known.is_some())),
                _ => None,
            };
            Done { submitted }
        });
        match reply {
            Some(reply) => {
                self.replies.push((reply, outcome));
                None
            }
            None => outcome.err(),
        }
    }

    /// Adds what follows from the state as it is: placements, and nodes to be switched on and off.
    pub fn follow_up(&mut self, state: &mut State, moves: &Mutex<Moves>, now: Now) {
        loop {
            let events = follow_up(state, now);
            if events.is_empty() {
                return;
            }
            for event in events {
                self.apply(state, moves, Stamped { now, event });
            }
        }
    }

    /// Applies an event and keeps it for the log if it belongs there.
    fn apply(&mut self, state: &mut State, moves: &Mutex<Moves>, stamped: Stamped) {
        let noted = self.changes.records.len();
        update(state, &stamped, &mut self.changes);
        let new = &self.changes.records[noted..];
        if !new.is_empty() {
            // Not locked for longer: an acknowledgement that waits for this lock would be late.
            let mut moves = lock(moves);
            new.iter().for_each(|record| moves.note(record, self.number));
        }
        if stamped.event.is_durable() {
            self.events.push(stamped);
        }
    }

    /// Ends the round. Nothing comes of a round in which nothing happened, such as one of heartbeats: the store is not woken for it.
    pub fn finish(&mut self) -> Option<Commit<R>> {
        let Changes { effects, records } = std::mem::take(&mut self.changes);
        let events = std::mem::take(&mut self.events);
        let blobs = std::mem::take(&mut self.blobs);
        let environments = std::mem::take(&mut self.environments);
        let replies = std::mem::take(&mut self.replies);
        if events.is_empty() && effects.is_empty() && records.is_empty() && blobs.is_empty() && replies.is_empty() {
            return None;
        }
        let just_ended = records.iter().filter_map(|record| match record {
            Record::JobEnded(job) => job.ended,
            _ => None,
        });
        self.first_ended = just_ended.chain(self.first_ended).min();
        let batch = batch(self.next_sequence, &events, records, blobs, &environments);
        self.next_sequence += batch.events.len() as u64;
        let after = After { round: self.number, has_events: !batch.events.is_empty(), effects, replies };
        self.number += 1;
        Some(Commit { batch, after })
    }

    /// The command that drops jobs whose retention is over, if it is time for that.
    ///
    /// # Errors
    /// When the store cannot be read; it is asked again after a minute.
    pub fn forget<S: EndedJobs>(
        &mut self,
        state: &State,
        moves: &Moves,
        store: &S,
        now: Now,
    ) -> Result<Option<Command>, S::Error> {
        if self.forget_at(state).is_none_or(|at| now.at < at) {
            return Ok(None);
        }
        let moving: Vec<JobId> = moves.ids().collect();
        let mut jobs = store.first_ended(FORGET_AT_ONCE + moving.len()).inspect_err(|_| {
            self.forget_from = now.at.plus_ms(FORGET_AGAIN_MS);
        })?;
        // Jobs between the state and the store have ended just now, or are gone already.
        jobs.retain(|(id, _)| moving.binary_search(id).is_err());
        let moved = moves.jobs().filter_map(|job| job.ended).min();
        let is_kept = |(_, ended): &&(JobId, Timestamp)| state.kept_until(*ended) >= now.at;
        let first_kept = jobs.iter().find(is_kept).or(jobs.last()).map(|(_, ended)| *ended);
        self.first_ended = first_kept.into_iter().chain(moved).min();
        Ok(Some(Command::Forget { jobs }))
    }

    /// When the retention of some job is over.
    fn forget_at(&self, state: &State) -> Option<Timestamp> {
        Some(state.kept_until(self.first_ended?).plus_ms(1).max(self.forget_from))
    }

    /// When time alone next matters: to the state, or because the retention of a job is over.
    #[must_use]
    pub fn wake_at(&self, state: &State) -> Option<Timestamp> {
        state.next_deadline().into_iter().chain(self.forget_at(state)).min()
    }

    /// Whether a snapshot should replace the log of this state.
    #[must_use]
    pub fn snapshot_is_due(&self, state: &State) -> bool {
        self.next_sequence - self.snapshot_sequence >= EVENTS_BETWEEN_SNAPSHOTS + state.job_count() as u64
    }

    /// Begins a snapshot of the state between two rounds. Returns the number of the last event in it.
    pub fn begin_snapshot(&mut self) -> u64 {
        self.snapshot_sequence = self.next_sequence;
        self.next_sequence - 1
    }
}

/// Locks jobs between the state and the store. The state is locked before this, never after it.
pub(super) fn lock(moves: &Mutex<Moves>) -> std::sync::MutexGuard<'_, Moves> {
    moves.lock().unwrap_or_else(PoisonError::into_inner)
}

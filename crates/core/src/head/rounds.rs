//! The head's loop without its IO: turns a round of commands into one commit.
//!
//! A round takes commands ([`Rounds::take`]), adds what follows from them ([`Rounds::follow_up`]) and ends as one [`Commit`]
//! ([`Rounds::finish`]). The shell stores the batch of the commit. Effects and replies wait in [`After`] until the store has answered; then
//! [`super::Durability`] releases or discards them. The loop does not wait: it begins the next round.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use hostler_model::{Digest, JobId, Timestamp};
use hostler_proto::stored::Batch;

use super::command::{Command, Refusal};
use super::decide::decide;
use super::event::{Changes, Effect, Record, Stamped};
use super::follow_up::follow_up;
use super::ids::Now;
use super::jobs::ended::{Ended, EndedJobs, PendingMoves};
use super::state::State;
use super::stored::batch;
use super::update::update;

/// A snapshot is due when the log has this many events more than the state has jobs. The limit bounds how much a
/// starting head reads.
const EVENTS_BETWEEN_SNAPSHOTS: u64 = 10_000;

/// A snapshot is also due when the events since the last one take more than this, plus [`BYTES_PER_JOB`]. The limit
/// bounds the disk space that repeated changes of large jobs take, because each change stores the whole job.
const BYTES_BETWEEN_SNAPSHOTS: u64 = 64 << 20;

/// Approximate size of a job in a snapshot. A large state is written only after the log has grown by about its size.
const BYTES_PER_JOB: u64 = 1 << 10;

/// How many jobs are forgotten at once, so that a large backlog does not block the loop.
const FORGET_AT_ONCE: usize = 1_000;

/// The delay before the next search for jobs to forget, after a failed search, in milliseconds.
const FORGET_AGAIN_MS: u64 = 60_000;

/// A command for the head's loop, with the data to store. `R` identifies the client that waits for the reply.
#[derive(Debug)]
pub struct Input<R> {
    /// The command to decide.
    pub command: Command,
    /// Small blobs, stored in the same transaction as the events.
    pub blobs: Vec<(Digest, Vec<u8>)>,
    /// The environment variables of a submission, stored in the same transaction as the events.
    pub environment: Option<(Digest, Bytes)>,
    /// The recipient of the reply, if any.
    pub reply: Option<R>,
}

impl<R> Input<R> {
    /// Creates the input for a command without data and without a reply.
    #[must_use]
    pub fn of(command: Command) -> Self {
        Self { command, blobs: Vec::new(), environment: None, reply: None }
    }
}

/// The reply to a command that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// For a submission: the job's id, and whether an earlier submission with the same key created the job.
    pub submitted: Option<(JobId, bool)>,
}

/// The end of a round: the batch to store, and the effects and replies that wait until the batch is stored.
#[derive(Debug)]
pub struct Commit<R> {
    /// The batch to store. Replies and effects wait for earlier batches, even if this batch is empty.
    pub batch: Batch,
    /// The argument for [`super::Durability::stored`] once the store has answered.
    pub after: After<R>,
}

/// Effects and replies of a round, which wait until the batch is durable.
#[derive(Debug)]
pub struct After<R> {
    pub(super) round: u64,
    pub(super) has_events: bool,
    /// Effects to carry out, before the replies are sent.
    pub effects: Vec<Effect>,
    /// Replies to send.
    pub replies: Vec<(R, Result<Done, Refusal>)>,
}

/// The head's loop as a state machine: turns commands into batches for the store. Only one thread uses the value.
#[derive(Debug)]
pub struct Rounds<R> {
    number: u64,
    next_sequence: u64,
    snapshot_sequence: u64,
    /// The size of the events since the last snapshot; older events of a loaded log are not counted.
    log_bytes: u64,
    /// A time before which no stored job ended; `None` if no jobs are stored. The second is for jobs whose files wait for
    /// their user, the first for all others.
    first_ended: [Option<Timestamp>; 2],
    /// The earliest time of the next search for jobs to forget, after a failed search.
    forget_from: Timestamp,
    /// When the round took a tick that changed nothing, if no other command followed.
    idle_tick: Option<Timestamp>,
    events: Vec<Stamped>,
    changes: Changes,
    blobs: Vec<(Digest, Vec<u8>)>,
    environments: BTreeMap<Digest, Bytes>,
    replies: Vec<(R, Result<Done, Refusal>)>,
}

impl<R> Rounds<R> {
    /// Creates rounds for a log whose events have the numbers from `first_sequence` to below `next_sequence`.
    #[must_use]
    pub fn new(first_sequence: u64, next_sequence: u64) -> Self {
        Self {
            number: 1,
            next_sequence,
            snapshot_sequence: first_sequence,
            log_bytes: 0,
            // Unknown until the first search of the store.
            first_ended: [Some(Timestamp(0)); 2],
            forget_from: Timestamp(0),
            idle_tick: None,
            events: Vec::new(),
            changes: Changes::default(),
            blobs: Vec::new(),
            environments: BTreeMap::new(),
            replies: Vec::new(),
        }
    }

    /// Replaces the state with one that was loaded again, and whose log ends before `next_sequence`. The daemon must have
    /// closed all connections.
    pub fn restart(&mut self, state: &mut State, loaded: State, next_sequence: u64) {
        let before = std::mem::replace(state, loaded);
        state.keep_newest_connections(&before);
        self.next_sequence = next_sequence;
        self.snapshot_sequence = self.snapshot_sequence.min(next_sequence);
        self.first_ended = [Some(Timestamp(0)); 2];
    }

    /// Decides a command and applies its events. `ended` has the ended jobs that the command refers to. Returns a
    /// refusal only if no client waits for a reply.
    pub fn take(
        &mut self,
        state: &mut State,
        moves: &Mutex<PendingMoves>,
        ended: &Ended,
        input: Input<R>,
        now: Now,
    ) -> Option<Refusal> {
        let Input { command, blobs, environment, reply } = input;
        let known = match &command {
            Command::Submit { key, .. } => state.job_of_key(*key).or(ended.of_key()),
            _ => None,
        };
        self.idle_tick = None;
        let outcome = decide(state, &command, ended, now).map(|events| {
            self.idle_tick = (matches!(command, Command::Tick) && events.is_empty()).then_some(now.at);
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

    /// Applies the placements and power actions that the state requires now.
    pub fn follow_up(&mut self, state: &mut State, moves: &Mutex<PendingMoves>, now: Now) {
        loop {
            let events = follow_up(state, now);
            if events.is_empty() {
                let tick = self.idle_tick.take();
                let is_over = |tick: Timestamp| state.next_deadline(now).is_some_and(|at| at <= tick);
                debug_assert!(!tick.is_some_and(is_over), "the head would tick again at once, and for ever");
                return;
            }
            self.idle_tick = None;
            for event in events {
                self.apply(state, moves, Stamped { now, event });
            }
        }
    }

    /// Applies an event, and adds it to the batch if it is durable.
    fn apply(&mut self, state: &mut State, moves: &Mutex<PendingMoves>, stamped: Stamped) {
        let noted = self.changes.records.len();
        update(state, &stamped, &mut self.changes);
        let new = &self.changes.records[noted..];
        if !new.is_empty() {
            // Held only briefly, because acknowledgements wait for this lock.
            let mut moves = lock(moves);
            new.iter().for_each(|record| moves.note(record, self.number));
        }
        if stamped.event.is_durable() {
            self.events.push(stamped);
        }
    }

    /// Ends the round. Returns `None` if there is nothing to store or to send, e.g. after heartbeats, so that the store
    /// is not woken.
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
        let just_ended = just_ended.min();
        self.first_ended = self.first_ended.map(|first| just_ended.into_iter().chain(first).min());
        let batch = batch(self.next_sequence, &events, records, blobs, &environments);
        self.next_sequence += batch.events.len() as u64;
        self.log_bytes += batch.events.iter().map(|event| event.len() as u64).sum::<u64>();
        let after = After { round: self.number, has_events: !batch.events.is_empty(), effects, replies };
        self.number += 1;
        Some(Commit { batch, after })
    }

    /// Returns the command that forgets jobs after their retention, if it is due.
    ///
    /// # Errors
    /// If the store cannot be read. The next attempt is after a minute.
    pub fn forget<S: EndedJobs>(
        &mut self,
        state: &State,
        moves: &PendingMoves,
        store: &S,
        now: Now,
    ) -> Result<Option<Command>, S::Error> {
        let Some(awaiting) =
            [false, true].into_iter().find(|it| self.forget_at(state, *it).is_some_and(|at| at <= now.at))
        else {
            return Ok(None);
        };
        let moving: Vec<JobId> = moves.ids().collect();
        let mut jobs = store.first_ended(awaiting, FORGET_AT_ONCE + moving.len()).inspect_err(|_| {
            self.forget_from = now.at.plus_ms(FORGET_AGAIN_MS);
        })?;
        // Jobs between the state and the store have just ended, or were removed from the store.
        jobs.retain(|(id, _)| moving.binary_search(id).is_err());
        let moved = moves.jobs().filter_map(|job| job.ended).min();
        let is_kept =
            |(_, ended): &&(JobId, Timestamp)| kept_until(state, awaiting, *ended).is_none_or(|until| until >= now.at);
        let first_kept = jobs.iter().find(is_kept).or(jobs.last()).map(|(_, ended)| *ended);
        self.first_ended[usize::from(awaiting)] = first_kept.into_iter().chain(moved).min();
        Ok(Some(if awaiting {
            let jobs = jobs.into_iter().map(|(id, _)| id).collect();
            Command::ForgetUnfetched { jobs, for_space: false }
        } else {
            Command::Forget { jobs }
        }))
    }

    /// Returns when the retention of the next job is over: of those whose files wait for their user, or of the others.
    fn forget_at(&self, state: &State, awaiting: bool) -> Option<Timestamp> {
        let until = kept_until(state, awaiting, self.first_ended[usize::from(awaiting)]?)?;
        Some(until.plus_ms(1).max(self.forget_from))
    }

    /// Returns the time of the next deadline, of the state or of a job's retention.
    #[must_use]
    pub fn wake_at(&self, state: &State, now: Now) -> Option<Timestamp> {
        state
            .next_deadline(now)
            .into_iter()
            .chain([false, true].into_iter().filter_map(|it| self.forget_at(state, it)))
            .min()
    }

    /// Returns whether the log is so long that a snapshot should replace it.
    #[must_use]
    pub fn snapshot_is_due(&self, state: &State) -> bool {
        let jobs = state.job_count() as u64;
        self.next_sequence - self.snapshot_sequence >= EVENTS_BETWEEN_SNAPSHOTS + jobs
            || self.log_bytes >= BYTES_BETWEEN_SNAPSHOTS + jobs * BYTES_PER_JOB
    }

    /// Begins a snapshot between two rounds. Returns the number of the last event in the snapshot.
    pub fn begin_snapshot(&mut self) -> u64 {
        self.snapshot_sequence = self.next_sequence;
        self.log_bytes = 0;
        self.next_sequence - 1
    }
}

/// Returns the end of the retention of a job that ended at this time; `None` if time alone does not end it.
fn kept_until(state: &State, awaiting: bool, ended: Timestamp) -> Option<Timestamp> {
    if awaiting { state.unfetched_until(ended) } else { Some(state.kept_until(ended)) }
}

/// Locks the jobs between the state and the store. Lock order: the state first.
pub(super) fn lock(moves: &Mutex<PendingMoves>) -> std::sync::MutexGuard<'_, PendingMoves> {
    moves.lock().unwrap_or_else(PoisonError::into_inner)
}

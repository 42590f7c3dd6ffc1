//! What may be said once the store has answered, and when the state must be loaded again.
//!
//! Nothing is sent or acknowledged before the store has it. When a batch cannot be stored, the state in memory is ahead of the disk and
//! therefore wrong. The shell then throws it away and [loads](super::restore) what is stored, exactly as after a restart, and agents
//! reconnect to say what has become of their runs.

use std::sync::Mutex;

use hostler_model::Timestamp;

use super::command::Refusal;
use super::ended::Moves;
use super::event::Effect;
use super::rounds::{After, Done, lock};

/// How often a store that failed is tried again, in milliseconds.
const RECOVERY_PAUSE_MS: u64 = 1_000;

/// What the loop and the thread that writes share. The shell locks it; jobs between the state and the store may be locked after it.
#[derive(Debug, Default)]
pub struct Durability {
    /// Why nothing can be stored at the moment.
    trouble: Option<String>,
    /// A batch could not be stored, and the state has not been loaded again yet.
    has_failed: bool,
    /// How often loading the state again was begun: a snapshot of a state that was thrown away must not be saved.
    loads: u64,
    last_recovery: Option<Timestamp>,
}

/// What became of a command, once that is certain.
pub type Answer = Result<Done, NotDone>;

/// Why a command was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotDone {
    /// It makes no sense, or is not allowed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be made durable, so it has not happened.
    #[error("the head cannot store anything at the moment: {0}")]
    NotStored(String),
}

/// What a round may say now.
#[derive(Debug)]
pub struct Delivery<R> {
    /// To be carried out before the replies are sent.
    pub effects: Vec<Effect>,
    /// To be answered.
    pub replies: Vec<(R, Answer)>,
}

impl Durability {
    /// The store has answered about the batch of a round, in the order of the rounds.
    pub fn stored<R>(&mut self, after: After<R>, outcome: Result<(), String>, moves: &Mutex<Moves>) -> Delivery<R> {
        let After { round, has_events, effects, replies } = after;
        if let Err(why) = outcome {
            self.trouble = Some(why);
            self.has_failed = true;
        }
        // A batch without events is stored even behind one that was not, but what it says may rest on that one.
        if self.has_failed {
            let refuse = |(reply, _)| (reply, Err(self.refusal()));
            return Delivery { effects: Vec::new(), replies: replies.into_iter().map(refuse).collect() };
        }
        if has_events {
            self.trouble = None;
        }
        lock(moves).settle(round);
        let answer = |(reply, outcome): (R, Result<Done, Refusal>)| (reply, outcome.map_err(NotDone::Refused));
        Delivery { effects, replies: replies.into_iter().map(answer).collect() }
    }

    /// Whether the state must be loaded again before the next round.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Why nothing can be stored at the moment, if so.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The answer to every command while nothing can be stored.
    #[must_use]
    pub fn refusal(&self) -> NotDone {
        NotDone::NotStored(self.trouble.clone().unwrap_or_default())
    }

    /// When the store is tried again.
    #[must_use]
    pub fn recovers_at(&self) -> Option<Timestamp> {
        self.has_failed.then(|| self.last_recovery.map_or(Timestamp(0), |tried| tried.plus_ms(RECOVERY_PAUSE_MS)))
    }

    /// Begins to load the state again, unless that was tried just before; says whether it did.
    pub fn begin_recovery(&mut self, now: Timestamp) -> bool {
        if self.recovers_at().is_none_or(|at| now < at) {
            return false;
        }
        self.last_recovery = Some(now);
        self.loads += 1;
        true
    }

    /// The state was loaded again, and the store has taken the first event of its epoch.
    pub fn recovered(&mut self) {
        self.trouble = None;
        self.has_failed = false;
    }

    /// Loading the state again has failed. It is tried again after a pause.
    pub fn not_recovered(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Which state a snapshot is taken of; see [`Durability::may_save`].
    #[must_use]
    pub fn loads(&self) -> u64 {
        self.loads
    }

    /// Whether a snapshot may be handed to the store that was taken of the state after so many `loads`. The shell keeps this locked until
    /// it has handed the snapshot over, so that the snapshot is in front of any reload and the store refuses it if its events failed.
    #[must_use]
    pub fn may_save(&self, loads: u64) -> bool {
        self.loads == loads
    }
}

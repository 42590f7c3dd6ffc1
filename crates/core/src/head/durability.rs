//! Releases effects and replies when their batch is durable, and starts recovery when the store has failed.
//!
//! The head sends and acknowledges nothing before it is stored. If a batch cannot be stored, the state in memory is ahead of the disk, and
//! therefore wrong. The shell then discards the state and [restores](super::restore) the stored one, as after a restart. Agents reconnect
//! and report their runs.

use std::sync::Mutex;

use hostler_model::Timestamp;

use super::command::Refusal;
use super::event::Effect;
use super::jobs::ended::PendingMoves;
use super::rounds::{After, Done, lock};

/// The delay between attempts to recover after a failure of the store, in milliseconds.
const RECOVERY_PAUSE_MS: u64 = 1_000;

/// Whether the store accepts batches. The head's loop and the store's writer thread share this state. Lock order:
/// `Durability` before [`PendingMoves`].
#[derive(Debug, Default)]
pub struct Durability {
    /// The store's last error; `None` while batches are stored.
    trouble: Option<String>,
    /// Whether a batch failed and the state was not yet loaded again.
    has_failed: bool,
    /// The number of recoveries begun. Identifies the state of a snapshot, so that no snapshot of a discarded state is
    /// stored.
    loads: u64,
    last_recovery: Option<Timestamp>,
}

/// The final outcome of a command.
pub type Answer = Result<Done, NotDone>;

/// Why a command was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotDone {
    /// The command is invalid or not allowed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The command could not be made durable, so it has no effect.
    #[error("the head cannot store anything at the moment: {0}")]
    NotStored(String),
}

/// What the daemon must carry out after a round is durable.
#[derive(Debug)]
pub struct Delivery<R> {
    /// Effects, which must be carried out before the replies are sent.
    pub effects: Vec<Effect>,
    /// Replies to the senders of commands.
    pub replies: Vec<(R, Answer)>,
}

impl Durability {
    /// Handles the store's outcome for the batch of a round. Must be called in the order of the rounds.
    pub fn stored<R>(
        &mut self,
        after: After<R>,
        outcome: Result<(), String>,
        moves: &Mutex<PendingMoves>,
    ) -> Delivery<R> {
        let After { round, has_events, effects, replies } = after;
        if let Err(why) = outcome {
            self.trouble = Some(why);
            self.has_failed = true;
        }
        // A batch without events may be stored after a batch that failed, but its effects and replies may depend on that batch.
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

    /// Returns whether the state must be loaded again before the next round.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns why the store accepts no batches; `None` if it accepts them.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Returns the reply to every command while the store accepts no batches.
    #[must_use]
    pub fn refusal(&self) -> NotDone {
        NotDone::NotStored(self.trouble.clone().unwrap_or_default())
    }

    /// Returns the time of the next recovery attempt; `None` unless a batch has failed.
    #[must_use]
    pub fn recovers_at(&self) -> Option<Timestamp> {
        self.has_failed.then(|| self.last_recovery.map_or(Timestamp(0), |tried| tried.plus_ms(RECOVERY_PAUSE_MS)))
    }

    /// Begins a recovery and returns true, unless the last recovery began less than a second ago.
    pub fn begin_recovery(&mut self, now: Timestamp) -> bool {
        if self.recovers_at().is_none_or(|at| now < at) {
            return false;
        }
        self.last_recovery = Some(now);
        self.loads += 1;
        true
    }

    /// Ends a recovery: the state was loaded again, and the store has accepted the first event of the new epoch.
    pub fn recovered(&mut self) {
        self.trouble = None;
        self.has_failed = false;
    }

    /// Records that a recovery has failed. The head retries after a second.
    pub fn not_recovered(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Returns the number of recoveries begun, which identifies the current state; see [`Durability::may_save`].
    #[must_use]
    pub fn loads(&self) -> u64 {
        self.loads
    }

    /// Returns whether a snapshot of the state may be stored. `loads` is the value of [`Durability::loads`] when the
    /// snapshot was taken. The caller must hold the lock of this value until it has queued the snapshot, so that the
    /// snapshot is stored before any reload. The store rejects the snapshot if the batch of its last events was not
    /// stored.
    #[must_use]
    pub fn may_save(&self, loads: u64) -> bool {
        self.loads == loads
    }
}

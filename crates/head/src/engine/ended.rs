//! What the loop has to do with jobs that have ended: it looks them up for commands, and has them dropped when their time is over.

use hostler_core::head::{Command, Ended, State};
use hostler_model::{JobId, Timestamp};

use super::{Loop, Round};
use crate::archive::ArchiveError;

/// How many jobs are dropped at once when their retention is over, so that a large backlog does not stall the loop.
const FORGET_AT_ONCE: usize = 1_000;

/// When those whose retention is over are looked for again after that failed, in milliseconds.
const FORGET_AGAIN_MS: u64 = 60_000;

impl Loop {
    /// The ended jobs that a command is about.
    pub(super) fn look_up(&self, command: &Command) -> Result<Ended, ArchiveError> {
        let state = self.shared.state();
        let moves = self.shared.archive.moves();
        Ended::look_up(&state, &moves, &self.shared.archive, command)
    }

    /// When the retention of some job is over.
    pub(super) fn forget_at(&self, state: &State) -> Option<Timestamp> {
        Some(state.kept_until(self.first_ended?).plus_ms(1).max(self.forget_from))
    }

    /// Has jobs dropped whose retention is over, if it is time for that.
    pub(super) fn forget_old_jobs(&mut self, round: &mut Round) {
        let now = self.shared.clock.now();
        if self.forget_at(&self.shared.state()).is_none_or(|at| now.at < at) {
            return;
        }
        let ended = {
            let moves = self.shared.archive.moves();
            let moving: Vec<JobId> = moves.ids().collect();
            // Those that move have ended just now, or are gone already.
            self.shared.archive.history().first_ended(FORGET_AT_ONCE + moving.len()).map(|mut ended| {
                ended.retain(|(id, _)| moving.binary_search(id).is_err());
                let moved = moves.jobs().filter_map(|job| job.ended).min();
                (ended, moved)
            })
        };
        match ended {
            Ok((jobs, moved)) => {
                let is_kept = |(_, ended): &&(JobId, Timestamp)| self.shared.state().kept_until(*ended) >= now.at;
                let first_kept = jobs.iter().find(is_kept).or(jobs.last()).map(|(_, ended)| *ended);
                self.first_ended = first_kept.into_iter().chain(moved).min();
                self.take(round, &Command::Forget { jobs }, Vec::new(), None, None);
            }
            Err(error) => {
                tracing::error!(%error, "cannot look for jobs whose retention is over");
                self.forget_from = now.at.plus_ms(FORGET_AGAIN_MS);
            }
        }
    }
}

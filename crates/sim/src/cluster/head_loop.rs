//! The head's loop: wakes up for commands and deadlines, and drives the rounds. Each round takes some time.

use hostler_core::head::{Command, Commit, Ended, NotDone, Now, PendingMoves};
use hostler_proto::stored::{Batch, Change};
use hostler_store::Request;

use super::rules::Rule;
use super::world::World;
use super::world::head::{AfterWrite, Head, HeadStep, Input};
use super::world::time::MS;

/// The maximum delay of a timed wake-up of the loop.
const LATE: u64 = 50 * MS;

impl World {
    pub(super) fn let_loop_run(&mut self) {
        let delay = self.rng.below(300);
        let process = self.process();
        if !process.queue.is_empty() && !process.round_is_due && !process.is_reloading {
            process.round_is_due = true;
            self.head_later(delay, HeadStep::Round);
        }
    }

    /// The time of the next timed wake-up.
    pub(super) fn wake_at(&self) -> Option<u64> {
        let process = self.head.process.as_ref()?;
        let recovers_at = process.durability.recovers_at();
        let at = recovers_at.or_else(|| process.rounds.wake_at(&process.state, self.head_now()))?;
        Some(process.started_us + at.ms_since(process.origin).saturating_mul(MS))
    }

    /// Schedules the timed wake-up. A scheduled wake-up may move to an earlier time, but never to a later one.
    pub(super) fn schedule_wake_up(&mut self) {
        let late = self.rng.skewed(LATE);
        let now_us = self.now_us;
        let Some(at_us) = self.wake_at().map(|at_us| at_us.max(now_us)) else { return };
        let process = self.process();
        if process.wakes_us.is_none_or(|planned| at_us < planned) {
            process.wakes_us = Some(at_us);
            self.head_later(at_us - now_us + late, HeadStep::Wake { at_us });
        }
    }

    /// Queues a tick if the time has come, unless the wake-up was rescheduled.
    pub(super) fn wake(&mut self, at_us: u64) {
        let has_come = self.wake_at().is_some_and(|at| at <= self.now_us);
        let process = self.process();
        if process.wakes_us != Some(at_us) {
            return;
        }
        process.wakes_us = None;
        if has_come {
            return self.input(Input::of(Command::Tick));
        }
        self.schedule_wake_up();
    }

    pub(super) fn round(&mut self) {
        let most = self.rng.range(1, 32) as usize;
        let now = self.head_now();
        let process = self.process();
        process.round_is_due = false;
        if process.durability.has_failed() {
            if process.durability.begin_recovery(now.at) {
                return self.begin_reload();
            }
            self.refuse_all();
            return self.schedule_wake_up();
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
        self.schedule_wake_up();
    }

    /// Decides and applies one command.
    pub(super) fn take(&mut self, input: Input, now: Now) {
        let looks_at_moves = !self.breaks(Rule::LookWhereJobsMove);
        let Head { disk, process: Some(process), .. } = &mut self.head else { return };
        let ended = {
            let no_moves = PendingMoves::default();
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
    pub(super) fn finish(&mut self, now: Now) {
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
        self.order(Request::Commit { batch, done: AfterWrite::Round(after) });
        if takes_snapshot {
            self.take_snapshot();
        }
    }
}

/// Breaks a batch on purpose: no ended job keeps its environment.
fn forget_environments(batch: &mut Batch) {
    for change in &mut batch.changes {
        if let Change::JobEnded(job) = change {
            job.keeps_environment = false;
        }
    }
}

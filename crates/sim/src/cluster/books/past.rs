//! What jobs and tasks have done at some time, and which dependencies that satisfies.

use hostler_model::{Condition, Dependency, Timestamp};

use super::Books;
use super::account::{JobAccount, Past, Standing};

impl Books {
    /// Whether a dependency of a task was satisfied at some time. For a job that a user has requeued, and for a task that its node
    /// has lost, any end of the other job satisfies the dependency: it is settled, perhaps by a change while the task ran.
    pub(super) fn is_met(&self, job: &JobAccount, index: u32, dependency: &Dependency, now: Timestamp) -> bool {
        let other = &self.jobs[&dependency.job];
        let is_corr = dependency.condition == Condition::AfterCorr;
        let are_arrays = job.spec.array.is_some() && other.spec.array.is_some();
        let was_placed = job.tasks.get(&index).is_some_and(|task| task.past.first_seen.is_some());
        let runs_again = job.was_requeued || was_placed;
        let counterpart = Some(index).filter(|_| is_corr && are_arrays);
        let task = dependency.task.or(counterpart).and_then(|index| other.tasks.get(&index));
        let on = task.map_or(&other.past, |task| &task.past);
        // How long an ended job ran is known only from the wall clock, which may have jumped.
        let had_ended = on.first_ended.is_some_and(|ended| ended <= job.submitted_at);
        let is_delayed_since = |seen: Timestamp, now| now >= seen.plus_ms(dependency.delay_ms());
        // A node reports how long a job ran while the head was away and its clock stood still.
        let is_over = || {
            had_ended
                || on.first_seen.is_some_and(|seen| is_delayed_since(seen, now))
                || on.first_seen_in_world.is_some_and(|seen| is_delayed_since(seen, self.in_world))
        };
        match dependency.condition {
            Condition::After => (on.has_started || on.has_ended) && (job.was_requeued || is_over()),
            Condition::AfterAny => on.has_ended,
            Condition::AfterOk | Condition::AfterCorr => on.has_completed || runs_again && on.has_ended,
            Condition::AfterNotOk => on.has_ended_otherwise || runs_again && on.has_ended,
        }
    }

    /// Records which jobs have started, ended or completed by now.
    pub(super) fn note_progress(&mut self, now: Timestamp) {
        let in_world = self.in_world;
        for account in self.jobs.values_mut().filter(|account| !account.is_forgotten) {
            let mut all = Past { has_started: true, has_ended: true, has_completed: true, ..Past::default() };
            let mut is_seen = false;
            for task in account.tasks.values_mut() {
                let is_now = Past::of(&task.at);
                task.past.add(&is_now, task.at != Standing::Waiting, now, in_world);
                all.has_started &= is_now.has_started;
                all.has_ended &= is_now.has_ended;
                all.has_completed &= is_now.has_completed;
                is_seen |= task.at != Standing::Waiting;
            }
            all.has_ended_otherwise = all.has_ended && !all.has_completed;
            account.past.add(&all, is_seen, now, in_world);
            account.ended_at = if all.has_ended { account.ended_at.or(Some(now)) } else { None };
        }
    }
}

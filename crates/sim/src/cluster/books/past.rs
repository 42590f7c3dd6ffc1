//! What jobs and tasks have done at some time, and which dependencies that satisfies.

use hostler_model::{Condition, Dependency, JobState, Timestamp};

use super::{Books, JobAccount, Standing};

/// What a job or a task has done at some time; a requeue does not reset it.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    /// When it was first placed or ended. For an array: one of its tasks.
    first_seen: Option<Timestamp>,
    first_ended: Option<Timestamp>,
    has_started: bool,
    has_ended: bool,
    has_completed: bool,
    has_ended_otherwise: bool,
}

impl Past {
    /// What a task in this standing does.
    fn of(at: &Standing) -> Self {
        let (has_started, has_ended) = match at {
            Standing::Placed { parts, .. } => (parts.iter().all(|part| part.has_run || part.is_over), false),
            Standing::Ended { .. } => (true, true),
            Standing::Waiting => (false, false),
        };
        let has_completed = matches!(at, Standing::Ended { state: JobState::Completed, .. });
        let has_ended_otherwise = has_ended && !has_completed;
        Self { has_started, has_ended, has_completed, has_ended_otherwise, ..Self::default() }
    }

    fn add(&mut self, is_now: &Self, is_seen: bool, now: Timestamp) {
        self.first_seen = self.first_seen.or(is_seen.then_some(now));
        self.first_ended = self.first_ended.or(is_now.has_ended.then_some(now));
        self.has_started |= is_now.has_started;
        self.has_ended |= is_now.has_ended;
        self.has_completed |= is_now.has_completed;
        self.has_ended_otherwise |= is_now.has_ended_otherwise;
    }
}

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
        let is_over = || had_ended || on.first_seen.is_some_and(|seen| now >= seen.plus_ms(dependency.delay_ms()));
        match dependency.condition {
            Condition::After => (on.has_started || on.has_ended) && (job.was_requeued || is_over()),
            Condition::AfterAny => on.has_ended,
            Condition::AfterOk | Condition::AfterCorr => on.has_completed || runs_again && on.has_ended,
            Condition::AfterNotOk => on.has_ended_otherwise || runs_again && on.has_ended,
        }
    }

    /// Records which jobs have started, ended or completed by now.
    pub(super) fn note_progress(&mut self, now: Timestamp) {
        for account in self.jobs.values_mut().filter(|account| !account.is_forgotten) {
            let mut all = Past { has_started: true, has_ended: true, has_completed: true, ..Past::default() };
            let mut is_seen = false;
            for task in account.tasks.values_mut() {
                let is_now = Past::of(&task.at);
                task.past.add(&is_now, task.at != Standing::Waiting, now);
                all.has_started &= is_now.has_started;
                all.has_ended &= is_now.has_ended;
                all.has_completed &= is_now.has_completed;
                is_seen |= task.at != Standing::Waiting;
            }
            all.has_ended_otherwise = all.has_ended && !all.has_completed;
            account.past.add(&all, is_seen, now);
            account.ended_at = if all.has_ended { account.ended_at.or(Some(now)) } else { None };
        }
    }
}

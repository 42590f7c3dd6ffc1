//! Which jobs `sacct` lists: by what they are, and by what happened to them in a period.

use std::collections::{BTreeMap, BTreeSet};

use hostler_client::{Client, ClientError, RecordFilter};
use hostler_model::{JobState, TaskId, WallTime};
use hostler_proto::api::JobRecord;
use hostler_proto::link::StepRecord;
use hostler_slurm::state::State;

use super::super::rows::{Accounts, Row};
use super::super::squeue::ids::{Named, named_rows, names_step};
use super::super::steps::BATCH;
use super::entry::Entry;

/// The steps of tasks that run.
pub(super) type LiveSteps = BTreeMap<TaskId, Vec<StepRecord>>;

/// Number of ended tasks per request.
const TASKS_AT_ONCE: u32 = 10_000;

/// Which entries to list.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Start of the period.
    pub(super) from: WallTime,
    /// End of the period; `None` means now.
    pub(super) to: Option<WallTime>,
    /// States that the jobs had in the period; `None` means any.
    pub(super) states: Option<Vec<State>>,
    /// The named jobs and steps; `None` means all.
    pub(super) named: Option<Vec<Named>>,
    /// Users; `None` means all.
    pub(super) users: Option<Vec<String>>,
    pub(super) groups: Option<Vec<u32>>,
    pub(super) accounts: Option<Vec<String>>,
    pub(super) names: Option<Vec<String>>,
    pub(super) partitions: Option<Vec<String>>,
    pub(super) qos: Option<Vec<String>>,
    pub(super) wckeys: Option<Vec<String>>,
    pub(super) reasons: Option<Vec<String>>,
    pub(super) features: Option<Vec<String>>,
    pub(super) nodes: Option<BTreeSet<String>>,
    pub(super) node_count: Option<Range>,
    pub(super) cpu_count: Option<Range>,
    /// Time limits in seconds.
    pub(super) limit: Option<Range>,
    /// Whether steps are left out.
    pub(super) only_jobs: bool,
    /// Whether each task of an array that waits has a row of its own.
    pub(super) splits_arrays: bool,
}

/// A number, or the numbers up to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: Option<u64>,
}

impl Range {
    /// Parses `4` or `4-8`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (min, max) = text.split_once('-').map_or((text, None), |(min, max)| (min, Some(max)));
        let max = max.map(str::parse).transpose().ok()?;
        Some(Self { min: min.parse().ok()?, max })
    }

    fn contains(self, number: u64) -> bool {
        self.max.map_or(number == self.min, |max| (self.min..=max).contains(&number))
    }
}

impl Selection {
    /// Asks the head for the jobs that the selection may take, with all of their tasks.
    pub(super) async fn fetch(&self, client: &Client) -> Result<Vec<JobRecord>, ClientError> {
        let only = |names: &Option<Vec<String>>| match names.as_deref() {
            Some([name]) => Some(name.clone()),
            _ => None,
        };
        let asked = RecordFilter { user: only(&self.users), name: only(&self.names), ..RecordFilter::default() };
        let mut records = match &self.named {
            Some(named) => {
                let jobs: BTreeSet<_> = named.iter().map(|it| it.job).collect();
                let filter = RecordFilter { jobs: jobs.into_iter().collect(), ..asked };
                if filter.jobs.is_empty() { Vec::new() } else { client.records(&filter).await? }
            }
            None => {
                let live = client.records(&RecordFilter { states: JobState::LIVE.to_vec(), ..asked.clone() }).await?;
                let ended = client.records(&RecordFilter { ended_since: Some(self.from), ..asked }).await?;
                // A job that ended between the requests is in both answers; the later one knows more.
                let known: BTreeSet<_> = ended.iter().map(|job| job.id).collect();
                live.into_iter().filter(|job| !known.contains(&job.id)).chain(ended).collect()
            }
        };
        for job in &mut records {
            complete(client, job).await?;
        }
        records.sort_unstable_by_key(|job| job.id);
        Ok(records)
    }

    /// The rows of these jobs that the selection takes.
    pub(super) fn rows<'a>(&self, jobs: &'a [JobRecord], now: WallTime, accounts: &mut Accounts) -> Vec<Row<'a>> {
        let rows = jobs.iter().flat_map(|job| named_rows(job, self.named.as_deref(), self.splits_arrays));
        rows.filter(|row| self.takes(row, accounts) && self.was_in_period(row, now)).collect()
    }

    /// Whether the list shows steps of a row that `srun` started, if there are any.
    pub(super) fn shows_launched(&self, row: &Row<'_>) -> bool {
        let is_of_row = |it: &Named| it.is_of(row.job) && it.step.as_deref() != Some(BATCH);
        !self.only_jobs && self.named.as_ref().is_none_or(|named| named.iter().any(is_of_row))
    }

    /// The entries of rows. `live` has the steps of tasks that run.
    pub(super) fn entries<'a>(&self, rows: &[Row<'a>], live: &'a LiveSteps) -> Vec<Entry<'a>> {
        let mut entries = Vec::with_capacity(2 * rows.len());
        rows.iter().for_each(|row| self.push_entries(*row, live, &mut entries));
        entries
    }

    /// Adds the job, its script and its steps, as far as the ids name them.
    fn push_entries<'a>(&self, row: Row<'a>, live: &'a LiveSteps, entries: &mut Vec<Entry<'a>>) {
        let is_named = |step: Option<&str>| names_step(self.named.as_deref(), &row, step);
        if is_named(None) {
            entries.push(Entry { row, is_step: false, step: None });
        }
        if self.only_jobs {
            return;
        }
        let has_batch = row.task.is_some_and(|task| task.started_at.is_some()) && !row.job.allocation;
        if has_batch && is_named(Some(BATCH)) {
            entries.push(Entry { row, is_step: true, step: None });
        }
        let task = row.index().map(|index| TaskId { job: row.job.id, index });
        let live = task.and_then(|task| live.get(&task)).into_iter().flatten();
        let reported = row.task.into_iter().flat_map(|task| &task.steps);
        let mut steps: Vec<&'a StepRecord> = reported.chain(live).filter(|step| !step.is_script()).collect();
        steps.sort_by_key(|step| step.step);
        let named = steps.into_iter().filter(|step| is_named(Some(&step.step.to_string())));
        entries.extend(named.map(|step| Entry { row, is_step: true, step: Some(step) }));
    }

    fn takes(&self, row: &Row<'_>, accounts: &mut Accounts) -> bool {
        let has = |wanted: &Option<Vec<String>>, value: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| one.eq_ignore_ascii_case(value)))
        };
        let exactly = |wanted: &Option<Vec<String>>, value: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| one == value))
        };
        let within = |wanted: &Option<Range>, number: u64| wanted.is_none_or(|range| range.contains(number));
        let features = row.label("slurm.features").unwrap_or_default();
        exactly(&self.users, &row.job.user)
            && exactly(&self.names, &row.job.name)
            && exactly(&self.partitions, row.partition())
            && has(&self.accounts, row.account())
            && has(&self.qos, row.qos())
            && has(&self.wckeys, row.label("wckey").unwrap_or_default())
            && has(&self.reasons, row.reason())
            && self.features.as_ref().is_none_or(|wanted| wanted.iter().all(|one| features.contains(one.as_str())))
            && self.groups.as_ref().is_none_or(|groups| groups.contains(&accounts.gid(&row.job.user)))
            && self.nodes.as_ref().is_none_or(|nodes| row.nodes().iter().any(|node| nodes.contains(*node)))
            && within(&self.node_count, row.job.nodes.into())
            && within(&self.cpu_count, row.cpus())
            && within(&self.limit, row.limit().unwrap_or(u64::MAX))
    }

    fn was_in_period(&self, row: &Row<'_>, now: WallTime) -> bool {
        let ran_from = row.task.filter(|task| task.started_at.is_some() || !task.state.is_ended());
        let times = Times {
            eligible: row.eligible_at().filter(|at| *at <= now),
            started: ran_from.and_then(|_| row.started_at()),
            ended: row.ended_at(),
            state: row.state(),
        };
        let Some(states) = &self.states else {
            let is_eligible = times.eligible.map_or(self.named.is_some(), |at| self.is_until(at));
            return is_eligible && times.ended.is_none_or(|at| at >= self.from);
        };
        states.iter().any(|state| times.had(*state, self.from, |at| self.is_until(at)))
    }

    /// Whether a time is before the end of the period.
    fn is_until(&self, at: WallTime) -> bool {
        self.to.is_none_or(|to| at <= to)
    }
}

/// When something happened to a job.
#[derive(Debug, Clone, Copy)]
struct Times {
    eligible: Option<WallTime>,
    started: Option<WallTime>,
    ended: Option<WallTime>,
    state: State,
}

impl Times {
    /// Whether the job had a state in the period from `from` to the time at which `is_until` is false. A job that has ended
    /// was pending and running before; Slurm asks for the other states at the job's end.
    fn had(self, state: State, from: WallTime, is_until: impl Fn(WallTime) -> bool) -> bool {
        match state {
            State::Pending => {
                let is_late_enough = match (self.started, self.ended) {
                    (Some(left), _) | (None, Some(left)) => from < left,
                    (None, None) => true,
                };
                self.eligible.is_some_and(&is_until) && is_late_enough
            }
            State::Running => self.started.is_some_and(&is_until) && self.ended.is_none_or(|at| from < at),
            state if state.is_ended() => state == self.state && self.ended.is_some_and(|at| from <= at && is_until(at)),
            state => state == self.state,
        }
    }
}

/// Adds the tasks that a record leaves out because it is too long.
async fn complete(client: &Client, job: &mut JobRecord) -> Result<(), ClientError> {
    while let Some(from) = job.tasks_next {
        let more = client.job_from(job.id, TASKS_AT_ONCE, from).await?;
        job.tasks.extend(more.tasks_shown);
        job.tasks_next = more.tasks_next.filter(|next| *next > from);
    }
    job.tasks.sort_by_key(|task| task.index);
    job.tasks.dedup_by_key(|task| task.index);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_slurms_forms() {
        let contains = |text: &str, number| Range::parse(text).map(|range| range.contains(number));
        assert_eq!((contains("4", 4), contains("4", 5)), (Some(true), Some(false)));
        assert_eq!((contains("4-8", 8), contains("4-8", 9)), (Some(true), Some(false)));
        assert_eq!((contains("x", 1), contains("4-", 4)), (None, None));
    }

    // The cases are those of the manual of sacct.
    #[test]
    fn states_are_those_of_the_period() {
        let at = |time: i64| Some(WallTime(time));
        let had = |times: Times, state, from, to| times.had(state, WallTime(from), |at: WallTime| at.0 <= to);
        // Waited from 10 to 20, ran to 30.
        let completed = Times { eligible: at(10), started: at(20), ended: at(30), state: State::Completed };
        for (state, from, to, expected) in [
            (State::Pending, 15, 40, true),
            (State::Pending, 25, 40, false),
            (State::Pending, 0, 5, false),
            (State::Running, 25, 40, true),
            (State::Running, 31, 40, false),
            (State::Running, 0, 15, false),
            (State::Completed, 25, 40, true),
            (State::Completed, 31, 40, false),
            (State::Completed, 0, 29, false),
            (State::Failed, 0, 40, false),
        ] {
            assert_eq!(had(completed, state, from, to), expected, "{state:?} {from} {to}");
        }
        let cancelled = Times { eligible: at(10), started: None, ended: at(30), state: State::Cancelled };
        assert!(had(cancelled, State::Pending, 25, 40) && !had(cancelled, State::Running, 0, 40));
        let waiting = Times { eligible: at(10), started: None, ended: None, state: State::Pending };
        assert!(had(waiting, State::Pending, 40, 40) && !had(waiting, State::Completed, 0, 40));
        let held = Times { eligible: None, ..waiting };
        assert!(!had(held, State::Pending, 0, 40));
        let running = Times { eligible: at(10), started: at(20), ended: None, state: State::Running };
        assert!(had(running, State::Running, 40, 40));
    }
}

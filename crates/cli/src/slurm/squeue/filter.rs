//! Which jobs `squeue` lists.

use std::collections::BTreeSet;

use hostler_client::{Client, ClientError, RecordFilter};
use hostler_model::{JobState, WallTime};
use hostler_proto::api::JobRecord;
use hostler_slurm::state::State;

use super::super::rows::Row;
use super::ids::{Named, named_rows};

/// How long jobs stay visible after their end: `MinJobAge` in Slurm's configuration.
pub(super) const MIN_JOB_AGE_MS: i64 = 300_000;

/// Which rows to list.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// States; `None` means all.
    pub(super) states: Option<Vec<State>>,
    /// The named jobs and tasks; `None` means all.
    pub(super) named: Option<Vec<Named>>,
    pub(super) users: Option<Vec<String>>,
    pub(super) names: Option<Vec<String>>,
    pub(super) partitions: Option<Vec<String>>,
    pub(super) accounts: Option<Vec<String>>,
    pub(super) qos: Option<Vec<String>>,
    pub(super) licenses: Option<Vec<String>>,
    pub(super) reservation: Option<String>,
    pub(super) nodes: Option<BTreeSet<String>>,
    /// Whether each task of an array that waits has a row of its own.
    pub(super) splits_arrays: bool,
}

impl Filter {
    fn wants(&self, state: State) -> bool {
        self.states.as_ref().is_none_or(|states| states.contains(&state))
    }

    fn wants_ended(&self) -> bool {
        self.states.as_ref().is_none_or(|states| states.iter().any(|state| state.is_ended()))
    }

    /// The states of jobs that may have rows that the filter wants.
    fn live_states(&self) -> Vec<JobState> {
        // Any live array may have tasks that wait, and tasks that have ended.
        if self.wants_ended() || self.wants(State::Pending) {
            return JobState::LIVE.to_vec();
        }
        // The state of an array is the one of its most advanced task.
        JobState::LIVE[1..].to_vec()
    }

    /// Asks the head for the jobs that the filter may want. Jobs that Slurm would have forgotten are left out.
    pub(super) async fn fetch(&self, client: &Client, now: WallTime) -> Result<Vec<JobRecord>, ClientError> {
        let user = self.users.as_deref().and_then(|users| <&[String; 1]>::try_from(users).ok());
        let user = user.map(|[user]| user.clone());
        let asked = RecordFilter { user, live: !self.wants_ended(), ..RecordFilter::default() };
        let forgotten = WallTime(now.0.saturating_sub(MIN_JOB_AGE_MS));
        if let Some(named) = &self.named {
            let jobs: BTreeSet<_> = named.iter().map(|it| it.job).collect();
            if jobs.is_empty() {
                return Ok(Vec::new());
            }
            let filter = RecordFilter { jobs: jobs.into_iter().collect(), user: None, ..asked };
            let mut records = client.records(&filter).await?;
            records.retain(|job| job.ended_at.is_none_or(|at| at > forgotten));
            return Ok(records);
        }
        let live = RecordFilter { states: self.live_states(), ..asked.clone() };
        let mut records = if live.states.is_empty() { Vec::new() } else { client.records(&live).await? };
        if self.wants_ended() {
            let known: BTreeSet<_> = records.iter().map(|job| job.id).collect();
            let ended = RecordFilter { ended_since: Some(forgotten), ..asked };
            records.extend(client.records(&ended).await?.into_iter().filter(|job| !known.contains(&job.id)));
        }
        Ok(records)
    }

    /// The rows of these jobs that the filter wants.
    pub(super) fn rows<'a>(&self, jobs: &'a [JobRecord], now: WallTime) -> Vec<Row<'a>> {
        let mut rows = Vec::with_capacity(jobs.len());
        for job in jobs.iter().filter(|job| self.takes(job)) {
            let of_job = named_rows(job, self.named.as_deref(), self.splits_arrays);
            rows.extend(of_job.into_iter().filter(|row| self.takes_row(row, now)));
        }
        rows
    }

    fn takes(&self, job: &JobRecord) -> bool {
        // The other values of the rows are those of the job, so one row is as good as another.
        let label = |name: &str, usual| job.labels.get(name).map_or(usual, String::as_str);
        let has = |wanted: &Option<Vec<String>>, is: &dyn Fn(&str) -> bool| {
            wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| is(one)))
        };
        let partition = job.partition.as_ref().map_or(super::super::machines::ALL_NODES, |name| name.as_str());
        let (account, qos) = (super::super::rows::ACCOUNT, super::super::rows::QOS);
        let is_licensed =
            |wanted: &str| label("licenses", "").split(',').any(|license| license.split(':').next() == Some(wanted));
        has(&self.users, &|user| user == job.user)
            && has(&self.names, &|name| name.eq_ignore_ascii_case(&job.name))
            && has(&self.partitions, &|name| name == partition)
            && has(&self.accounts, &|name| name.eq_ignore_ascii_case(label("account", account)))
            && has(&self.qos, &|name| name.eq_ignore_ascii_case(label("qos", qos)))
            && has(&self.licenses, &is_licensed)
            && self.reservation.as_deref().is_none_or(|name| name == label("reservation", ""))
    }

    fn takes_row(&self, row: &Row<'_>, now: WallTime) -> bool {
        let is_remembered = row.ended_at().is_none_or(|at| now.0.saturating_sub(at.0) < MIN_JOB_AGE_MS);
        self.wants(row.state())
            && is_remembered
            && self.nodes.as_ref().is_none_or(|nodes| row.nodes().iter().any(|node| nodes.contains(*node)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ids;
    use super::*;

    #[test]
    fn only_needed_jobs_are_asked_for() {
        let filter = |states: &[State]| Filter { states: Some(states.to_vec()), ..Filter::default() };
        let usual = filter(&State::OF_QUEUE);
        assert_eq!((usual.live_states().as_slice(), usual.wants_ended()), (JobState::LIVE.as_slice(), false));
        let running = filter(&[State::Running]);
        assert!(!running.live_states().contains(&JobState::Pending) && !running.wants_ended());
        let ended = filter(&[State::Failed]);
        assert!(ended.wants_ended() && ended.live_states().contains(&JobState::Pending));
        assert!(Filter::default().wants_ended());
    }

    #[test]
    fn ended_jobs_are_forgotten_after_five_minutes() {
        let now = WallTime(1_000_000_000);
        let visible = |age_ms: i64, filter: &Filter| {
            let ended = now.0 - age_ms;
            let job = serde_json::from_value(serde_json::json!({
                "id": 1, "name": "one", "user": "ada", "state": "failed", "nodes": 1, "tasks_per_node": 1, "cpus": 1,
                "memory_bytes": 1, "attempt": 1, "priority": 0, "requeue": true, "submitted_at": 0, "ended_at": ended,
            }));
            filter.rows(&[job.expect("a record")], now).len()
        };
        let all = Filter::default();
        assert_eq!((visible(0, &all), visible(299_999, &all), visible(300_000, &all)), (1, 1, 0));
        let usual = Filter { states: Some(State::OF_QUEUE.to_vec()), ..Filter::default() };
        assert_eq!(visible(0, &usual), 0);
        let named = Filter { named: ids::parse_list("1_3").ok(), ..Filter::default() };
        assert_eq!(visible(0, &named), 0, "the job is no array");
    }
}

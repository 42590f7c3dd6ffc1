//! `hostler jobs`: lists jobs.

use clap::Args;
use hostler_client::{Client, ClientError, JobFilter};
use hostler_model::{JobState, PartitionName};
use hostler_proto::api::{ExpiringJobs, JobDetail, JobOrder, JobPage, JobSummary};

use super::known;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::job_columns::{self, Chosen};
use crate::output::{self, text, views};

/// List jobs that run, then those that wait, in order
#[derive(Debug, Args)]
pub struct Jobs {
    /// Also list jobs that have ended
    #[arg(short, long)]
    all: bool,

    /// List only jobs with a task in one of these states, e.g. running,failed
    #[arg(short, long, value_name = "STATES", value_delimiter = ',')]
    state: Vec<JobState>,

    /// List only jobs that failed, reached a limit or were lost with their node
    #[arg(long, conflicts_with_all = ["all", "state"])]
    failed: bool,

    /// List only jobs that ended in the last TIME, e.g. 12h or 7d, or since a date, e.g. 2026-12-24
    #[arg(long, value_name = "TIME")]
    since: Option<text::Since>,

    /// List only jobs of this user
    #[arg(short, long, value_name = "NAME")]
    user: Option<String>,

    /// List only jobs of this partition
    #[arg(short, long, value_name = "NAME")]
    partition: Option<PartitionName>,

    /// Columns of the table, e.g. id,name,time,limit,start,partition,priority,nodes
    ///
    /// Others are user, state, cpus, memory, gpus, node, reason, submitted, ended, tasks, attempt and exit.
    #[arg(short = 'o', long, value_name = "COLUMNS", value_delimiter = ',')]
    columns: Vec<Chosen>,

    /// Sort by queue (running jobs, then the next to start), newest, oldest, priority, name, user, size, started, limit
    /// or partition
    ///
    /// Sorted by size, the largest come first; by started, those that have run longest; by limit, those with the shortest.
    /// By default, tables without ended jobs are sorted by queue; all else, also with --json and --quiet, by newest.
    #[arg(long, value_name = "ORDER")]
    sort: Option<JobOrder>,

    /// List only the job that you submitted with `--key KEY`, also if it has ended
    #[arg(long, value_name = "KEY", conflicts_with_all = ["all", "state", "failed", "since", "user", "partition", "sort", "limit"])]
    key: Option<String>,

    /// List at most N jobs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
    limit: u32,
}

impl Jobs {
    pub fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let is_table = !context.output.is_json() && !context.output.is_quiet();
        let (page, moment) = block_on(async {
            let moment = match self.since {
                Some(_) => Some(text::Moment::of_head(&client).await?),
                None => None,
            };
            let page = match &self.key {
                Some(key) => of_key(&client, key).await?,
                None => list(&client, self.filter(is_table, moment.as_ref()), self.limit).await?,
            };
            match &self.key {
                _ if page.total > 0 => {}
                Some(key) => context.output.say(&format!("you have no job with the key {key}")),
                None => known::check(context, &client, self.user.as_deref(), self.partition.as_ref()).await?,
            }
            // Later than the times in the page.
            Ok((page, text::Moment::of_head(&client).await?))
        })?;
        let JobPage { jobs, total, .. } = &page;
        let output = &context.output;
        if output.is_json() {
            output.json(&page);
        } else if output.is_quiet() {
            let ids: Vec<String> = jobs.iter().map(|job| job.id.to_string()).collect();
            output.data(&ids.join("\n"));
        } else {
            output.data(&job_columns::table(jobs, &self.columns, &moment, output::width()));
        }
        let left_out = total.saturating_sub(jobs.len() as u64);
        if left_out > 0 {
            output.say(&format!("{left_out} more jobs are not listed; --limit {total} lists all"));
        }
        if let Some(totals) = job_columns::totals(jobs).filter(|_| !output.is_json()) {
            output.say(&if left_out > 0 { format!("of those listed: {totals}") } else { totals });
        }
        if let Some(ExpiringJobs { jobs, kept_until }) = page.expiring {
            output.say(&views::expiring(jobs, kept_until, &moment));
        }
        Ok(exit::OK)
    }

    /// `now` is the head's time, with `--since`.
    fn filter(&self, is_table: bool, now: Option<&text::Moment>) -> JobFilter {
        let any_task = self.failed || !self.state.is_empty();
        let states = match self.since {
            _ if self.failed => JobState::FAILED.to_vec(),
            _ if any_task => self.state.clone(),
            Some(_) => JobState::ENDED.to_vec(),
            None if self.all => Vec::new(),
            None => JobState::LIVE.to_vec(),
        };
        let is_live = !states.is_empty() && states.iter().all(|state| !state.is_ended());
        let order = self.sort.unwrap_or(if is_table && is_live { JobOrder::Queue } else { JobOrder::Newest });
        let ended_since = self.since.zip(now).map(|(since, now)| now.start_of(since));
        let (user, partition) = (self.user.clone(), self.partition.clone());
        JobFilter { states, any_task, user, partition, ended_since, order, ..JobFilter::default() }
    }
}

/// The job with this key, as a page.
async fn of_key(client: &Client, key: &str) -> Result<JobPage, ClientError> {
    let Some(id) = client.job_of_key(key).await? else {
        return Ok(JobPage { jobs: Vec::new(), total: 0, next: None, expiring: None });
    };
    let JobDetail { summary, .. } = client.job(id, 0).await?;
    Ok(JobPage { jobs: vec![summary], total: 1, next: None, expiring: None })
}

/// Requests pages until `limit` jobs have arrived or no page is left, and returns the jobs as one page.
pub(crate) async fn list(client: &Client, mut filter: JobFilter, limit: u32) -> Result<JobPage, ClientError> {
    let mut jobs: Vec<JobSummary> = Vec::new();
    let (mut total, mut expiring) = (None, None);
    loop {
        filter.limit = Some(limit - jobs.len() as u32);
        let page = client.jobs(&filter).await?;
        // Only the first page counts all jobs. A later page counts only jobs that no earlier page contains.
        let total = *total.get_or_insert(page.total);
        expiring = expiring.or(page.expiring);
        jobs.extend(page.jobs);
        filter.before = page.next;
        if page.next.is_none() || jobs.len() >= limit as usize {
            return Ok(JobPage { jobs, total, next: page.next, expiring });
        }
    }
}

//! The jobs that a command acts on: ids, ranges, names, `last`, or all that match a filter.

use std::ops::RangeInclusive;

use clap::Args;
use hostler_client::{Client, JobFilter};
use hostler_model::{JobId, JobState, PartitionName};
use hostler_proto::api::JobSummary;

use super::jobs::list;
use super::known;
use super::target::Target;
pub(crate) use super::target::Word;
use crate::context::Context;
use crate::exit;
use crate::failure::Failure;

/// Jobs by their ids and names.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Jobs")]
pub(crate) struct Filter {
    /// Jobs of this user instead of your own
    #[arg(short, long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Jobs with this name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Jobs in one of these states, e.g. pending,running
    #[arg(short, long, value_name = "STATES", value_delimiter = ',')]
    pub(crate) state: Vec<JobState>,

    /// Jobs of this partition
    #[arg(short, long, value_name = "NAME")]
    pub(crate) partition: Option<PartitionName>,
}

impl Filter {
    pub(crate) fn is_empty(&self) -> bool {
        self.user.is_none() && self.name.is_none() && self.state.is_empty() && self.partition.is_none()
    }

    /// The jobs that match: the caller's own, unless the filter names a user, in `states`, unless it names states.
    pub(crate) async fn find(&self, client: &Client, states: &[JobState]) -> Result<Vec<Target>, Failure> {
        let user = match &self.user {
            Some(user) => user.clone(),
            None => client.me().await?.user,
        };
        let filter = JobFilter {
            states: if self.state.is_empty() { states.to_vec() } else { self.state.clone() },
            any_task: !self.state.is_empty(),
            user: Some(user),
            text: self.name.as_deref().map(searched),
            partition: self.partition.clone(),
            ..JobFilter::default()
        };
        let mut jobs = list(client, filter, u32::MAX).await?.jobs;
        jobs.retain(|job| self.name.as_ref().is_none_or(|name| job.name == *name));
        jobs.reverse();
        Ok(ids(jobs))
    }

    /// Says that no job matches, or fails if the filter names a user or a partition that does not exist.
    pub(crate) async fn explain_none(&self, context: &Context, client: &Client) -> Result<(), Failure> {
        known::check(context, client, self.user.as_deref(), self.partition.as_ref()).await?;
        context.output.say("no job matches");
        Ok(())
    }
}

/// The error of a command that names jobs and has a filter too.
pub(crate) fn both() -> Failure {
    Failure::usage("jobs are named, and a filter is given too").hint("name the jobs, or give the filter alone")
}

/// The jobs and tasks that `words` name, each once. A name stands for the caller's jobs with this name in `states`, or
/// without `states` for the newest.
pub(crate) async fn named(
    client: &Client,
    words: &[Word],
    states: Option<&[JobState]>,
) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::new();
    for word in words {
        let found = match (word, states) {
            (Word::Range(first, last), _) => in_range(client, *first, *last).await?,
            (Word::Tasks(job, tasks), _) => tasks_of(*job, tasks)?,
            (Word::Name(name), Some(states)) => {
                let filter = Filter { user: None, name: Some(name.clone()), state: Vec::new(), partition: None };
                match filter.find(client, states).await?.as_slice() {
                    [] => return Err(none_named(client, name).await?),
                    found => found.to_vec(),
                }
            }
            (word, _) => vec![one(client, word).await?],
        };
        for target in found {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    Ok(targets)
}

/// The one job or task that `word` names; of several jobs with a name, the newest.
pub(crate) async fn one(client: &Client, word: &Word) -> Result<Target, Failure> {
    match word {
        Word::Target(target) => Ok(*target),
        Word::Last => newest(client, None).await,
        Word::Name(name) => newest(client, Some(name)).await,
        Word::Range(..) | Word::Tasks(..) => Err(Failure::usage(format!("{word} is more than one job or task"))
            .hint("this command takes one job, e.g. 12, or one array task, e.g. 12_3")),
    }
}

/// The caller's newest job, or the newest with a name.
async fn newest(client: &Client, name: Option<&str>) -> Result<Target, Failure> {
    let user = Some(client.me().await?.user);
    let mut filter = JobFilter { user, text: name.map(searched), ..JobFilter::default() };
    loop {
        let page = client.jobs(&filter).await?;
        if let Some(job) = page.jobs.iter().find(|job| name.is_none_or(|name| job.name == name)) {
            return Ok(Target { job: job.id, index: None });
        }
        filter.before = page.next;
        if filter.before.is_none() {
            break;
        }
    }
    match name {
        Some(name) => Err(no_job(name)),
        None => Err(Failure::new("you have no jobs")
            .exiting(exit::REFUSED)
            .hint("`hostler submit` and `hostler run` start one")),
    }
}

/// The part of a name that the head searches for: it takes short texts.
fn searched(name: &str) -> String {
    const MOST_CHARACTERS: usize = 200;
    name.chars().take(MOST_CHARACTERS).collect()
}

/// The tasks of an array with these indices.
fn tasks_of(job: JobId, indices: &RangeInclusive<u32>) -> Result<Vec<Target>, Failure> {
    const MOST: usize = 10_000;
    match indices.clone().take(MOST + 1).count() {
        count if count > MOST => Err(Failure::usage(format!("a range has at most {MOST} tasks"))
            .hint(format!("name the whole array, {job}, or give several ranges"))),
        _ => Ok(indices.clone().map(|index| Target { job, index: Some(index) }).collect()),
    }
}

/// All jobs in a range of ids. Ids that are not known are left out.
async fn in_range(client: &Client, first: JobId, last: JobId) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::new();
    let mut filter = JobFilter { before: Some(JobId(last.0.saturating_add(1))), ..JobFilter::default() };
    loop {
        let page = client.jobs(&filter).await?;
        targets.extend(ids(page.jobs).into_iter().filter(|target| target.job >= first));
        match page.next.filter(|next| *next > first) {
            Some(next) => filter.before = Some(next),
            None if targets.is_empty() => {
                return Err(Failure::new(format!("no job has an id from {first} to {last}"))
                    .exiting(exit::REFUSED)
                    .hint("`hostler jobs --all` lists jobs"));
            }
            None => {
                targets.reverse();
                return Ok(targets);
            }
        }
    }
}

/// Why no job with this name is in the states that the command acts on.
async fn none_named(client: &Client, name: &str) -> Result<Failure, Failure> {
    let target = newest(client, Some(name)).await?;
    let job = client.job(target.job, 0).await?.summary;
    Ok(Failure::new(format!("the job {name}, with the id {}, is {}", job.id, job.state))
        .hint("name it by its id if you mean it"))
}

fn no_job(name: &str) -> Failure {
    Failure::new(format!("you have no job with the name {name:?}"))
        .exiting(exit::REFUSED)
        .hint("name jobs by their ids, e.g. 12, array tasks as 12_3 or 12_0-9, several jobs as 12-20, your newest job as `last`")
        .hint("`hostler jobs --all` lists jobs")
}

fn ids(jobs: Vec<JobSummary>) -> Vec<Target> {
    jobs.into_iter().map(|job| Target { job: job.id, index: None }).collect()
}

//! `hostler wait`: waits for the end of jobs and array tasks.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use futures_util::future::try_join_all;
use hostler_client::Client;
use hostler_model::{JobId, JobState, TaskId, plural};
use hostler_proto::api::{JobDetail, JobSummary, TaskView};
use serde::Serialize;

use super::choice::{self, Word};
use super::fetch::fetch_and_judge;
use super::logs::show_setup;
use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::fetching::destination;
use crate::output::text::Moment;
use crate::output::views;

/// How long one request to the head may wait.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two answers that list all tasks of a job, and what each of these tasks adds to it.
const REST: Duration = Duration::from_millis(10);
const REST_PER_TASK: Duration = Duration::from_micros(20);

/// How often the states of a job are read to show them.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a job may wait without a note, and the longest time between two looks at it.
pub(crate) const NOTE_DELAY: Duration = Duration::from_secs(3);
const LONGEST_NOTE_PAUSE: Duration = Duration::from_secs(60);

/// Minimum time between two lines in which only numbers differ.
const NUMBERS_EVERY: Duration = Duration::from_secs(10);

/// Wait until jobs have ended; exit with 0 if all completed, else 1
#[derive(Debug, Args)]
pub struct Wait {
    /// Jobs: ids, e.g. 12; array tasks, e.g. 12_3 or 12_0-9; ranges, e.g. 12-20; names; or `last` for your newest job
    #[arg(value_name = "JOB", required = true)]
    words: Vec<Word>,

    /// Print each job or array task when it starts and when it ends; with --json, a line for each
    #[arg(long)]
    each: bool,

    /// Download the results afterwards
    #[arg(long)]
    fetch: bool,

    /// Ring the bell of the terminal and show a desktop notification at the end
    #[arg(long)]
    bell: bool,

    /// Directory for the downloaded results; implies --fetch
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

impl Wait {
    pub fn run(self, context: &Context) -> Outcome {
        let fetches = self.fetch || self.to.is_some();
        let destination = fetches.then(|| destination(self.to.as_deref(), false)).transpose()?;
        let client = context.watching_client()?;
        block_on(async {
            let targets = choice::named(&client, &self.words, None).await?;
            let summaries = match self.each {
                true => try_join_all(targets.iter().map(|target| show_each(context, &client, *target))).await?,
                false => wait_for_targets(context, &client, &targets, fetches).await?,
            };
            if self.bell {
                context.output.ring(&for_desktop(&targets, &summaries));
            }
            if context.output.is_json() && !self.each {
                let list = targets.iter().zip(&summaries);
                let list: Vec<_> = list.map(|(target, summary)| Ended { index: target.index, summary }).collect();
                context.output.json(&list);
            }
            let code = exit_code(&summaries);
            match destination {
                Some(destination) => Ok(code.max(fetch_and_judge(context, &client, &targets, &destination).await?)),
                None => Ok(code),
            }
        })
    }
}

/// Formats how jobs ended, in one line.
pub(crate) fn for_desktop(targets: &[Target], summaries: &[JobSummary]) -> String {
    match (targets, summaries) {
        ([target], [job]) => format!("job {target} ({}) {}", job.name, views::ending(job)),
        _ => {
            let completed = summaries.iter().filter(|job| job.state == JobState::Completed).count();
            format!("{} jobs have ended, {completed} completed", summaries.len())
        }
    }
}

/// An ended job or array task.
#[derive(Serialize)]
struct Ended<'a> {
    /// Index of the task; absent for a whole job.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    #[serde(flatten)]
    summary: &'a JobSummary,
}

/// Waits for all of `ids` and prints how jobs ended that did not complete. Unless their files are fetched then, also prints when
/// the head deletes the files, if it does.
pub(crate) async fn wait_for(
    context: &Context,
    client: &Client,
    ids: &[JobId],
    fetches: bool,
) -> Result<Vec<JobSummary>, Failure> {
    let targets: Vec<Target> = ids.iter().map(|&job| Target { job, index: None }).collect();
    wait_for_targets(context, client, &targets, fetches).await
}

async fn wait_for_targets(
    context: &Context,
    client: &Client,
    targets: &[Target],
    fetches: bool,
) -> Result<Vec<JobSummary>, Failure> {
    let (mut summaries, mut ends) = (Vec::new(), Vec::new());
    for target in targets {
        summaries.push(match target.index {
            Some(index) => ended_task(client, TaskId { job: target.job, index }).await?,
            None => tokio::select! {
                ended = client.ended(target.job, 0) => {
                    let job = ended?;
                    ends.extend(job.kept_until.filter(|_| job.snapshot.is_some() && job.unfetched > 0 && !fetches));
                    job.summary
                }
                failure = show_progress(context, client, target.job) => return Err(failure),
            },
        });
    }
    for (target, summary) in targets.iter().zip(&summaries) {
        if summary.state != JobState::Completed {
            context.output.say(&describe_ending(*target, summary));
        }
    }
    if let Some(first) = ends.iter().min() {
        let moment = Moment::of_head(client).await?;
        context.output.say(&views::expiring(ends.len() as u64, *first, &moment));
    }
    Ok(summaries)
}

/// A task that has started or ended.
#[derive(Serialize)]
struct Changed<'a> {
    job: JobId,
    #[serde(flatten)]
    task: &'a TaskView,
}

/// Prints each task of a job, or one of them, when it starts and when it ends. Returns the job or the task at its end.
async fn show_each(context: &Context, client: &Client, target: Target) -> Result<JobSummary, Failure> {
    let mut shown = BTreeMap::new();
    let mut seen = 0;
    loop {
        let detail = client.job_after(target.job, seen).await?;
        seen = detail.summary.tasks.progress();
        let is_wanted = |task: &&TaskView| target.index.is_none_or(|index| task.index == index);
        for task in detail.tasks_shown.iter().filter(is_wanted).filter(|task| task.state != JobState::Pending) {
            let now = (task.attempt, task.state.is_ended());
            if shown.insert(task.index, now) == Some(now) {
                continue;
            }
            if context.output.is_json() {
                context.output.json(&Changed { job: target.job, task });
            } else {
                context.output.data(&describe_change(&detail, task));
            }
        }
        let whole = || if detail.summary.array.is_some() { detail.summary.clone() } else { views::of_task(&detail, 0) };
        let summary = target.index.map_or_else(whole, |index| views::of_task(&detail, index));
        if summary.state.is_ended() {
            return Ok(summary);
        }
        // The answer lists all tasks, so those of a large array come less often.
        let tasks = u32::try_from(detail.tasks_shown.len()).unwrap_or(u32::MAX);
        tokio::time::sleep(REST + tasks * REST_PER_TASK).await;
    }
}

/// Says that a task has started, or how it has ended.
fn describe_change(job: &JobDetail, task: &TaskView) -> String {
    let is_array = job.summary.array.is_some();
    let target = Target { job: job.summary.id, index: is_array.then_some(task.index) };
    let what = if is_array { "task" } else { "job" };
    let ending = views::ending(&views::of_task(job, task.index));
    match (task.state.is_ended(), &task.node) {
        (true, _) => format!("{what} {target} {ending}"),
        (false, Some(node)) => format!("{what} {target} started on {node}"),
        (false, None) => format!("{what} {target} started"),
    }
}

/// Prints on a terminal what a job does, whenever that changes. Never returns, unless the head refuses a request.
async fn show_progress(context: &Context, client: &Client, job: JobId) -> Failure {
    if !context.output.is_watched() || context.output.is_json() {
        return std::future::pending().await;
    }
    let lead = format!("job {job}: environment");
    let setup = async {
        // Users who may not read the log still see the job's states.
        let first = TaskId { job, index: 0 };
        let _ = show_setup(context, client, first, &lead).await;
        std::future::pending().await
    };
    tokio::select! {
        never = setup => never,
        failure = show_states(context, client, job) => failure,
    }
}

async fn show_states(context: &Context, client: &Client, job: JobId) -> Failure {
    let mut steps = Steps::default();
    loop {
        match client.job(job, 0).await {
            Ok(detail) if detail.summary.state.is_ended() => {}
            Ok(detail) => {
                let line = [views::state(&detail.summary), views::outcome(&detail.summary)];
                let line = line.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
                if steps.is_news(&line, Instant::now()) {
                    context.output.say(&format!("job {job}: {line}"));
                }
            }
            Err(error) => return error.into(),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Says why a job whose output someone watches has not started, or does not end. Never returns.
pub(crate) async fn explain_waiting(context: &Context, client: &Client, job: JobId) -> Infallible {
    let (mut notes, mut pause) = (WaitNotes::default(), NOTE_DELAY);
    loop {
        tokio::time::sleep(pause).await;
        // The reader of the output reports errors.
        if let Ok(detail) = client.job(job, 0).await {
            notes.tell(context, &detail.summary);
        }
        pause = (pause * 2).min(LONGEST_NOTE_PAUSE);
    }
}

/// The words of the last note about why a job does not go on.
#[derive(Default)]
pub(crate) struct WaitNotes(String);

impl WaitNotes {
    /// Says why the job waits for its start, or for its results to be stored, unless only numbers have changed.
    pub(crate) fn tell(&mut self, context: &Context, job: &JobSummary) {
        let why = views::outcome(job);
        let words = why.replace(|it: char| it.is_ascii_digit(), "");
        let is_waiting = matches!(job.state, JobState::Pending | JobState::Completing) && !why.is_empty();
        if is_waiting && words != self.0 {
            context.output.say(&format!("note: job {} is {}: {why}", job.id, job.state));
            self.0 = words;
        }
    }
}

/// The last line that was printed, and when.
#[derive(Default)]
struct Steps(Option<(String, Instant)>);

impl Steps {
    /// Whether to print a line. One in which only numbers differ from the last one follows it after a while.
    fn is_news(&mut self, line: &str, now: Instant) -> bool {
        let words = |text: &str| text.replace(|it: char| it.is_ascii_digit(), "");
        let is_old = self.0.as_ref().is_some_and(|(last, at)| {
            line == last || (words(line) == words(last) && now.duration_since(*at) < NUMBERS_EVERY)
        });
        if !is_old {
            self.0 = Some((line.to_owned(), now));
        }
        !is_old
    }
}

/// Waits for the end of a task. Returns the task in the form of a job.
async fn ended_task(client: &Client, task: TaskId) -> Result<JobSummary, Failure> {
    loop {
        let summary = views::of_task(&client.task(task, REQUEST_TIMEOUT).await?, task.index);
        if summary.state.is_ended() {
            return Ok(summary);
        }
    }
}

/// Returns 0 if all jobs completed, else 1.
pub(crate) fn exit_code(summaries: &[JobSummary]) -> u8 {
    let all_completed = summaries.iter().all(|summary| summary.state == JobState::Completed);
    if all_completed { exit::OK } else { exit::FAILED }
}

/// Formats how and why a job ended, e.g. `job 12 failed with exit code 1`, with the commands that show more.
fn describe_ending(target: Target, job: &JobSummary) -> String {
    let how = views::ending(job);
    let tasks = match &job.array {
        Some(_) => {
            let bad = job.tasks.not_completed();
            format!(" ({bad} of {} did not complete)", plural(job.tasks.total, "task"))
        }
        None => String::new(),
    };
    let what = if target.index.is_some() { "task" } else { "job" };
    let why = job.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{what} {target} {how}{tasks}{why}; see `hostler job {target}` and `hostler logs {target}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_new_words_at_once_and_new_numbers_after_a_while() {
        let (mut steps, now) = (Steps::default(), Instant::now());
        let mut is_news = |line: &str, after: u64| steps.is_news(line, now + Duration::from_secs(after));
        assert!(is_news("starting", 0));
        assert!(!is_news("starting", 60));
        assert!(is_news("running 1/8", 61));
        assert!(!is_news("running 2/8", 62));
        assert!(is_news("running 3/8", 71));
        assert!(is_news("completing", 72));
    }
}

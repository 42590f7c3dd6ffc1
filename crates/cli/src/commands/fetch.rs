//! `hostler fetch`: downloads results.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hostler_client::fetch::Destination;
use hostler_client::{Client, JobFilter};
use hostler_model::{Attempt, JobId, JobState, TaskId, plural};
use hostler_proto::api::{ResultView, TaskView};

use super::choice::{self, Filter, Word};
use super::jobs::list;
use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::fetching::{Downloads, destination, fetch};
use crate::interrupts::{self, Interrupts};
use crate::output::text::Moment;
use crate::told::Told;

/// How often the head is asked for new results.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Wait before results that could not be placed are downloaded again.
const WATCH_AGAIN: Duration = Duration::from_secs(60);

/// Download the results of jobs
///
/// Results are the files that the job created or changed, and the job's output as stdout.log and stderr.log. The
/// results of job 12 go to DIR/12, the results of array task 12_3 to DIR/12_3. The command writes each file atomically.
/// To continue an interrupted download, run the command again.
#[derive(Debug, Args)]
pub struct Fetch {
    /// Jobs: ids, e.g. 12; array tasks, e.g. 12_3 or 12_0-9; ranges, e.g. 12-20; names; or `last` for your newest job
    #[arg(value_name = "JOB", required_unless_present_any = ["all", "watch", "user", "name", "state", "partition"])]
    words: Vec<Word>,

    #[command(flatten)]
    filter: Filter,

    /// Download all results that were not downloaded before
    ///
    /// Leaves out cancelled tasks, and jobs without a project folder, whose only result is their output.
    #[arg(long, conflicts_with_all = ["words", "user", "name", "state", "partition"])]
    all: bool,

    /// Stay, and download each result when it is there; implies --all
    ///
    /// Goes on when the head can be reached again, e.g. when a laptop wakes up.
    #[arg(long, conflicts_with_all = ["words", "user", "name", "state", "partition", "attempt"])]
    watch: bool,

    /// Download the results of this attempt, after which the job was requeued, to DIR/12.attempt1
    #[arg(long, value_name = "NUMBER", conflicts_with = "all", value_parser = crate::flags::at_least_one)]
    attempt: Option<u32>,

    /// With --all or --watch: also download the output of commands, and results of cancelled tasks
    #[arg(long, conflicts_with_all = ["words", "user", "name", "state", "partition"])]
    outputs: bool,

    /// Parent directory for the results; each job or array task gets a subdirectory
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,

    /// Replace existing files that differ from the results
    #[arg(long)]
    overwrite: bool,
}

impl Fetch {
    pub fn run(self, context: &Context) -> Outcome {
        let destination = destination(Some(&self.to), self.overwrite)?;
        if self.watch {
            let client = context.watching_client()?;
            return block_on(watch(context, &client, self.outputs, &destination));
        }
        let client = context.client()?;
        block_on(async {
            let haul = match self.all {
                true => fetch_all(context, &client, self.outputs, &destination).await?,
                false => {
                    let targets = match (self.words.is_empty(), self.filter.is_empty()) {
                        (false, false) => return Err(choice::both()),
                        (false, true) => choice::named(&client, &self.words, None).await?,
                        (true, _) => self.filter.find(&client, &JobState::ENDED).await?,
                    };
                    if targets.is_empty() {
                        self.filter.explain_none(context, &client).await?;
                    }
                    let attempt = self.attempt.map(Attempt);
                    fetch_targets(context, &client, &targets, attempt, &destination).await?
                }
            };
            if context.output.is_json() {
                context.output.json(&haul.arrived);
            }
            Ok(exit_code(&haul))
        })
    }
}

/// Results that were not fetched before.
struct News {
    results: Vec<ResultView>,
    /// A sentence about new results that the options leave out.
    left_out: Option<String>,
    /// An error for each result that is lost, and a line that identifies it.
    lost: Vec<(String, Failure)>,
}

async fn news(client: &Client, outputs: bool) -> Result<News, Failure> {
    let page = client.results(true, &[]).await?;
    let all = page.results;
    let (results, left_out): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|it| outputs || (it.project && !it.map && (it.earlier || it.state != JobState::Cancelled)));
    let mut lost = lost_results(client).await?;
    let moment = Moment::now();
    lost.extend(page.deleted.iter().map(|it| {
        let date = moment.date(it.deleted_at);
        let failure = Failure::new(format!("job {} was deleted on {date}, and nobody had fetched its results", it.job));
        (format!("deleted {} {}", it.job, it.deleted_at.0), failure)
    }));
    Ok(News { results, left_out: what_is_left_out(&left_out), lost })
}

/// Downloads all results that were not fetched before.
async fn fetch_all(
    context: &Context,
    client: &Client,
    outputs: bool,
    destination: &Destination,
) -> Result<Downloads, Failure> {
    let News { results, left_out, lost } = news(client, outputs).await?;
    let cluster = client.info().await?.head.authority.map(|digest| digest.to_string()).unwrap_or_default();
    let mut told = Told::lost_results();
    let (lost, known): (Vec<_>, Vec<_>) = lost.into_iter().partition(|(id, _)| told.is_new(&format!("{cluster} {id}")));
    known.iter().for_each(|(_, failure)| context.output.say(&format!("note: {}", failure.summary())));
    match (results.is_empty(), left_out) {
        (true, None) if lost.is_empty() && known.is_empty() => {
            context.output.say("nothing to fetch: all results were fetched before");
        }
        (true, Some(text)) => context.output.say(&format!("nothing to fetch; {text}")),
        (false, Some(text)) => context.output.say(&text),
        (_, None) => {}
    }
    lost.iter().for_each(|(_, failure)| context.output.fail(failure));
    let haul = fetch(context, client, &results, destination).await?;
    Ok(Downloads { is_complete: haul.is_complete && lost.is_empty(), ..haul })
}

/// Downloads results as they arrive, until a signal.
async fn watch(context: &Context, client: &Client, outputs: bool, destination: &Destination) -> Outcome {
    let mut interrupts = Interrupts::take()?;
    let mut said = BTreeSet::new();
    let downloads = async {
        context.output.say(&format!("waiting for results, for {}", destination.directory.display()));
        loop {
            let News { results, lost, .. } = news(client, outputs).await?;
            let new = lost.into_iter().filter(|(id, _)| said.insert(id.clone()));
            new.for_each(|(_, failure)| context.output.fail(&failure));
            let haul = fetch(context, client, &results, destination).await?;
            if context.output.is_json() && !haul.arrived.is_empty() {
                context.output.json(&haul.arrived);
            }
            tokio::time::sleep(if haul.is_complete { WATCH_INTERVAL } else { WATCH_AGAIN }).await;
        }
    };
    tokio::select! {
        ended = downloads => ended,
        signal = interrupts.next() => Ok(interrupts::exit_code(signal)),
    }
}

/// An error for each of the caller's jobs whose results were lost with a node.
async fn lost_results(client: &Client) -> Result<Vec<(String, Failure)>, Failure> {
    let filter = JobFilter {
        states: vec![JobState::NodeFail],
        any_task: true,
        user: Some(client.me().await?.user),
        ..JobFilter::default()
    };
    let jobs = list(client, filter, u32::MAX).await?.jobs;
    Ok(jobs
        .iter()
        .map(|job| {
            let what = match &job.array {
                Some(_) => format!("the results of {} of job {}", plural(job.tasks.node_fail, "task"), job.id),
                None => format!("the results of job {}", job.id),
            };
            let failure = Failure::new(format!("{what} were lost with a node"))
                .hint(format!("`hostler requeue {0}` runs it again, `hostler job {0}` says where it ran", job.id));
            (format!("lost {} {} {}", job.id, job.tasks.node_fail, job.attempt.0), failure)
        })
        .collect())
}

/// A note about the results that `--all` does not download, if any.
fn what_is_left_out(results: &[ResultView]) -> Option<String> {
    let tasks = |is_of_kind: &dyn Fn(&ResultView) -> bool| {
        let of_kind = results.iter().filter(|it| is_of_kind(it));
        of_kind.map(|it| (it.job, it.index)).collect::<BTreeSet<_>>().len()
    };
    let is_cancelled = |it: &ResultView| it.state == JobState::Cancelled;
    let calls = tasks(&|it| it.map && !is_cancelled(it));
    let (commands, cancelled) = (tasks(&|it| !it.map && !is_cancelled(it)), tasks(&is_cancelled));
    let parts = [
        (calls > 0).then(|| format!("the results of {} of hostler.map", plural(calls, "call"))),
        (commands > 0).then(|| format!("the output of {}", plural(commands, "command"))),
        (cancelled > 0).then(|| plural(cancelled, "cancelled task")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let text = || format!("left out: {}; --outputs includes them", parts.join(" and "));
    (!parts.is_empty()).then(text)
}

/// Downloads the results of whole jobs and returns the exit code.
pub(crate) async fn fetch_jobs(
    context: &Context,
    client: &Client,
    jobs: &[JobId],
    destination: &Destination,
) -> Outcome {
    let targets: Vec<Target> = jobs.iter().map(|&job| Target { job, index: None }).collect();
    fetch_and_judge(context, client, &targets, destination).await
}

/// Downloads the results of jobs and tasks and returns the exit code.
pub(crate) async fn fetch_and_judge(
    context: &Context,
    client: &Client,
    targets: &[Target],
    destination: &Destination,
) -> Outcome {
    Ok(exit_code(&fetch_targets(context, client, targets, None, destination).await?))
}

async fn fetch_targets(
    context: &Context,
    client: &Client,
    targets: &[Target],
    attempt: Option<Attempt>,
    destination: &Destination,
) -> Result<Downloads, Failure> {
    let mut jobs: Vec<JobId> = targets.iter().map(|target| target.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let all = client.results(false, &jobs).await?.results;
    let named = all.into_iter().filter(|result| targets.iter().any(|target| includes(*target, result)));
    let is_wanted = |result: &ResultView| attempt.map_or(!result.earlier, |attempt| result.attempt == attempt);
    let (results, others): (Vec<_>, Vec<_>) = named.partition(is_wanted);
    if attempt.is_none() {
        note_earlier(context, &others);
    }
    let mut failures = Vec::new();
    for target in targets.iter().filter(|target| !results.iter().any(|result| includes(**target, result))) {
        if let Some(Attempt(attempt)) = attempt {
            let failure = Failure::new(format!("the head has no result of attempt {attempt} of job {target}"))
                .hint("results of an earlier attempt are kept until they are fetched once");
            failures.push(failure);
            continue;
        }
        match nothing_for(client, *target).await? {
            MissingResult::Missing(failure) => failures.push(failure),
            MissingResult::Nothing(text) => context.output.say(&text),
        }
    }
    failures.iter().for_each(|failure| context.output.fail(failure));
    let haul = fetch(context, client, &results, destination).await?;
    Ok(Downloads { is_complete: haul.is_complete && failures.is_empty(), ..haul })
}

/// Names the attempts whose results are kept although the jobs were requeued.
fn note_earlier(context: &Context, earlier: &[ResultView]) {
    let attempts: BTreeSet<(JobId, Attempt)> = earlier.iter().map(|it| (it.job, it.attempt)).collect();
    for (job, Attempt(attempt)) in attempts {
        context.output.say(&format!(
            "note: results of attempt {attempt} of job {job} are kept; `hostler fetch {job} --attempt {attempt}` downloads them"
        ));
    }
}

fn includes(target: Target, result: &ResultView) -> bool {
    target.job == result.job && target.index.is_none_or(|index| result.index.unwrap_or(0) == index)
}

/// Why a job or task has no result.
enum MissingResult {
    /// A result may follow, or the job ran and its result is lost.
    Missing(Failure),
    /// There is nothing to download, and nothing is lost.
    Nothing(String),
}

async fn nothing_for(client: &Client, target: Target) -> Result<MissingResult, Failure> {
    let job = match target.index {
        Some(index) => client.task(TaskId { job: target.job, index }, Duration::ZERO).await?,
        None => client.job(target.job, u32::MAX).await?,
    };
    let tasks = job.tasks_shown.iter().filter(|task| target.index.is_none_or(|index| task.index == index));
    let state = match target.index {
        None => job.summary.state,
        // The head does not list waiting tasks; for such a task, use the state of the job.
        Some(_) => tasks.clone().next().map_or(job.summary.state, |task| task.state),
    };
    if state.is_ended() {
        if tasks.clone().any(|task| task.fetched) {
            return Ok(MissingResult::Nothing(format!(
                "the results of job {target} were fetched before and then deleted to free space"
            )));
        }
        let first = tasks.clone().max_by_key(|task| (task.started_at.is_some(), task.attempt));
        let text = format!("job {target} has no results: {}", explain_missing_results(state, first));
        let has_run = first.is_some_and(|task| task.attempt > Attempt(0) && task.started_at.is_some());
        return Ok(match has_run {
            true => {
                MissingResult::Missing(Failure::new(text).hint(format!("`hostler requeue {target}` runs it again")))
            }
            false => MissingResult::Nothing(text),
        });
    }
    let problem = job.summary.node_problem.map(|problem| format!(" ({problem})")).unwrap_or_default();
    Ok(MissingResult::Missing(
        Failure::new(format!("job {target} has no results yet: it is {state}{problem}"))
            .hint(format!("`hostler wait {} --fetch` waits and then fetches", target.job)),
    ))
}

/// Why a job that ended in `state` has no results. `task` is a task that has started, if any has.
fn explain_missing_results(state: JobState, task: Option<&TaskView>) -> String {
    let Some(task) = task.filter(|task| task.attempt > Attempt(0)) else {
        return format!("it is {state} and never ran");
    };
    let node = task.node.as_ref().map_or_else(|| "a node".to_owned(), |node| format!("node {node}"));
    let message = task.message.as_ref().map(|message| format!(" ({message})")).unwrap_or_default();
    match (state, task.started_at) {
        (JobState::NodeFail, Some(_)) => format!(
            "it ran on {node}, and its output there is lost{message}; a job submitted with --requeue runs again automatically"
        ),
        (_, Some(_)) => format!("it ran on {node}, is {state} and sent no results{message}"),
        (_, None) => format!("it is {state} and did not start on {node}{message}"),
    }
}

fn exit_code(haul: &Downloads) -> u8 {
    if haul.is_complete { exit::OK } else { exit::FAILED }
}

#[cfg(test)]
mod tests {
    use hostler_model::{Digest, WallTime};

    use super::*;

    #[test]
    fn note_counts_the_tasks_that_are_left_out() {
        let result = |job, index, state| ResultView {
            job: JobId(job),
            name: "try".to_owned(),
            index,
            node_rank: None,
            state,
            project: false,
            map: false,
            manifest: Digest([0; 32]),
            fetched: false,
            attempt: Attempt(1),
            earlier: false,
            submitted_at: WallTime(0),
        };
        assert_eq!(what_is_left_out(&[]), None);
        let one = [result(1, None, JobState::Completed)];
        let expected = "left out: the output of 1 command; --outputs includes them";
        assert_eq!(what_is_left_out(&one).as_deref(), Some(expected));
        let cancelled = |index| result(2, Some(index), JobState::Cancelled);
        let all = [result(1, None, JobState::Failed), cancelled(0), cancelled(1), cancelled(1)];
        let expected = "left out: the output of 1 command and 2 cancelled tasks; --outputs includes them";
        assert_eq!(what_is_left_out(&all).as_deref(), Some(expected));
        let call = |index| ResultView { map: true, ..result(3, Some(index), JobState::Completed) };
        let expected = "left out: the results of 2 calls of hostler.map; --outputs includes them";
        assert_eq!(what_is_left_out(&[call(0), call(1)]).as_deref(), Some(expected));
    }
}

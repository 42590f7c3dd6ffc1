//! `cancel`, `hold`, `release`, `requeue` and `signal`: act on jobs and array tasks.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt, stream};
use hostler_client::{Client, ClientError, RecordFilter};
use hostler_model::{
    JobId, JobState, SignalNumber, SignalTarget, TaskId, WallTime, format_bytes, format_duration, plural,
};
use hostler_proto::api::{JobAction, JobChange, JobRecord, JobSummary, TaskView};
use nix::sys::signal::{SigHandler, signal};

use super::choice::{self, Filter, Word};
use super::dry_run::check_change;
use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::flags::{Memory, TimeLimit};
use crate::output::views;

/// Cancel jobs; results written so far can still be fetched
#[derive(Debug, Args)]
pub struct Cancel {
    #[command(flatten)]
    targets: Targets,
}

/// Keep waiting jobs or tasks from starting until their release
///
/// A held array starts no tasks. To hold only some of its tasks, name them, e.g. 12_3.
#[derive(Debug, Args)]
pub struct Hold {
    #[command(flatten)]
    targets: Targets,
}

/// Allow held jobs, or held tasks of an array, to start
///
/// The release of an array also releases its tasks that are held on their own. Only operators release what an operator
/// holds.
#[derive(Debug, Args)]
pub struct Release {
    #[command(flatten)]
    targets: Targets,
}

/// Queue jobs again; running jobs are stopped and start over
///
/// Of an array, this queues all tasks that run, or that failed, were cancelled, reached a limit or were lost with their
/// node. Completed tasks keep their results, also if you name one, e.g. 12_3. With --completed, they run again; fetch their
/// results first.
///
/// A job whose tasks have all completed usually cannot be requeued, because the head has deleted the job's environment
/// variables. Submit such a job again.
///
/// Jobs that were cancelled because they depend on this job stay cancelled. With --dependents, they are queued again and
/// wait for this job, unless another of their dependencies can never be satisfied.
#[derive(Debug, Args)]
pub struct Requeue {
    #[command(flatten)]
    targets: Targets,

    /// Also queue completed tasks again; this deletes their results, which must have been fetched
    #[arg(long)]
    completed: bool,

    /// Start in the folder as the last attempt left it, e.g. with its checkpoints, instead of in the submitted folder
    #[arg(long)]
    keep_files: bool,

    /// Hold the queued tasks until `hostler release`
    #[arg(long)]
    hold: bool,

    /// Also queue the jobs that were cancelled because these jobs did not end as their dependencies required
    #[arg(long)]
    dependents: bool,

    /// New time limit, e.g. 90s, 1h30m or 1-12:00:00
    #[arg(short, long, value_name = "TIME")]
    time: Option<TimeLimit>,

    /// New memory on each node, e.g. 600M or 2G
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<Memory>,
}

/// Send a signal to processes of a running job
///
/// The job's program gets the signal, but not the processes that it started. A node that the head cannot reach at this moment
/// gets none. To end a step and not its job, send it KILL.
#[derive(Debug, Args)]
pub struct Signal {
    /// The job: its id, e.g. 12; an array task, e.g. 12_3; its name; or `last` for your newest job
    #[arg(value_name = "JOB")]
    job: Word,

    /// Name or number of the signal, e.g. USR1
    #[arg(value_name = "SIGNAL")]
    signal: SignalNumber,

    /// Who gets the signal: program, group (the program and the processes that it started), steps, or all
    #[arg(long, value_name = "TO", default_value = "program")]
    to: SignalTarget,

    /// Only the processes of this running step, e.g. 0; `hostler job` lists the steps
    #[arg(long, value_name = "NUMBER", conflicts_with = "to")]
    step: Option<u32>,
}

/// The jobs and tasks to act on.
#[derive(Debug, Args)]
struct Targets {
    /// Jobs: ids, e.g. 12; array tasks, e.g. 12_3 or 12_0-9; ranges, e.g. 12-20; names; or `last` for your newest job
    #[arg(value_name = "JOB", required_unless_present_any = ["user", "name", "state", "partition", "everything"])]
    words: Vec<Word>,

    #[command(flatten)]
    filter: Filter,

    /// All your jobs for which this makes sense, or with --user those of this user
    #[arg(long = "all", id = "everything")]
    everything: bool,

    /// Do not ask before acting on several jobs that match a filter
    #[arg(short, long)]
    yes: bool,
}

impl Targets {
    /// The jobs that the person means; none after a "no". Names and filters stand for jobs in `states`, and `verb` is what
    /// happens to them.
    fn find(
        &self,
        context: &Context,
        client: &Client,
        verb: &str,
        states: &[JobState],
    ) -> Result<Vec<Target>, Failure> {
        let is_filtered = self.everything || !self.filter.is_empty();
        let targets = block_on(async {
            match (is_filtered, self.words.is_empty()) {
                (true, false) => Err(choice::both()),
                (true, true) => self.filter.find(client, states).await,
                (false, _) => choice::named(client, &self.words, Some(states)).await,
            }
        })?;
        if targets.is_empty() {
            block_on(self.filter.explain_none(context, client))?;
        }
        let asks = is_filtered && targets.len() > 1 && !self.yes && io::stdin().is_terminal();
        let jobs = plural(targets.len(), "job");
        if asks && !context.output.confirms(&format!("`hostler {verb}`"), &format!("{verb} {jobs}?"))? {
            return Err(Failure::declined("nothing was changed"));
        }
        Ok(targets)
    }
}

impl Cancel {
    pub fn run(self, context: &Context) -> Outcome {
        act(context, &self.targets, JobAction::Cancel)
    }
}

impl Hold {
    pub fn run(self, context: &Context) -> Outcome {
        act(context, &self.targets, JobAction::Hold)
    }
}

impl Release {
    pub fn run(self, context: &Context) -> Outcome {
        act(context, &self.targets, JobAction::Release)
    }
}

impl Requeue {
    pub fn run(self, context: &Context) -> Outcome {
        let change = self.change()?;
        let action = match (self.hold || change.is_some(), self.completed) {
            (true, completed) => JobAction::RequeueHeld { completed },
            (false, true) => JobAction::RequeueAll,
            (false, false) => JobAction::Requeue,
        };
        let client = context.client()?;
        let targets = self.targets.find(context, &client, "requeue", states_for(action))?;
        if change.is_some() && targets.iter().any(|target| target.index.is_some()) {
            return Err(Failure::usage("single tasks of an array cannot be changed")
                .hint("name the whole array, or leave out --time and --memory"));
        }
        if let Some(change) = &change {
            let jobs: Vec<JobId> = targets.iter().map(|target| target.job).collect();
            block_on(check_change(&client, &jobs, change))?;
        }
        let (words, keeps_files, is_first_step) = (&*self.targets.words, self.keep_files, change.is_some());
        let how = How { words, keeps_files, is_first_step, ..How::default() };
        let (accepted, outcome) = act_on_each(context, &client, &targets, action, how)?;
        let mut outcome = outcome;
        if let Some(change) = change {
            outcome = and_then(outcome, change_and_release(context, &client, &accepted, &change, self.hold)?);
        }
        if self.dependents {
            return and_then(outcome, requeue_dependents(context, &targets, &accepted)?);
        }
        if !(accepted.is_empty() || context.output.is_json() || context.output.is_quiet()) {
            note_dependents(context, &targets, &accepted);
        }
        outcome
    }

    fn change(&self) -> Result<Option<JobChange>, Failure> {
        let memory_bytes = self.memory.map(|memory| memory.bytes_for("a job")).transpose()?;
        let time_limit_ms = self.time.map(TimeLimit::as_ms);
        let is_change = memory_bytes.is_some() || time_limit_ms.is_some();
        Ok(is_change.then(|| JobChange { time_limit_ms, memory_bytes, ..JobChange::default() }))
    }
}

/// The exit code of the first step that failed.
fn and_then(outcome: Outcome, code: u8) -> Outcome {
    outcome.map(|first| if first == exit::OK { code } else { first })
}

/// Changes the jobs that are queued again and held, and releases them unless they shall stay held. A job whose change is
/// refused stays held.
fn change_and_release(
    context: &Context,
    client: &Client,
    jobs: &BTreeSet<JobId>,
    change: &JobChange,
    stays_held: bool,
) -> Outcome {
    block_on(async {
        let mut code = exit::OK;
        for job in jobs {
            let changed = async {
                client.change_job(*job, change).await?;
                if !stays_held {
                    client.act(*job, None, JobAction::Release).await?;
                }
                Ok::<_, ClientError>(())
            };
            let changed = changed.await;
            if changed.is_ok() {
                let then = if stays_held { ", and held until `hostler release`" } else { "" };
                context.output.say(&format!("job {job} is queued again {}{then}", in_words(change)));
            }
            if let Err(error) = changed {
                let failure = Failure::from(error).hint(format!(
                    "job {job} is queued and held; `hostler update {job}` changes it, `hostler release {job}` lets it start"
                ));
                context.output.fail(&failure);
                code = if code == exit::OK { failure.exit } else { code };
            }
        }
        Ok(code)
    })
}

/// The new limits, such as `with a time limit of 2h00m and 4G of memory`.
fn in_words(change: &JobChange) -> String {
    let time = change.time_limit_ms.map(|ms| format!("a time limit of {}", format_duration(Duration::from_millis(ms))));
    let memory = change.memory_bytes.map(|bytes| format!("{} of memory", format_bytes(bytes)));
    format!("with {}", time.into_iter().chain(memory).collect::<Vec<_>>().join(" and "))
}

/// The states of jobs to which an action applies, if the person does not say which.
fn states_for(action: JobAction) -> &'static [JobState] {
    use JobState::{Cancelled, Failed, NodeFail, OutOfMemory, Pending, Timeout};
    match action {
        JobAction::Cancel => &JobState::LIVE,
        JobAction::Hold | JobAction::HoldForOwner | JobAction::Release => &[Pending],
        JobAction::Requeue | JobAction::RequeueHeld { .. } | JobAction::RequeueAll | JobAction::RequeueDependent => {
            &[Failed, Timeout, OutOfMemory, NodeFail, Cancelled]
        }
    }
}

/// Names the jobs that stay cancelled. The requeue has succeeded, so this neither fails nor takes long.
fn note_dependents(context: &Context, targets: &[Target], accepted: &BTreeSet<JobId>) {
    // The end of this job may interrupt its own requests.
    if targets.iter().any(|target| is_own_job(target.job)) {
        return;
    }
    let Ok(client) = context.client() else { return };
    let looked_up =
        block_on(async { Ok(within(NOTE_PATIENCE, cancelled_dependents(&client, targets, accepted)).await) });
    let Ok(Some(dependents)) = looked_up else { return };
    if dependents.is_empty() {
        return;
    }
    let listed = |ids: &mut dyn Iterator<Item = String>, between: &str| ids.collect::<Vec<_>>().join(between);
    let jobs = listed(&mut dependents.iter().map(ToString::to_string), ", ");
    let parents = listed(&mut targets.iter().map(ToString::to_string), " ");
    context.output.say(&format!(
        "note: dependent jobs stay cancelled: {jobs}; `hostler requeue --dependents {parents}` queues them too"
    ));
}

/// The result of a look-up, if it succeeds within this time.
async fn within<T>(patience: Duration, look_up: impl Future<Output = Result<T, Failure>>) -> Option<T> {
    tokio::time::timeout(patience, look_up).await.ok()?.ok()
}

/// Longest time that a look-up for a note may take.
const NOTE_PATIENCE: Duration = Duration::from_secs(2);

/// Queues cancelled dependents again, after the jobs that they depend on. Goes on if the head refuses one; the exit code is
/// that of the first failure.
fn requeue_dependents(context: &Context, targets: &[Target], accepted: &BTreeSet<JobId>) -> Outcome {
    let client = context.client()?;
    block_on(async {
        let mut code = exit::OK;
        for id in cancelled_dependents(&client, targets, accepted).await? {
            match client.act(id, None, JobAction::RequeueDependent).await {
                Ok(summary) => {
                    let target = Target { job: id, index: None };
                    context.output.say(&sentence(target, JobAction::RequeueDependent, summary.state));
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    context.output.fail(&failure);
                    code = if code == exit::OK { failure.exit } else { code };
                }
            }
        }
        Ok(code)
    })
}

/// The jobs that were cancelled because targets did not end as required, directly or through others, in the order of their
/// submission. Counts only targets whose requeue was accepted, and targets that wait or run already.
async fn cancelled_dependents(
    client: &Client,
    targets: &[Target],
    accepted: &BTreeSet<JobId>,
) -> Result<Vec<JobId>, Failure> {
    let (mut parents, mut since) = (BTreeSet::new(), None);
    for target in targets {
        // The requeue itself reports an unknown job.
        let Ok(job) = client.job(target.job, 0).await else { continue };
        if job.summary.state.is_ended() && !accepted.contains(&target.job) {
            continue;
        }
        parents.insert(target.job);
        let submitted_at = job.summary.submitted_at;
        since = Some(since.map_or(submitted_at, |since: WallTime| since.min(submitted_at)));
    }
    if parents.is_empty() {
        return Ok(Vec::new());
    }
    let filter =
        RecordFilter { states: vec![JobState::Cancelled], ended_since: since, live: true, ..RecordFilter::default() };
    let mut because_of_them = Vec::new();
    for id in dependents_of(&parents, client.records(&filter).await?) {
        let is_for_dependency = |task: &TaskView| task.message.as_ref().is_some_and(|it| it.ends_with(NEVER_SATISFIED));
        if client.job_with_cancelled_task(id).await?.tasks_shown.first().is_some_and(is_for_dependency) {
            because_of_them.push(id);
        }
    }
    Ok(because_of_them)
}

/// The end of the message of a job that was cancelled because of its dependency.
const NEVER_SATISFIED: &str = "can never be satisfied";

/// The jobs of `records` that depend on `parents`, directly or through others, in the order of their submission.
fn dependents_of(parents: &BTreeSet<JobId>, mut records: Vec<JobRecord>) -> Vec<JobId> {
    records.sort_by_key(|record| record.id);
    let mut found = Vec::new();
    for record in records {
        let depends = |on: JobId| parents.contains(&on) || found.contains(&on);
        if record.after.iter().any(|dependency| depends(dependency.job)) {
            found.push(record.id);
        }
    }
    found
}

impl Signal {
    pub fn run(self, context: &Context) -> Outcome {
        let Self { job, signal, to, step } = self;
        let client = context.client()?;
        let (target, sent) = block_on(async {
            let target = choice::one(&client, &job).await?;
            let Target { job, index } = target;
            let sent = match step {
                Some(step) => client.signal_step(job, index, step, signal).await?,
                None => client.signal(job, index, signal, to).await?,
            };
            Ok((target, sent))
        })?;
        let of = step.map(|step| format!("step {step} of ")).unwrap_or_default();
        context.output.say(&format!("{signal} is sent to {of}job {target}"));
        if sent.unreachable > 0 {
            let nodes = plural(sent.unreachable, "node");
            context.output.say(&format!("no signal went to {nodes} of the job that cannot be reached"));
        }
        if context.output.is_json() {
            context.output.json(&sent);
        }
        Ok(if sent.nodes == 0 { exit::FAILED } else { exit::OK })
    }
}

/// If this program runs inside the job, makes it ignore the SIGTERM that ends the job: a job that requeues itself must learn
/// that this succeeded. SIGKILL still follows after the grace period.
pub(crate) fn outlive_own_job(job: JobId) {
    if is_own_job(job) {
        // SAFETY: this installs no handler.
        let _ = unsafe { signal(nix::sys::signal::Signal::SIGTERM, SigHandler::SigIgn) };
    }
}

/// Whether this program runs inside the job.
fn is_own_job(job: JobId) -> bool {
    std::env::var("HOSTLER_JOB_ID").is_ok_and(|own| own == job.to_string())
}

fn act(context: &Context, targets: &Targets, action: JobAction) -> Outcome {
    let client = context.client()?;
    // Of the waiting jobs that a filter matches, some are held.
    let skips = action == JobAction::Release && targets.words.is_empty();
    let words = &targets.words;
    let targets = targets.find(context, &client, verb(action), states_for(action))?;
    let (accepted, outcome) = act_on_each(context, &client, &targets, action, How { skips, words, ..How::default() })?;
    if skips && accepted.is_empty() && !targets.is_empty() {
        context.output.say("no job that matches is held");
    }
    outcome
}

/// How an action is applied.
#[derive(Debug, Clone, Copy, Default)]
struct How<'a> {
    /// The jobs as the person named them.
    words: &'a [Word],
    /// The next attempt starts with the files of the last.
    keeps_files: bool,
    /// Passes over jobs in a state in which the action makes no sense.
    skips: bool,
    /// A later step says what became of the jobs.
    is_first_step: bool,
}

/// Applies the action to every target, even if it fails for some. Returns the jobs for which it was accepted, and the outcome
/// with the exit code of the first failure.
fn act_on_each(
    context: &Context,
    client: &Client,
    targets: &[Target],
    action: JobAction,
    how: How<'_>,
) -> Result<(BTreeSet<JobId>, Outcome), Failure> {
    block_on(async {
        let mut accepted = BTreeSet::new();
        let (mut acted_on, mut summaries) = (Vec::new(), Vec::new());
        let mut failures = Vec::new();
        let is_summed_up = targets.len() > MOST_LINES && !how.is_first_step;
        let began = if is_summed_up { Some(client.me().await?.now) } else { None };
        targets.iter().for_each(|target| outlive_own_job(target.job));
        let requests = stream::iter(targets).map(|it| client.act_and_keep(it.job, it.index, action, how.keeps_files));
        let mut answers = stream::iter(targets).zip(requests.buffered(AT_ONCE));
        while let Some((target, answer)) = answers.next().await {
            match answer {
                Ok(summary) => {
                    if targets.len() <= MOST_LINES && !how.is_first_step {
                        let state = state_after(client, *target, action, &summary).await;
                        context.output.say(&sentence(*target, action, state));
                    }
                    accepted.insert(target.job);
                    acted_on.push(*target);
                    summaries.push(summary);
                }
                Err(error) if how.skips && error.code() == Some("wrong_state") => {}
                Err(error) if targets.len() == 1 => return Ok((accepted, Err(error.into()))),
                Err(error) => {
                    let failure = Failure::from(error);
                    // Of many targets, one example for each kind of error is enough.
                    let is_new = failures.iter().all(|earlier: &Failure| earlier.code() != failure.code());
                    if is_new || (!is_summed_up && failures.len() < MOST_LINES) {
                        context.output.fail(&failure);
                    }
                    failures.push(failure);
                }
            }
        }
        if let Some(began) = began {
            let refused = match failures.len() {
                0 => String::new(),
                count => format!("; {count} refused"),
            };
            let what = match summaries.as_slice() {
                [job] => sentence(acted_on[0], action, state_after(client, acted_on[0], action, job).await),
                jobs => of_many(action, targets, jobs, began, how.words),
            };
            context.output.say(&format!("{what}{refused}"));
        }
        if context.output.is_json() {
            context.output.json(&summaries);
        }
        Ok((accepted, Ok(failures.first().map_or(exit::OK, |failure| failure.exit))))
    })
}

/// Most jobs for which each gets a line of its own.
const MOST_LINES: usize = 10;

/// Most requests on the way to the head.
const AT_ONCE: usize = 16;

/// The command for an action.
fn verb(action: JobAction) -> &'static str {
    match action {
        JobAction::Cancel => "cancel",
        JobAction::Hold | JobAction::HoldForOwner => "hold",
        JobAction::Release => "release",
        JobAction::Requeue | JobAction::RequeueHeld { .. } | JobAction::RequeueAll | JobAction::RequeueDependent => {
            "requeue"
        }
    }
}

/// What happens to several jobs or tasks, named by `words`, because of an action that `began` at this time of the head.
fn of_many(action: JobAction, targets: &[Target], jobs: &[JobSummary], began: WallTime, words: &[Word]) -> String {
    // This action has ended the jobs that waited.
    let is_over = |job: &&JobSummary| {
        job.state.is_ended() && (job.state != JobState::Cancelled || job.ended_at.is_some_and(|at| at < began))
    };
    let over = jobs.iter().filter(|job| action == JobAction::Cancel && is_over(job)).count();
    let release = words.iter().fold("hostler release".to_owned(), |line, word| format!("{line} {word}"));
    let is = |count| if count == 1 { "is" } else { "are" };
    let what = match action {
        JobAction::Cancel => "being cancelled".to_owned(),
        JobAction::Hold | JobAction::HoldForOwner => format!("held until `{release}`"),
        JobAction::Release => "released".to_owned(),
        JobAction::RequeueHeld { .. } => format!("queued again, and held until `{release}`"),
        JobAction::Requeue | JobAction::RequeueAll | JobAction::RequeueDependent => "queued again".to_owned(),
    };
    match (jobs.len() - over, over) {
        (0, 0) => "nothing was changed".to_owned(),
        (0, over) => format!("{} had ended already", counted(targets, over)),
        (acted, 0) => format!("{} {} {what}", counted(targets, acted), is(acted)),
        (acted, over) => format!("{} {} {what}; {over} had ended already", counted(targets, acted), is(acted)),
    }
}

/// This many of the targets, e.g. `3 jobs` or `3 tasks of job 12`.
fn counted(targets: &[Target], count: usize) -> String {
    match targets {
        [first, rest @ ..] if first.index.is_some() && rest.iter().all(|it| it.job == first.job) => {
            format!("{} of job {}", plural(count, "task"), first.job)
        }
        _ if targets.iter().all(|target| target.index.is_some()) => plural(count, "task"),
        _ => plural(count, "job"),
    }
}

/// The state of the job or task after an action. The head answers with the job's state, so this asks for that of a cancelled
/// task.
async fn state_after(client: &Client, target: Target, action: JobAction, job: &JobSummary) -> JobState {
    let Some(index) = target.index.filter(|_| action == JobAction::Cancel) else { return job.state };
    match client.task(TaskId { job: target.job, index }, Duration::ZERO).await {
        Ok(detail) => views::of_task(&detail, index).state,
        Err(_) => job.state,
    }
}

fn sentence(target: Target, action: JobAction, state: JobState) -> String {
    let what = match target.index {
        Some(_) => format!("task {target}"),
        None => format!("job {target}"),
    };
    match action {
        JobAction::Cancel if state.is_ended() => format!("{what} is {state}"),
        JobAction::Cancel if state == JobState::Pending && target.index.is_some() => {
            format!("{what} is cancelled")
        }
        JobAction::Cancel => format!("{what} is being cancelled"),
        JobAction::Hold | JobAction::HoldForOwner => format!("{what} is held until `hostler release {target}`"),
        JobAction::Release => format!("{what} is released"),
        JobAction::RequeueHeld { .. } => format!("{what} is queued again, and held until `hostler release {target}`"),
        JobAction::Requeue | JobAction::RequeueAll | JobAction::RequeueDependent => format!("{what} is queued again"),
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::Dependency;
    use hostler_proto::api::TaskCounts;

    use super::*;

    #[tokio::test]
    async fn look_up_for_a_note_neither_fails_nor_takes_long() {
        assert_eq!(within(NOTE_PATIENCE, async { Ok(7) }).await, Some(7));
        assert_eq!(within(NOTE_PATIENCE, async { Err::<u64, _>(Failure::new("the head is away")) }).await, None);
        assert_eq!(within(Duration::ZERO, std::future::pending::<Result<u64, Failure>>()).await, None);
    }

    #[test]
    fn many_tasks_are_counted_as_tasks_of_their_job() {
        let task = |job, index| Target { job: JobId(job), index: Some(index) };
        assert_eq!(counted(&[task(7, 1), task(7, 2)], 2), "2 tasks of job 7");
        assert_eq!(counted(&[task(7, 1), task(8, 2)], 1), "1 task");
        assert_eq!(counted(&[Target { job: JobId(7), index: None }, task(8, 2)], 2), "2 jobs");
        let held = |count| {
            let word = "10149_10-49".parse().expect("tasks");
            let targets: Vec<Target> = (10..50).map(|index| task(10149, index)).collect();
            let jobs = vec![summary(JobState::Pending); count];
            of_many(JobAction::Hold, &targets, &jobs, WallTime(0), &[word])
        };
        assert_eq!(held(40), "40 tasks of job 10149 are held until `hostler release 10149_10-49`");
        assert_eq!(held(0), "nothing was changed");
    }

    fn summary(state: JobState) -> JobSummary {
        let value = serde_json::json!({
            "id": 10149, "name": "x", "user": "ada", "state": state, "attempt": 0, "nodes": [], "cpus": 1,
            "memory_bytes": 1, "tasks": TaskCounts::default(), "submitted_at": 0, "priority": 0,
        });
        serde_json::from_value(value).expect("a job")
    }

    fn record(id: u64, after: &str) -> JobRecord {
        let value = serde_json::json!({
            "id": id, "name": "x", "user": "ada", "state": "cancelled", "nodes": 1, "tasks_per_node": 1, "cpus": 1,
            "memory_bytes": 1, "attempt": 0, "priority": 0, "requeue": false, "submitted_at": 0, "tasks": [],
        });
        let after = if after.is_empty() { Vec::new() } else { Dependency::parse_list(after).expect("dependencies") };
        JobRecord { after, ..serde_json::from_value(value).expect("a record") }
    }

    #[test]
    fn dependents_are_found_through_others_in_order() {
        let records = vec![
            record(9, "afterok:8"),
            record(7, ""),
            record(8, "afterok:6:5"),
            record(10, "after:7"),
            record(11, "afterany:9"),
        ];
        assert_eq!(dependents_of(&[JobId(6)].into(), records), [8, 9, 11].map(JobId));
    }
}

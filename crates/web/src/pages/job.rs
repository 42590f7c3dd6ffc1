//! A job: how it ended or why it waits, its last lines, its life, what it asked for and used, its tasks, and actions.

use askama::Template;
use axum::extract::Path;
use axum::response::Html;
use hostler_model::{Attempt, Container, JobId, JobState, OpenMode, WallTime, format_bytes, format_ms, shortened};
use hostler_proto::api::{JobAction, JobDetail, LimitView, PartView, Stage, TaskView, Why, timeline};
use hostler_proto::certificate::Certificate;
use hostler_proto::link::Output;

use super::jobs::may_change;
use super::output::{END, Lines, last_lines};
use super::terminal;
use super::usage::Usage;
use crate::api::{Api, Refused};
use crate::page::{Frame, render};
use crate::parts::{Action, Badge, Bar, Time};
use crate::shell::quoted;
use crate::task_grid::TaskGrid;
use crate::url::Url;
use crate::words;

/// Ended tasks per page.
const TASKS: usize = 50;

/// Live tasks to show. The API returns all.
const LIVE_TASKS: usize = 200;

/// Last lines of the output on the page: of a failed task, and of any other.
const LAST_LINES: usize = 40;
const FEW_LAST_LINES: usize = 15;

/// Bytes to read for the last lines.
const LAST_BYTES: u64 = 16 << 10;

/// Failed tasks that a page about all tasks shows first.
const FAILED_TASKS: usize = 10;

#[derive(Template)]
#[template(path = "job.html")]
struct Page {
    frame: Frame,
    job: JobDetail,
    badge: Badge,
    words: String,
    is_bad: bool,
    /// Against the time limit, while the job runs.
    elapsed: Option<Bar>,
    has_ended: bool,
    why: Option<Why>,
    expected: Option<Time>,
    last: Option<LastLines>,
    life: Vec<Step>,
    used: Vec<Used>,
    grid: Option<TaskGrid>,
    tasks: Vec<TaskRow>,
    hidden_tasks: usize,
    only_failed: bool,
    all_tasks: Url,
    failed_tasks: Url,
    next_tasks: Option<Url>,
    /// Pages of the only task, if the job is not an array.
    outputs: Vec<(&'static str, Url)>,
    /// What the only task used, if the job is not an array.
    usage: Option<Usage>,
    /// Whether its nodes were quiet, if the job is exclusive and no array.
    measured: Vec<String>,
    command: Option<String>,
    actions: Vec<Action>,
    duplicate: Option<Url>,
    request: String,
}

/// The last lines that a task wrote: the first failed one, or the only one.
struct LastLines {
    index: u32,
    output: &'static str,
    url: Url,
    lines: Lines,
    /// Where the script gets the lines after these, and how many lines it keeps, until the task has ended.
    follow: Option<(Url, usize)>,
}

/// A step in the life of a job: from a time, for a span.
struct Step {
    name: &'static str,
    at: Option<Time>,
    span: Option<String>,
    bar: Option<Bar>,
}

/// A limit against what was used.
struct Used {
    name: String,
    asked: String,
    used: Option<String>,
    bar: Option<Bar>,
    note: Option<String>,
}

/// A task in the table of an array.
struct TaskRow {
    index: u32,
    badge: Badge,
    words: String,
    message: Option<String>,
    node: String,
    span: String,
    memory: String,
    output: Url,
    terminal: Option<Url>,
}

/// `GET /jobs/{id}`.
pub(crate) async fn show(frame: Frame, Path(id): Path<JobId>) -> Result<Html<String>, Refused> {
    let url = Url::job(id);
    let only_failed = frame.query.get("tasks") == Some("failed");
    let mut request = url.clone().with("tasks", TASKS).with("indices", true);
    if only_failed {
        request = request.with("state", words::states(&JobState::FAILED));
    }
    let from = frame.query.read::<u32>("from")?;
    if let Some(from) = from {
        request = request.with("from", from);
    }
    let mut job: JobDetail = frame.api.get(&request).await?;
    let summary = &job.summary;
    let is_own = may_change(&frame, summary);
    let is_array = summary.array.is_some();
    let why: Option<Why> = match summary.state {
        JobState::Pending => Some(frame.api.get(&url.clone().then("why")).await?),
        _ if summary.tasks.pending > 0 => Some(frame.api.get(&url.clone().then("why")).await?),
        _ => None,
    };
    let has_started = is_own && !is_array && summary.started_at.is_some();
    let last = if is_own && summary.state.is_failure() {
        last_lines_of_failure(&frame.api, &job).await
    } else if has_started {
        last_lines_of_only_task(&frame.api, &job).await
    } else {
        None
    };
    let next_tasks = job.tasks_next.filter(|_| is_array).map(|next| frame.here.without("from").with("from", next));
    let hidden_tasks = job.tasks_shown.len().saturating_sub(LIVE_TASKS + TASKS);
    job.tasks_shown.truncate(LIVE_TASKS + TASKS);
    if is_array && !only_failed && from.is_none() && summary.tasks.not_completed() > 0 {
        let request = url.clone().with("tasks", FAILED_TASKS).with("state", words::states(&JobState::FAILED));
        let failed: JobDetail = frame.api.get(&request).await?;
        let failed = failed.tasks_shown.into_iter().filter(|task| task.state.is_failure()).take(FAILED_TASKS);
        let mut first: Vec<TaskView> = failed.collect();
        job.tasks_shown.retain(|task| first.iter().all(|it| it.index != task.index));
        first.append(&mut job.tasks_shown);
        job.tasks_shown = first;
    }
    let summary = &job.summary;
    let grid = summary.array.as_ref().and_then(|array| TaskGrid::new(id, &array.indices, job.indices.as_ref()?));
    let tasks = if is_array {
        job.tasks_shown.iter().map(|task| TaskRow::new(&frame, &job, task)).collect()
    } else {
        Vec::new()
    };
    let of_task = |page| Url::job(id).then("tasks").then(0).then(page);
    let terminal = (job.terminal && summary.state == JobState::Running).then(|| ("terminal", terminal::url(id, 0)));
    // A job that no node has had yet has no output.
    let is_untouched = summary.state == JobState::Pending && summary.started_at.is_none();
    let outputs = [Output::Stdout, Output::Stderr, Output::Setup]
        .map(|output| (output.as_str(), output_of(id, 0, output)))
        .into_iter()
        .chain([("files of the result", of_task("files")), ("usage over time", of_task("usage"))])
        .chain(terminal)
        .collect();
    let usage = if has_started { Usage::of_job(&frame, id, !summary.state.is_ended()).await.ok() } else { None };
    let running_ms = summary.started_at.filter(|_| !summary.state.is_ended()).map(|started| ms(started, frame.wall()));
    let elapsed =
        running_ms.zip(summary.time_limit_ms).map(|(run_ms, limit)| Bar::new("Share of the time limit", run_ms, limit));
    let expected = why.as_ref().and_then(|why| why.expected_start_at).map(|at| frame.full(at));
    Ok(render(&Page {
        badge: Badge::shown(summary),
        words: words::beside(summary),
        is_bad: summary.state.is_failure(),
        has_ended: summary.state.is_ended(),
        life: life(&frame, &job),
        used: used(&frame, &job, usage.as_ref()),
        measured: if is_array { Vec::new() } else { measured(&job) },
        command: is_own.then(|| again(&job)),
        actions: if is_own { actions(&frame, &job) } else { Vec::new() },
        duplicate: is_own.then(|| url.clone().then("duplicate")),
        request: words::request(summary),
        outputs: if is_own && !is_array && !is_untouched { outputs } else { Vec::new() },
        usage,
        all_tasks: url.clone(),
        failed_tasks: url.with("tasks", "failed"),
        why,
        expected,
        last,
        grid,
        elapsed,
        tasks,
        hidden_tasks,
        only_failed,
        next_tasks,
        job,
        frame,
    }))
}

fn output_of(id: JobId, index: u32, output: Output) -> Url {
    Url::job(id).then("tasks").then(index).then("output").then(output.as_str()).at(END)
}

/// The last lines of the first failed task: of stderr, or else of another output that is not empty.
async fn last_lines_of_failure(api: &Api, job: &JobDetail) -> Option<LastLines> {
    let id = job.summary.id;
    let has_failed = |task: &&TaskView| task.state.is_failure();
    let index = match job.tasks_shown.iter().find(has_failed) {
        Some(task) => task.index,
        None => {
            let request = Url::job(id).with("tasks", 1).with("state", words::states(&JobState::FAILED));
            let failed: JobDetail = api.get(&request).await.ok()?;
            failed.tasks_shown.iter().find(has_failed)?.index
        }
    };
    for output in [Output::Stderr, Output::Stdout, Output::Setup] {
        let lines = last_lines(api, (id, index, output), LAST_BYTES, LAST_LINES).await.ok()?;
        if !lines.lines.is_empty() {
            let url = output_of(id, index, output);
            return Some(LastLines { index, output: output.as_str(), url, lines, follow: None });
        }
    }
    None
}

/// Returns the last lines of a job's only task: of stdout, or of stderr if stdout is empty.
async fn last_lines_of_only_task(api: &Api, job: &JobDetail) -> Option<LastLines> {
    let (id, is_live) = (job.summary.id, !job.summary.state.is_ended());
    for output in [Output::Stdout, Output::Stderr] {
        let which = (id, 0, output);
        let lines = last_lines(api, which, LAST_BYTES, FEW_LAST_LINES).await.ok()?;
        if !lines.lines.is_empty() {
            let follow = is_live.then(|| (lines.following(which), FEW_LAST_LINES));
            return Some(LastLines { index: 0, output: output.as_str(), url: output_of(id, 0, output), lines, follow });
        }
    }
    None
}

/// The life of a job as far as the head knows it.
fn life(frame: &Frame, job: &JobDetail) -> Vec<Step> {
    let summary = &job.summary;
    let now = frame.wall();
    let only = job.tasks_shown.first().filter(|_| summary.array.is_none());
    let collected = only.and_then(|task| task.stages.collected_at).filter(|_| summary.ended_at.is_some());
    let until = collected.or(summary.ended_at).unwrap_or(now);
    let total = ms(summary.submitted_at, until).max(1);
    let step = |name, from: WallTime, to: Option<WallTime>| {
        let span = ms(from, to.unwrap_or(now));
        let text = if to.is_some() { format_ms(span) } else { format!("{} so far", format_ms(span)) };
        let start = ms(summary.submitted_at, from);
        let bar = Bar::between(format!("{name}: {text}"), start, start + span, total);
        Step { name, at: Some(frame.full(from)), span: Some(text), bar: Some(bar) }
    };
    let mut steps: Vec<Step> = match only {
        Some(task) => {
            let stages = timeline(summary.submitted_at, task).into_iter();
            stages.map(|(stage, from, to)| step(in_words(stage, task.attempt), from, to)).collect()
        }
        // Tasks of an array pass through the stages at different times.
        None => {
            let name = if summary.array.is_some() { "Queued and prepared" } else { "Queued" };
            let queued = step(name, summary.submitted_at, summary.started_at.or(summary.ended_at));
            let ran = summary.started_at.map(|started| step("Ran", started, summary.ended_at));
            std::iter::once(queued).chain(ran).collect()
        }
    };
    if let Some(ended) = summary.ended_at {
        steps.push(Step { name: "Ended", at: Some(frame.full(ended)), span: None, bar: None });
    }
    steps
}

const fn in_words(stage: Stage, attempt: Attempt) -> &'static str {
    match stage {
        Stage::Queued if attempt.0 > 1 => "Queued, with earlier attempts",
        Stage::Queued => "Queued",
        Stage::Staging => "Files fetched",
        Stage::Environment => "Environment prepared",
        Stage::Preparing => "Prepared",
        Stage::Running => "Ran",
        Stage::Collecting => "Results collected",
    }
}

fn ms(from: WallTime, to: WallTime) -> u64 {
    u64::try_from(to.0 - from.0).unwrap_or(0)
}

/// The limits of a job against what its tasks used, at most; while the only task runs, against what it has used so far.
fn used(frame: &Frame, job: &JobDetail, usage: Option<&Usage>) -> Vec<Used> {
    let summary = &job.summary;
    let usages = || job.tasks_shown.iter().filter_map(|task| task.usage);
    let is_running = summary.state == JobState::Running && summary.array.is_none();
    // The figures of a task on several nodes are those of its first node.
    let figures = usage.filter(|_| is_running && summary.node_count == 1);
    let memory = usages().filter_map(|usage| usage.memory_peak_bytes).max();
    let memory = memory.or_else(|| figures.and_then(Usage::highest_memory));
    let running_ms = summary.started_at.filter(|_| is_running).map(|started| ms(started, frame.wall()));
    let wall_ms = usages().map(|usage| usage.wall_ms).max().or(running_ms);
    // The CPUs that a task used on average over its time.
    let cpus = usages()
        .filter(|usage| usage.wall_ms > 0)
        .map(|usage| (usage.user_ms + usage.system_ms) as f64 / usage.wall_ms as f64)
        .reduce(f64::max);
    let cpus = cpus.or_else(|| figures.and_then(Usage::mean_cpus));
    let so_far = if is_running { " so far" } else { "" };
    let row = |limit: &LimitView| {
        let name = limit.name.as_str();
        let value = limit.value.max(1);
        let (label, asked, used, share) = match name {
            "cpus" => {
                let all = value * u64::from(job.summary.node_count);
                let share = cpus.map(|cpus| ((cpus * 1000.0) as u64, all * 1000));
                ("CPUs".to_owned(), all.to_string(), cpus.map(|cpus| format!("{cpus:.2} on average{so_far}")), share)
            }
            "memory" => {
                let used = memory.map(|memory| format!("{} at most{so_far}", format_bytes(memory)));
                ("Memory".to_owned(), format_bytes(value), used, memory.map(|memory| (memory, value)))
            }
            "time" => {
                let used = wall_ms.map(|wall_ms| format!("{}{so_far}", format_ms(wall_ms)));
                ("Time".to_owned(), format_ms(value), used, wall_ms.map(|wall_ms| (wall_ms, value)))
            }
            "gpus" => ("GPUs".to_owned(), limit.value.to_string(), None, None),
            other => (other.to_owned(), limit.value.to_string(), None, None),
        };
        let bar =
            share.map(|(used, total)| Bar::new(format!("{label}: share of the limit that was used"), used, total));
        let note = match (limit.enforcement == "advisory", &limit.why) {
            (true, Some(why)) => Some(format!("not enforced: {why}")),
            (true, None) => Some("not enforced".to_owned()),
            (false, why) => why.clone(),
        };
        Used { name: label, asked, used, bar, note }
    };
    job.limits.iter().map(row).collect()
}

/// The measurement certificates of the only task in words, one for each of its nodes.
fn measured(job: &JobDetail) -> Vec<String> {
    let words = |certificate: &Certificate| match &certificate.quiet_machine {
        Some(machine) => format!("{} (machine {})", certificate.in_words(), machine.in_words()),
        None => certificate.in_words(),
    };
    let of_task = |task: &TaskView| {
        let part = |part: &PartView| Some(format!("{}: {}", part.node, words(part.certificate.as_deref()?)));
        let own = task.certificate.as_deref().map(words);
        own.into_iter().chain(task.parts.iter().filter_map(part)).collect::<Vec<_>>()
    };
    job.tasks_shown.iter().flat_map(of_task).collect()
}

/// The command that submits the job again.
fn again(job: &JobDetail) -> String {
    let (summary, around) = (&job.summary, &job.surroundings);
    let verb = if job.directory.is_some() { "run" } else { "submit" };
    let mut words = vec!["hostler".to_owned(), verb.to_owned()];
    words.extend(around.exclusive.then(|| "--exclusive".to_owned()));
    words.extend(around.quiet_machine.then(|| "--quiet-machine".to_owned()));
    words.extend(around.oom_fails.then(|| "--oom=fail".to_owned()));
    words.extend(around.sandbox.then(|| "--sandbox".to_owned()));
    words.extend(around.image.iter().flat_map(|image| ["--image".to_owned(), quoted(image.as_str())]));
    if let Some(Container { engine, image }) = around.container.as_deref() {
        words.extend([format!("--runtime={engine}"), "--image".to_owned(), quoted(image.as_str())]);
    }
    words.extend(around.entrypoint.then(|| "--entrypoint".to_owned()));
    words.extend((!around.network.is_none()).then(|| format!("--network={}", around.network)));
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), quoted(&value)]);
    option("--name", summary.name.clone());
    option("-c", summary.cpus.to_string());
    option("-m", format_bytes(summary.memory_bytes));
    if summary.gpus > 0 {
        option("-g", summary.gpus.to_string());
    }
    for (name, amount) in summary.counted.iter() {
        option("--resource", format!("{name}={amount}"));
    }
    if summary.node_count > 1 {
        option("-N", summary.node_count.to_string());
    }
    if let Some(limit) = job.limits.iter().find(|limit| limit.name == "time") {
        option("-t", format_ms(limit.value));
    }
    if let Some(partition) = &summary.partition {
        option("-p", partition.to_string());
    }
    if let Some(constraint) = &job.constraint {
        option("--constraint", constraint.to_string());
    }
    if let Some(array) = &summary.array {
        option("-a", array.to_string());
    }
    if summary.priority != 0 {
        option("--priority", summary.priority.to_string());
    }
    for subscription in &job.notify {
        option("--notify", subscription.to_string());
    }
    let mut appends = false;
    if let Some(files) = &job.files {
        for (name, path) in [("--stdin", &files.stdin), ("--stdout", &files.stdout), ("--stderr", &files.stderr)] {
            if let Some(path) = path {
                option(name, path.clone());
            }
        }
        appends = files.open_mode == Some(OpenMode::Append);
    }
    let flags = [(job.requeue, "--requeue"), (job.terminal, "--pty"), (appends, "--append"), (job.script, "--script")];
    words.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.to_owned()));
    let line = words.join(" ");
    match &job.directory {
        Some(directory) => format!("cd {} && {line} -- {}", quoted(directory), job.command),
        None => format!("{line} . {}", job.command),
    }
}

/// The buttons for what can be done with the job now.
fn actions(frame: &Frame, job: &JobDetail) -> Vec<Action> {
    let summary = &job.summary;
    let has_ended = summary.state.is_ended();
    let is_held = summary.reason.as_deref().is_some_and(|reason| reason.contains("held"));
    let button = |action: JobAction, label: &str| {
        let base = Action::new(Url::of(["jobs", "act"]), label, frame.token());
        let base = base.field("action", action.as_str()).field("job", summary.id.to_string());
        base.field("back", Url::job(summary.id).to_string())
    };
    let mut all = Vec::new();
    if !has_ended {
        let question =
            format!("Cancel job {} ({})? Its output and the files written so far are kept.", summary.id, summary.name);
        all.push(button(JobAction::Cancel, "Cancel the job").field("confirmed", "yes").confirm(question));
    }
    if summary.tasks.pending > 0 {
        all.push(if is_held { button(JobAction::Release, "Release") } else { button(JobAction::Hold, "Hold") });
    }
    // The head refuses to requeue a job whose tasks have all completed.
    if has_ended && summary.state != JobState::Completed || summary.tasks.live > 0 {
        let mut question = format!("Run job {} again from the start? Running tasks are ended first.", summary.id);
        if summary.tasks.completed > 0 {
            question.push_str(" Completed tasks keep their results.");
        }
        all.push(button(JobAction::Requeue, "Requeue").field("confirmed", "yes").confirm(question));
        if job.snapshot.is_some() && has_ended {
            let question = format!(
                "Run job {} again in the folder as the last attempt left it, e.g. with its checkpoints?",
                summary.id
            );
            let button = button(JobAction::Requeue, "Requeue with its files").field("confirmed", "yes");
            all.push(button.field("keep_files", "yes").confirm(question));
        }
    }
    all
}

impl TaskRow {
    fn new(frame: &Frame, job: &JobDetail, task: &TaskView) -> Self {
        let id = job.summary.id;
        let has_terminal = job.terminal && task.state == JobState::Running && may_change(frame, &job.summary);
        let span = match (task.usage, task.started_at) {
            (Some(usage), _) => format_ms(usage.wall_ms),
            (None, Some(at)) if !task.state.is_ended() => format!("{} so far", format_ms(ms(at, frame.wall()))),
            _ => String::new(),
        };
        let memory = task.usage.and_then(|usage| usage.memory_peak_bytes).map(format_bytes).unwrap_or_default();
        let output = if task.state.is_failure() { Output::Stderr } else { Output::Stdout };
        Self {
            index: task.index,
            badge: Badge::job(task.state),
            words: words::beside_task(task.state, task.exit_code),
            message: task.message.as_deref().map(|message| shortened(message, 200)),
            node: task.node.as_ref().map(ToString::to_string).unwrap_or_default(),
            span,
            memory,
            output: output_of(id, task.index, output),
            terminal: has_terminal.then(|| terminal::url(id, task.index)),
        }
    }
}

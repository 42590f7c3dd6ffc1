//! Text views of jobs and of the cluster. Pure: the clock and the terminal's width are arguments.

use std::fmt::Write as _;

use hostler_model::{Attempt, JobState, NodeName, SandboxNetwork, TaskId, WallTime, format_bytes, format_ms, plural};
use hostler_proto::api::{Info, JobDetail, JobSummary, LimitView, Pace, PartView, TaskCounts, TaskView, Why, timeline};
use hostler_proto::link::{StepRecord, Usage};

use super::table::{Align, Table};
use super::text::{Lines, Moment, counted, held_gpus, job_energy};

/// The state of the job; for an array that has not ended, also the number of ended tasks.
pub(crate) fn state(job: &JobSummary) -> String {
    let tasks = &job.tasks;
    match &job.array {
        Some(_) if !job.state.is_ended() => {
            format!("{} {}/{}", job.state, tasks.ended(), tasks.total)
        }
        Some(_) | None => job.shown_state().to_owned(),
    }
}

/// Why a job waits, what is wrong with one of its nodes, what its nodes do while it starts, or how it ended; empty while
/// the job runs and after it has completed.
pub(crate) fn outcome(job: &JobSummary) -> String {
    let of_array = job.array.as_ref().and_then(|_| ended_tasks(&job.tasks));
    // Logs follow in more lines.
    let message = job.message.as_deref().and_then(|message| message.lines().next()).map(str::to_owned);
    let parts = if job.state.is_ended() {
        let is_single = job.array.is_none();
        let code = job.exit_code.filter(|code| is_single && *code != 0 && job.state == JobState::Failed);
        let usual = || why_ended(job).filter(|_| is_single && code.is_none());
        [of_array, code.map(|code| format!("exit code {code}")), message.or_else(usual)]
    } else {
        [of_array, message, job.node_problem.clone().or_else(|| waits(job))]
    };
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Why a job waits. For an array of which other tasks are placed, also how many tasks wait.
fn waits(job: &JobSummary) -> Option<String> {
    let reason = job.reason.as_ref()?;
    Some(match job.state {
        JobState::Pending => reason.clone(),
        _ => format!("{} pending: {reason}", job.tasks.pending),
    })
}

/// Why a job ended as it did, for ends about which the node reports no details. `None` for exit codes.
fn why_ended(job: &JobSummary) -> Option<String> {
    let why = match (job.state, job.exit_code) {
        (JobState::Timeout, _) => match job.time_limit_ms {
            Some(limit) => {
                return Some(format!("reached its time limit of {}", format_ms(limit)));
            }
            None => "reached its time limit",
        },
        (JobState::OutOfMemory, _) => "exceeded its memory limit",
        (JobState::Cancelled, _) if job.started_at.is_some() => "a user cancelled it while it ran",
        (JobState::Cancelled, _) => "a user cancelled it before it ran",
        (JobState::NodeFail, _) => "its node was lost",
        (JobState::Preempted, _) => "ended to free resources for another job",
        (JobState::Failed, None) => "could not start",
        (JobState::Failed, Some(_))
        | (
            JobState::Pending | JobState::Starting | JobState::Running | JobState::Completing | JobState::Completed,
            _,
        ) => return None,
    };
    Some(why.to_owned())
}

/// The message of a listed task, or why it ended as it did.
fn message(job: &JobDetail, task: &TaskView) -> Option<String> {
    task.message.clone().or_else(|| why_ended(&of_task(job, task.index)))
}

/// The number of tasks of an array by result; `None` if all ended tasks have completed.
pub(crate) fn ended_tasks(tasks: &TaskCounts) -> Option<String> {
    let not_completed = JobState::ENDED.into_iter().filter(|state| *state != JobState::Completed);
    (tasks.not_completed() > 0).then(|| tasks.in_words(not_completed.chain([JobState::Completed])))
}

pub(crate) fn nodes(nodes: &[NodeName]) -> String {
    match nodes {
        [] => "-".to_owned(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// A sentence about the deletion of unfetched files: of how many jobs, and when.
pub(crate) fn expiring(jobs: u64, first: WallTime, moment: &Moment) -> String {
    let (files, when) = match jobs {
        1 => ("the files of 1 job that nobody has fetched".to_owned(), String::new()),
        _ => (format!("the files of {jobs} jobs that nobody has fetched"), "the first ".to_owned()),
    };
    let after = format_ms(first.ms_since(moment.now));
    let date = moment.date(first);
    format!("note: the head deletes {files}, {when}in {after}, on {date}; `hostler fetch --all` downloads them")
}

pub(crate) fn task(job: &JobDetail, task: TaskId, moment: &Moment, width: Option<usize>) -> String {
    let shown = JobDetail {
        summary: of_task(job, task.index),
        energy: None,
        unfetched: job.tasks_shown.iter().filter(|it| it.result.is_some() && !it.fetched).count() as u64,
        ..job.clone()
    };
    described(&task.to_string(), &shown, moment, width)
}

/// The summary of a listed task, in the form of a job's summary.
pub(crate) fn of_task(job: &JobDetail, index: u32) -> JobSummary {
    let Some(task) = job.tasks_shown.iter().find(|task| task.index == index) else { return job.summary.clone() };
    let nodes = task.parts.iter().map(|part| part.node.clone());
    let nodes = if task.parts.is_empty() { task.node.iter().cloned().collect() } else { nodes.collect::<Vec<_>>() };
    let is_here = |problem: &String| nodes.iter().any(|node| problem.split(' ').next() == Some(node.as_str()));
    JobSummary {
        state: task.state,
        reason: job.summary.reason.clone().filter(|_| task.state == JobState::Pending),
        node_problem: job
            .summary
            .node_problem
            .clone()
            .filter(|problem| task.state != JobState::Pending && !task.state.is_ended() && is_here(problem)),
        attempt: task.attempt,
        nodes,
        exit_code: task.exit_code,
        message: task.message.clone(),
        array: None,
        started_at: task.started_at,
        ended_at: task.ended_at,
        ..job.summary.clone()
    }
}

/// The details of a job, with its tasks if it is an array.
pub(crate) fn job(job: &JobDetail, moment: &Moment, width: Option<usize>) -> String {
    described(&job.summary.id.to_string(), job, moment, width)
}

fn described(id: &str, job: &JobDetail, moment: &Moment, width: Option<usize>) -> String {
    let summary = &job.summary;
    let mut lines = Lines::default();
    lines.add("job", format!("{id}  {}", summary.name));
    lines.add("user", &summary.user);
    lines.add("state", state_phrase(summary));
    lines.add_some("waits", waits(summary));
    lines.add_some("node", summary.node_problem.as_ref());
    let command = if job.command.is_empty() { "(visible only to its user and operators)" } else { &job.command };
    lines.add("command", command);
    if let Some(files) = &job.files {
        lines.add_some("stdin", files.stdin.as_ref());
        lines.add_some("stdout", files.stdout.as_ref());
        lines.add_some("stderr", files.stderr.as_ref());
    }
    lines.add_some("array", summary.array.as_ref().map(|array| format!("{array}  ({})", counts(summary))));
    let around = &job.surroundings;
    let each = match (summary.node_count, around.exclusive) {
        (1, false) => String::new(),
        (1, true) => "a node to itself, with at least ".to_owned(),
        (nodes, false) => format!("{nodes} nodes, on each "),
        (nodes, true) => format!("{nodes} nodes to itself, each with at least "),
    };
    lines.add("needs", format!("{each}{}", summary.request()));
    lines.add_some("partition", summary.partition.as_ref().map(ToString::to_string));
    lines.add_some("nodes have", job.constraint.as_ref().map(ToString::to_string));
    let limits: Vec<String> = job.limits.iter().map(limit).collect();
    lines.add_some("limits", (!limits.is_empty()).then(|| limits.join("; ")));
    let after: Vec<String> = job.after.iter().map(|dependency| dependency.plain().to_string()).collect();
    let separator = if job.after.iter().any(|it| it.alternative) { " or " } else { ", " };
    lines.add_some("after", (!after.is_empty()).then(|| after.join(separator)));
    lines.add_some("priority", (summary.priority != 0).then(|| summary.priority.to_string()));
    let network = match around.network {
        SandboxNetwork::None => "yes",
        SandboxNetwork::Job => "yes, with a network of the job's nodes only",
        SandboxNetwork::Host => "yes, with the network of its node",
    };
    lines.add_some("sandbox", around.sandbox.then_some(network));
    // After the end, the certificate has the details.
    let is_quieted = around.quiet_machine && summary.ended_at.is_none();
    lines.add_some("machine", is_quieted.then_some("made quiet while the job runs"));
    let entrypoint = if around.entrypoint { ", its entry point" } else { "" };
    let container = around.container.as_ref().map(|it| format!("{}{entrypoint}, run by {}", it.image, it.engine));
    lines
        .add_some("oom", around.oom_fails.then_some("fail: a process killed for memory ends the job as out_of_memory"));
    lines.add_some("image", container);
    lines.add_some("image", around.image.as_ref().map(|image| format!("{image}{entrypoint}")));
    lines.add_some("requeue", job.requeue.then_some("if its node is lost"));
    let notify: Vec<String> = job.notify.iter().map(ToString::to_string).collect();
    lines.add_some("notify", (!notify.is_empty()).then(|| notify.join(" ")));
    let tags: Vec<String> = summary.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    lines.add_some("tags", (!tags.is_empty()).then(|| tags.join(", ")));
    lines.add("submitted", moment.date(summary.submitted_at));
    lines.add_some("started", summary.started_at.map(|at| moment.date(at)));
    let ended = summary.ended_at.map(|at| match summary.started_at {
        Some(start) => format!("{}, after {}", moment.date(at), moment.span(start, Some(at))),
        None => moment.date(at),
    });
    lines.add_some("ended", ended);
    if summary.array.is_none()
        && let [task] = job.tasks_shown.as_slice()
    {
        lines.add_some("gpus", held_gpus(&task.gpu_ids));
        lines.add("stages", stages(summary, task, moment));
        lines.add_some("used", task.usage.as_ref().map(usage));
        lines.add_some("measured", task.certificate.as_ref().map(|certificate| certificate.in_words()));
        let quiet = task.certificate.as_ref().and_then(|certificate| certificate.quiet_machine.as_ref());
        lines.add_some("machine", quiet.map(|quiet| quiet.in_words()));
        lines.add_some("message", message(job, task));
    }
    lines.add_some("energy", job.energy.as_ref().map(job_energy));
    for part in job.tasks_shown.iter().filter(|_| summary.array.is_none()).flat_map(|task| &task.parts) {
        lines.add_some("gpus", held_gpus(&part.gpu_ids).map(|ids| format!("{}: {ids}", part.node)));
        let measured = part.certificate.as_ref().map(|it| format!("{}: {}", part.node, it.in_words()));
        lines.add_some("measured", measured);
        let quiet = part.certificate.as_ref().and_then(|certificate| certificate.quiet_machine.as_ref());
        lines.add_some("machine", quiet.map(|quiet| format!("{}: {}", part.node, quiet.in_words())));
    }
    lines.add_some("results", results(id, job));
    lines.add_some("kept until", job.kept_until.map(|at| moment.date(at)));
    let mut text = lines.text;
    if summary.array.is_some() && !job.tasks_shown.is_empty() {
        text.push('\n');
        text.push_str(&tasks(job, moment, width));
    }
    if let Some(left_out) = not_shown(job) {
        text.push_str(&format!("\n{left_out}\n"));
    }
    if let [TaskView { parts, .. }] = job.tasks_shown.as_slice()
        && !parts.is_empty()
    {
        text.push('\n');
        text.push_str(&node_parts(parts, width));
    }
    if let [TaskView { steps, .. }] = job.tasks_shown.as_slice()
        && !steps.is_empty()
    {
        text.push('\n');
        text.push_str(&step_table(steps, moment, width));
    }
    text
}

/// A table of a task's running steps: one row per step.
pub(crate) fn running_steps(steps: &[StepRecord], moment: &Moment, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("RUNNING STEP", Align::Right),
        ("PROGRAM", Align::Left),
        ("PROCESSES", Align::Right),
        ("NODES", Align::Left),
        ("TIME", Align::Right),
    ]);
    for step in steps {
        let nodes: Vec<&str> = step.nodes.iter().map(NodeName::as_str).collect();
        table.row([
            step.step.to_string(),
            step.name.clone(),
            step.tasks.to_string(),
            nodes.join(","),
            moment.span(step.started_at, None),
        ]);
    }
    table.render(width)
}

/// A table of a task's steps: one row per step.
fn step_table(steps: &[StepRecord], moment: &Moment, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("STEP", Align::Right),
        ("PROGRAM", Align::Left),
        ("PROCESSES", Align::Right),
        ("NODES", Align::Left),
        ("EXIT", Align::Right),
        ("TIME", Align::Right),
        ("PEAK MEMORY", Align::Right),
    ]);
    let mut steps: Vec<&StepRecord> = steps.iter().filter(|step| !step.is_script()).collect();
    steps.sort_by_key(|step| step.step);
    for step in steps {
        let nodes: Vec<&str> = step.nodes.iter().map(NodeName::as_str).collect();
        table.row([
            step.step.to_string(),
            step.name.clone(),
            step.tasks.to_string(),
            nodes.join(","),
            step.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
            moment.span(step.started_at, step.ended_at),
            step.peak_memory_bytes.map_or_else(|| "-".to_owned(), format_bytes),
        ]);
    }
    table.render(width)
}

/// How long each stage of the last attempt took, e.g. `queued 3.0s, environment 2m10s so far`.
fn stages(summary: &JobSummary, task: &TaskView, moment: &Moment) -> String {
    let steps = timeline(summary.submitted_at, task).into_iter().map(|(stage, from, to)| {
        let so_far = if to.is_none() { " so far" } else { "" };
        format!("{} {}{so_far}", stage.as_str(), moment.span(from, to))
    });
    steps.collect::<Vec<_>>().join(", ")
}

/// The number of shown tasks of an array, with the commands that show more; `None` if all are shown.
fn not_shown(job: &JobDetail) -> Option<String> {
    let (id, tasks) = (job.summary.id, &job.summary.tasks);
    let shown = format!("{} of {} shown", job.tasks_shown.len(), plural(tasks.total, "task"));
    match job.tasks_next {
        Some(next) => Some(format!(
            "{shown}. `hostler job {id} --from {next}` shows the next; `hostler job {id}_{next}` shows one."
        )),
        None if tasks.pending > 0 && !job.tasks_shown.is_empty() && job.summary.array.is_some() => {
            Some(format!("{shown}; {} are waiting.", tasks.pending))
        }
        None => None,
    }
}

/// A table of a task's nodes: one row per node.
fn node_parts(parts: &[PartView], width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("RANK", Align::Right),
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("EXIT", Align::Right),
        ("PEAK MEMORY", Align::Right),
        ("MESSAGE", Align::Left),
    ]);
    for (rank, part) in parts.iter().enumerate() {
        table.row([
            rank.to_string(),
            part.node.to_string(),
            part.state.to_string(),
            part.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
            part.usage.map_or_else(|| "-".to_owned(), |usage| format_bytes(usage.max_rss_bytes)),
            part.message.clone().unwrap_or_default(),
        ]);
    }
    table.render(width)
}

/// E.g. `running on n1, attempt 2` or `failed with exit code 1 on n3`.
fn state_phrase(job: &JobSummary) -> String {
    let mut text = match job.exit_code {
        Some(code) if job.state.is_ended() && job.state != JobState::Completed => {
            format!("{} with exit code {code}", job.state)
        }
        _ => job.shown_state().to_owned(),
    };
    if let [first, rest @ ..] = job.nodes.as_slice() {
        write!(text, " on {first}").expect("strings can always be written to");
        rest.iter().for_each(|node| write!(text, ", {node}").expect("strings can always be written to"));
    }
    if job.attempt > Attempt(1) {
        write!(text, ", attempt {}", job.attempt).expect("strings can always be written to");
    }
    text
}

/// How a job ended, as a phrase such as `reached its time limit`.
pub fn ending(job: &JobSummary) -> String {
    match (job.state, job.exit_code) {
        (JobState::Completed, _) => "completed".to_owned(),
        // Of an array, the code may be that of a task that has completed.
        (JobState::Failed, Some(code)) if code != 0 => format!("failed with exit code {code}"),
        (JobState::Failed, _) => "failed".to_owned(),
        (JobState::Cancelled, _) => "was cancelled".to_owned(),
        (JobState::Timeout, _) => "reached its time limit".to_owned(),
        (JobState::OutOfMemory, _) => "ran out of memory".to_owned(),
        (JobState::NodeFail, _) => "was lost with its node".to_owned(),
        (JobState::Preempted, _) => "was preempted by another job".to_owned(),
        (state @ (JobState::Pending | JobState::Starting | JobState::Running | JobState::Completing), _) => {
            format!("is {state}")
        }
    }
}

fn counts(job: &JobSummary) -> String {
    format!("{}: {}", plural(job.tasks.total, "task"), job.tasks.in_words(JobState::ALL))
}

fn limit(limit: &LimitView) -> String {
    let value = match limit.name.as_str() {
        "memory" => format_bytes(limit.value),
        "time" => format_ms(limit.value),
        _ => limit.value.to_string(),
    };
    let why = limit.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    match limit.enforcement.as_str() {
        // No node has the job yet, so enforcement is unknown.
        "unknown" => format!("{} {value}", limit.name),
        "enforced" => format!("{} {value} (enforced{})", limit.name, why.replacen(": ", "; ", 1)),
        enforcement => format!("{} {value} ({enforcement}{why})", limit.name),
    }
}

pub(crate) fn usage(usage: &Usage) -> String {
    let mut text = format!(
        "CPU time {} user, {} system; at most {} of memory in one process",
        format_ms(usage.user_ms),
        format_ms(usage.system_ms),
        format_bytes(usage.max_rss_bytes)
    );
    if let Some(peak) = usage.memory_peak_bytes {
        let _ = write!(text, ", {} in total with cached files", format_bytes(peak));
    }
    if let Some(io) = usage.io {
        let (read, written) = (format_bytes(io.read_bytes), format_bytes(io.write_bytes));
        let _ = write!(text, "; {read} read from disk, {written} written");
    }
    text
}

/// Whether the results were fetched; `None` if there are none, or if tasks without a result may still add some.
fn results(id: &str, job: &JobDetail) -> Option<String> {
    match (job.unfetched, &job.summary.array) {
        (0, _) => {
            let has_results = job.tasks_shown.iter().any(|task| task.result.is_some());
            (has_results && job.summary.state.is_ended()).then(|| "fetched".to_owned())
        }
        (_, None) => Some(match earlier_attempt(job) {
            Some(attempt) => format!("not fetched yet: hostler fetch {id} --attempt {attempt}"),
            None => format!("not fetched yet: hostler fetch {id}"),
        }),
        (count, Some(_)) => Some(format!("not fetched yet for {}: hostler fetch {id}", plural(count, "task"))),
    }
}

/// The earlier attempt of a job, not an array, whose results are those to fetch: the last attempt has none.
fn earlier_attempt(job: &JobDetail) -> Option<u32> {
    let task = job.tasks_shown.first();
    if task.is_some_and(|task| task.result.is_some()) {
        return None;
    }
    // A job that waits again, or was cancelled then, counts only the attempts before.
    let has_begun = match job.summary.state {
        JobState::Pending => false,
        state if state.is_ended() => task.is_some_and(|task| task.started_at.is_some()),
        _ => true,
    };
    job.summary.attempt.0.checked_sub(has_begun.into()).filter(|attempt| *attempt > 0)
}

fn tasks(job: &JobDetail, moment: &Moment, width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("TASK", Align::Right),
        ("STATE", Align::Left),
        ("NODE", Align::Left),
        ("ATTEMPT", Align::Right),
        ("EXIT", Align::Right),
        ("TIME", Align::Right),
        ("PEAK MEMORY", Align::Right),
        ("MESSAGE", Align::Left),
    ]);
    let dash = || "-".to_owned();
    for task in &job.tasks_shown {
        table.row([
            task.index.to_string(),
            task.state.to_string(),
            task.node.as_ref().map_or_else(dash, ToString::to_string),
            task.attempt.to_string(),
            task.exit_code.map_or_else(dash, |code| code.to_string()),
            task.started_at.map_or_else(dash, |start| moment.span(start, task.ended_at)),
            task.usage.map_or_else(dash, |usage| format_bytes(usage.max_rss_bytes)),
            message(job, task).unwrap_or_default(),
        ]);
    }
    table.render(width)
}

pub(crate) fn info(info: &Info) -> String {
    let head = &info.head;
    let mut lines = Lines::default();
    let kind = if head.embedded { ", embedded cluster" } else { "" };
    lines.add("head", format!("version {}, pid {}, epoch {}{kind}", head.version, head.pid, head.epoch));
    lines.add("address", &head.address);
    lines.add_some("authority", head.authority.map(|it| it.to_string()));
    lines.add("state in", &head.directory);
    lines.add_some("refusing", head.refusing.as_ref());
    lines.add_some("warning", head.warning.as_ref());
    let nodes = &info.nodes;
    let drained = match (nodes.draining, nodes.drained) {
        (0, 0) => String::new(),
        (draining, drained) => format!(", {draining} draining, {drained} drained"),
    };
    let power = [(nodes.off, "off"), (nodes.waking, "waking"), (nodes.stopping, "stopping")];
    let power = power.iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!(", {count} {state}"));
    let power: String = power.collect();
    lines.add("nodes", format!("{} up, {} suspect, {} down{power}{drained}", nodes.up, nodes.suspect, nodes.down));
    lines.add("cpus", format!("{} of {} free", info.capacity.cpus.free, info.capacity.cpus.total));
    let memory = &info.capacity.memory_bytes;
    lines.add("memory", format!("{} of {} free", format_bytes(memory.free), format_bytes(memory.total)));
    let gpus = &info.capacity.gpus;
    lines.add_some("gpus", (gpus.total > 0).then(|| format!("{} of {} free", gpus.free, gpus.total)));
    lines.add_some(
        "resources",
        counted(info.capacity.counted.iter().map(|(name, all)| (name.as_str(), *all)), |name| {
            info.capacity.counted_free.get(name).copied().unwrap_or(0)
        }),
    );
    let tasks = &info.tasks;
    lines.add(
        "tasks",
        format!(
            "{} pending, {} starting, {} running, {} completing",
            tasks.pending, tasks.starting, tasks.running, tasks.completing
        ),
    );
    lines.add_some("pace", info.pace.map(|it| pace(it, tasks.pending)));
    let kept = head.results_bytes.map_or_else(|| "not measured yet".to_owned(), format_bytes);
    lines.add("results", format!("{kept} of at most {}", format_bytes(head.results_cap_bytes)));
    lines.text
}

/// How fast tasks end, e.g. `78 tasks ended in 10m00s; at this pace the 45 waiting ones take about 5m46s`.
pub(crate) fn pace(pace: Pace, waiting: u64) -> String {
    let ended = format!("{} ended in {}", plural(pace.ended, "task"), format_ms(whole_seconds(pace.over_ms)));
    match waiting {
        0 => ended,
        _ => format!(
            "{ended}; at this pace the {waiting} waiting ones take about {}",
            format_ms(whole_seconds(pace.through_in_ms))
        ),
    }
}

const fn whole_seconds(ms: u64) -> u64 {
    ms.div_ceil(1000) * 1000
}

/// Why a job waits, and when it should start.
pub(crate) fn why(why: &Why, moment: &Moment) -> String {
    let mut text = String::new();
    for line in &why.lines {
        writeln!(text, "{line}").expect("strings can always be written to");
    }
    if why.lines.is_empty() {
        writeln!(text, "job {} is {}", why.id, why.state).expect("strings can always be written to");
    }
    if let Some(at) = why.expected_start_at {
        // The last line says in how much time that is.
        writeln!(text, "That is {} at the latest.", moment.date(at)).expect("strings can always be written to");
    }
    text
}

#[cfg(test)]
mod tests;

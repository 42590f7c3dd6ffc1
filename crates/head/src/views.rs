//! API views of the state and the history.

mod dependencies;
mod endless;
mod holds;
mod names;
mod nodes;
mod partitions;
mod progress;
mod silence;
mod suggestion;
mod turns;

use std::collections::{BTreeMap, BTreeSet};

use hostler_core::head::{Active, Job, Node, Now, Part, Phase, State, explain, explain_task};
use hostler_model::{
    Advisory, ArraySpec, Attempt, Ending, GpuId, JobId, JobState, NodeName, NodeState, Reason, Request, Shortfall,
    Surroundings, Timestamp, WallTime, Work, format_bytes, format_ms,
};
use hostler_proto::api::{
    JobDetail, JobRecord, JobSummary, LimitView, PartView, Stages, StepHostView, TaskCounts, TaskView, Why,
};
use hostler_proto::link::{RunEnd, StepEndpoint};
use hostler_proto::power::JobEnergy;
use hostler_proto::record::{EndedPart, EndedTask};

use names::{NAMED, and_more};
pub(crate) use nodes::{SharedCpus, energy, holders, node, node_detail};
pub(crate) use partitions::partition;
pub(crate) use suggestion::suggestion;

/// Replaces a message that only the job's user and operators may read.
const HIDDEN_MESSAGE: &str = "only the job's user and operators can see the reason";

/// Access level of the user who views a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Viewer {
    /// The job's user, or an operator.
    Owner,
    /// Another user, who sees the queue but no contents of jobs. Digests are hidden too, because they give access to
    /// contents.
    Other,
}

/// Creates the view of a job as an entry of a list. `telling` is the history of [`Job::telling_task`].
pub(crate) fn summary(state: &State, job: &Job, telling: Option<&EndedTask>, viewer: Viewer, now: Now) -> JobSummary {
    let row = telling.filter(|_| job.spec.array.is_none() && job.is_ended());
    let mut nodes: Vec<NodeName> = job.active.values().flat_map(Active::nodes).cloned().collect();
    nodes.extend(row.and_then(|row| row.node.clone()));
    nodes.extend(row.into_iter().flat_map(|row| &row.parts).map(|part| part.node.clone()));
    nodes.sort();
    nodes.dedup();
    let Request { cpus, memory_bytes, gpus, counted } = job.spec.request.clone();
    JobSummary {
        id: job.id,
        name: job.spec.name.to_string(),
        user: job.user.clone(),
        state: job.state(),
        reason: explain(state, job).map(|reason| reason.to_string()),
        expected_start_at: state.expected_start(job.id).map(|at| wall_time(at, now)),
        message: message(state, job, telling, viewer),
        node_problem: silence::brief(state, job, now.at),
        attempt: row.map_or_else(|| job.attempt(), |row| row.attempt),
        nodes,
        exit_code: job.exit_code(),
        command: None,
        partition: job.spec.partition.clone(),
        node_count: job.spec.nodes,
        cpus,
        memory_bytes,
        gpus,
        counted,
        priority: job.spec.priority,
        time_limit_ms: job.spec.time_limit_ms,
        array: job.spec.array.clone(),
        labels: job.spec.labels.as_deref().cloned().unwrap_or_default(),
        tasks: TaskCounts::new(job.tasks_by_state()),
        submitted_at: job.submitted_at,
        started_at: job.started_at,
        ended_at: job.ended_at(),
    }
}

/// What happens to a job before its program runs, and why it or a task of it ended as it did.
fn message(state: &State, job: &Job, telling: Option<&EndedTask>, viewer: Viewer) -> Option<String> {
    // The row of a task that has just ended again may still be that of its previous attempt.
    let telling = telling.filter(|row| job.ending_of(row.index) == Some(row.ending));
    let of_end = telling.and_then(|row| {
        let message = row.message.as_deref()?;
        match (viewer, row.ending.exit_code) {
            (Viewer::Other, Some(_)) => None,
            _ if job.spec.array.is_none() => Some(message_for(message, viewer == Viewer::Owner)),
            _ => Some(format!("task {}: {}", row.index, message_for(message, viewer == Viewer::Owner))),
        }
    });
    let parts: Vec<String> = progress::of_job(state, job).into_iter().chain(of_end).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Data from the history about a job.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Ended tasks that the view shows.
    pub(crate) ended: Vec<(u32, Ending)>,
    /// History rows of the tasks in `ended`. Some tasks have none.
    pub(crate) rows: BTreeMap<u32, EndedTask>,
    /// Reason for the cancellation of the tasks in `ended` without a row, unless a user cancelled them.
    pub(crate) why_cancelled: Option<String>,
    /// Index of the first ended task that the view does not show.
    pub(crate) next: Option<u32>,
}

/// Which tasks of a job a view shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    Ended,
    Only(u32),
}

/// Creates the view of one job with its tasks.
pub(crate) fn detail(state: &State, job: &Job, viewer: Viewer, shown: Shown, history: &History, now: Now) -> JobDetail {
    let is_owner = viewer == Viewer::Owner;
    let History { rows, next, .. } = history;
    let telling = job.telling_task().and_then(|index| rows.get(&index));
    let tasks_shown = tasks(state, job, is_owner, shown, history);
    JobDetail {
        summary: summary(state, job, telling, viewer, now),
        requeue: job.spec.requeue,
        constraint: job.spec.constraint.clone(),
        after: job.spec.after.to_vec(),
        notify: if is_owner { job.spec.subscriptions().to_vec() } else { Vec::new() },
        command: if is_owner { job.spec.work.command_line() } else { String::new() },
        snapshot: match &job.spec.work {
            Work::Project { snapshot, .. } if is_owner => Some(*snapshot),
            Work::Project { .. } | Work::Command { .. } => None,
        },
        directory: match &job.spec.work {
            Work::Command { directory, .. } if is_owner => Some(directory.to_string()),
            Work::Project { .. } | Work::Command { .. } => None,
        },
        tasks_per_node: job.spec.tasks_per_node,
        surroundings: surroundings(job, is_owner),
        held: (job.spec.surroundings.exclusive && !job.active.is_empty()).then(|| job.on_each_node()),
        allocation: job.spec.holder.is_some(),
        step_hosts: if is_owner { step_hosts(state, job) } else { Vec::new() },
        terminal: job.spec.pty.is_some(),
        script: matches!(job.spec.work, Work::Command { script: Some(_), .. }),
        files: job.spec.files.as_deref().filter(|_| is_owner).cloned(),
        limits: limits(state, job, rows.values()),
        energy: state.energy_of(job, now.at).map(JobEnergy::from),
        unfetched: if is_owner { unfetched(job) } else { 0 },
        kept_until: kept_until(state, job),
        tasks_shown,
        tasks_next: *next,
        indices: None,
    }
}

/// When the head deletes an ended job, unless it stands still until then.
fn kept_until(state: &State, job: &Job) -> Option<WallTime> {
    let kept_ms = state.job_kept_until(job)?.ms_since(job.ended?);
    Some(WallTime(job.ended_at()?.0.saturating_add(i64::try_from(kept_ms).ok()?)))
}

/// What surrounds a job's tasks, as far as the viewer may see it: a container and an image name files and registries, and a
/// command line says what the job does.
fn surroundings(job: &Job, is_owner: bool) -> Surroundings {
    let all = job.spec.surroundings.clone();
    if is_owner { all } else { Surroundings { image: None, container: None, submit_line: None, ..all } }
}

/// Creates the record of a job with its tasks.
pub(crate) fn record(state: &State, job: &Job, viewer: Viewer, history: &History, now: Now) -> JobRecord {
    let is_owner = viewer == Viewer::Owner;
    let array = job.spec.array.clone();
    let waiting = array.as_ref().filter(|_| !job.pending.is_empty());
    let (held_tasks, held_tasks_by_operator) = holds::held_tasks(job);
    let Request { cpus, memory_bytes, gpus, counted } = job.on_each_node();
    let (directory, script) = match &job.spec.work {
        Work::Command { directory, script, .. } => (Some(directory.to_string()), script.is_some()),
        Work::Project { .. } => (None, false),
    };
    JobRecord {
        id: job.id,
        name: job.spec.name.to_string(),
        user: job.user.clone(),
        state: job.state(),
        reason: explain(state, job),
        expected_start_at: state.expected_start(job.id).map(|at| wall_time(at, now)),
        partition: job.spec.partition.clone(),
        nodes: job.spec.nodes,
        tasks_per_node: job.spec.tasks_per_node,
        cpus,
        memory_bytes,
        gpus,
        counted,
        time_limit_ms: job.spec.time_limit_ms,
        attempt: job.attempt(),
        waiting: waiting.map(|array| ArraySpec { indices: job.pending.clone(), limit: array.limit }),
        array,
        labels: job.spec.labels.as_deref().cloned().unwrap_or_default(),
        priority: job.spec.priority,
        requeue: job.spec.requeue,
        surroundings: surroundings(job, is_owner),
        held_by_operator: job.held_by_operator,
        held_tasks,
        held_tasks_by_operator,
        constraint: job.spec.constraint.clone(),
        after: job.spec.after.to_vec(),
        unmet: if job.pending.is_empty() { Vec::new() } else { job.open_dependencies().copied().collect() },
        begin_at: job.spec.begin.as_deref().copied(),
        command: is_owner.then(|| job.spec.work.command_line()),
        directory: directory.filter(|_| is_owner),
        files: job.spec.files.as_deref().filter(|_| is_owner).cloned(),
        allocation: job.spec.holder.is_some(),
        script,
        submitted_at: job.submitted_at,
        started_at: job.started_at,
        ended_at: job.ended_at(),
        tasks: tasks(state, job, is_owner, Shown::All, history),
        tasks_next: history.next,
    }
}

/// The tasks of a job that a view shows, by index.
fn tasks(state: &State, job: &Job, is_owner: bool, shown: Shown, history: &History) -> Vec<TaskView> {
    let History { ended, rows, why_cancelled, .. } = history;
    let is_shown = |active: &&Active| match shown {
        Shown::All => true,
        Shown::Ended => false,
        Shown::Only(index) => active.run.task.index == index,
    };
    let live = job.active.values().filter(is_shown).map(|active| TaskView {
        index: active.run.task.index,
        state: active.phase().state(),
        attempt: active.run.attempt,
        node: active.nodes().next().cloned(),
        gpu_ids: if let [part] = active.parts.as_slice() { gpu_ids(part) } else { Vec::new() },
        exit_code: None,
        message: progress::of_task(state, job, active),
        started_at: active.started_at,
        ended_at: None,
        stages: active.stages,
        result: None,
        fetched: false,
        usage: None,
        steps: Vec::new(),
        certificate: None,
        parts: live_parts(active, is_owner),
    });
    let over = ended.iter().map(|&(index, ending)| {
        let row = rows.get(&index);
        let mut task = ended_task(job, index, ending, row, is_owner);
        if row.is_none() && ending.state == JobState::Cancelled {
            task.message.clone_from(why_cancelled);
        }
        task
    });
    let waits = match shown {
        Shown::Only(index) if job.pending.contains(index) => Some(pending_task(job, index)),
        Shown::Only(_) | Shown::All | Shown::Ended => None,
    };
    let mut tasks_shown: Vec<TaskView> = live.chain(over).chain(waits).collect();
    tasks_shown.sort_by_key(|task| task.index);
    tasks_shown
}

/// Where the nodes of a running allocation without a program accept steps.
fn step_hosts(state: &State, job: &Job) -> Vec<StepHostView> {
    let Some(active) = job.active.values().next() else { return Vec::new() };
    if job.spec.holder.is_none() || active.phase() != Phase::Running {
        return Vec::new();
    }
    let view = |part: &Part| {
        let StepEndpoint { port, certificate } = part.endpoint?;
        let address = state.node(&part.node).and_then(|node| node.facts.address);
        Some(StepHostView { node: part.node.clone(), address, port, certificate })
    };
    active.parts.iter().map(view).collect::<Option<_>>().unwrap_or_default()
}

fn pending_task(job: &Job, index: u32) -> TaskView {
    TaskView {
        index,
        state: JobState::Pending,
        attempt: last_attempt(job, index),
        node: None,
        gpu_ids: Vec::new(),
        exit_code: None,
        message: None,
        started_at: None,
        ended_at: None,
        stages: Stages::default(),
        result: None,
        fetched: false,
        usage: None,
        steps: Vec::new(),
        certificate: None,
        parts: Vec::new(),
    }
}

fn ended_task(job: &Job, index: u32, ending: Ending, row: Option<&EndedTask>, is_owner: bool) -> TaskView {
    TaskView {
        index,
        state: ending.state,
        attempt: row.map_or_else(|| last_attempt(job, index), |row| row.attempt),
        node: row.and_then(|row| row.node.clone()),
        gpu_ids: Vec::new(),
        exit_code: ending.exit_code,
        message: row.and_then(|row| row.message.as_deref()).map(|message| message_for(message, is_owner)),
        started_at: row.and_then(|row| row.started_at),
        ended_at: row.map(|row| row.ended_at).or(job.ended_at()),
        stages: row.map(|row| row.stages).unwrap_or_default(),
        result: row.and_then(|row| row.result).filter(|_| is_owner && job.results.contains(index)),
        fetched: job.fetched.contains(index),
        usage: row.filter(|row| row.attempt > Attempt(0)).map(|row| row.usage),
        steps: row.filter(|_| is_owner).map(|row| row.steps.clone()).unwrap_or_default(),
        certificate: row.and_then(|row| row.certificate.clone()),
        parts: row.into_iter().flat_map(|row| &row.parts).map(|part| ended_part(part, ending, is_owner)).collect(),
    }
}

/// Returns the message of a task's end, or a fixed text for other users, because the message may quote the job's
/// output.
fn message_for(message: &str, is_owner: bool) -> String {
    if is_owner { message.to_owned() } else { HIDDEN_MESSAGE.to_owned() }
}

/// The parts of a live task on several nodes. Empty if the task runs on one node.
fn live_parts(active: &Active, is_owner: bool) -> Vec<PartView> {
    if active.parts.len() == 1 {
        return Vec::new();
    }
    let view = |part: &Part| {
        let over = part.over.as_deref();
        let ending = over.and_then(RunEnd::ending);
        PartView {
            node: part.node.clone(),
            state: match over {
                None => part.phase.state(),
                Some(_) => ending.map_or(JobState::NodeFail, |ending| ending.state),
            },
            gpu_ids: if over.is_none() { gpu_ids(part) } else { Vec::new() },
            exit_code: ending.and_then(|ending| ending.exit_code),
            message: over.and_then(|over| over.message.as_deref()).map(|message| message_for(message, is_owner)),
            result: over.and_then(RunEnd::manifest).filter(|_| is_owner),
            usage: over.map(|over| over.usage),
            certificate: over.and_then(|over| over.certificate.clone()),
        }
    };
    active.parts.iter().map(view).collect()
}

fn gpu_ids(part: &Part) -> Vec<GpuId> {
    part.resources.gpus.iter().cloned().collect()
}

/// The part of an ended task on one of several nodes.
fn ended_part(part: &EndedPart, of_task: Ending, is_owner: bool) -> PartView {
    let ending = part.end.ending();
    PartView {
        node: part.node.clone(),
        state: ending.unwrap_or(of_task).state,
        gpu_ids: Vec::new(),
        exit_code: ending.and_then(|ending| ending.exit_code),
        message: part.end.message.as_deref().map(|message| message_for(message, is_owner)),
        result: part.end.manifest().filter(|_| is_owner),
        usage: Some(part.end.usage),
        certificate: part.end.certificate.clone(),
    }
}

/// The last attempt of a task that has no history row.
fn last_attempt(job: &Job, index: u32) -> Attempt {
    job.attempts.get(&index).copied().unwrap_or_default()
}

/// Number of tasks whose results, also of earlier attempts, were not downloaded.
pub(crate) fn unfetched(job: &Job) -> u64 {
    if job.fetched.is_empty() && job.earlier.is_none() {
        return job.results.len();
    }
    let mut unfetched = job.results.clone();
    unfetched.remove_all(&job.fetched);
    unfetched.add_all(&job.tasks_with_earlier_results());
    unfetched.len()
}

/// Returns each limit of a job, and whether the kernel enforces it on the job's nodes. If the job has no nodes yet,
/// checks all nodes that the job may use.
fn limits<'a>(state: &State, job: &Job, rows: impl Iterator<Item = &'a EndedTask>) -> Vec<LimitView> {
    let ended = rows.flat_map(|row| row.node.iter().chain(row.parts.iter().map(|part| &part.node)));
    let on: BTreeSet<&NodeName> = job.active.values().flat_map(Active::nodes).chain(ended).collect();
    let is_its = |node: &&Node| if on.is_empty() { state.may_use(job, node) } else { on.contains(&node.name) };
    let nodes: Vec<&Node> = state.nodes().filter(is_its).collect();
    let held = if on.is_empty() && job.started_at.is_none() { "unknown" } else { "enforced" };
    let limit = |name: &str, value, why: &dyn Fn(&Advisory) -> Option<&String>| {
        let not_on = nodes.iter().find_map(|node| Some((&node.name, why(&node.facts.advisory)?)));
        LimitView {
            name: name.to_owned(),
            value,
            enforcement: if not_on.is_none() { held } else { "advisory" }.to_owned(),
            why: not_on.map(|(node, why)| format!("on node {node}: {why}")),
        }
    };
    let request = &job.on_each_node();
    let mut cpus = limit("cpus", u64::from(request.cpus), &|advisory| advisory.cpus.as_ref());
    let share_cpus = || {
        let shared = SharedCpus::of(state.nodes());
        nodes.iter().any(|node| shared.include_some_of(node))
    };
    if cpus.enforcement == "enforced" && share_cpus() {
        cpus.why = Some("other nodes of this machine use the same CPUs".to_owned());
    }
    let mut limits = vec![cpus, limit("memory", request.memory_bytes, &|advisory| advisory.memory.as_ref())];
    // On nodes with GPUs, a job without requested GPUs must not use any.
    if request.gpus > 0 || nodes.iter().any(|node| !node.facts.resources.gpus.is_empty()) {
        limits.push(limit("gpus", u64::from(request.gpus), &|advisory| advisory.gpus.as_ref()));
    }
    limits.extend(request.counted.iter().map(|(name, value)| LimitView {
        name: name.to_owned(),
        value,
        enforcement: "advisory".to_owned(),
        why: Some("Hostler only counts this resource; the kernel cannot limit it".to_owned()),
    }));
    // The shepherd enforces the time limit.
    limits.extend(job.spec.time_limit_ms.map(|value| limit("time", value, &|_| None)));
    limits
}

/// Explains why a job waits, or describes its state. `message` is the known reason of its end.
pub(crate) fn why(state: &State, job: &Job, message: Option<&str>, now: Now) -> Why {
    why_for(state, job, explain(state, job), message, now)
}

/// Like [`why`], for a known reason.
fn why_for(state: &State, job: &Job, reason: Option<Reason>, message: Option<&str>, now: Now) -> Why {
    let expected = state.expected_start(job.id);
    let mut lines = vec![first_line(state, job, reason.as_ref(), message)];
    lines.extend(silence::lines(state, job, now));
    if let Some(reason) = &reason {
        lines.extend(progress::of_job(state, job).map(|does| format!("The job is {}: {does}.", job.state())));
        lines.extend(more_lines(state, job, reason, now));
        lines.extend(holds::tasks_line(job, reason));
    }
    if let Some(at) = expected {
        let from_now = format_ms(at.ms_since(now.at));
        lines.push(format!(
            "It should start within {from_now}, when running jobs reach their time limits at the latest."
        ));
    } else if matches!(reason, Some(Reason::Resources { .. } | Reason::TooFewNodes { .. } | Reason::NotIdle { .. })) {
        lines.extend(endless::line(state, job, job.id));
    }
    Why { id: job.id, state: job.state(), reason, lines, expected_start_at: expected.map(|at| wall_time(at, now)) }
}

/// Converts a time of the cluster's clock to the wall clock.
pub(crate) fn wall_time(at: Timestamp, now: Now) -> WallTime {
    WallTime(now.wall.0.saturating_add(i64::try_from(at.ms_since(now.at)).unwrap_or(i64::MAX)))
}

/// Like [`why`], for one task of an array.
pub(crate) fn why_task(state: &State, job: &Job, index: u32, message: Option<&str>, now: Now) -> Why {
    let task = job.task(index);
    if job.pending.contains(index) {
        if let Some(why) = holds::why_task(job, index) {
            return why;
        }
        let mut why = why_for(state, job, explain_task(state, job, index), None, now);
        if let Some(reason) = &why.reason {
            why.lines[0] = format!("Task {task} waits: {reason}.");
        }
        return Why { state: JobState::Pending, ..why };
    }
    let (stands, rest) = match (job.active.get(&index), job.ending_of(index)) {
        (Some(active), _) => {
            let nodes: Vec<&str> = active.nodes().map(NodeName::as_str).collect();
            // Treats the task as a separate job, so that silent nodes of other tasks are ignored.
            let alone = Job { active: [(index, active.clone())].into(), ..job.clone() };
            let stands = active.phase().state();
            let is_silent = silence::concerns(state, &alone);
            let line = stands_on(stands, &nodes, is_silent, progress::of_task(state, job, active));
            (stands, std::iter::once(line).chain(silence::lines(state, &alone, now)).collect::<Vec<_>>())
        }
        (None, Some(ending)) => (ending.state, vec![has_ended(ending, message)]),
        (None, None) => (job.state(), vec![format!("is {}", job.state())]),
    };
    let mut lines = rest;
    lines[0] = format!("Task {task} does not wait. It {}.", lines[0]);
    Why { id: job.id, state: stands, reason: None, lines, expected_start_at: None }
}

/// Describes where a live job or task is as the rest of a sentence, e.g. `is running on n1`.
fn stands_on(state: JobState, nodes: &[&str], is_silent: bool, progress: Option<String>) -> String {
    let progress = progress.map(|progress| format!(": {progress}")).unwrap_or_default();
    let nodes = and_more(nodes, nodes.len());
    if is_silent {
        format!("was last known to be {state} on {nodes}{progress}")
    } else {
        format!("is {state} on {nodes}{progress}")
    }
}

/// Describes the end of a job or task as the rest of a sentence, e.g. `has failed with exit code 1`.
fn has_ended(Ending { state, exit_code }: Ending, message: Option<&str>) -> String {
    let ended = state.in_words(exit_code);
    match message {
        Some(message) => format!("{ended}: {message}"),
        None => ended.into_owned(),
    }
}

/// The main sentence of an explanation.
fn first_line(state: &State, job: &Job, reason: Option<&Reason>, message: Option<&str>) -> String {
    let id = job.id;
    let waiting = match (job.len(), job.pending.len()) {
        (1, _) => format!("Job {id} waits"),
        (_, 1) => format!("One task of job {id} waits"),
        (_, pending) => format!("{pending} tasks of job {id} wait"),
    };
    match (reason, job.state()) {
        (Some(reason), _) => format!("{waiting}: {reason}."),
        (None, stands @ (JobState::Running | JobState::Starting | JobState::Completing)) => {
            let mut nodes: Vec<&str> = job.active.values().flat_map(Active::nodes).map(NodeName::as_str).collect();
            nodes.sort_unstable();
            nodes.dedup();
            let is_silent = silence::concerns(state, job);
            let live = stands_on(stands, &nodes, is_silent, progress::of_job(state, job));
            format!("Job {id} does not wait. It {live}.")
        }
        (None, state) if job.spec.array.is_some() => {
            let counts = TaskCounts::new(job.tasks_by_state()).in_words(JobState::ALL);
            let message = message.map_or_else(|| counts.clone(), |message| format!("{counts}; {message}"));
            format!("Job {id} does not wait. It {}.", has_ended(Ending { state, exit_code: None }, Some(&message)))
        }
        (None, state) => {
            let ending = Ending { state, exit_code: job.exit_code() };
            format!("Job {id} does not wait. It {}.", has_ended(ending, message))
        }
    }
}

/// Returns details of the reason, and advice.
fn more_lines(state: &State, job: &Job, reason: &Reason, now: Now) -> Vec<String> {
    let id = job.id;
    match reason {
        Reason::Held => vec![holds::held_line(job)],
        Reason::Dependency { .. } => dependencies::lines(state, job, now),
        Reason::BeginTime { at } => {
            vec![format!("It may start in {}.", format_ms(at.ms_since(now.wall)))]
        }
        Reason::ArrayLimit { .. } => match job.active.len() {
            1 => vec!["One task of the job is starting or running.".to_owned()],
            placed => vec![format!("{placed} tasks of the job are starting or running.")],
        },
        Reason::Resources { closest } | Reason::TooFewNodes { closest, .. } => {
            let each = if job.spec.nodes > 1 { format!("{} nodes, on each ", job.spec.nodes) } else { String::new() };
            let asks = format!("A task asks for {each}{}.", job.spec.request);
            let closest = closest.iter().map(|lack| shortfall_line(state, lack));
            std::iter::once(asks).chain(closest).chain(nodes::drained_lines(state, job)).collect()
        }
        Reason::NotIdle { closest, .. } => {
            let is_kept = |name: &NodeName| state.is_reserved_for(id, name);
            let in_use = closest.iter().map(|name| nodes::in_use_line(state, name, is_kept(name)));
            in_use.chain(nodes::drained_lines(state, job)).collect()
        }
        Reason::Priority { ahead } => {
            let ahead = usize::try_from(*ahead).unwrap_or(usize::MAX);
            let first = state.queue_in(job.spec.partition.as_ref()).take(NAMED.min(ahead));
            let first: Vec<String> = first.map(|job| job_name(job)).collect();
            let first = format!("First in the queue: {}.", and_more(&first, ahead));
            std::iter::once(first).chain(turns::line(state, job)).collect()
        }
        Reason::Reservation { job: first } => {
            let until = state.expected_start(*first).map(|at| {
                let span = format_ms(at.ms_since(now.at));
                format!("Job {first} should start within {span}; with a shorter time limit (`-t`), this job can start first.")
            });
            until.or_else(|| endless::line(state, job, *first)).into_iter().collect()
        }
        Reason::NodesDown { nodes, .. } => {
            nodes.iter().filter_map(|name| state.node(name)).map(|node| down_line(state, node, now)).collect()
        }
        Reason::NodesDrained { nodes, down, .. } => {
            let all = nodes.iter().chain(down).filter_map(|name| state.node(name));
            all.map(|node| nodes::drained_line(node).unwrap_or_else(|| down_line(state, node, now))).collect()
        }
        Reason::PartitionPaused { partition } | Reason::PartitionGone { partition } => {
            vec![format!(
                "An operator can change this with `hostler configure partition`. Use `-p` for a partition other than {partition}."
            )]
        }
        Reason::NeedsSandbox { partition, .. } => vec![partitions::way_to_a_sandbox(job, partition)],
        Reason::NoNodes { for_root: true, .. } => {
            vec!["A node's admin can allow jobs of root with `root_jobs = true` in the node's agent.toml.".to_owned()]
        }
        Reason::NoNodes { abilities, .. } if !abilities.is_empty() => {
            let lacks = abilities.last().map_or("", |ability| ability.negation());
            let refusing = state.nodes_without(&job.spec, abilities).take(NAMED);
            refusing.map(|(node, why)| format!("Node {node} {lacks}: {why}.")).collect()
        }
        Reason::NoNodes { .. } => {
            vec!["`hostler nodes` shows the resources and partitions of all nodes.".to_owned()]
        }
        Reason::Quota { .. } => {
            vec![
                "The job starts after other work within the quota has ended, or after an admin has raised the quota."
                    .to_owned(),
            ]
        }
        Reason::Blocked { user, .. } => {
            vec![format!("The job starts after an admin runs `hostler configure user unblock {user}`.")]
        }
        Reason::Waking { nodes } => nodes.iter().filter_map(|waking| nodes::power_line(state, &waking.node)).collect(),
        Reason::NodesAsleep { nodes, .. } => {
            nodes.iter().take(NAMED).filter_map(|node| nodes::power_line(state, node)).collect()
        }
        Reason::Scheduling => Vec::new(),
    }
}

/// Returns a sentence about a node's free resources, its missing resources, and the jobs on it.
fn shortfall_line(state: &State, lack: &Shortfall) -> String {
    let Some(node) = state.node(&lack.node) else { return format!("Closest: {lack}.") };
    let all = node.total();
    let units = |count: u32, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    let left = node.free();
    let mut free = vec![format!("{} of {}", left.cpus, units(all.cpus, "CPU"))];
    free.extend((all.gpus > 0).then(|| format!("{} of {}", left.gpus, units(all.gpus, "GPU"))));
    free.push(format!("{} of {} of memory", format_bytes(left.memory_bytes), format_bytes(all.memory_bytes)));
    free.extend(
        lack.lacks
            .counted
            .iter()
            .map(|(name, _)| format!("{} of {} {name}", left.counted.count(name), all.counted.count(name))),
    );
    let mut text = format!("Node {} has {} free; it lacks {}.", node.name, in_words(&free), lack.lacks);
    let mut jobs: Vec<JobId> = node.runs.keys().map(|run| run.task.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let named: Vec<String> = jobs.iter().take(NAMED).filter_map(|id| state.job(*id)).map(|job| job_name(job)).collect();
    if !named.is_empty() {
        text.push_str(&format!(" It runs {}.", and_more(&named, jobs.len())));
    }
    text
}

fn down_line(state: &State, node: &Node, now: Now) -> String {
    let silent = format_ms(now.at.ms_since(node.last_heard));
    match state.node_state(node) {
        state @ (NodeState::Suspect | NodeState::Down) => {
            format!("Node {} is {}: silent for {silent}.", node.name, state.as_str())
        }
        state => format!("Node {} is {}.", node.name, state.as_str()),
    }
}

/// Joins the parts with commas and a final `and`, e.g. `a, b and c`.
fn in_words(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        parts => parts.concat(),
    }
}

/// Returns a job's id, name and user, e.g. `job 3 (train, of alice)`.
fn job_name(job: &Job) -> String {
    format!("job {} ({}, of {})", job.id, job.spec.name, job.user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_truncated() {
        assert_eq!(and_more(&["a", "b"], 2), "a, b");
        assert_eq!(and_more(&["a", "b", "c", "d"], 10), "a, b, c and 7 more");
    }
}

//! Texts about a job whose node is silent: since when, and when the head gives up or requeues the job.

use std::collections::BTreeMap;
use std::time::Duration;

use hostler_core::head::{Active, Job, Node, Now, State};
use hostler_model::{NodeName, NodeState, Timestamp, format_duration};

use super::names::NAMED;

/// A silent node with tasks of a job.
struct Silent<'a> {
    node: &'a Node,
    /// Number of the job's tasks on the node.
    tasks: u64,
    for_ms: u64,
    /// Time until the head gives up the tasks or requeues them.
    left_ms: u64,
}

/// Returns a short text for a list, e.g. `n1 silent for 12s, given up in 48s`.
pub(super) fn brief(state: &State, job: &Job, now: Timestamp) -> Option<String> {
    let silent = silent(state, job, now);
    let first = silent.first()?;
    let more = if silent.len() > 1 { format!(" (and {} more)", silent.len() - 1) } else { String::new() };
    let what = if job.spec.requeue { "runs again elsewhere" } else { "given up" };
    let name = &first.node.name;
    Some(format!("{name} silent for {}, {what} in {}{more}", time(first.for_ms), time(first.left_ms)))
}

/// Returns sentences about the silent nodes of a job, and the commands that the user can run.
pub(super) fn lines(state: &State, job: &Job, now: Now) -> Vec<String> {
    let silent = silent(state, job, now.at);
    let mut lines: Vec<String> = silent.iter().take(NAMED).map(|silent| line(job, silent)).collect();
    if silent.is_empty() {
        return lines;
    }
    let id = job.id;
    lines.push(match job.spec.requeue {
        true => "The job was submitted with --requeue, so the head then runs it again.".to_owned(),
        false => format!(
            "After that, `hostler requeue {id}` runs the job again. Jobs submitted with --requeue run again automatically, and earlier."
        ),
    });
    lines
}

/// Whether a job has tasks on a silent node.
pub(super) fn concerns(state: &State, job: &Job) -> bool {
    job.active.values().any(|active| is_on_silent_node(state, active))
}

/// Whether a task has a silent node.
pub(super) fn is_on_silent_node(state: &State, active: &Active) -> bool {
    active.nodes().any(|name| state.node(name).is_some_and(is_silent))
}

fn line(job: &Job, silent: &Silent<'_>) -> String {
    let name = &silent.node.name;
    let which = match (job.spec.array.is_some(), silent.tasks) {
        (false, _) => String::new(),
        (true, 1) => ", which runs one of the job's tasks,".to_owned(),
        (true, tasks) => format!(", which runs {tasks} of the job's tasks,"),
    };
    let otherwise = if job.spec.requeue { "the job starts again on another node" } else { "the job ends as node_fail" };
    format!(
        "Node {name}{which} has been silent for {}. If the node comes back within {}, the job continues; otherwise {otherwise}.",
        time(silent.for_ms),
        time(silent.left_ms)
    )
}

fn silent<'a>(state: &'a State, job: &Job, now: Timestamp) -> Vec<Silent<'a>> {
    let mut tasks: BTreeMap<&NodeName, u64> = BTreeMap::new();
    let parts = job.active.values().flat_map(|active| &active.parts);
    for part in parts.filter(|part| part.over.is_none()) {
        *tasks.entry(&part.node).or_default() += 1;
    }
    let settings = &state.settings;
    let limit_ms = if job.spec.requeue { settings.down_after_ms } else { settings.lost_after_ms };
    let nodes = tasks.into_iter().filter_map(|(name, tasks)| Some((state.node(name)?, tasks)));
    let silent = nodes.filter(|(node, _)| is_silent(node)).map(|(node, tasks)| {
        let for_ms = now.ms_since(node.last_heard);
        Silent { node, tasks, for_ms, left_ms: limit_ms.saturating_sub(for_ms) }
    });
    silent.collect()
}

fn is_silent(node: &Node) -> bool {
    matches!(node.state(), NodeState::Suspect | NodeState::Down)
}

/// Rounds up to whole seconds.
fn time(ms: u64) -> String {
    match ms.div_ceil(1000).max(1) {
        seconds @ ..10 => format!("{seconds}s"),
        seconds => format_duration(Duration::from_secs(seconds)),
    }
}

//! What is said of a job whose node is silent: since when, what will happen, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use hostler_core::head::{Active, Job, Node, Now, State};
use hostler_model::{NodeName, NodeState, Timestamp, format_duration};

use super::NAMED;

/// A node that is silent while tasks of a job are placed on it.
struct Silent<'a> {
    node: &'a Node,
    /// How many tasks of the job it has.
    tasks: u64,
    for_ms: u64,
    /// In how long the head does something about it.
    left_ms: u64,
}

/// In a few words, for a list: `n1 silent for 12s, given up in 48s`.
pub(super) fn brief(state: &State, job: &Job, now: Timestamp) -> Option<String> {
    let silent = silent(state, job, now);
    let first = silent.first()?;
    let more = if silent.len() > 1 { format!(" (and {} more)", silent.len() - 1) } else { String::new() };
    let what = if job.spec.requeue { "runs again elsewhere" } else { "given up" };
    let name = &first.node.name;
    Some(format!("{name} silent for {}, {what} in {}{more}", time(first.for_ms), time(first.left_ms)))
}

/// The same in sentences, with what to do.
pub(super) fn lines(state: &State, job: &Job, now: Now) -> Vec<String> {
    let silent = silent(state, job, now.at);
    let mut lines: Vec<String> = silent.iter().take(NAMED).map(|silent| line(job, silent)).collect();
    if silent.is_empty() {
        return lines;
    }
    let id = job.id;
    lines.push(match job.spec.requeue {
        true => "It was submitted with --requeue, so it runs again by itself.".to_owned(),
        false => format!(
            "After that `hostler requeue {id}` runs it again. A job submitted with --requeue runs again by itself, and sooner."
        ),
    });
    lines
}

/// Whether a job has something on a node that is silent.
pub(super) fn concerns(state: &State, job: &Job) -> bool {
    job.active.values().flat_map(Active::nodes).any(|name| state.node(name).is_some_and(is_silent))
}

fn line(job: &Job, silent: &Silent<'_>) -> String {
    let name = &silent.node.name;
    let which = match (job.spec.array.is_some(), silent.tasks) {
        (false, _) => String::new(),
        (true, 1) => ", which has one of its tasks,".to_owned(),
        (true, tasks) => format!(", which has {tasks} of its tasks,"),
    };
    let otherwise = if job.spec.requeue { "it starts again on another node" } else { "it ends as node_fail" };
    format!(
        "Node {name}{which} has been silent for {}. If the node comes back within {}, what runs there goes on; otherwise {otherwise}.",
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

/// In whole seconds: a moment later it would be others anyway.
fn time(ms: u64) -> String {
    match ms.div_ceil(1000).max(1) {
        seconds @ ..10 => format!("{seconds}s"),
        seconds => format_duration(Duration::from_secs(seconds)),
    }
}

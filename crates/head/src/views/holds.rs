//! What the views say about holds.

use hostler_core::head::{Hold, Job};
use hostler_model::{IndexSet, JobState, Reason};
use hostler_proto::api::Why;

/// The waiting tasks of an array that are held on their own, and those of them that an operator holds.
pub(super) fn held_tasks(job: &Job) -> (Option<IndexSet>, Option<IndexSet>) {
    let waiting = |tasks: &IndexSet| Some(job.pending.intersection(tasks)).filter(|tasks| !tasks.is_empty());
    let held = job.held_tasks.as_deref();
    (held.and_then(|held| waiting(&held.tasks)), held.and_then(|held| waiting(&held.by_operator)))
}

/// Explains that a task waits because it is held; `None` if it is not.
pub(super) fn why_task(job: &Job, index: u32) -> Option<Why> {
    let task = job.task(index);
    let line = line(&task.to_string(), job.hold_of(index)?);
    let lines = vec![format!("Task {task} waits: {}.", Reason::Held), line];
    Some(Why { id: job.id, state: JobState::Pending, reason: Some(Reason::Held), lines, expected_start_at: None })
}

/// Says who releases a job of which no task may start.
pub(super) fn held_line(job: &Job) -> String {
    let is_by_operator = job.held_by_operator || held_tasks(job).1.is_some();
    line(&job.id.to_string(), if is_by_operator { Hold::ByOperator } else { Hold::ByOwner })
}

/// Names the held tasks of a job that waits for something else.
pub(super) fn tasks_line(job: &Job, reason: &Reason) -> Option<String> {
    let held = held_tasks(job).0.filter(|_| *reason != Reason::Held)?;
    Some(format!("Tasks that are held until released: {held}."))
}

fn line(what: &str, hold: Hold) -> String {
    match hold {
        Hold::ByOwner => format!("`hostler release {what}` lets it start."),
        Hold::ByOperator => "An operator holds it, and only operators can release it.".to_owned(),
    }
}

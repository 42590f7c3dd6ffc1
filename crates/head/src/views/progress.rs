//! Texts about what happens to a live task before its program runs and after its program has ended.

use hostler_core::head::{Active, Job, Phase, State};
use hostler_model::{JobState, Work};
use hostler_proto::link::EndCause;

use super::silence;

/// Says what the nodes of a live task do, e.g. `node n1 prepares the environment`. `None` while they only run the program,
/// and if a node is silent.
pub(super) fn of_task(state: &State, job: &Job, active: &Active) -> Option<String> {
    if silence::is_on_silent_node(state, active) {
        return None;
    }
    let phase = active.phase();
    let mut nodes = active.parts.iter().filter(|part| part.over.is_none() && part.phase == phase);
    // Without a live part, all nodes wait for the end of the run.
    let first = nodes.next().or(active.parts.first())?;
    let node = match nodes.count() {
        0 => format!("node {}", first.node),
        more => format!("node {} (and {more} more)", first.node),
    };
    Some(match (active.ending, phase) {
        (_, Phase::Completing) => format!("{node} collects the results"),
        (Some(EndCause::Cancelled), _) => format!("cancelled by a user; {node} is ending it"),
        (Some(EndCause::Requeued), _) => format!("requeued by a user; {node} is ending the current run"),
        (Some(EndCause::Broken), _) => format!("it failed on another node; {node} is ending it"),
        (Some(EndCause::Finished), _) => format!("its program has ended on the first node; {node} is ending it"),
        (None, Phase::Placed) => format!("{node} has not confirmed the start yet"),
        (None, Phase::Accepted) => match &job.spec.work {
            Work::Project { .. } => format!("{node} fetches the project's files"),
            Work::Command { .. } => format!("{node} prepares the start"),
        },
        (None, Phase::Staged) => format!("{node} prepares the environment"),
        (None, Phase::Ready) => format!("{node} starts it"),
        (None, Phase::Running) => return None,
    })
}

/// Like [`of_task`], for a job. For an array of which no task runs, says what happens to the first live task.
pub(super) fn of_job(state: &State, job: &Job) -> Option<String> {
    let first = job.active.values().next()?;
    if job.spec.array.is_none() {
        return of_task(state, job, first);
    }
    let stage = job.state();
    let mut such = job.active.values().filter(|active| stage != JobState::Running && active.phase().state() == stage);
    let first = such.next()?;
    let does = of_task(state, job, first)?;
    let more = match such.count() {
        0 => String::new(),
        more => format!(" (and {more} more {stage})"),
    };
    Some(format!("task {}: {does}{more}", first.run.task.index))
}

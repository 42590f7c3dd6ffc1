//! Running jobs without a time limit, which keep the start of a waiting job unknown.

use std::collections::BTreeSet;

use hostler_core::head::{Job, Node, State};
use hostler_model::JobId;

use super::job_name;
use super::names::{NAMED, and_more};

/// Returns a sentence that names the jobs in the way of `first`, which has a reservation, and how to end the wait of `job`.
/// `None` if the start of `first` is known.
pub(super) fn line(state: &State, job: &Job, first: JobId) -> Option<String> {
    if state.expected_start(first).is_some() {
        return None;
    }
    let endless = in_the_way(state, state.job(first)?);
    let names: Vec<String> =
        endless.iter().take(NAMED).filter_map(|id| state.job(*id)).map(|job| job_name(job)).collect();
    let guilty = endless.first()?;
    let have = if endless.len() == 1 { "has" } else { "have" };
    let whose = if first == job.id { "The start time".to_owned() } else { format!("The start of job {first}") };
    let names = and_more(&names, endless.len());
    let mut text =
        format!("{whose} is unknown because {names} {have} no time limit; `hostler update {guilty} -t 2h` sets one.");
    if first != job.id && job.spec.time_limit_ms.is_none() {
        let id = job.id;
        text.push_str(&format!(
            " With a time limit, this job can start before job {first}: `hostler update {id} -t 1h`."
        ));
    }
    Some(text)
}

/// Returns the jobs without a time limit on nodes that are kept for a job and have too little free for it.
fn in_the_way(state: &State, first: &Job) -> BTreeSet<JobId> {
    let is_busy = |node: &&Node| {
        state.kept_for(node) == Some(first.id)
            && (first.spec.surroundings.exclusive || !node.free().covers(&first.spec.request))
    };
    let runs = state.nodes().filter(is_busy).flat_map(|node| node.runs.keys());
    let is_endless = |id: &JobId| state.job(*id).is_some_and(|job| job.spec.time_limit_ms.is_none());
    runs.map(|run| run.task.job).filter(is_endless).collect()
}

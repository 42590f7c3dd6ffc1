//! The scheduler's view of jobs: requests of waiting jobs; what running jobs hold, and until when.

use hostler_model::{JobId, JobSpec, Timestamp};
use hostler_sched::{Running, Waiting};

use super::job::{Active, Job};
use crate::head::nodes::node::Node;
use crate::head::nodes::partition::Owner;
use crate::head::state::State;
use crate::head::users::quotas::Budget;

/// Iterates over startable jobs in queue order, each with all of its tasks that quotas allow.
pub(in crate::head) fn startable(state: &State) -> impl Iterator<Item = Waiting> {
    let mut budget = Budget::of(state);
    state.startable_queue().filter_map(move |job| within_quota(waiting(state, job), job, budget.as_mut()))
}

/// Converts a job to a scheduler request for the tasks that may start.
pub(in crate::head) fn waiting(state: &State, job: &Job) -> Waiting {
    let time_limit_ms = longest_ms(state, job);
    Waiting { job: job.id, tasks: job.startable(), time_limit_ms, ..asked(state, state.owner_of(job), &job.spec) }
}

/// Converts a specification to a scheduler request for one task. The job needs no id yet.
pub(in crate::head) fn asked(state: &State, owner: Owner, spec: &JobSpec) -> Waiting {
    let among = state.allowed_nodes(owner, spec);
    Waiting {
        job: JobId(0),
        request: spec.request.clone(),
        nodes: spec.nodes,
        exclusive: spec.surroundings.exclusive,
        among,
        tasks: 1,
        time_limit_ms: None,
    }
}

/// Limits a waiting job to the tasks that quotas allow; `None` if they allow none.
pub(in crate::head) fn within_quota(waiting: Waiting, job: &Job, budget: Option<&mut Budget<'_>>) -> Option<Waiting> {
    let Some(budget) = budget else { return Some(waiting) };
    let tasks = budget.grant(job, waiting.tasks);
    (tasks > 0).then_some(Waiting { tasks, ..waiting })
}

/// Returns all that holds resources, each with the latest time at which it ends.
pub(in crate::head) fn running(state: &State) -> Vec<Running> {
    let of_job = |job: &Job, active: &Active, node: &Node| Running {
        node: node.ix,
        request: if job.spec.surroundings.exclusive { node.total() } else { job.spec.request.clone() },
        ends_at: longest_ms(state, job).map_or(Timestamp::NEVER, |longest| active.since.plus_ms(longest)),
    };
    state.placed().map(|(job, active, node)| of_job(job, active, node)).collect()
}

/// Returns the longest time that a task can take, in milliseconds: its time limit plus the grace period. `None` without
/// a limit.
fn longest_ms(state: &State, job: &Job) -> Option<u64> {
    let grace_ms = job.spec.grace_ms.map_or(state.settings.grace_ms, u64::from);
    job.spec.time_limit_ms.map(|limit| limit.saturating_add(grace_ms))
}

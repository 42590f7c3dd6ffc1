//! Why a job waits.

use std::collections::BTreeSet;

use hostler_model::{JobId, NodeName, Reason};

use super::job::Job;
use super::requests::waiting;
use crate::head::ids::Now;
use crate::head::nodes::partitions::waits_for_partition;
use crate::head::power::explain_off_nodes;
use crate::head::state::State;
use crate::head::users::quotas::{waits_for_admin, waits_for_quota};

/// Why a job waits; `None` without a waiting task.
#[must_use]
pub fn explain(state: &State, job: &Job) -> Option<Reason> {
    if job.pending.is_empty() {
        return None;
    }
    if job.free_tasks().is_empty() {
        return Some(Reason::Held);
    }
    if job.free_len() == 0 {
        return Some(waits_for_others(job));
    }
    if let Some(at) = job.begins_at() {
        return Some(Reason::BeginTime { at });
    }
    if job.startable() == 0 {
        let limit = job.spec.array.as_ref().and_then(|array| array.limit).unwrap_or_default();
        return Some(Reason::ArrayLimit { limit });
    }
    if let Some(reason) =
        waits_for_admin(state, job).or_else(|| waits_for_partition(state, job)).or_else(|| waits_for_quota(state, job))
    {
        return Some(reason);
    }
    let (waiting, ahead, policy) = (waiting(state, job), state.ahead_of(job).all(), state.settings.policy);
    let reason = hostler_sched::explain(&state.pool, &waiting, ahead, &state.reservations, policy);
    let now = Now { at: state.last_event_at, wall: state.last_event_wall };
    let waits_for_nodes = !matches!(reason, Reason::Reservation { .. } | Reason::Priority { .. });
    let asleep = waits_for_nodes.then(|| explain_off_nodes(state, job, now)).flatten();
    Some(asleep.unwrap_or_else(|| mark_drained_nodes(state, reason)))
}

/// Why a single waiting task waits, which may differ from the reason for the other tasks.
#[must_use]
pub fn explain_task(state: &State, job: &Job, index: u32) -> Option<Reason> {
    let is_blocked = !job.held && job.pending.contains(index) && !job.independent().contains(index);
    if is_blocked { Some(waits_for_others(job)) } else { explain(state, job) }
}

fn waits_for_others(job: &Job) -> Reason {
    let jobs: BTreeSet<JobId> = job.open_dependencies().map(|dependency| dependency.job).collect();
    Reason::Dependency { jobs: jobs.into_iter().collect() }
}

/// Separates drained nodes from down nodes in a reason; the scheduler does not distinguish them.
fn mark_drained_nodes(state: &State, reason: Reason) -> Reason {
    let Reason::NodesDown { wanted, nodes } = reason else { return reason };
    let is_drained = |name: &NodeName| state.node(name).is_some_and(|node| node.drain.is_some());
    let (drained, down): (Vec<_>, Vec<_>) = nodes.into_iter().partition(is_drained);
    match drained.is_empty() {
        true => Reason::NodesDown { wanted, nodes: down },
        false => Reason::NodesDrained { wanted, nodes: drained, down },
    }
}

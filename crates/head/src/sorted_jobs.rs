//! Jobs that have not ended, in an order of the caller's choice.
//!
//! The state is a map by id, so an order by another key visits all jobs once and sorts only the page. A page ends with a job, and the
//! next page follows that job's key and id. Both never change, so walking the pages while jobs arrive and end shows each job once; but in
//! the orders `queue` and `started`, a job that starts or is held meanwhile may be missed.
//! Ended jobs are not sorted: the store finds them only by id.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use hostler_core::head::{Job, State};
use hostler_proto::api::JobOrder;

use crate::archive::Page;

/// Returns the wanted jobs that follow `after`, at most `limit`, and the number of all wanted jobs. None of them has ended.
pub(crate) fn sorted<'a>(
    state: &State,
    wanted: impl Iterator<Item = &'a Arc<Job>>,
    order: JobOrder,
    after: Option<&Job>,
    limit: usize,
) -> Page {
    let compare = |one: &Job, other: &Job| compare(state, order, one, other);
    let mut total = 0;
    let mut jobs: Vec<&Arc<Job>> = Vec::new();
    for job in wanted {
        total += 1;
        if after.is_none_or(|after| compare(job, after).is_gt()) {
            jobs.push(job);
        }
    }
    if jobs.len() > limit {
        jobs.select_nth_unstable_by(limit, |one, other| compare(one, other));
        jobs.truncate(limit);
    }
    jobs.sort_unstable_by(|one, other| compare(one, other));
    Page { jobs: jobs.into_iter().cloned().collect(), total, examined_to: None }
}

/// Compares two jobs. Only a job is equal to itself.
fn compare(state: &State, order: JobOrder, one: &Job, other: &Job) -> Ordering {
    let priority = |job: &Job| Reverse((state.partition_priority(job), job.spec.priority));
    let has_no_place = |job: &Job| job.active.is_empty();
    let by_key = match order {
        JobOrder::Newest => other.id.cmp(&one.id),
        JobOrder::Oldest => Ordering::Equal,
        JobOrder::Queue => {
            // Held jobs come last, whatever their priority, because they cannot start.
            let place = |job: &Job| (has_no_place(job), has_no_place(job) && job.held);
            place(one).cmp(&place(other)).then_with(|| priority(one).cmp(&priority(other)))
        }
        JobOrder::Priority => priority(one).cmp(&priority(other)),
        JobOrder::Name => one.spec.name.cmp(&other.spec.name),
        JobOrder::User => one.user.cmp(&other.user),
        JobOrder::Size => Reverse(size(one)).cmp(&Reverse(size(other))),
        JobOrder::Started => last_if_none(one.started_at).cmp(&last_if_none(other.started_at)),
        JobOrder::Limit => last_if_none(one.spec.time_limit_ms).cmp(&last_if_none(other.spec.time_limit_ms)),
        JobOrder::Partition => one.spec.partition.cmp(&other.spec.partition),
    };
    by_key.then_with(|| one.id.cmp(&other.id))
}

/// A key that sorts jobs without the value last.
fn last_if_none<T>(value: Option<T>) -> (bool, Option<T>) {
    (value.is_none(), value)
}

/// CPUs, GPUs and memory of a task on all of its nodes.
fn size(job: &Job) -> (u64, u64, u64) {
    let nodes = u64::from(job.spec.nodes);
    let request = &job.spec.request;
    let on_all = |amount: u64| amount.saturating_mul(nodes);
    (on_all(request.cpus.into()), on_all(request.gpus.into()), on_all(request.memory_bytes))
}

//! Jobs that have not ended, in an order of the caller's choice.
//!
//! The state is a map by id, so an order by another key visits all jobs once and sorts only the page. A page ends with a job, and the
//! next page follows that job's key and id. Both never change, so walking the pages while jobs arrive and end shows each job once; but in
//! the orders `queue` and `started`, a job that starts or is held meanwhile may be missed.
//! Ended jobs are not sorted: the store finds them only by id.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use hostler_core::head::{Job, State};
use hostler_model::{JobId, PartitionName, WallTime};
use hostler_proto::api::JobOrder;

use crate::archive::Page;

/// What a list is sorted by. All keys of a list are of one kind.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Newest(Reverse<JobId>),
    Oldest,
    Queue {
        waits: bool,
        is_held: bool,
        priority: Reverse<(i32, i32)>,
    },
    Priority(Reverse<(i32, i32)>),
    Text(&'a str),
    /// CPUs, GPUs and memory of a task on all of its nodes.
    Size(Reverse<(u64, u64, u64)>),
    /// Jobs without the value come last.
    Started(bool, Option<WallTime>),
    Limit(bool, Option<u64>),
    Partition(Option<&'a PartitionName>),
}

/// Returns the wanted jobs that follow `after`, at most `limit`, and the number of all wanted jobs. None of them has ended.
pub(crate) fn sorted<'a>(
    state: &State,
    wanted: impl Iterator<Item = &'a Arc<Job>>,
    order: JobOrder,
    after: Option<&Job>,
    limit: usize,
) -> Page {
    let after = after.map(|job| (key(state, order, job), job.id));
    let mut total = 0;
    let mut first: BTreeMap<(Key<'a>, JobId), &'a Arc<Job>> = BTreeMap::new();
    for job in wanted {
        total += 1;
        let place = (key(state, order, job), job.id);
        let is_late = first.len() == limit && first.last_key_value().is_none_or(|(last, _)| place > *last);
        if is_late || after.as_ref().is_some_and(|after| place <= *after) {
            continue;
        }
        first.insert(place, job);
        if first.len() > limit {
            first.pop_last();
        }
    }
    Page { jobs: first.into_values().cloned().collect(), total, examined_to: None }
}

fn key<'a>(state: &State, order: JobOrder, job: &'a Job) -> Key<'a> {
    let priority = || Reverse((state.partition_priority(job), job.spec.priority));
    match order {
        JobOrder::Newest => Key::Newest(Reverse(job.id)),
        JobOrder::Oldest => Key::Oldest,
        JobOrder::Queue => {
            let waits = job.active.is_empty();
            // Held jobs come last, whatever their priority, because they cannot start.
            Key::Queue { waits, is_held: waits && job.held, priority: priority() }
        }
        JobOrder::Priority => Key::Priority(priority()),
        JobOrder::Name => Key::Text(&job.spec.name),
        JobOrder::User => Key::Text(&job.user),
        JobOrder::Size => Key::Size(Reverse(size(job))),
        JobOrder::Started => Key::Started(job.started_at.is_none(), job.started_at),
        JobOrder::Limit => Key::Limit(job.spec.time_limit_ms.is_none(), job.spec.time_limit_ms),
        JobOrder::Partition => Key::Partition(job.spec.partition.as_ref()),
    }
}

/// CPUs, GPUs and memory of a task on all of its nodes.
fn size(job: &Job) -> (u64, u64, u64) {
    let nodes = u64::from(job.spec.nodes);
    let request = &job.spec.request;
    let on_all = |amount: u64| amount.saturating_mul(nodes);
    (on_all(request.cpus.into()), on_all(request.gpus.into()), on_all(request.memory_bytes))
}

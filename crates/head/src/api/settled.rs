//! A job with those of its tasks that have ended, read from the store.

use std::ops::RangeInclusive;
use std::sync::Arc;

use hostler_core::head::Job;
use hostler_model::{Attempt, Ending, IndexSet, JobId, JobState, TaskId};
use hostler_proto::record::EndedTask;

use super::error::ApiError;
use super::who::User;
use crate::head::Head;
use crate::views::History;

/// Memory to reserve for the details of one job without its tasks, in bytes.
pub(super) const DETAIL_BYTES: usize = 2 << 20;
/// Memory to reserve for each task in a job's details, in bytes.
pub(super) const TASK_BYTES: usize = 2 << 10;

/// Number of rows to search for the reason of an array's cancellation.
const MAX_REASON_ROWS: usize = 100;

/// Returns a job and its history. Waits for the disk if the history lacks tasks that have ended according to the job.
pub(super) async fn settled_history(
    head: &Head,
    user: &User,
    id: JobId,
    range: RangeInclusive<u32>,
    states: &[JobState],
    limit: usize,
) -> Result<(Arc<Job>, History), ApiError> {
    let (job, mut history) = history_of(head, user, id, range, states, limit).await?;
    let missing = missing_rows(&job, &history);
    if missing.is_empty() {
        return Ok((job, history));
    }
    // The state changes before the disk, and history rows become visible only after the fsync. Meanwhile more tasks may
    // end, so a new read of all would lack other rows.
    head.engine.settled().await?;
    let reader = head.history.clone();
    let read = move || -> Result<Vec<EndedTask>, hostler_store::StoreError> {
        let rows = missing.into_iter().map(|index| reader.ended_one(TaskId { job: id, index }));
        rows.filter_map(Result::transpose).collect()
    };
    let rows = head.client_limits.read_jobs(user.party(), read).await.map_err(ApiError::internal)??;
    history.rows.extend(rows.into_iter().map(|row| (row.index, row)));
    Ok((job, history))
}

/// The ended tasks whose current row the history lacks. Every end has a row, but the cancellation of a waiting task may
/// have none.
fn missing_rows(job: &Job, history: &History) -> Vec<u32> {
    let is_missing = |(index, ending): &&(u32, Ending)| {
        let has_run = ending.state != JobState::Cancelled || ending.exit_code.is_some();
        let must = has_run || job.results.contains(*index);
        must && history.rows.get(index).is_none_or(|row| row.ending != *ending)
    };
    history.ended.iter().filter(is_missing).map(|(index, _)| *index).collect()
}

/// Reads those ended tasks of a job that have an index in `range` and one of these states, or any if there are none; at
/// most `limit` tasks. The only task of a job without an array is always included, because the summary needs it.
async fn history_of(
    head: &Head,
    user: &User,
    id: JobId,
    range: RangeInclusive<u32>,
    states: &[JobState],
    limit: usize,
) -> Result<(Arc<Job>, History), ApiError> {
    let job = user.job(head, id).await?;
    let (range, limit) = if job.spec.array.is_none() { (0..=0, limit.max(1)) } else { (range, limit) };
    let first = |indices: &IndexSet| -> Vec<u32> {
        indices.iter().filter(|index| range.contains(index)).take(limit.saturating_add(1)).collect()
    };
    let mut ended: Vec<(u32, Ending)> = job
        .endings
        .iter()
        .filter(|(ending, _)| job.spec.array.is_none() || states.is_empty() || states.contains(&ending.state))
        .flat_map(|(ending, indices)| first(indices).into_iter().map(|index| (index, *ending)))
        .collect();
    ended.sort_unstable_by_key(|(index, _)| *index);
    let next = ended.get(limit).map(|(index, _)| *index);
    ended.truncate(limit);
    let Some(&(last, _)) = ended.last() else { return Ok((job, History { next, ..History::default() })) };
    let first_cancelled = first_cancelled_by_dependency(&job);
    // Between selected tasks there may be any number of others.
    let wanted = (!states.is_empty()).then(|| ended.iter().map(|(index, _)| *index).collect::<Vec<_>>());
    let history = head.history.clone();
    let read = move || -> Result<_, hostler_store::StoreError> {
        let rows = match wanted {
            None => history.ended_of(id, *range.start()..=last, limit)?,
            Some(indices) => {
                let mut rows = Vec::new();
                for index in indices {
                    rows.extend(history.ended_one(TaskId { job: id, index })?);
                }
                rows
            }
        };
        // The reason is usually in the first row. Rows before it belong to tasks that users cancelled individually.
        let cancelled = match first_cancelled {
            Some(first) => history.ended_of(id, first..=u32::MAX, MAX_REASON_ROWS)?,
            None => Vec::new(),
        };
        let says_why = |row: &EndedTask| row.attempt == Attempt(0) && row.ending.state == JobState::Cancelled;
        let why_cancelled = cancelled.into_iter().filter(says_why).find_map(|row| row.message);
        Ok((rows, why_cancelled))
    };
    let (rows, why_cancelled) =
        head.client_limits.read_jobs(user.party(), read).await.map_err(ApiError::internal)??;
    let rows = rows.into_iter().map(|row| (row.index, row)).collect();
    Ok((job, History { ended, rows, why_cancelled, next }))
}

/// Returns the first cancelled task of an array with dependencies. The row of this task contains the reason for all
/// tasks.
fn first_cancelled_by_dependency(job: &Job) -> Option<u32> {
    let may = job.spec.array.is_some() && !job.spec.after.is_empty();
    let mut cancelled = job.endings.iter().filter(|(ending, _)| ending.state == JobState::Cancelled);
    cancelled.find_map(|(_, indices)| indices.first()).filter(|_| may)
}

//! Results: kept results of ended tasks, and reports of their download.
//!
//! An array may have a million results. The response is therefore generated while it is sent, and never completely in
//! memory.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body as Sent, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::NoContent;
use futures_util::{StreamExt, stream};
use hostler_core::head::{Caller, Command, Job, KeptFiles};
use hostler_model::{Attempt, IndexSet, JobId, JobState, MAP, TaskId, Work};
use hostler_proto::api::{DeletedResults, Fetched, ResultPage, ResultView};
use hostler_proto::record::{EndedTask, TaskResult};
use serde::Deserialize;
use utoipa::ToSchema;

use super::error::ApiError;
use super::extract::{Json as Body, Path, Query, list as parse_list};
use super::reply::JsonText;
use super::who::User;
use crate::answers::{Answer, hold};
use crate::archive::ArchiveError;
use crate::blobs::LibraryError;
use crate::head::Head;
use crate::views::Viewer;

/// The query of `GET /results`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Filter {
    /// Only results that were never fetched.
    #[serde(default)]
    unfetched: bool,
    /// Also results of attempts after which the task was requeued. They come before the others of their job.
    #[serde(default)]
    earlier: bool,
    /// Job ids, separated by commas; all jobs of the user if absent.
    #[schema(pattern = "^[1-9][0-9]{0,18}(,[1-9][0-9]{0,18})*$")]
    jobs: Option<String>,
    /// Maximum number of jobs in a page: at most 1000, which is also the default.
    limit: Option<u32>,
    /// The value of `next` on the previous page. Only jobs with higher ids are listed.
    after: Option<JobId>,
}

/// Maximum number of jobs per response.
const MOST_JOBS: usize = 1_000;

/// Approximate size of the pieces of a response.
const PIECE_BYTES: usize = 64 << 10;

/// Maximum number of tasks whose files a requeue keeps.
const MOST_KEPT: u64 = 10_000;

/// Number of ended tasks per read.
const ROWS: usize = 64;

/// `GET /results`, of the given jobs or of all jobs of the user.
pub(crate) async fn list(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Query(filter): Query<Filter>,
) -> Result<JsonText<ResultPage>, ApiError> {
    let mut named: Vec<JobId> = parse_list(filter.jobs.as_deref())?;
    named.sort_unstable();
    named.dedup();
    for id in &named {
        readable(&head, &user, *id).await?;
    }
    let are_named = !named.is_empty();
    // The rows of tasks that have just ended become visible only after the fsync. If the disk is full, earlier results can still
    // be fetched.
    let _ = head.engine.settled().await;
    let (jobs, next) = if are_named {
        (named, None)
    } else {
        let limit = filter.limit.map_or(MOST_JOBS, |limit| limit as usize).clamp(1, MOST_JOBS);
        let after = filter.after.unwrap_or(JobId(0));
        head.jobs_with_results(user.party(), &user.0.user, filter.unfetched, after, limit).await?
    };
    let deleted = if filter.unfetched && !are_named && next.is_none() {
        let state = head.engine.state();
        let own = state.deleted.iter().filter(|(_, deleted)| deleted.user == user.0.user);
        own.map(|(job, deleted)| DeletedResults { job: *job, deleted_at: deleted.at }).collect()
    } else {
        Vec::new()
    };
    let listing = Listing {
        head: Arc::clone(&head),
        caller: user.0,
        are_named,
        unfetched: filter.unfetched,
        earlier: filter.earlier,
        jobs: jobs.into_iter(),
        current: None,
        next,
        deleted,
        has_begun: false,
        has_any: false,
    };
    // An error in the first piece can still change the response's status.
    let (first, rest) = next_piece(&answer, listing).await?;
    let rest = stream::try_unfold(rest, move |listing| {
        let answer = Arc::clone(&answer);
        async move {
            let Some(listing) = listing else { return Ok(None) };
            next_piece(&answer, listing).await.map(Some).map_err(io::Error::other)
        }
    });
    let pieces = stream::once(async { Ok(first) }).chain(rest);
    Ok(JsonText::new(Sent::from_stream(pieces)))
}

/// What a listing reads next of a job.
#[derive(Clone, Copy)]
enum Position {
    /// Results of earlier attempts, after this task and attempt.
    Earlier(u32, Attempt),
    /// Results of ended tasks, from this index.
    Ended(u32),
}

/// A [`hostler_proto::api::ResultPage`] in progress.
struct Listing {
    head: Arc<Head>,
    caller: Caller,
    /// Whether the request lists job ids. If so, the caller's permission for each job was checked, and the jobs may
    /// belong to other users.
    are_named: bool,
    unfetched: bool,
    earlier: bool,
    jobs: std::vec::IntoIter<JobId>,
    /// The current job, and what to list next.
    current: Option<(Arc<Job>, Position)>,
    next: Option<JobId>,
    deleted: Vec<DeletedResults>,
    has_begun: bool,
    has_any: bool,
}

/// Reserves memory and generates the next piece. Also returns the rest of the listing, unless this was the last piece.
async fn next_piece(answer: &Answer, mut listing: Listing) -> Result<(Bytes, Option<Listing>), ArchiveError> {
    let memory = answer.memory_for(&listing.head.client_limits, 2 * PIECE_BYTES).await;
    let head = Arc::clone(&listing.head);
    let write = move || -> Result<_, ArchiveError> {
        let mut text = Vec::with_capacity(PIECE_BYTES);
        let goes_on = listing.write(&mut text)?;
        Ok((text, goes_on.then_some(listing)))
    };
    let (text, rest) = head.client_limits.read_jobs(answer.party(), write).await??;
    Ok((hold(text, memory), rest))
}

impl Listing {
    /// Appends results to `text` until a piece is full. Returns whether more results may follow.
    fn write(&mut self, text: &mut Vec<u8>) -> Result<bool, ArchiveError> {
        if !std::mem::replace(&mut self.has_begun, true) {
            text.extend(b"{\"results\":[");
        }
        while text.len() < PIECE_BYTES {
            let current = match self.current.take() {
                Some(current) => Some(current),
                None => self.next_job()?.map(|job| {
                    let has_earlier = self.earlier && job.earlier.is_some();
                    (job, if has_earlier { Position::Earlier(0, Attempt(0)) } else { Position::Ended(0) })
                }),
            };
            let Some((job, from)) = current else {
                text.extend(b"]");
                text.extend(self.next.map(|next| format!(",\"next\":{next}")).unwrap_or_default().bytes());
                if !self.deleted.is_empty() {
                    text.extend(b",\"deleted\":");
                    text.extend(serde_json::to_vec(&self.deleted).expect("API types are valid JSON"));
                }
                text.extend(b"}");
                return Ok(false);
            };
            self.current = self.write_some(text, &job, from)?.map(|from| (job, from));
        }
        Ok(true)
    }

    fn next_job(&mut self) -> Result<Option<Arc<Job>>, ArchiveError> {
        for id in self.jobs.by_ref() {
            let Some(job) = self.head.engine.find_job(id)? else { continue };
            if if self.are_named { self.caller.may_touch(&job) } else { self.caller.owns(&job) } {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    /// Appends some results of a job. Returns where the next ones begin if more may follow.
    fn write_some(&mut self, text: &mut Vec<u8>, job: &Job, from: Position) -> Result<Option<Position>, ArchiveError> {
        let history = &self.head.history;
        let rows = match from {
            Position::Earlier(index, attempt) => {
                let mut rows = history.earlier_attempts((TaskId { job: job.id, index }, attempt), ROWS)?;
                rows.retain(|row| row.job == job.id);
                rows
            }
            Position::Ended(index) => history.ended_of(job.id, index..=u32::MAX, ROWS)?,
        };
        let is_page = rows.len() == ROWS;
        let after = |row: &EndedTask| match from {
            Position::Earlier(..) => Some(Position::Earlier(row.index, row.attempt)),
            Position::Ended(_) => row.index.checked_add(1).map(Position::Ended),
        };
        let is_earlier = matches!(from, Position::Earlier(..));
        for row in &rows {
            for view in row.results().filter_map(|result| view(job, row, is_earlier, result)) {
                if self.unfetched && view.fetched {
                    continue;
                }
                if std::mem::replace(&mut self.has_any, true) {
                    text.push(b',');
                }
                text.extend(serde_json::to_vec(&view).expect("API types are valid JSON"));
            }
            if text.len() >= PIECE_BYTES {
                return Ok(after(row));
            }
        }
        Ok(match rows.last().filter(|_| is_page) {
            Some(last) => after(last),
            None => is_earlier.then_some(Position::Ended(0)),
        })
    }
}

/// Returns the job, or an error if the user may not read its contents.
pub(crate) async fn readable(head: &Head, user: &User, id: JobId) -> Result<Arc<Job>, ApiError> {
    let job = user.job(head, id).await?;
    match user.sees(&job) {
        Viewer::Owner => Ok(job),
        Viewer::Other => Err(user.0.refused(&job).into()),
    }
}

/// Returns the results of a job's ended tasks with which the next attempts can start, and keeps them from being collected until
/// then. Of a task whose last attempt left none, that of an earlier attempt.
pub(super) async fn to_keep(
    head: &Arc<Head>,
    user: &User,
    id: JobId,
    index: Option<u32>,
    completed: bool,
) -> Result<KeptFiles, ApiError> {
    // The rows of tasks that have just ended become visible only after the fsync.
    let _ = head.engine.settled().await;
    let job = readable(head, user, id).await?;
    if matches!(job.spec.work, Work::Command { .. }) {
        return Ok(KeptFiles::new());
    }
    let is_again = move |state: JobState| completed || state != JobState::Completed;
    let ended = job.endings.iter().filter(|(ending, _)| is_again(ending.state)).map(|(_, tasks)| tasks);
    if index.is_none() && ended.clone().map(IndexSet::len).sum::<u64>() > MOST_KEPT {
        let text = format!("job {id} would keep the files of more than {MOST_KEPT} tasks");
        let error = ApiError::new(StatusCode::CONFLICT, "wrong_state", text);
        return Err(
            error.hint(format!("requeue single tasks, e.g. {id}_{}", job.indices().first().unwrap_or_default()))
        );
    }
    let tasks: Vec<TaskId> = ended
        .flat_map(IndexSet::iter)
        .filter(|it| index.is_none_or(|index| index == *it))
        .map(|it| job.task(it))
        .collect();
    let (library, history) = (Arc::clone(&head.library), head.history.clone());
    let read = move || -> Result<KeptFiles, LibraryError> {
        let mut files = KeptFiles::new();
        for task in tasks {
            let mut row =
                history.ended_one(task)?.filter(|row| row.result.is_some() && job.results.contains(task.index));
            if row.is_none() {
                let earlier = history.earlier_attempts((task, Attempt(0)), ROWS)?;
                row = earlier.into_iter().rfind(|row| (row.job, row.index) == (task.job, task.index));
            }
            let results = row.map(|row| row.ranked_results()).unwrap_or_default();
            // Renews the age of the chunks, so that no collection deletes them before the job has them.
            let are_there: Result<Vec<bool>, _> = results.iter().map(|(_, it)| library.is_complete(it)).collect();
            if !results.is_empty() && !are_there?.contains(&false) {
                files.insert(task.index, results);
            }
        }
        Ok(files)
    };
    let read = head.client_limits.read_jobs(user.party(), read).await;
    read.map_err(ApiError::internal)?.map_err(ApiError::from)
}

/// Converts a result into its view. Returns `None` if the task was requeued, or its result was fetched or dropped.
fn view(
    job: &Job,
    row: &EndedTask,
    is_earlier: bool,
    TaskResult { task, rank, manifest }: TaskResult,
) -> Option<ResultView> {
    let state = match is_earlier {
        true => job.earlier_results(row.attempt).contains(task.index).then_some(row.ending.state)?,
        false => job.ending_of(task.index).filter(|_| job.results.contains(task.index))?.state,
    };
    Some(ResultView {
        job: task.job,
        name: job.spec.name.to_string(),
        index: job.spec.array.is_some().then_some(task.index),
        node_rank: (job.spec.nodes > 1).then_some(rank),
        state,
        project: matches!(job.spec.work, Work::Project { .. }),
        map: job.spec.labels().any(|(name, _)| name == MAP),
        manifest,
        fetched: !is_earlier && job.fetched.contains(task.index),
        attempt: row.attempt,
        earlier: is_earlier,
        submitted_at: job.submitted_at,
    })
}

/// `POST /jobs/{id}/fetched`.
pub(crate) async fn fetched(
    user: User,
    State(head): State<Arc<Head>>,
    Path(job): Path<JobId>,
    Body(Fetched { indices, attempt }): Body<Fetched>,
) -> Result<NoContent, ApiError> {
    if indices.is_empty() {
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", "`indices` is empty"));
    }
    head.engine.command(Command::Fetched { caller: user.0, job, indices, attempt }).await?;
    head.library.note_change();
    head.library.room().fetched();
    Ok(NoContent)
}

//! Jobs: submit, list, show, and tell them what to do.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use hostler_core::head::{Command, Job, Refusal, SubmissionKey};
use hostler_model::{Attempt, Ending, IndexSet, JobId, JobState, TaskId, Work};
use hostler_proto::api::{JobAction, JobDetail, JobPage, JobSummary, Notice, SubmitRequest, Submitted, Why};
use hostler_proto::record::EndedTask;
use serde::Deserialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use super::access::About;
use super::error::ApiError;
use super::extract::{Json as Body, Path, Query, list as parse_list};
use super::who::User;
use crate::answers::Answer;
use crate::archive::{Page, Wanted};
use crate::blobs::{LibraryError, name_of};
use crate::head::Head;
use crate::views::{self, History, Shown, Viewer};

/// Jobs of a page when the client does not say, and at most.
const PAGE: usize = 100;
const LONGEST_PAGE: usize = 1_000;

/// Jobs looked at while nothing may change: to say why a job waits means to count those before it, and a long page must not hold up
/// the loop.
const AT_ONCE: usize = 50;

/// Ended tasks of a job that are shown when the client does not say, and at most.
const TASKS: usize = 100;
const MOST_TASKS: usize = 10_000;

/// What a job takes in an answer: in a list, with its spec while the list is made; alone; and each of its tasks. Memory is reserved for
/// so much.
const IN_LIST_BYTES: usize = 8 << 10;
const DETAIL_BYTES: usize = 2 << 20;
const TASK_BYTES: usize = 2 << 10;

/// A page ends before its limit when the specs of its jobs, or their command lines, are longer than this. Each may have a megabyte.
pub(crate) const LONGEST_PAGE_BYTES: usize = 4 << 20;

/// How many rows are looked through for the one that says why an array was cancelled.
const LOOKED_AT: usize = 100;

/// The longest a client may wait for the end of a job in one request; then it asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The longest submission key, in bytes.
const MAX_KEY_LEN: usize = 256;

/// `POST /jobs`.
pub(crate) async fn submit(
    user: User,
    State(head): State<Arc<Head>>,
    Body(SubmitRequest { key, mut spec, unsaid }): Body<SubmitRequest>,
) -> Result<(Extension<About>, Json<Submitted>), ApiError> {
    if key.is_empty() || key.len() > MAX_KEY_LEN {
        return Err(ApiError::bad_request("a submission key has 1 to 256 bytes"));
    }
    let key = submission_key(&user.0.user, &key);
    // A retry of what was accepted is answered in any case.
    let is_new = head.engine.state().job_of_key(key).is_none();
    if is_new
        && let Err(refusal) = may_submit(&head)
        && !head.engine.ended_with_key(key).await?
    {
        return Err(refusal);
    }
    let snapshot_is_complete = match &spec.work {
        Work::Project { snapshot, .. } if is_new => is_complete(&head, *snapshot).await?,
        Work::Project { .. } | Work::Command { .. } => true,
    };
    head.engine.state().complete(&mut spec, &unsaid);
    shrink(&mut spec.work);
    let packed = head.environments.pack(&std::mem::take(&mut spec.environment));
    let environment = packed.as_ref().map(|(digest, _)| *digest);
    let command = Command::Submit { caller: user.0, key, spec: Arc::new(spec), environment, snapshot_is_complete };
    let done = head.engine.submit(command, packed).await?;
    let (id, duplicate) = done.submitted.ok_or_else(|| ApiError::internal("a submission without a job"))?;
    Ok((Extension(About(format!("job {id}"))), Json(Submitted { id, duplicate })))
}

/// Gives back what a list of words read from JSON has to spare: with a hundred thousand jobs waiting it is megabytes.
fn shrink(work: &mut Work) {
    match work {
        Work::Project { args: words, .. } | Work::Command { argv: words, .. } => words.shrink_to_fit(),
    }
}

/// Keys are the clients' own; two users may come upon the same.
fn submission_key(user: &str, key: &str) -> SubmissionKey {
    let digest = name_of(&[user.as_bytes(), b"\0", key.as_bytes()].concat());
    let half = digest.0.first_chunk::<16>().expect("a digest has 32 bytes");
    SubmissionKey(u128::from_be_bytes(*half))
}

fn may_submit(head: &Head) -> Result<(), ApiError> {
    match head.library.too_full() {
        Some(why) => Err(ApiError::disk_full(why)),
        None => head.refusing().map_or(Ok(()), |why| Err(ApiError::refusing(why))),
    }
}

async fn is_complete(head: &Head, snapshot: hostler_model::Digest) -> Result<bool, ApiError> {
    let library = Arc::clone(&head.library);
    let outcome = tokio::task::spawn_blocking(move || library.is_complete(&snapshot)).await;
    outcome.map_err(ApiError::internal)?.map_err(|error: LibraryError| error.into())
}

/// The query of `GET /jobs`.
#[derive(Deserialize)]
pub(crate) struct Filter {
    state: Option<String>,
    user: Option<String>,
    limit: Option<usize>,
    before: Option<JobId>,
    #[serde(default)]
    commands: bool,
}

/// `GET /jobs`: newest first.
pub(crate) async fn list(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Query(filter): Query<Filter>,
) -> Result<Json<JobPage>, ApiError> {
    let states: Vec<JobState> = parse_list(filter.state.as_deref())?;
    let limit = filter.limit.unwrap_or(PAGE).clamp(1, LONGEST_PAGE);
    let wanted = Wanted { user: filter.user, states };
    answer.reserve(&head.guests, 2 * LONGEST_PAGE_BYTES + limit * IN_LIST_BYTES).await;
    let Page { jobs: mut page, total, is_cut } = head.engine.jobs(wanted, filter.before, limit + 1).await?;
    let mut is_last = !is_cut && page.len() <= limit;
    page.truncate(limit);
    let rows = rows_of_single(&head, &page).await?;
    let mut jobs: Vec<JobSummary> = Vec::with_capacity(page.len());
    let mut commands_bytes = 0;
    'page: for some in page.chunks(AT_ONCE) {
        let state = head.engine.state();
        for job in some {
            if commands_bytes > LONGEST_PAGE_BYTES {
                is_last = false;
                break 'page;
            }
            let is_shown = filter.commands && user.sees(job) == Viewer::Owner;
            let command = is_shown.then(|| views::command_line(&job.spec.work));
            commands_bytes += command.as_ref().map_or(0, String::len);
            let summary = views::summary(&state, job, rows.get(&job.id), head.engine.now().at);
            jobs.push(JobSummary { command, ..summary });
        }
    }
    let next = jobs.last().map(|job| job.id).filter(|_| !is_last);
    Ok(Json(JobPage { jobs, total, next }))
}

/// The history of those that have ended and are no arrays: where they ran.
async fn rows_of_single(head: &Head, jobs: &[Arc<Job>]) -> Result<BTreeMap<JobId, EndedTask>, ApiError> {
    let single: Vec<JobId> =
        jobs.iter().filter(|job| job.spec.array.is_none() && job.is_ended()).map(|job| job.id).collect();
    if single.is_empty() {
        return Ok(BTreeMap::new());
    }
    let history = head.history.clone();
    let read = move || -> Result<_, hostler_store::StoreError> {
        let mut rows = BTreeMap::new();
        for job in single {
            rows.extend(history.ended_one(TaskId { job, index: 0 })?.map(|row| (job, row)));
        }
        Ok(rows)
    };
    Ok(tokio::task::spawn_blocking(read).await.map_err(ApiError::internal)??)
}

/// The query of `GET /jobs/{id}`.
#[derive(Deserialize)]
pub(crate) struct Show {
    tasks: Option<usize>,
    from: Option<u32>,
    index: Option<u32>,
    wait_ms: Option<u64>,
}

/// `GET /jobs/{id}`, at once or when the job, or the task that is asked for, has ended.
pub(crate) async fn show(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Path(id): Path<JobId>,
    Query(query): Query<Show>,
) -> Result<Json<JobDetail>, ApiError> {
    let limit = query.tasks.unwrap_or(TASKS).min(MOST_TASKS);
    let (shown, range) = match (query.index, query.from) {
        (Some(index), _) => (Shown::Only(index), index..=index),
        (None, Some(from)) => (Shown::Ended, from..=u32::MAX),
        (None, None) => (Shown::All, 0..=u32::MAX),
    };
    if let Some(index) = query.index {
        check_task(&head, id, index).await?;
    }
    if let Some(wait_ms) = query.wait_ms {
        let wait = Duration::from_millis(wait_ms).min(LONGEST_WAIT);
        let is_over = |job: &Job| query.index.map_or(job.is_ended(), |index| job.ending_of(index).is_some());
        until(&head, id, Instant::now() + wait, |job| job.is_none_or(is_over)).await;
    }
    let live = head.engine.state().job(id).map_or(0, |job| job.active.len());
    answer.reserve(&head.guests, DETAIL_BYTES + (live + limit) * TASK_BYTES).await;
    // The job as it was when the history was read: one that has ended since would have ended without any task.
    let (job, history) = settled_history(&head, id, range, limit).await?;
    let state = head.engine.state();
    Ok(Json(views::detail(&state, &job, user.sees(&job), shown, &history, head.engine.now().at)))
}

/// Refuses a task that the job has not got.
async fn check_task(head: &Head, id: JobId, index: u32) -> Result<(), ApiError> {
    let job = head.job(id).await?;
    if job.indices().contains(index) { Ok(()) } else { Err(Refusal::NoSuchTask { job: id, index }.into()) }
}

/// A job, and what the history says of it as far as the state has come.
async fn settled_history(
    head: &Head,
    id: JobId,
    range: RangeInclusive<u32>,
    limit: usize,
) -> Result<(Arc<Job>, History), ApiError> {
    let (job, history) = history_of(head, id, range.clone(), limit).await?;
    if !lags(&job, &history) {
        return Ok((job, history));
    }
    // The state is ahead of the disk for the length of an fsync; rows appear only when they are on it.
    head.engine.settled().await?;
    history_of(head, id, range, limit).await
}

/// Whether a task that must have a row has none yet, or one of an earlier attempt.
fn lags(job: &Job, history: &History) -> bool {
    history.ended.iter().any(|(index, ending)| {
        let must = ending.exit_code.is_some() || job.results.contains(*index);
        must && history.rows.get(index).is_none_or(|row| row.ending != *ending)
    })
}

/// The first ended tasks of a job with an index in `range`. The only task of a job that is no array is always among them: the summary
/// tells of it.
async fn history_of(
    head: &Head,
    id: JobId,
    range: RangeInclusive<u32>,
    limit: usize,
) -> Result<(Arc<Job>, History), ApiError> {
    let job = head.job(id).await?;
    let (range, limit) = if job.spec.array.is_none() { (0..=0, limit.max(1)) } else { (range, limit) };
    let first = |indices: &IndexSet| -> Vec<u32> {
        indices.iter().filter(|index| range.contains(index)).take(limit.saturating_add(1)).collect()
    };
    let mut ended: Vec<(u32, Ending)> = job
        .endings
        .iter()
        .flat_map(|(ending, indices)| first(indices).into_iter().map(|index| (index, *ending)))
        .collect();
    ended.sort_unstable_by_key(|(index, _)| *index);
    let next = ended.get(limit).map(|(index, _)| *index);
    ended.truncate(limit);
    let Some(&(last, _)) = ended.last() else { return Ok((job, History { next, ..History::default() })) };
    let first_cancelled = first_cancelled_by_dependency(&job);
    let history = head.history.clone();
    let read = move || -> Result<_, hostler_store::StoreError> {
        let rows = history.ended_of(id, *range.start()..=last, limit)?;
        // Usually the very first; each before it was cancelled by somebody, alone.
        let cancelled = match first_cancelled {
            Some(first) => history.ended_of(id, first..=u32::MAX, LOOKED_AT)?,
            None => Vec::new(),
        };
        let says_why = |row: &EndedTask| row.attempt == Attempt(0) && row.ending.state == JobState::Cancelled;
        let why_cancelled = cancelled.into_iter().filter(says_why).find_map(|row| row.message);
        Ok((rows, why_cancelled))
    };
    let (rows, why_cancelled) = tokio::task::spawn_blocking(read).await.map_err(ApiError::internal)??;
    let rows = rows.into_iter().map(|row| (row.index, row)).collect();
    Ok((job, History { ended, rows, why_cancelled, next }))
}

/// The first cancelled task of an array that depended on other jobs: one row says why all of them were.
fn first_cancelled_by_dependency(job: &Job) -> Option<u32> {
    let may = job.spec.array.is_some() && !job.spec.after.is_empty();
    let mut cancelled = job.endings.iter().filter(|(ending, _)| ending.state == JobState::Cancelled);
    cancelled.find_map(|(_, indices)| indices.first()).filter(|_| may)
}

/// Waits until `done` says so of the job (`None` when it has ended, or there is no such job), the deadline is over or the head stops. Looks only
/// when the job has changed.
pub(crate) async fn until(head: &Head, id: JobId, deadline: Instant, done: impl Fn(Option<&Job>) -> bool) {
    // Subscribed before the first look, so that nothing falls in between.
    let mut notices = head.engine.notices();
    loop {
        if done(head.engine.state().job(id).map(Arc::as_ref)) {
            return;
        }
        tokio::select! {
            changed = timeout_at(deadline, next_change(&mut notices, id)) => if changed.is_err() { return },
            () = head.stop.cancelled() => return,
        }
    }
}

/// Waits until the job has changed, or may have.
pub(crate) async fn next_change(notices: &mut Receiver<Notice>, id: JobId) {
    loop {
        match notices.recv().await {
            Ok(Notice::Job { id: changed, .. }) if changed != id => {}
            Ok(Notice::Node { .. }) => {}
            Ok(Notice::Job { .. } | Notice::Missed) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// `GET /jobs/{id}/why`.
pub(crate) async fn why(
    user: User,
    State(head): State<Arc<Head>>,
    Path(id): Path<JobId>,
    Query(Which { index }): Query<Which>,
) -> Result<Json<Why>, ApiError> {
    if let Some(index) = index {
        check_task(&head, id, index).await?;
    }
    // Of an array as a whole: what is said of the first of its tasks need not be so of others.
    let range = index.map_or(0..=0, |index| index..=index);
    let (job, history) = settled_history(&head, id, range, 1).await?;
    let now = head.engine.now();
    let state = head.engine.state();
    let is_one = index.is_some() || job.spec.array.is_none();
    let row = history.rows.into_values().next().filter(|_| is_one);
    let message = row.and_then(|row| row.message).or(history.why_cancelled);
    let message = message.filter(|_| user.sees(&job) == Viewer::Owner);
    Ok(Json(match index.filter(|_| job.spec.array.is_some()) {
        Some(index) => views::why_task(&state, &job, index, message.as_deref(), now),
        None => views::why(&state, &job, message.as_deref(), now),
    }))
}

/// The query of an action.
#[derive(Deserialize)]
pub(crate) struct Which {
    index: Option<u32>,
}

/// `POST /jobs/{id}/cancel`.
pub(crate) async fn cancel(
    user: User,
    head: State<Arc<Head>>,
    id: Path<JobId>,
    which: Query<Which>,
) -> Result<Json<JobSummary>, ApiError> {
    act(user, head, id, which, JobAction::Cancel).await
}

/// `POST /jobs/{id}/hold`.
pub(crate) async fn hold(
    user: User,
    head: State<Arc<Head>>,
    id: Path<JobId>,
    which: Query<Which>,
) -> Result<Json<JobSummary>, ApiError> {
    act(user, head, id, which, JobAction::Hold).await
}

/// `POST /jobs/{id}/release`.
pub(crate) async fn release(
    user: User,
    head: State<Arc<Head>>,
    id: Path<JobId>,
    which: Query<Which>,
) -> Result<Json<JobSummary>, ApiError> {
    act(user, head, id, which, JobAction::Release).await
}

/// `POST /jobs/{id}/requeue`.
pub(crate) async fn requeue(
    user: User,
    head: State<Arc<Head>>,
    id: Path<JobId>,
    which: Query<Which>,
) -> Result<Json<JobSummary>, ApiError> {
    act(user, head, id, which, JobAction::Requeue).await
}

async fn act(
    user: User,
    State(head): State<Arc<Head>>,
    Path(job): Path<JobId>,
    Query(Which { index }): Query<Which>,
    action: JobAction,
) -> Result<Json<JobSummary>, ApiError> {
    tracing::info!(%job, ?index, action = action.as_str(), user = user.0.user, "job told to");
    head.engine.command(Command::Act { caller: user.0, job, index, action }).await?;
    let job = head.job(job).await?;
    let state = head.engine.state();
    Ok(Json(views::summary(&state, &job, None, head.engine.now().at)))
}

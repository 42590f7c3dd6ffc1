//! Jobs: lists, details and actions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use hostler_core::head::{Command, Job, Phase, Refusal};
use hostler_model::{IndexSet, JobId, JobState, NodeName, PartitionName, TaskId, WallTime};
use hostler_proto::api::{ExpiringJobs, JobAction, JobDetail, JobOrder, JobPage, JobSummary, TaskCounts, Why};
use hostler_proto::record::EndedTask;
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa::openapi::{ObjectBuilder, Schema, Type};

use super::error::ApiError;
use super::extract::{Path, Query, list as parse_list};
use super::results;
use super::settled::{DETAIL_BYTES, TASK_BYTES, settled_history};
use super::submit::may_submit;
use super::until::{LONGEST_WAIT, until};
use super::who::User;
use crate::answers::Answer;
use crate::archive::{LONGEST_PAGE_BYTES, Page, Text, Wanted};
use crate::head::Head;
use crate::views::{self, Shown, Viewer};

/// Default number of jobs per page.
const PAGE: usize = 100;
/// Maximum number of jobs per page.
const LONGEST_PAGE: usize = 1_000;

/// Maximum number of jobs to process per lock of the state. For the reason of a waiting job, the head counts the jobs
/// before it in the queue, and a long page must not block the engine.
const AT_ONCE: usize = 50;

/// Default number of ended tasks in a job's details.
const TASKS: usize = 100;
/// Maximum number of ended tasks in a job's details.
const MOST_TASKS: usize = 10_000;

/// Maximum number of ranges of indices by state: about a megabyte of text.
const MOST_RANGES: usize = 100_000;

/// Memory to reserve for each job of a list, including the job's specification, in bytes.
const IN_LIST_BYTES: usize = 8 << 10;

/// Maximum length of a search text, in characters.
const MAX_TEXT_LEN: usize = 200;

/// The query of `GET /jobs`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Filter {
    /// States, separated by commas; all if absent.
    #[schema(schema_with = states_schema)]
    state: Option<String>,
    /// With `state`: also include arrays with a task in one of these states, whatever the state of the job is.
    #[serde(default)]
    any_task: bool,
    /// Only jobs of this user; all if absent.
    user: Option<String>,
    /// Maximum number of jobs: 100 if absent, at most 1000. A page has fewer jobs if command lines are long.
    limit: Option<u32>,
    /// The value of `next` on the previous page, in the same order.
    before: Option<JobId>,
    /// Order of the jobs; newest first if absent. Any other order lists only jobs that have not ended, and refuses
    /// states of ended jobs.
    order: Option<JobOrder>,
    /// Only jobs of this partition.
    partition: Option<PartitionName>,
    /// Only jobs with a task on this node now. Ended jobs never match.
    node: Option<NodeName>,
    /// Only jobs whose name, id or command line contains this text. Of a command line, only the first 16 KiB count, and
    /// only if the caller may see it. Upper and lower case are the same.
    #[schema(max_length = 200)]
    text: Option<String>,
    /// Only jobs that ended at this time or later, in milliseconds since the Unix epoch.
    ended_since: Option<WallTime>,
    /// Include the command line of each job.
    #[serde(default)]
    commands: bool,
}

pub(super) fn states_schema() -> Schema {
    let states = JobState::ALL.map(JobState::as_str).join("|");
    let pattern = format!("^({states})(,({states}))*$");
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(pattern))
        .description(Some("States, separated by commas; all if absent."))
        .into()
}

/// `GET /jobs`.
pub(crate) async fn list(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Query(filter): Query<Filter>,
) -> Result<Json<JobPage>, ApiError> {
    let order = filter.order.unwrap_or_default();
    let mut states: Vec<JobState> = parse_list(filter.state.as_deref())?;
    // The store queries each state separately.
    states.sort_unstable();
    states.dedup();
    if states.is_empty() && order != JobOrder::Newest {
        states = JobState::LIVE.to_vec();
    }
    let limit = filter.limit.map_or(PAGE, |limit| limit as usize).clamp(1, LONGEST_PAGE);
    if filter.text.as_ref().is_some_and(|text| text.chars().count() > MAX_TEXT_LEN) {
        return Err(ApiError::bad_request(format!("a search text has at most {MAX_TEXT_LEN} characters")));
    }
    let viewer = user.clone();
    let wanted = Wanted {
        user: filter.user,
        name: None,
        states,
        any_task: filter.any_task,
        partition: filter.partition,
        node: filter.node,
        text: filter
            .text
            .filter(|text| !text.is_empty())
            .map(|text| Text::new(&text, move |job| viewer.sees(job) == Viewer::Owner)),
        ended_since: filter.ended_since,
    };
    answer.reserve(&head.client_limits, 2 * LONGEST_PAGE_BYTES + limit * IN_LIST_BYTES).await;
    let Page { jobs: mut page, total, examined_to } = match order {
        JobOrder::Newest => head.jobs(user.party(), wanted, filter.before, limit + 1).await?,
        order => sorted_page(&head, &user, &wanted, order, filter.before, limit + 1).await?,
    };
    let mut next = if page.len() > limit { page.get(limit - 1).map(|job| job.id) } else { examined_to };
    page.truncate(limit);
    let rows = telling_rows(&head, &user, &page).await?;
    let mut jobs: Vec<JobSummary> = Vec::with_capacity(page.len());
    let mut commands_bytes = 0;
    'page: for some in page.chunks(AT_ONCE) {
        let state = head.engine.state();
        for job in some {
            if commands_bytes > LONGEST_PAGE_BYTES {
                next = jobs.last().map(|job| job.id);
                break 'page;
            }
            let is_shown = filter.commands && user.sees(job) == Viewer::Owner;
            let command = is_shown.then(|| job.spec.work.command_line());
            commands_bytes += command.as_ref().map_or(0, String::len);
            let summary = views::summary(&state, job, rows.get(&job.id), user.sees(job), head.engine.now());
            jobs.push(JobSummary { command, ..naming_full_disk(&head, summary) });
        }
    }
    let expiring = expiring(&head, &user).await?;
    Ok(Json(JobPage { jobs, total, next, expiring }))
}

/// Counts the caller's jobs with unfetched files that the head will delete.
async fn expiring(head: &Arc<Head>, user: &User) -> Result<Option<ExpiringJobs>, ApiError> {
    if head.engine.state().settings.unfetched_retention_ms.is_none() {
        return Ok(None);
    }
    let (history, name) = (head.history.clone(), user.0.user.clone());
    let read = head.client_limits.read_jobs(user.party(), move || history.awaiting_fetch(&name)).await;
    let (jobs, first_ended) = read.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
    let until = first_ended.and_then(|ended| head.engine.state().unfetched_until(ended));
    Ok(until.map(|until| ExpiringJobs { jobs, kept_until: head.engine.now().wall_at(until) }))
}

/// Returns a page of jobs that have not ended.
async fn sorted_page(
    head: &Head,
    user: &User,
    wanted: &Wanted,
    order: JobOrder,
    before: Option<JobId>,
    limit: usize,
) -> Result<Page, ApiError> {
    if wanted.wants_ended() {
        let order = order.as_str();
        let why = format!("jobs that have ended cannot be listed in the order `{order}`");
        // The description allows each parameter; they contradict each other.
        return Err(ApiError::new(StatusCode::CONFLICT, "bad_order", why)
            .hint("select only states of jobs that have not ended, such as pending,running"));
    }
    let page = head.live_jobs(user.party(), wanted, order, before, limit).await?;
    page.ok_or_else(|| {
        let id = before.map(|id| id.to_string()).unwrap_or_default();
        let why = format!("the list cannot continue after job {id}, which no longer exists");
        ApiError::new(StatusCode::NOT_FOUND, "no_such_job", why).hint("start again with the first page")
    })
}

/// Reads the history row of each job's [`Job::telling_task`].
pub(super) async fn telling_rows(
    head: &Head,
    user: &User,
    jobs: &[Arc<Job>],
) -> Result<BTreeMap<JobId, EndedTask>, ApiError> {
    let telling: Vec<TaskId> = jobs.iter().filter_map(|job| Some(job.task(job.telling_task()?))).collect();
    if telling.is_empty() {
        return Ok(BTreeMap::new());
    }
    let history = head.history.clone();
    let read = move || -> Result<_, hostler_store::StoreError> {
        let mut rows = BTreeMap::new();
        for task in telling {
            rows.extend(history.ended_one(task)?.map(|row| (task.job, row)));
        }
        Ok(rows)
    };
    Ok(head.client_limits.read_jobs(user.party(), read).await.map_err(ApiError::internal)??)
}

/// The query of `GET /jobs/{id}`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Show {
    /// Number of ended tasks to show: 100 if absent, at most 10000.
    tasks: Option<u32>,
    /// Of the ended tasks, show only those with this index or a higher one.
    from: Option<u32>,
    /// Show only ended tasks in these states, separated by commas.
    #[schema(schema_with = states_schema)]
    state: Option<String>,
    /// Index of a task of an array; all tasks if absent.
    index: Option<u32>,
    /// Wait for the end of the job, or of the task with `index`, but at most this long.
    wait_ms: Option<u64>,
    /// With `wait_ms`: also stop waiting when the job, or the task with `index`, runs.
    #[serde(default)]
    running: bool,
    /// With `wait_ms`: also stop waiting when the number of tasks that began plus the number of tasks that ended differs from this.
    progress: Option<u64>,
    /// Include the indices of the tasks in each state.
    #[serde(default)]
    indices: bool,
}

/// `GET /jobs/{id}`. With `wait_ms`, the response waits for the end or the start of the job, or of the requested task.
pub(crate) async fn show(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Path(id): Path<JobId>,
    Query(query): Query<Show>,
) -> Result<Json<JobDetail>, ApiError> {
    let limit = query.tasks.map_or(TASKS, |tasks| tasks as usize).min(MOST_TASKS);
    let states: Vec<JobState> = parse_list(query.state.as_deref())?;
    let (shown, range) = match (query.index, query.from) {
        (Some(index), _) => (Shown::Only(index), index..=index),
        (None, Some(from)) => (Shown::Ended, from..=u32::MAX),
        (None, None) if states.is_empty() => (Shown::All, 0..=u32::MAX),
        (None, None) => (Shown::Ended, 0..=u32::MAX),
    };
    if let Some(index) = query.index {
        check_task(&head, &user, id, index).await?;
    }
    if let Some(wait_ms) = query.wait_ms {
        let wait = Duration::from_millis(wait_ms).min(LONGEST_WAIT);
        let is_over = |job: &Job| query.index.map_or(job.is_ended(), |index| job.ending_of(index).is_some());
        let runs = |job: &Job| {
            let mut tasks = job.active.values().filter(|task| query.index.is_none_or(|it| task.run.task.index == it));
            query.running && tasks.any(|task| task.phase() >= Phase::Running)
        };
        let has_changed =
            |job: &Job| query.progress.is_some_and(|seen| TaskCounts::new(job.tasks_by_state()).progress() != seen);
        let is_news = |job: &Job| is_over(job) || runs(job) || has_changed(job);
        until(&head, id, Instant::now() + wait, |job| job.is_none_or(is_news)).await;
    }
    let live = head.engine.state().job(id).map_or(0, |job| job.active.len());
    answer.reserve(&head.client_limits, DETAIL_BYTES + (live + limit) * TASK_BYTES).await;
    // Use the job from the time of the history read, so that the response for an ended job contains its tasks.
    let (job, history) = settled_history(&head, &user, id, range, &states, limit).await?;
    let state = head.engine.state();
    let detail = views::detail(&state, &job, user.sees(&job), shown, &history, head.engine.now());
    let indices = query
        .indices
        .then(|| job.indices_by_state())
        .filter(|indices| indices.values().map(IndexSet::range_count).sum::<usize>() <= MOST_RANGES);
    Ok(Json(JobDetail { summary: naming_full_disk(&head, detail.summary), indices, ..detail }))
}

/// Adds to a job whose results are being delivered that the head's disk has too little space.
fn naming_full_disk(head: &Head, summary: JobSummary) -> JobSummary {
    let full = (summary.state == JobState::Completing).then(|| head.library.too_full()).flatten();
    let parts: Vec<String> = summary.message.into_iter().chain(full).collect();
    JobSummary { message: (!parts.is_empty()).then(|| parts.join("; ")), ..summary }
}

/// Returns an error if the job has no task with this index.
async fn check_task(head: &Head, user: &User, id: JobId, index: u32) -> Result<(), ApiError> {
    let job = user.job(head, id).await?;
    if job.indices().contains(index) { Ok(()) } else { Err(Refusal::NoSuchTask { job: id, index }.into()) }
}

/// `GET /jobs/{id}/why`.
pub(crate) async fn why(
    user: User,
    State(head): State<Arc<Head>>,
    Path(id): Path<JobId>,
    Query(TaskSelector { index }): Query<TaskSelector>,
) -> Result<Json<Why>, ApiError> {
    if let Some(index) = index {
        check_task(&head, &user, id, index).await?;
    }
    // Without an index, the explanation covers all tasks of an array, and the message of one task may not apply to all
    // of them.
    let range = index.map_or(0..=0, |index| index..=index);
    let (job, history) = settled_history(&head, &user, id, range, &[], 1).await?;
    let now = head.engine.now();
    let state = head.engine.state();
    let is_one = index.is_some() || job.spec.array.is_none();
    let row = history.rows.into_values().next().filter(|_| is_one);
    let message = row.and_then(|row| row.message).or(history.why_cancelled);
    let message = message.filter(|_| user.sees(&job) == Viewer::Owner);
    let mut why = match index.filter(|_| job.spec.array.is_some()) {
        Some(index) => views::why_task(&state, &job, index, message.as_deref(), now),
        None => views::why(&state, &job, message.as_deref(), now),
    };
    if why.state == JobState::Completing {
        why.lines.extend(head.library.too_full().map(|full| format!("It may wait for space: {full}.")));
    }
    Ok(Json(why))
}

/// The query of an action on a job.
#[derive(Deserialize, ToSchema)]
pub(crate) struct TaskSelector {
    /// Index of a task of an array; all tasks if absent.
    index: Option<u32>,
}

/// The query of a hold.
#[derive(Deserialize, ToSchema)]
pub(crate) struct HoldSelector {
    /// Index of a task of an array; all tasks if absent.
    index: Option<u32>,
    /// Whether the job's owner may release it, also if an operator holds it.
    #[serde(default)]
    owner: bool,
}

/// The query of a requeue.
#[derive(Deserialize, ToSchema)]
pub(crate) struct RequeueSelector {
    /// Index of a task of an array; all tasks if absent.
    index: Option<u32>,
    /// Whether completed tasks also run again, and their results are deleted.
    #[serde(default)]
    completed: bool,
    /// Whether the tasks are held: they wait until the job is released.
    #[serde(default)]
    hold: bool,
    /// Whether the job is queued only if each of its dependencies is satisfied or may still be. It must be cancelled.
    #[serde(default)]
    dependent: bool,
    /// Whether the next attempt starts in the folder as the last attempt left it. 409 `wrong_state` if the head does not have its
    /// files, or those of more than 10,000 tasks. Without effect on commands that run in a directory of their node.
    #[serde(default)]
    keep_files: bool,
}

/// `POST /jobs/{id}/cancel`.
pub(crate) async fn cancel(
    user: User,
    head: State<Arc<Head>>,
    id: Path<JobId>,
    which: Query<TaskSelector>,
) -> Result<Json<JobSummary>, ApiError> {
    act(user, head, id, which, JobAction::Cancel).await
}

/// `POST /jobs/{id}/hold`.
pub(crate) async fn hold(
    user: User,
    head: State<Arc<Head>>,
    id: Path<JobId>,
    Query(HoldSelector { index, owner }): Query<HoldSelector>,
) -> Result<Json<JobSummary>, ApiError> {
    let action = if owner { JobAction::HoldForOwner } else { JobAction::Hold };
    act(user, head, id, Query(TaskSelector { index }), action).await
}

/// `POST /jobs/{id}/release`.
pub(crate) async fn release(
    user: User,
    head: State<Arc<Head>>,
    id: Path<JobId>,
    which: Query<TaskSelector>,
) -> Result<Json<JobSummary>, ApiError> {
    act(user, head, id, which, JobAction::Release).await
}

/// `POST /jobs/{id}/requeue`.
pub(crate) async fn requeue(
    user: User,
    head: State<Arc<Head>>,
    id: Path<JobId>,
    Query(RequeueSelector { index, completed, hold, dependent, keep_files }): Query<RequeueSelector>,
) -> Result<Json<JobSummary>, ApiError> {
    may_submit(&head)?;
    let action = match (dependent, hold, completed) {
        (true, ..) => JobAction::RequeueDependent,
        (false, true, completed) => JobAction::RequeueHeld { completed },
        (false, false, true) => JobAction::RequeueAll,
        (false, false, false) => JobAction::Requeue,
    };
    if !keep_files {
        return act(user, head, id, Query(TaskSelector { index }), action).await;
    }
    let (State(head), Path(job), caller) = (head, id, user.0.clone());
    let files = results::to_keep(&head, &user, job, index, completed).await?;
    act_with(user, &head, (job, index, action), Command::RequeueWithFiles { caller, job, index, action, files }).await
}

async fn act(
    user: User,
    State(head): State<Arc<Head>>,
    Path(job): Path<JobId>,
    Query(TaskSelector { index }): Query<TaskSelector>,
    action: JobAction,
) -> Result<Json<JobSummary>, ApiError> {
    let command = Command::Act { caller: user.0.clone(), job, index, action };
    act_with(user, &head, (job, index, action), command).await
}

async fn act_with(
    user: User,
    head: &Head,
    (job, index, action): (JobId, Option<u32>, JobAction),
    command: Command,
) -> Result<Json<JobSummary>, ApiError> {
    tracing::info!(%job, ?index, ?action, user = user.0.user, "job action");
    head.engine.command(command).await?;
    let job = user.job(head, job).await?;
    let state = head.engine.state();
    Ok(Json(views::summary(&state, &job, None, user.sees(&job), head.engine.now())))
}

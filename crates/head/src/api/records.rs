//! Jobs with their tasks, many in one answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use hostler_core::head::Job;
use hostler_model::{JobId, JobState, WallTime};
use hostler_proto::api::{JobRecord, RecordPage};
use hostler_store::HistoryFilter;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa::openapi::Schema;

use super::error::ApiError;
use super::extract::{Query, list as parse_list};
use super::history::parse_position;
use super::jobs::{settled_history, states_schema};
use super::who::User;
use crate::answers::Answer;
use crate::archive::{self, LONGEST_PAGE_BYTES, Page, Wanted};
use crate::head::Head;
use crate::views::{self, History};

/// Maximum number of jobs per page.
const LONGEST_PAGE: usize = 2_000;
/// Maximum number of named jobs.
const MOST_NAMED: usize = 1_000;
/// A page ends when its jobs have this many tasks.
const MOST_TASKS: usize = 10_000;
/// Number of jobs to show per lock of the state.
const AT_ONCE: usize = 200;
/// Memory to reserve for a page, in bytes: for its jobs, and for the tasks of its last job.
const PAGE_BYTES: usize = 2 * LONGEST_PAGE_BYTES + LONGEST_PAGE * (4 << 10) + 2 * MOST_TASKS * (1 << 10);

/// The query of `GET /records`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Filter {
    /// Ids of jobs, separated by commas, at most 1000. Unknown ones are left out. All jobs if absent.
    #[schema(pattern = "^[1-9][0-9]{0,17}(,[1-9][0-9]{0,17})*$")]
    jobs: Option<String>,
    /// States, separated by commas; all if absent.
    #[schema(schema_with = states)]
    state: Option<String>,
    /// Only jobs of this user; all if absent.
    user: Option<String>,
    /// Only jobs that ended at this time or later, in milliseconds since the Unix epoch.
    ended_since: Option<WallTime>,
    /// Leave out the ended tasks of the jobs.
    #[serde(default)]
    live: bool,
    /// The value of `next` on the previous page.
    #[schema(pattern = "^([0-9]{1,15}-)?[1-9][0-9]{0,17}$")]
    before: Option<String>,
}

fn states() -> Schema {
    states_schema()
}

/// `GET /records`.
pub(crate) async fn list(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Query(filter): Query<Filter>,
) -> Result<Json<RecordPage>, ApiError> {
    let named: Vec<JobId> = parse_list(filter.jobs.as_deref())?;
    let states: Vec<JobState> = parse_list(filter.state.as_deref())?;
    if named.len() > MOST_NAMED {
        return Err(ApiError::bad_request(format!("`jobs` has at most {MOST_NAMED} ids")));
    }
    answer.reserve(&head.client_limits, PAGE_BYTES).await;
    let wanted = Wanted { user: filter.user, states, ended_since: filter.ended_since, ..Wanted::default() };
    let (jobs, mut next) = match filter.ended_since {
        _ if !named.is_empty() => (these(&head, &named, &wanted).await?, None),
        Some(since) => ended_since(&head, since, wanted, filter.before.as_deref()).await?,
        None => {
            let before = filter.before.as_deref().map(str::parse).transpose();
            let before = before.map_err(|_| other_list())?;
            let Page { jobs, examined_to, .. } = head.engine.jobs(wanted, before, LONGEST_PAGE).await?;
            let last = jobs.last().filter(|_| jobs.len() == LONGEST_PAGE).map(|job| job.id);
            (jobs, last.or(examined_to).map(|id| id.to_string()))
        }
    };
    let mut records: Vec<JobRecord> = Vec::with_capacity(jobs.len());
    let mut tasks = 0;
    for some in jobs.chunks(AT_ONCE) {
        let mut read: Vec<(Arc<Job>, History)> = Vec::with_capacity(some.len());
        for job in some {
            if filter.live || job.endings.is_empty() {
                read.push((Arc::clone(job), History::default()));
                continue;
            }
            // A job without its tasks is better than none: it may have been deleted meanwhile.
            let one = settled_history(&head, job.id, 0..=u32::MAX, &[], MOST_TASKS).await;
            read.push(one.unwrap_or_else(|_| (Arc::clone(job), History::default())));
        }
        let (state, now) = (head.engine.state(), head.engine.now());
        for (job, history) in read {
            let record = views::record(&state, &job, user.sees(&job), &history, now);
            tasks += record.tasks.len();
            records.push(record);
        }
        if tasks > MOST_TASKS && records.len() < jobs.len() && named.is_empty() {
            let last = &jobs[records.len() - 1];
            let (at, id) = position(last);
            next = Some(if filter.ended_since.is_some() { format!("{}-{id}", at.0) } else { id.to_string() });
            break;
        }
    }
    Ok(Json(RecordPage { records, next }))
}

/// The error for a page of a list in the other order.
fn other_list() -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "bad_page", "`before` is not the `next` of another page of this list")
}

/// The named jobs that match.
async fn these(head: &Head, named: &[JobId], wanted: &Wanted) -> Result<Vec<Arc<Job>>, ApiError> {
    let mut jobs = Vec::new();
    for id in named.iter().collect::<BTreeSet<_>>() {
        jobs.extend(head.engine.job(*id).await?.filter(|job| wanted.wants(job)));
    }
    Ok(jobs)
}

/// A page of jobs that ended since a time, the latest end first, and the position of the next page.
async fn ended_since(
    head: &Head,
    since: WallTime,
    wanted: Wanted,
    before: Option<&str>,
) -> Result<(Vec<Arc<Job>>, Option<String>), ApiError> {
    // Ends become visible in the store only after the fsync. If the disk is full, the list lacks the latest ends.
    let _ = head.engine.settled().await;
    let before = before.map(parse_position).transpose().map_err(|_| other_list())?;
    let before = before.unwrap_or((WallTime(i64::MAX), JobId(0)));
    let filter = HistoryFilter {
        user: wanted.user.clone(),
        states: wanted.states.clone(),
        name: String::new(),
        from: since,
        before,
        limit: LONGEST_PAGE,
        most_bytes: LONGEST_PAGE_BYTES,
    };
    let history = head.history.clone();
    let read = move || -> Result<_, archive::ArchiveError> {
        let page = history.history(&filter)?;
        let jobs = page.jobs.iter().map(|bytes| archive::read(bytes)).collect::<Result<Vec<_>, _>>()?;
        Ok((jobs, page.next))
    };
    let (mut jobs, next) = tokio::task::spawn_blocking(read).await.map_err(ApiError::internal)??;
    // Jobs that are not in the store yet, between the first and the last position of this page.
    let stored: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
    let is_in_page = |job: &&Arc<Job>| {
        let at = position(job);
        job.is_ended() && at < before && next.is_none_or(|next| at > next) && !stored.contains(&job.id)
    };
    let mut others: Vec<Arc<Job>> = {
        let state = head.engine.state();
        let moves = head.engine.archive().moves();
        state.jobs().chain(moves.jobs()).filter(|job| wanted.wants(job)).filter(is_in_page).cloned().collect()
    };
    jobs.append(&mut others);
    jobs.sort_unstable_by_key(|job| std::cmp::Reverse(position(job)));
    jobs.dedup_by_key(|job| job.id);
    Ok((jobs, next.map(|(at, id)| format!("{}-{id}", at.0))))
}

/// The position of an ended job in the order of ends.
fn position(job: &Job) -> (WallTime, JobId) {
    (job.ended_at.unwrap_or_default(), job.id)
}

//! Results: what has ended and can be fetched, and what has been.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use hostler_core::head::{Command, Job};
use hostler_model::JobId;
use hostler_proto::api::{Fetched, ResultPage, ResultView};
use hostler_proto::record::TaskResult;
use serde::Deserialize;

use super::error::ApiError;
use super::extract::{Json as Body, Path, Query, list as parse_list};
use super::who::User;
use crate::head::Head;
use crate::views::{self, Viewer};

/// The query of `GET /results`.
#[derive(Deserialize)]
pub(crate) struct Filter {
    #[serde(default)]
    unfetched: bool,
    jobs: Option<String>,
    limit: Option<usize>,
    after: Option<JobId>,
}

/// `GET /results`: of the jobs named, or of all jobs of the user.
pub(crate) async fn list(
    user: User,
    State(head): State<Arc<Head>>,
    Query(filter): Query<Filter>,
) -> Result<Json<ResultPage>, ApiError> {
    let named: Vec<JobId> = parse_list(filter.jobs.as_deref())?;
    let (jobs, next) = jobs(&head, &user, &named, &filter).await?;
    let history = head.history.clone();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let rows = tokio::task::spawn_blocking(move || history.results_of(&ids)).await.map_err(ApiError::internal)??;
    let mut by_job = jobs.iter().peekable();
    let mut results = Vec::with_capacity(rows.len());
    for row in rows {
        while by_job.next_if(|job| job.id < row.task.job).is_some() {}
        let job = by_job.peek().filter(|job| job.id == row.task.job);
        results.extend(job.and_then(|job| view(job, row)).filter(|it| !(filter.unfetched && it.fetched)));
    }
    Ok(Json(ResultPage { results, next }))
}

/// The jobs asked for, by id, and the last one if there may be more.
async fn jobs(
    head: &Head,
    user: &User,
    named: &[JobId],
    filter: &Filter,
) -> Result<(Vec<Arc<Job>>, Option<JobId>), ApiError> {
    let unfetched = filter.unfetched;
    if named.is_empty() {
        let after = filter.after.unwrap_or(JobId(0));
        let limit = filter.limit.unwrap_or(usize::MAX).max(1);
        let (mut jobs, next) = head.engine.jobs_with_results(&user.0.user, unfetched, after, limit).await?;
        jobs.retain(|job| user.0.owns(job));
        return Ok((jobs, next));
    }
    let mut jobs = Vec::with_capacity(named.len());
    for id in named {
        jobs.push(readable(head, user, *id).await?);
    }
    jobs.retain(|job| !unfetched || views::unfetched(job) > 0);
    jobs.sort_by_key(|job| job.id);
    jobs.dedup_by_key(|job| job.id);
    Ok((jobs, None))
}

/// A job whose content this user may see.
pub(crate) async fn readable(head: &Head, user: &User, id: JobId) -> Result<Arc<Job>, ApiError> {
    let job = head.job(id).await?;
    match user.sees(&job) {
        Viewer::Owner => Ok(job),
        Viewer::Other => Err(user.0.refused(&job).into()),
    }
}

/// One result, unless the task is to run again since or the result was dropped.
fn view(job: &Job, TaskResult { task, rank, manifest }: TaskResult) -> Option<ResultView> {
    let ending = job.ending_of(task.index).filter(|_| job.results.contains(task.index))?;
    Some(ResultView {
        job: task.job,
        name: job.spec.name.to_string(),
        index: job.spec.array.is_some().then_some(task.index),
        node_rank: (job.spec.nodes > 1).then_some(rank),
        state: ending.state,
        manifest,
        fetched: job.fetched.contains(task.index),
    })
}

/// `POST /jobs/{id}/fetched`.
pub(crate) async fn fetched(
    user: User,
    State(head): State<Arc<Head>>,
    Path(job): Path<JobId>,
    Body(Fetched { indices }): Body<Fetched>,
) -> Result<StatusCode, ApiError> {
    head.engine.command(Command::Fetched { caller: user.0, job, indices }).await?;
    head.library.note_change();
    head.library.room().fetched();
    Ok(StatusCode::NO_CONTENT)
}

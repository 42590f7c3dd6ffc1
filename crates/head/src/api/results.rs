//! Results: what has ended and can be fetched, and what has been.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use hostler_core::head::{Command, Job, Refusal};
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
}

/// `GET /results`: of the jobs named, or of all jobs of the user.
pub(crate) async fn list(
    user: User,
    State(head): State<Arc<Head>>,
    Query(filter): Query<Filter>,
) -> Result<Json<ResultPage>, ApiError> {
    let named: Vec<JobId> = parse_list(filter.jobs.as_deref())?;
    let jobs = jobs(&head, &user, &named, filter.unfetched)?;
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
    Ok(Json(ResultPage { results }))
}

/// The jobs asked for, by id.
fn jobs(head: &Head, user: &User, named: &[JobId], unfetched: bool) -> Result<Vec<Arc<Job>>, ApiError> {
    let state = head.engine.state();
    let mut jobs: Vec<Arc<Job>> = if named.is_empty() {
        state.jobs().filter(|job| !job.results.is_empty() && user.0.owns(job)).cloned().collect()
    } else {
        named.iter().map(|id| readable(&state, user, *id)).collect::<Result<_, _>>()?
    };
    jobs.retain(|job| !unfetched || views::unfetched(job) > 0);
    jobs.sort_by_key(|job| job.id);
    jobs.dedup_by_key(|job| job.id);
    Ok(jobs)
}

/// A job whose content this user may see.
pub(crate) fn readable(state: &hostler_core::head::State, user: &User, id: JobId) -> Result<Arc<Job>, ApiError> {
    let job = state.job(id).ok_or(Refusal::NoSuchJob(id))?;
    match user.sees(job) {
        Viewer::Owner => Ok(Arc::clone(job)),
        Viewer::Other => Err(user.0.refused(job).into()),
    }
}

/// One result, unless the task is to run again since or the result was dropped.
fn view(job: &Job, TaskResult { task, rank, manifest }: TaskResult) -> Option<ResultView> {
    let ending = job.ending_of(task.index).filter(|_| job.results.contains(task.index))?;
    Some(ResultView {
        job: task.job,
        name: job.spec.name.clone(),
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

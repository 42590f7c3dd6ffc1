//! Changes of submitted jobs.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use hostler_core::head::Command;
use hostler_model::JobId;
use hostler_proto::api::{CancelTasks, JobChange, JobSummary};

use super::error::ApiError;
use super::extract::{Json as Body, Path};
use super::submit::may_submit;
use super::who::User;
use crate::audit::About;
use crate::changed_values::differences;
use crate::head::Head;
use crate::views;

/// `POST /jobs/{id}`.
pub(crate) async fn change(
    user: User,
    State(head): State<Arc<Head>>,
    Path(id): Path<JobId>,
    Body(change): Body<JobChange>,
) -> Result<(Extension<About>, Json<JobSummary>), ApiError> {
    // Each change stores the whole specification.
    may_submit(&head)?;
    let before = user.job(&head, id).await?;
    tracing::info!(job = %id, user = user.0.user, fields = fields(&change), "job change");
    head.engine.command(Command::Change { caller: user.0.clone(), job: id, change: Box::new(change) }).await?;
    let job = user.job(&head, id).await?;
    let state = head.engine.state();
    let summary = views::summary(&state, &job, None, user.sees(&job), head.engine.now());
    let about = format!("job {id}: {}", differences(&*before.spec, &*job.spec));
    Ok((Extension(About(about)), Json(summary)))
}

/// `POST /jobs/{id}/cancel-tasks`.
pub(crate) async fn cancel_tasks(
    user: User,
    State(head): State<Arc<Head>>,
    Path(job): Path<JobId>,
    Body(CancelTasks { indices }): Body<CancelTasks>,
) -> Result<Json<JobSummary>, ApiError> {
    tracing::info!(%job, tasks = indices.len(), user = user.0.user, "tasks are cancelled");
    head.engine.command(Command::CancelTasks { caller: user.0.clone(), job, indices }).await?;
    let job = user.job(&head, job).await?;
    Ok(Json(views::summary(&head.engine.state(), &job, None, user.sees(&job), head.engine.now())))
}

/// The names of the fields that a request changes, for the log.
fn fields(change: &JobChange) -> String {
    let value = serde_json::to_value(change).unwrap_or_default();
    let names: Vec<String> = value.as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect();
    names.join(", ")
}

//! Scripts of submitted jobs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use hostler_model::{JobId, Work};
use hostler_proto::api::ScriptView;

use super::error::ApiError;
use super::extract::Path;
use super::results::readable;
use super::who::User;
use crate::environments::EnvironmentError;
use crate::head::Head;

/// `GET /jobs/{id}/script`.
pub(crate) async fn show(
    user: User,
    State(head): State<Arc<Head>>,
    Path(id): Path<JobId>,
) -> Result<Json<ScriptView>, ApiError> {
    let job = readable(&head, &user, id).await?;
    let none = |why: String| ApiError::new(StatusCode::NOT_FOUND, "no_script", why);
    let Work::Command { script: Some(_), .. } = &job.spec.work else {
        let hint = format!("`hostler job {id}` shows its command line");
        return Err(none(format!("job {id} was not submitted as a script")).hint(hint));
    };
    let deleted = || none(format!("job {id} has completed, so the head has deleted its script"));
    let digest = job.environment.ok_or_else(deleted)?;
    let mut spec = hostler_model::JobSpec::clone(&job.spec);
    head.environments.restore(digest, &mut spec).await.map_err(|error| match error {
        EnvironmentError::Missing(_) => deleted(),
        error => ApiError::internal(error),
    })?;
    let script = spec.work.script_mut().map(std::mem::take).unwrap_or_default();
    Ok(Json(ScriptView { script }))
}

//! "Duplicate and edit": a form that submits a copy of a job with other values.

use askama::Template;
use axum::extract::Path;
use axum::response::{Html, IntoResponse, Response};
use hostler_model::JobId;
use hostler_proto::api::{DuplicateRequest, JobDetail, Submitted};

use crate::api::Refused;
use crate::form::{Fields, new_key};
use crate::job_form::{JobFields, Wanted, command};
use crate::notice::Notice;
use crate::page::{Frame, render};
use crate::url::Url;

#[derive(Template)]
#[template(path = "duplicate.html")]
struct Page {
    frame: Frame,
    id: JobId,
    is_array: bool,
    values: JobFields,
    /// Why the last try failed.
    error: Option<String>,
    /// Whether to offer a copy without environment variables, because the head has deleted those of the job.
    lacks_environment: bool,
    /// The same key makes a repeated form harmless.
    key: String,
}

/// `GET /jobs/{id}/duplicate`.
pub(crate) async fn show(frame: Frame, Path(id): Path<JobId>) -> Result<Html<String>, Refused> {
    let job = own_job(&frame, id).await?;
    let (values, is_array) = (JobFields::of_job(&job), job.summary.array.is_some());
    Ok(render(&Page { frame, id, is_array, values, error: None, lacks_environment: false, key: new_key() }))
}

/// A job of which the caller may submit copies.
pub(super) async fn own_job(frame: &Frame, id: JobId) -> Result<JobDetail, Refused> {
    let job: JobDetail = frame.api.get(&Url::job(id)).await?;
    if job.command.is_empty() {
        return Err(Refused::new(
            axum::http::StatusCode::FORBIDDEN,
            "not_owner",
            format!("job {id} belongs to {}; only that user and operators can duplicate it", job.summary.user),
        ));
    }
    Ok(job)
}

/// `POST /jobs/{id}/duplicate`.
pub(crate) async fn submit(frame: Frame, Path(id): Path<JobId>, fields: Fields) -> Response {
    let result = match request(&fields) {
        Ok(request) => frame.api.post::<Submitted>(&Url::job(id).then("duplicate"), &request).await,
        Err(message) => Err(Refused::bad_request(message)),
    };
    match result {
        Ok(submitted) => {
            let notice = Notice::good(format!("Job {} was submitted as a copy of job {id}.", submitted.id));
            frame.redirect(&Url::job(submitted.id), notice)
        }
        Err(refused) => {
            let lacks_environment = refused.error.code == "no_environment";
            let (values, error) = (JobFields::sent(&fields), Some(refused.line()));
            let page = Page { frame, id, is_array: false, values, error, lacks_environment, key: new_key() };
            (refused.status, render(&page)).into_response()
        }
    }
}

/// Reads the form.
fn request(fields: &Fields) -> Result<DuplicateRequest, String> {
    let argv = command(fields)?;
    let Wanted { name, cpus, memory_bytes, gpus, time_limit_ms, partition, priority } = Wanted::read(fields)?;
    Ok(DuplicateRequest {
        key: fields.text("key").unwrap_or_default().to_owned(),
        name,
        argv: Some(argv),
        cpus,
        memory_bytes,
        gpus,
        // Zero means no limit.
        time_limit_ms: time_limit_ms.or(Some(0)),
        without_environment: fields.get("without_environment") == Some("yes"),
        partition,
        priority,
    })
}

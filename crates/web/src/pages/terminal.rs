//! The terminal of a running task.

use askama::Template;
use axum::extract::{Path, Query, Request};
use axum::http::StatusCode;
use axum::response::{Html, Response};
use hostler_model::{JobId, JobState, WindowSize};
use hostler_proto::api::{JobDetail, JobSummary};

use super::jobs::may_change;
use crate::api::{Api, Refused, read_error};
use crate::assets::TERMINAL;
use crate::page::{Frame, render};
use crate::parts::Badge;
use crate::url::Url;

#[derive(Template)]
#[template(path = "terminal.html")]
struct Page {
    frame: Frame,
    job: JobSummary,
    index: u32,
    badge: Badge,
    script: &'static str,
    /// Where the script connects. Absent if the caller cannot attach.
    socket: Option<Url>,
    /// Why the caller cannot attach.
    why_not: &'static str,
    /// Whether the caller only watches.
    watches: bool,
    /// The command that attaches from a terminal.
    command: String,
}

/// The page of a task's terminal.
pub(super) fn url(job: JobId, index: u32) -> Url {
    Url::job(job).then("tasks").then(index).then("terminal")
}

/// `GET /jobs/{id}/tasks/{index}/terminal`.
pub(crate) async fn show(frame: Frame, Path((id, index)): Path<(JobId, u32)>) -> Result<Html<String>, Refused> {
    let detail: JobDetail = frame.api.get(&Url::job(id).with("index", index)).await?;
    let job = detail.summary;
    let state = detail.tasks_shown.iter().find(|task| task.index == index).map_or(job.state, |task| task.state);
    let why_not = if !may_change(&frame, &job) {
        "Only the job's user and operators can attach to its terminal."
    } else if !detail.terminal {
        "The job has no terminal, because it was submitted without --pty."
    } else if state.is_ended() {
        "The task has ended."
    } else if state != JobState::Running {
        "The task does not run yet."
    } else {
        ""
    };
    let command =
        if job.array.is_some() { format!("hostler attach {id}_{index}") } else { format!("hostler attach {id}") };
    Ok(render(&Page {
        badge: Badge::job(state),
        script: &TERMINAL.path,
        socket: why_not.is_empty().then(|| url(id, index).then("socket")),
        why_not,
        watches: job.user != frame.me.user,
        command,
        index,
        job,
        frame,
    }))
}

/// `GET /jobs/{id}/tasks/{index}/terminal/socket`: a WebSocket, which the API joins with the task's terminal.
pub(crate) async fn join(
    api: Api,
    Path((id, index)): Path<(JobId, u32)>,
    Query(WindowSize { rows, columns }): Query<WindowSize>,
    request: Request,
) -> Result<Response, Refused> {
    let (browser, _) = request.into_parts();
    let path = Url::job(id).then("tasks").then(index).then("attach").with("rows", rows).with("columns", columns);
    let response = api.join(&path, &browser).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS { Ok(response) } else { Err(read_error(response).await) }
}

//! Signals to running jobs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use hostler_core::head::{Active, Phase};
use hostler_model::{JobId, RunId, SignalNumber, SignalTarget};
use hostler_proto::api::Signalled;
use hostler_proto::link::HeadMessage;
use serde::Deserialize;
use utoipa::ToSchema;

use super::error::ApiError;
use super::extract::{Path, Query};
use super::results::readable;
use super::steps;
use super::who::User;
use crate::head::Head;

/// The query of `POST /jobs/{id}/signal`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Wanted {
    /// The signal, by number.
    signal: SignalNumber,
    /// Which processes get it; the job's program if absent.
    #[serde(default)]
    to: SignalTarget,
    /// Index of a task of an array; all running tasks if absent.
    index: Option<u32>,
    /// Number of a running step, whose processes get the signal. `to` has no effect then.
    step: Option<u32>,
}

/// `POST /jobs/{id}/signal`. The head does not store signals: a node that is not connected does not get one.
pub(crate) async fn signal(
    user: User,
    State(head): State<Arc<Head>>,
    Path(id): Path<JobId>,
    Query(Wanted { signal, to, index, step }): Query<Wanted>,
) -> Result<Json<Signalled>, ApiError> {
    readable(&head, &user, id).await?;
    let places: Vec<_> = {
        let state = head.engine.state();
        let live = state.job(id).into_iter().flat_map(|job| job.active.values());
        let is_wanted = |active: &&Active| {
            active.phase() == Phase::Running && index.is_none_or(|index| active.run.task.index == index)
        };
        let parts = live.filter(is_wanted).flat_map(|active| active.parts.iter().map(|part| (active.run, part)));
        let connection = |node| Some(state.node(node)?.link.as_ref()?.connection);
        parts.map(|(run, part)| (run, connection(&part.node))).collect::<Vec<(RunId, Option<_>)>>()
    };
    if places.is_empty() {
        let what = index.map_or_else(|| format!("job {id}"), |index| format!("task {id}.{index}"));
        return Err(ApiError::new(StatusCode::CONFLICT, "not_running", format!("{what} is not running")));
    }
    let to = match step {
        Some(step) => {
            check_step(&head, &user, id, &places, step).await?;
            SignalTarget::Steps
        }
        None => to,
    };
    let send = |(run, connection): &(RunId, Option<_>)| {
        let message = HeadMessage::Signal { run: *run, signal, to, step };
        connection.is_some_and(|to_agent| head.engine.send(to_agent, message))
    };
    let reached = places.iter().filter(|place| send(place)).count();
    tracing::info!(job = %id, %signal, to = to.as_str(), reached, user = user.0.user, "job signal");
    Ok(Json(Signalled { nodes: reached as u32, unreachable: (places.len() - reached) as u32 }))
}

/// Refuses a step that is not running.
async fn check_step<T>(head: &Head, user: &User, id: JobId, places: &[(RunId, T)], step: u32) -> Result<(), ApiError> {
    let task = places[0].0.task;
    if places.iter().any(|(run, _)| run.task != task) {
        let message = format!("several tasks of job {id} run, and each has steps of its own");
        return Err(ApiError::new(StatusCode::CONFLICT, "several_tasks", message)
            .hint(format!("name the task, e.g. {id}_{}", task.index)));
    }
    if steps::of_task(head, user, task).await?.iter().any(|it| it.step == step && it.ended_at.is_none()) {
        return Ok(());
    }
    Err(ApiError::new(StatusCode::CONFLICT, "not_running", format!("step {step} of job {id} is not running"))
        .hint(format!("`hostler job {id}` lists the steps that run")))
}

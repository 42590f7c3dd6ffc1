//! The steps of a running task, which its first node knows.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use hostler_model::{JobId, TaskId};
use hostler_proto::link::{StepRecord, StreamKind};

use super::error::ApiError;
use super::extract::Path;
use super::output::{Standing, from_node, one_of, standing};
use super::who::User;
use crate::head::Head;

/// The longest list that the head reads from an agent, in bytes.
const MAX_BYTES: usize = 2 << 20;

/// `GET /jobs/{id}/tasks/{index}/steps`.
pub(crate) async fn list(
    user: User,
    State(head): State<Arc<Head>>,
    Path((id, index)): Path<(JobId, u32)>,
) -> Result<Json<Vec<StepRecord>>, ApiError> {
    Ok(Json(of_task(&head, &user, TaskId { job: id, index }).await?))
}

/// The steps that a running task has started, by number. Asks the task's first node.
pub(super) async fn of_task(head: &Head, user: &User, task: TaskId) -> Result<Vec<StepRecord>, ApiError> {
    while let Standing::Live(live) = standing(head, user, task, 0).await? {
        let _reader = one_of(&head.streams.output_readers, &live, "read the output")?;
        // If there is no body, the task has just ended or moved to another node.
        if let Some(upload) = from_node(head, &live, StreamKind::Steps, false).await? {
            let text = to_bytes(Body::from_stream(upload), MAX_BYTES).await.map_err(ApiError::internal)?;
            return serde_json::from_slice(&text).map_err(ApiError::internal);
        }
    }
    Ok(Vec::new())
}

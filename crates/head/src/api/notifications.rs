//! Notifications: destinations, dead letters and test messages.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::NoContent;
use hostler_proto::notify::{Notifications, TestMessage};

use super::error::ApiError;
use super::extract::Json as Body;
use super::who::User;
use crate::head::Head;

/// `GET /notifications`.
pub(crate) async fn list(user: User, State(head): State<Arc<Head>>) -> Json<Notifications> {
    let own = (!user.0.operator).then_some(user.0.user.as_str());
    Json(head.notifier.view(own))
}

/// `POST /notifications/test`.
pub(crate) async fn test(
    user: User,
    State(head): State<Arc<Head>>,
    Body(TestMessage { to, address }): Body<TestMessage>,
) -> Result<NoContent, ApiError> {
    user.require_operator("send test messages")?;
    let sent = head.notifier.test(&to, address.as_deref(), &user.0.user).await;
    sent.map_err(|why| ApiError::new(StatusCode::CONFLICT, "not_delivered", why))?;
    Ok(NoContent)
}

/// `POST /notifications/retry`.
pub(crate) async fn retry(user: User, State(head): State<Arc<Head>>) -> Result<NoContent, ApiError> {
    user.require_operator("deliver notifications again")?;
    let count = head.notifier.retry();
    tracing::info!(count, by = user.0.user, "delivering notifications again");
    Ok(NoContent)
}

/// `POST /notifications/clear`.
pub(crate) async fn clear(user: User, State(head): State<Arc<Head>>) -> Result<NoContent, ApiError> {
    user.require_operator("delete notifications")?;
    let count = head.notifier.clear();
    tracing::info!(count, by = user.0.user, "notifications that could not be delivered were deleted");
    Ok(NoContent)
}

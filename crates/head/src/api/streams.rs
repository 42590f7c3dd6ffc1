//! Streams that agents open for requests of clients: the counterpart of [`super::output`] and [`super::forward`].

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::{NoContent, Response};
use hostler_listen::Pace;
use hostler_model::NodeName;
use serde::Deserialize;
use utoipa::ToSchema;

use super::error::ApiError;
use super::extract::{Path, Query};
use super::forward;
use super::output::TERMINAL_BYTES;
use super::who::Agent;
use crate::head::Head;
use crate::streams::{Extent, Upload};

/// The query of an uploaded output.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Start {
    /// Offset of the first byte in the output.
    #[serde(default)]
    offset: u64,
    /// Size of the whole output.
    #[serde(default)]
    size: u64,
}

/// `PUT /agent/streams/{id}`. The response is sent when the client that requested the output has read everything, or
/// has disconnected.
pub(crate) async fn upload(
    Agent(node): Agent,
    State(head): State<Arc<Head>>,
    Path(id): Path<String>,
    Query(Start { offset, size }): Query<Start>,
    Extension(pace): Extension<Pace>,
    body: Body,
) -> Result<NoContent, ApiError> {
    // A program may print nothing for hours.
    pace.waive();
    let (upload, complete) = Upload::new(body, Extent { offset, size }, &head.stop);
    head.streams.outputs.deliver(&id, &node, upload).map_err(|_| nobody_waits())?;
    tokio::select! {
        outcome = complete => outcome.map(|()| NoContent).map_err(|_| nobody_waits()),
        () = head.stop.cancelled() => Err(ApiError::refusing("the head is stopping")),
    }
}

/// `GET /agent/streams/{id}/terminal`, a WebSocket.
pub(crate) async fn terminal(
    Agent(node): Agent,
    State(head): State<Arc<Head>>,
    Path(id): Path<String>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let upgrade = upgrade.max_message_size(TERMINAL_BYTES).max_frame_size(TERMINAL_BYTES);
    upgrade.on_upgrade(async move |socket| deliver(&head, &id, &node, socket))
}

/// `GET /agent/streams/{id}/forward`, a WebSocket.
pub(crate) async fn forward(
    Agent(node): Agent,
    State(head): State<Arc<Head>>,
    Path(id): Path<String>,
    upgrade: WebSocketUpgrade,
) -> Response {
    forward::limited(upgrade).on_upgrade(async move |socket| deliver(&head, &id, &node, socket))
}

fn deliver(head: &Head, id: &str, node: &NodeName, socket: WebSocket) {
    if let Err(socket) = head.streams.sockets.deliver(id, node, socket) {
        // Closes the connection, because no client waits for it.
        drop(socket);
    }
}

fn nobody_waits() -> ApiError {
    ApiError::new(
        StatusCode::GONE,
        "nobody_waits",
        "no client waits for this stream; the client has probably disconnected",
    )
}

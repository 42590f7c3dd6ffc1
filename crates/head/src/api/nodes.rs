//! Nodes: what there is, how one joins, and the agent's link.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::StatusCode;
use axum::response::Response;
use hostler_core::head::Command;
use hostler_model::NodeName;
use hostler_proto::api::{Invitation, JoinRequest, Joined, NodeView};
use hostler_proto::link::MAX_FRAME_BYTES;
use serde::Deserialize;

use super::error::ApiError;
use super::extract::{Json as Body, Path};
use super::who::{Agent, User};
use crate::head::Head;
use crate::trust::JoinError;
use crate::{link, views};

/// `POST /nodes/invite`.
#[derive(Deserialize)]
pub(crate) struct Invite {
    node: NodeName,
}

/// `GET /nodes`.
pub(crate) async fn list(_: User, State(head): State<Arc<Head>>) -> Json<Vec<NodeView>> {
    Json(head.engine.state().nodes().map(views::node).collect())
}

/// `POST /nodes/invite`.
pub(crate) async fn invite(
    user: User,
    State(head): State<Arc<Head>>,
    Body(Invite { node }): Body<Invite>,
) -> Result<Json<Invitation>, ApiError> {
    user.must_operate("invite nodes")?;
    tracing::info!(%node, by = user.0.user, "node invited");
    Ok(Json(Invitation { code: head.trust.invite(&node, head.address()).to_string() }))
}

/// `POST /nodes/{name}/forget`.
pub(crate) async fn forget(
    user: User,
    State(head): State<Arc<Head>>,
    Path(node): Path<NodeName>,
) -> Result<StatusCode, ApiError> {
    user.must_operate("forget nodes")?;
    head.engine.command(Command::ForgetNode { node: node.clone() }).await?;
    tracing::info!(%node, by = user.0.user, "node forgotten");
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /agent/join`: for strangers, who prove by the secret that they were invited.
pub(crate) async fn join(
    State(head): State<Arc<Head>>,
    Body(request): Body<JoinRequest>,
) -> Result<Json<Joined>, ApiError> {
    let JoinRequest { secret, node, csr } = request;
    match head.trust.join(&secret, &node, &csr) {
        Ok(certificate) => {
            tracing::info!(%node, "node joined");
            Ok(Json(Joined { certificate, authority: head.trust.authority().to_owned() }))
        }
        Err(error) => {
            tracing::warn!(%node, %error, "refused to let a node join");
            Err(refusal(&node, &error))
        }
    }
}

fn refusal(node: &NodeName, error: &JoinError) -> ApiError {
    let again = || format!("POST /nodes/invite for {node} on the head's own socket makes a new code");
    match error {
        JoinError::NotInvited => ApiError::new(StatusCode::FORBIDDEN, "not_invited", error.to_string()).hint(again()),
        JoinError::OtherNode(other) => ApiError::new(StatusCode::FORBIDDEN, "other_node", error.to_string())
            .hint(format!("join as {other}, or get a code for {node}: {}", again())),
        JoinError::BadRequest(_) => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_csr", error.to_string()),
    }
}

/// `GET /agent/link`, a WebSocket.
pub(crate) async fn link(Agent(node): Agent, State(head): State<Arc<Head>>, upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .max_message_size(MAX_FRAME_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        // Each frame is flushed before the next is made; this only bounds what one may take.
        .max_write_buffer_size(2 * MAX_FRAME_BYTES)
        // Filled with zeroes before every read; most frames are smaller.
        .read_buffer_size(8 << 10)
        .on_upgrade(move |socket| {
            let tasks = head.tasks.clone();
            tasks.track_future(link::serve(head, node, socket))
        })
}

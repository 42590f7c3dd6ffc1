//! Who asks: users, agents, or either.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use hostler_core::head::{Caller, Job};
use hostler_model::NodeName;

use super::error::ApiError;
use crate::head::Head;
use crate::listen::Peer;
use crate::views::Viewer;

/// A user of this machine.
pub(crate) struct User(pub(crate) Caller);

impl User {
    /// How this user sees a job.
    pub(crate) fn sees(&self, job: &Job) -> Viewer {
        if self.0.operator || self.0.user == job.user { Viewer::Owner } else { Viewer::Other }
    }

    /// Refuses whoever is no operator.
    pub(crate) fn must_operate(&self, what: &str) -> Result<(), ApiError> {
        if self.0.operator {
            return Ok(());
        }
        Err(ApiError::new(StatusCode::FORBIDDEN, "operators_only", format!("only operators may {what}"))
            .hint("root and the user that runs the head are operators"))
    }
}

/// An agent, with the node in its certificate.
pub(crate) struct Agent(pub(crate) NodeName);

/// A user or an agent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anyone {
    User,
    Agent,
}

impl FromRequestParts<Arc<Head>> for User {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, head: &Arc<Head>) -> Result<Self, ApiError> {
        match peer(parts) {
            Peer::Local { uid, user } => {
                let operator = *uid == 0 || *uid == nix::unistd::geteuid().as_raw();
                Ok(Self(Caller { user: user.clone(), operator }))
            }
            Peer::Node(node) => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "users_only",
                format!("this is for users; node {node} is an agent"),
            )),
            Peer::Unknown => Err(stranger(head)),
        }
    }
}

impl FromRequestParts<Arc<Head>> for Agent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Head>) -> Result<Self, ApiError> {
        match peer(parts) {
            Peer::Node(node) => Ok(Self(node.clone())),
            Peer::Local { .. } => {
                Err(ApiError::new(StatusCode::FORBIDDEN, "agents_only", "this is for agents, which come over TLS"))
            }
            Peer::Unknown => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "agents_only",
                "this is for agents, and this connection showed no certificate of the cluster",
            )
            .hint("join first: POST /nodes/invite on the head's own socket makes a join code")),
        }
    }
}

impl FromRequestParts<Arc<Head>> for Anyone {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, head: &Arc<Head>) -> Result<Self, ApiError> {
        match peer(parts) {
            Peer::Local { .. } => Ok(Self::User),
            Peer::Node(_) => Ok(Self::Agent),
            Peer::Unknown => Err(stranger(head)),
        }
    }
}

fn peer(parts: &Parts) -> &Peer {
    parts.extensions.get().unwrap_or(&Peer::Unknown)
}

fn stranger(head: &Head) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "unknown_caller", "this port is for agents with a certificate of the cluster")
        .hint(format!("users talk to the head through its socket {} on its machine", head.config.socket.display()))
}

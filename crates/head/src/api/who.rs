//! Who asks: users, agents, or either.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use hostler_core::head::{Caller, Job, Refusal};
use hostler_model::NodeName;

use super::error::ApiError;
use crate::head::Head;
use crate::listen::Peer;
use crate::trust::Bearer;
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

/// An agent whose certificate is good, with the node that it names.
pub(crate) struct Agent(pub(crate) NodeName);

/// An agent whose certificate is the cluster's, but may have expired or been revoked. For those who look at that themselves.
pub(crate) struct Certified(pub(crate) Bearer);

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
            Peer::Node(bearer) => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "users_only",
                format!("this is for users; node {} is an agent", bearer.node),
            )),
            Peer::Unknown => Err(stranger(head)),
        }
    }
}

impl FromRequestParts<Arc<Head>> for Agent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, head: &Arc<Head>) -> Result<Self, ApiError> {
        let Certified(bearer) = Certified::from_request_parts(parts, head).await?;
        must_be_welcome(head, &bearer)?;
        Ok(Self(bearer.node))
    }
}

impl FromRequestParts<Arc<Head>> for Certified {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Head>) -> Result<Self, ApiError> {
        match peer(parts) {
            Peer::Node(bearer) => Ok(Self(bearer.clone())),
            Peer::Local { .. } => {
                Err(ApiError::new(StatusCode::FORBIDDEN, "agents_only", "this is for agents, which come over TLS"))
            }
            Peer::Unknown => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "agents_only",
                "this is for agents, and this connection showed no certificate of the cluster",
            )
            .hint("join first: `hostler node invite` on the head's machine makes a join code")),
        }
    }
}

impl FromRequestParts<Arc<Head>> for Anyone {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, head: &Arc<Head>) -> Result<Self, ApiError> {
        match peer(parts) {
            Peer::Local { .. } => Ok(Self::User),
            Peer::Node(bearer) => must_be_welcome(head, bearer).map(|()| Self::Agent),
            Peer::Unknown => Err(stranger(head)),
        }
    }
}

/// Refuses a node that was removed, replaced, or has not renewed its certificate in time.
fn must_be_welcome(head: &Head, bearer: &Bearer) -> Result<(), ApiError> {
    let welcome = head.engine.state().welcomes(&bearer.node, bearer.key, head.engine.now().at);
    welcome.map_err(|why| Refusal::from(why).into())
}

fn peer(parts: &Parts) -> &Peer {
    parts.extensions.get().unwrap_or(&Peer::Unknown)
}

fn stranger(head: &Head) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "unknown_caller", "this port is for agents with a certificate of the cluster")
        .hint(format!("users talk to the head through its socket {} on its machine", head.config.socket.display()))
}

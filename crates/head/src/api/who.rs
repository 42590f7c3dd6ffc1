//! Who asks, as handlers take it: users, agents, or either. [`super::access`] has found it out and let them through.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use hostler_core::head::{Caller, Job};
use hostler_model::NodeName;

use super::access::{Identity, Person};
use super::error::ApiError;
use crate::head::Head;
use crate::views::Viewer;

/// A user.
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

impl FromRequestParts<Arc<Head>> for Person {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Head>) -> Result<Self, ApiError> {
        match parts.extensions.get() {
            Some(Identity::User(person)) => Ok(person.clone()),
            Some(Identity::Agent(_) | Identity::Nobody(_)) | None => Err(not_let_through()),
        }
    }
}

impl FromRequestParts<Arc<Head>> for User {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, head: &Arc<Head>) -> Result<Self, ApiError> {
        Person::from_request_parts(parts, head).await.map(|person| Self(person.caller()))
    }
}

impl FromRequestParts<Arc<Head>> for Agent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Head>) -> Result<Self, ApiError> {
        match parts.extensions.get() {
            Some(Identity::Agent(node)) => Ok(Self(node.clone())),
            Some(Identity::User(_) | Identity::Nobody(_)) | None => Err(not_let_through()),
        }
    }
}

impl FromRequestParts<Arc<Head>> for Anyone {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Head>) -> Result<Self, ApiError> {
        match parts.extensions.get() {
            Some(Identity::User(_)) => Ok(Self::User),
            Some(Identity::Agent(_)) => Ok(Self::Agent),
            Some(Identity::Nobody(_)) | None => Err(not_let_through()),
        }
    }
}

/// The table of rights and what a handler takes contradict each other: nobody gets further.
fn not_let_through() -> ApiError {
    ApiError::internal("an operation takes another kind of caller than its rule lets through")
}

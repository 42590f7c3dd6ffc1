//! Extractors for the caller that [`super::access`] has identified and authorized: a user, an agent, or either.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use hostler_core::head::{Caller, Job, Refusal};
use hostler_model::{JobId, NodeName};

use super::error::ApiError;
use crate::client_limits::Party;
use crate::head::Head;
use crate::identity::{Identity, Person};
use crate::trust::Bearer;
use crate::views::Viewer;

/// A user, and the client whose share of resources the request uses.
#[derive(Clone)]
pub(crate) struct User(pub(crate) Caller, Party);

impl From<&Person> for User {
    fn from(person: &Person) -> Self {
        Self(person.caller(), person.into())
    }
}

impl User {
    /// The client whose share of resources the request uses.
    pub(crate) fn party(&self) -> &Party {
        &self.1
    }

    /// How much of a job this user may see.
    pub(crate) fn sees(&self, job: &Job) -> Viewer {
        if self.0.may_touch(job) { Viewer::Owner } else { Viewer::Other }
    }

    /// Returns a job, live or ended. Reads an ended job within the client's share of such reads.
    ///
    /// # Errors
    /// The job does not exist, or the store cannot be read.
    pub(crate) async fn job(&self, head: &Head, id: JobId) -> Result<Arc<Job>, ApiError> {
        Ok(head.find_job(&self.1, id).await?.ok_or_else(|| head.engine.state().missing_job(id))?)
    }

    /// Rejects users who are not operators.
    pub(crate) fn require_operator(&self, what: &str) -> Result<(), ApiError> {
        if self.0.operator {
            return Ok(());
        }
        Err(ApiError::new(StatusCode::FORBIDDEN, "operators_only", format!("only operators may {what}"))
            .hint("root and the user that runs the head are operators"))
    }
}

/// The node of an agent with a valid certificate.
pub(crate) struct Agent(pub(crate) NodeName);

/// An agent with a certificate of the cluster, which may be expired or revoked. Handlers with this argument must check
/// the certificate themselves.
pub(crate) struct Certified(pub(crate) Bearer);

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
            Some(Identity::Agent(_) | Identity::Unidentified(_)) | None => Err(extractor_bug()),
        }
    }
}

impl FromRequestParts<Arc<Head>> for User {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, head: &Arc<Head>) -> Result<Self, ApiError> {
        Person::from_request_parts(parts, head).await.map(|person| Self::from(&person))
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
        match parts.extensions.get() {
            Some(Identity::Agent(bearer)) => Ok(Self(bearer.clone())),
            Some(Identity::User(_) | Identity::Unidentified(_)) | None => Err(extractor_bug()),
        }
    }
}

impl FromRequestParts<Arc<Head>> for Anyone {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, head: &Arc<Head>) -> Result<Self, ApiError> {
        match parts.extensions.get() {
            Some(Identity::User(_)) => Ok(Self::User),
            Some(Identity::Agent(bearer)) => must_be_welcome(head, bearer).map(|()| Self::Agent),
            Some(Identity::Unidentified(_)) | None => Err(extractor_bug()),
        }
    }
}

/// Rejects a node that was removed or replaced, or whose certificate has expired.
fn must_be_welcome(head: &Head, bearer: &Bearer) -> Result<(), ApiError> {
    let welcome = head.engine.state().check_key(&bearer.node, bearer.key, head.engine.now().at);
    welcome.map_err(|why| Refusal::from(why).into())
}

/// Returns the error for a bug: the rights table and a handler's extractor contradict each other.
fn extractor_bug() -> ApiError {
    ApiError::internal("the rights table and the handler of this operation disagree about its callers")
}

//! Extractors for handlers, with the API's own error format.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::error::ApiError;

/// Timeout for receiving a JSON body. It suffices for the longest list of digests at 3 Mbit/s.
const BODY_TIME: Duration = Duration::from_secs(45);

/// A JSON body, received within [`BODY_TIME`]. The timeout limits how long a slow client can occupy memory.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match timeout(BODY_TIME, axum::Json::from_request(request, state)).await {
            Ok(body) => Ok(Self(body?.0)),
            Err(_) => {
                let message = format!("the request's body was incomplete after {} seconds", BODY_TIME.as_secs());
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "stalled", message))
            }
        }
    }
}

/// The query of a request.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
pub(crate) struct Query<T>(pub(crate) T);

/// The path parameters of a request.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(ApiError))]
pub(crate) struct Path<T>(pub(crate) T);

/// Parses a list such as `1,2,3`.
pub(crate) fn list<T: std::str::FromStr<Err = hostler_model::ParseError>>(
    text: Option<&str>,
) -> Result<Vec<T>, ApiError> {
    let parts = text.unwrap_or_default().split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| part.parse().map_err(|error: hostler_model::ParseError| ApiError::bad_request(error.to_string())))
        .collect()
}

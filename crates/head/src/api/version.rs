//! API versions. A client with another version gets an error instead of wrong behaviour.

use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hostler_proto::api::{API_VERSION, VERSION_HEADER};

use super::error::ApiError;

/// Rejects clients with another API version, and adds the version to every response. Requests without a version are
/// accepted.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let theirs =
        request.headers().get(VERSION_HEADER).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let mut response = match theirs {
        Some(theirs) if theirs != API_VERSION.to_string() => other_version(&theirs).into_response(),
        _ => next.run(request).await,
    };
    response.headers_mut().insert(VERSION_HEADER, HeaderValue::from(API_VERSION));
    tracing::debug!(%method, path, status = response.status().as_u16(), elapsed = ?began.elapsed(), "answered");
    response
}

fn other_version(theirs: &str) -> ApiError {
    let which = match theirs.parse::<u32>() {
        Ok(theirs) if theirs > API_VERSION => "upgrade the head",
        _ => "upgrade the client",
    };
    let message = format!("the client uses API version {theirs}, but the head uses version {API_VERSION}");
    ApiError::new(StatusCode::BAD_REQUEST, "api_version", message).hint(format!(
        "{which}: client and head must come from the same release; the head's release is {}",
        env!("CARGO_PKG_VERSION")
    ))
}

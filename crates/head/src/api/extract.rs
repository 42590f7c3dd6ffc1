//! What handlers take out of requests, with refusals in our own words.

use axum::extract::{FromRequest, FromRequestParts};

use super::error::ApiError;

/// A JSON body.
#[derive(FromRequest)]
#[from_request(via(axum::Json), rejection(ApiError))]
pub(crate) struct Json<T>(pub(crate) T);

/// The query.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
pub(crate) struct Query<T>(pub(crate) T);

/// What stands in the path.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(ApiError))]
pub(crate) struct Path<T>(pub(crate) T);

/// Reads the parts of a list such as `1,2,3`.
pub(crate) fn list<T: std::str::FromStr<Err = hostler_model::ParseError>>(
    text: Option<&str>,
) -> Result<Vec<T>, ApiError> {
    let parts = text.unwrap_or_default().split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| part.parse().map_err(|error: hostler_model::ParseError| ApiError::bad_request(error.to_string())))
        .collect()
}

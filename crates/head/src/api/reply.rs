//! Response types of handlers, besides [`axum::Json`]. The API's description is generated from them.

use std::marker::PhantomData;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A JSON array.
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// JSON that may be null.
pub(crate) struct OrNull<T>(pub(crate) Option<T>);

/// Binary data.
pub(crate) struct Binary(pub(crate) Response);

/// Server-sent events whose data is a `T`.
pub(crate) struct EventStream<T>(Response, PhantomData<T>);

impl<T> EventStream<T> {
    pub(crate) fn new(response: Response) -> Self {
        Self(response, PhantomData)
    }
}

impl<T> IntoResponse for EventStream<T> {
    fn into_response(self) -> Response {
        self.0
    }
}

/// A `T` as JSON text, prepared or streamed.
pub(crate) struct JsonText<T>(Body, PhantomData<T>);

impl<T> JsonText<T> {
    pub(crate) fn new(text: impl Into<Body>) -> Self {
        Self(text.into(), PhantomData)
    }
}

impl<T: Serialize> IntoResponse for List<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: Serialize> IntoResponse for OrNull<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl IntoResponse for Binary {
    fn into_response(self) -> Response {
        self.0
    }
}

impl<T> IntoResponse for JsonText<T> {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}

//! Requests to the public API in the same process, on behalf of the caller of a page.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use hostler_proto::api::{BASE, ErrorBody};
use hostler_proto::users::RELAY_HEADER;
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt;

use crate::notice::{Notice, Notices};

/// What all requests share: the public API, and outcomes of actions.
#[derive(Clone)]
pub(crate) struct Backend {
    api: Router,
    notices: Arc<Notices>,
}

/// What identifies a caller to the API.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// Extensions that each request to the API gets.
    pub extensions: Extensions,
    /// The `Authorization` header that each request to the API gets.
    pub authorization: Option<HeaderValue>,
    /// The header [`RELAY_HEADER`] that each request to the API gets.
    pub relayed_user: Option<HeaderValue>,
    /// Text that differs for each caller and session, to which form tokens are bound.
    pub identity: String,
    /// Whether the API answers some requests of callers that it cannot identify.
    pub is_public: bool,
    /// What the sign-in page calls the provider of OpenID Connect, if there is one.
    pub provider: Option<Arc<str>>,
    /// How the request reached the pages.
    pub way: Way,
}

/// How a request reached the pages.
#[derive(Debug, Clone)]
pub enum Way {
    /// From a program of the user, such as the relay of `hostler dashboard`. Its connection or token identifies the
    /// user. The program has checked the header `Host`.
    Program,
    /// From a browser, which must use one of these origins. A cookie identifies the user.
    Browser(Arc<[String]>),
}

impl Default for Way {
    /// No origin is accepted.
    fn default() -> Self {
        Self::Browser(Arc::from([]))
    }
}

/// Host and port under which the browser reached the server. They belong to an accepted origin.
#[derive(Debug, Clone)]
pub(crate) struct Host(pub(crate) String);

/// The API, on behalf of one caller.
#[derive(Clone)]
pub(crate) struct Api {
    backend: Backend,
    caller: Arc<Caller>,
}

/// A request that the API refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) error: ErrorBody,
}

impl Backend {
    pub(crate) fn new(api: Router) -> Self {
        Self { api, notices: Arc::default() }
    }
}

impl Refused {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let error = ErrorBody { code: code.to_owned(), message: message.into(), hints: Vec::new() };
        Self { status, error }
    }

    /// The error and what to do about it, for the page after an action.
    pub(crate) fn notice(self) -> Notice {
        let mut lines = vec![self.error.message];
        lines.extend(self.error.hints);
        Notice::bad(lines)
    }

    /// The error and what to do about it, in one line.
    pub(crate) fn line(&self) -> String {
        let hints = self.error.hints.iter().map(|hint| format!("; {hint}"));
        std::iter::once(self.error.message.clone()).chain(hints).collect()
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }
}

impl Api {
    /// The API on behalf of `caller`.
    pub(crate) fn new(backend: Backend, caller: Caller) -> Self {
        Self { backend, caller: Arc::new(caller) }
    }

    /// Whether a sign-in identifies the caller, which a sign-out ends.
    pub(crate) fn has_session(&self) -> bool {
        matches!(self.caller.way, Way::Browser(_)) && self.caller.authorization.is_some()
    }

    /// Whether the caller can sign in.
    pub(crate) fn can_sign_in(&self) -> bool {
        matches!(self.caller.way, Way::Browser(_)) && self.caller.authorization.is_none()
    }

    /// Outcomes of actions, for the pages after them.
    pub(crate) fn notices(&self) -> &Notices {
        &self.backend.notices
    }

    /// Sends a GET request. `path` is relative to the base path and may contain a query.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refused> {
        read(self.send(Method::GET, path, Body::empty()).await).await
    }

    /// Sends a POST request with a JSON body.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refused> {
        let body = serde_json::to_vec(body).expect("API types are valid JSON");
        read(self.send(Method::POST, path, Body::from(body)).await).await
    }

    /// Sends a PUT request with a JSON body.
    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refused> {
        let body = serde_json::to_vec(body).expect("API types are valid JSON");
        read(self.send(Method::PUT, path, Body::from(body)).await).await
    }

    /// Sends a DELETE request.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refused> {
        read(self.send(Method::DELETE, path, Body::empty()).await).await
    }

    /// Sends a GET request, for a range of bytes or for everything, and returns the answer as it is.
    pub(crate) async fn fetch(&self, path: &str, range: Option<HeaderValue>) -> Response {
        let mut request = Request::new(Body::empty());
        request.headers_mut().extend(range.map(|range| (header::RANGE, range)));
        self.send_request(path, request).await
    }

    /// Sends a request and returns the answer as it is.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Body) -> Response {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        self.send_request(path, request).await
    }

    /// Sends a request for a WebSocket. If the API agrees, it takes over the browser's connection.
    pub(crate) async fn join(&self, path: &str, browser: &Parts) -> Response {
        let mut request = Request::new(Body::empty());
        for name in [header::CONNECTION, header::UPGRADE, header::SEC_WEBSOCKET_KEY, header::SEC_WEBSOCKET_VERSION] {
            request.headers_mut().extend(browser.headers.get(&name).map(|value| (name, value.clone())));
        }
        if let Some(connection) = browser.extensions.get::<OnUpgrade>() {
            request.extensions_mut().insert(connection.clone());
        }
        self.send_request(path, request).await
    }

    async fn send_request(&self, path: &str, mut request: Request<Body>) -> Response {
        *request.uri_mut() = format!("{BASE}{path}").parse().expect("callers encode what they put into paths");
        request.extensions_mut().extend(self.caller.extensions.clone());
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.caller.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
        }
        if let Some(user) = &self.caller.relayed_user {
            request.headers_mut().insert(HeaderName::from_static(RELAY_HEADER), user.clone());
        }
        self.backend.api.clone().oneshot(request).await.unwrap_or_else(|never: Infallible| match never {})
    }
}

/// Reads the JSON of an answer. An empty body is read as `null`.
async fn read<T: DeserializeOwned>(response: Response) -> Result<T, Refused> {
    if !response.status().is_success() {
        return Err(read_error(response).await);
    }
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let body = if body.is_empty() { &b"null"[..] } else { &body };
    serde_json::from_slice(body).map_err(|_| unreadable())
}

/// Reads the answer to a request that the API refused.
pub(crate) async fn read_error(response: Response) -> Refused {
    let status = response.status();
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    serde_json::from_slice(&body).map_or_else(|_| unreadable(), |error| Refused { status, error })
}

/// Returns an answer that is not an error.
pub(crate) async fn succeeded(response: Response) -> Result<Response, Refused> {
    if response.status().is_success() { Ok(response) } else { Err(read_error(response).await) }
}

fn unreadable() -> Refused {
    Refused {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        error: ErrorBody {
            code: "internal".to_owned(),
            message: "the dashboard cannot read an answer of the API".to_owned(),
            hints: vec!["this is a mistake in Hostler; please report it".to_owned()],
        },
    }
}

impl FromRequestParts<Backend> for Api {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, backend: &Backend) -> Result<Self, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_default();
        Ok(Self { backend: backend.clone(), caller: Arc::new(caller) })
    }
}

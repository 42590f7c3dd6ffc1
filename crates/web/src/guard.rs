//! The check of every request before its page, and headers on each answer that restrict what a browser may do with it.
//!
//! A request passes if it comes from a page of the dashboard ([`hostler_proto::browser`]) and, if it may change
//! something, carries a [`FormToken`], in a field of its form or in the header of an upload. Requests without a session get the sign-in page. Because the check surrounds the
//! router, it covers every page, also those that do not exist.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use hostler_proto::browser::{BrowserRequest, Foreign};
use http_body_util::{BodyExt, Limited};

use crate::api::{Caller, Host, Way};
use crate::form::FormToken;
use crate::page::plain;
use crate::session;
use crate::sign_in::{self, Reason};

/// What a page may load: only files of this server. No inline scripts or styles, no frames, no other site.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Maximum size of a form, in bytes.
const MAX_FORM_BYTES: usize = 1 << 20;

/// Name of the form field with the [`FormToken`].
const TOKEN_FIELD: &[u8] = b"token";

/// Name of the header with the [`FormToken`] of a request whose body is no form.
const TOKEN_HEADER: HeaderName = HeaderName::from_static("hostler-form-token");

/// Checks a request, passes it on, and adds the headers to the answer, errors included.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    let mut response = admit(request, next).await;
    let headers = response.headers_mut();
    // Answers with content of users bring a stricter policy of their own.
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        // A page may have a stricter policy of its own.
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn admit(mut request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
    let host = host_of(&request).unwrap_or_default();
    let said = said_by(&request, &host);
    let outcome = match &caller.way {
        Way::Program => said.check(&[format!("http://{host}")]),
        Way::Browser(origins) => said.check(origins),
    };
    if let Err(foreign) = outcome {
        return refuse(foreign);
    }
    let follows_link = said.follows_foreign_link();
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    let token = FormToken::new(&caller, &host);
    request.extensions_mut().insert(token.clone());
    request.extensions_mut().insert(Host(host));
    if !is_get {
        request = match with_token(request, &token).await {
            Ok(request) => request,
            Err(response) => return response,
        };
    }
    let Way::Browser(_) = &caller.way else { return next.run(request).await };
    let here = request.uri().path_and_query().map_or("/", |here| here.as_str()).to_owned();
    let asks = |reason: &Reason| sign_in::ask(&caller, &token, if is_get { &here } else { "/" }, reason);
    // The provider of OpenID Connect sends browsers here without the cookie of their previous session.
    if follows_link && request.uri().path() == session::OPENID_CALLBACK {
        return session::land(&here);
    }
    if caller.authorization.is_none() && !session::is_open(request.uri().path()) {
        // Browsers send the cookie only with requests of the dashboard's own pages. The page that lands here is one.
        if follows_link {
            return session::land(&here);
        }
        if !caller.is_public {
            return asks(&Reason::SignedOut);
        }
    }
    let response = next.run(request).await;
    if response.status() == StatusCode::UNAUTHORIZED && !session::is_page(&response) {
        return asks(&Reason::Ended);
    }
    response
}

/// Host and port that the browser connects to. HTTP/2 has no header for it.
pub(crate) fn host_of(request: &Request) -> Option<String> {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    header.or_else(|| request.uri().authority().map(Authority::as_str)).map(str::to_owned)
}

/// What the browser says about the request.
fn said_by<'a>(request: &'a Request, host: &'a str) -> BrowserRequest<'a> {
    let headers = request.headers();
    BrowserRequest {
        method: request.method().as_str(),
        is_upgrade: headers.contains_key(header::UPGRADE) || *request.method() == Method::CONNECT,
        host: Some(host).filter(|host| !host.is_empty()),
        origin: text(headers, &header::ORIGIN),
        fetch_site: text(headers, &HeaderName::from_static("sec-fetch-site")),
        fetch_mode: text(headers, &HeaderName::from_static("sec-fetch-mode")),
        fetch_dest: text(headers, &HeaderName::from_static("sec-fetch-dest")),
    }
}

/// A header as text. An unreadable or repeated header counts as a foreign value.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    Some(if values.next().is_some() { "?" } else { value.to_str().unwrap_or("?") })
}

/// Checks the token in a form, or in the header of an upload. Returns the request with its body.
async fn with_token(request: Request, token: &FormToken) -> Result<Request, Response> {
    let (parts, body) = request.into_parts();
    if let Some(shown) = text(&parts.headers, &TOKEN_HEADER) {
        return if token.is(shown) { Ok(Request::from_parts(parts, body)) } else { Err(no_token()) };
    }
    let Ok(form) = Limited::new(body, MAX_FORM_BYTES).collect().await else {
        return Err(plain(StatusCode::PAYLOAD_TOO_LARGE, "The form is larger than 1 MiB, or it did not arrive."));
    };
    let form: Bytes = form.to_bytes();
    let mut shown = form_urlencoded::parse(&form).filter(|(name, _)| name.as_bytes() == TOKEN_FIELD);
    if !shown.next().is_some_and(|(_, shown)| token.is(&shown)) {
        return Err(no_token());
    }
    Ok(Request::from_parts(parts, Body::from(form)))
}

fn no_token() -> Response {
    const WHY: &str = "The form has no valid token. The page may be from before a restart of the head or from \
                       another session. Reload the page and try again.";
    plain(StatusCode::FORBIDDEN, WHY)
}

fn refuse(foreign: Foreign) -> Response {
    plain(StatusCode::FORBIDDEN, &format!("Refused: {foreign}."))
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;

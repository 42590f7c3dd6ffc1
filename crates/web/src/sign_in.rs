//! Sign-in and sign-out of browsers. A login code becomes a token, and a cookie holds the token.
//!
//! The answer to a sign-in is a page that loads the next page, not a redirect: browsers keep back the cookie
//! (`SameSite=Strict`) from a redirect that began on another site.

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hostler_proto::join::LoginCode;
use hostler_proto::users::{CodeLogin, LoggedIn};
use serde::Deserialize;

use crate::api::{Api, Backend, Caller};
use crate::assets::STYLE;
use crate::form::Fields;
use crate::guard::{FormToken, Way, plain};
use crate::openid;
use crate::page::render;

/// Path of the sign-in page.
pub(crate) const SIGN_IN: &str = "/sign-in";

/// Path of the form that signs out.
pub(crate) const SIGN_OUT: &str = "/sign-out";

/// Why a page asks for a sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The browser has no session.
    SignedOut,
    /// The session has ended, or the page needs one.
    Ended,
    /// The sign-in failed for this reason.
    Failed(String),
}

#[derive(Template)]
#[template(path = "sign-in.html")]
struct SignIn<'a> {
    style: &'a str,
    token: &'a str,
    next: &'a str,
    /// The code of a sign-in link.
    code: Option<&'a str>,
    problem: Option<&'a str>,
    openid: Option<OpenId<'a>>,
}

/// The sign-in with OpenID Connect.
struct OpenId<'a> {
    provider: &'a str,
    link: String,
}

impl<'a> OpenId<'a> {
    fn of(caller: &'a Caller, next: &str) -> Option<Self> {
        caller.provider.as_deref().map(|provider| Self { provider, link: openid::link(next) })
    }
}

/// A page that loads another page at once.
#[derive(Template)]
#[template(path = "landing.html")]
struct Landing<'a> {
    next: &'a str,
}

/// Marks a response of a sign-in, which the guard must not replace.
#[derive(Debug, Clone)]
pub(crate) struct Page;

/// Whether a browser without a session may open the path.
pub(crate) fn is_open(path: &str) -> bool {
    matches!(path, SIGN_IN | openid::BEGIN | openid::CALLBACK) || path.starts_with("/assets/")
}

/// Whether the response is a page of this module.
pub(crate) fn is_page(response: &Response) -> bool {
    response.extensions().get::<Page>().is_some()
}

/// The sign-in page, which leads to `next`.
pub(crate) fn ask(caller: &Caller, token: &FormToken, next: &str, reason: &Reason) -> Response {
    let problem = match reason {
        Reason::SignedOut => None,
        Reason::Ended if caller.authorization.is_some() => Some("Your session has ended. Sign in again."),
        Reason::Ended => Some("Sign in to see this page."),
        Reason::Failed(why) => Some(why.as_str()),
    };
    let next = local(next);
    let openid = OpenId::of(caller, next);
    let page = SignIn { style: &STYLE.path, token: token.as_str(), next, code: None, problem, openid };
    let mut response = (StatusCode::UNAUTHORIZED, Extension(Page), render(&page)).into_response();
    if caller.authorization.is_some() && *reason == Reason::Ended {
        set_cookie(&mut response, caller, "", 0);
    }
    response
}

/// A page that loads `next`, which must be local.
pub(crate) fn land(next: &str) -> Response {
    (Extension(Page), render(&Landing { next: local(next) })).into_response()
}

/// Parameters of the sign-in page.
#[derive(Deserialize)]
pub(crate) struct Parameters {
    #[serde(default)]
    next: String,
    /// The code of a sign-in link.
    code: Option<String>,
}

/// `GET /sign-in`.
pub(crate) async fn show(
    Extension(token): Extension<FormToken>,
    Extension(caller): Extension<Caller>,
    Query(Parameters { next, code }): Query<Parameters>,
) -> Response {
    if matches!(caller.way, Way::Program) {
        return land("/");
    }
    // Opening a link changes nothing: a person confirms it. So no page can sign a visitor in as somebody else, and
    // programs that look at links do not use them up.
    let (next, code) = (local(&next), code.as_deref());
    let openid = if code.is_none() { OpenId::of(&caller, next) } else { None };
    let page = SignIn { style: &STYLE.path, token: token.as_str(), next, code, problem: None, openid };
    (Extension(Page), render(&page)).into_response()
}

/// `POST /sign-in`.
pub(crate) async fn sign_in(
    State(backend): State<Backend>,
    Extension(token): Extension<FormToken>,
    Extension(caller): Extension<Caller>,
    form: Fields,
) -> Response {
    if matches!(caller.way, Way::Program) {
        return plain(StatusCode::CONFLICT, "You are signed in already: the connection identifies you.");
    }
    let field = |name: &str| form.text(name).unwrap_or_default().to_owned();
    let (next, code) = (field("next"), field("code"));
    let secret = if LoginCode::has_login_prefix(&code) {
        match code.parse::<LoginCode>() {
            Ok(code) => code.secret,
            Err(error) => return ask(&caller, &token, &next, &Reason::Failed(format!("{error}."))),
        }
    } else {
        code
    };
    let api = Api::new(backend, caller.clone());
    match api.post::<LoggedIn>("/login/code", &CodeLogin { secret }).await {
        Ok(LoggedIn { token, ends_in_ms, .. }) => {
            end_previous_session(&api, &caller).await;
            let mut response = land(&next);
            set_cookie(&mut response, &caller, &token, ends_in_ms / 1000);
            response
        }
        Err(refused) => {
            let why = std::iter::once(&refused.error.message).chain(&refused.error.hints);
            let why = why.map(String::as_str).collect::<Vec<_>>().join("; ");
            let mut response = ask(&caller, &token, &next, &Reason::Failed(format!("Sign-in failed: {why}.")));
            *response.status_mut() = refused.status;
            response
        }
    }
}

/// Revokes the token of the session that a new one replaces. The browser forgets it, and nobody else should have it.
pub(crate) async fn end_previous_session(api: &Api, caller: &Caller) {
    if caller.authorization.is_some() {
        // The new session does not depend on the end of the old one.
        let _ = api.post::<()>("/logout", &()).await;
    }
}

/// `POST /sign-out`. Revokes the session's token.
pub(crate) async fn sign_out(State(backend): State<Backend>, Extension(caller): Extension<Caller>) -> Response {
    if matches!(caller.way, Way::Program) {
        return plain(StatusCode::CONFLICT, "There is no session to end: the connection identifies you.");
    }
    let outcome = Api::new(backend, caller.clone()).post::<()>("/logout", &()).await;
    if let Err(refused) = outcome
        && refused.status != StatusCode::UNAUTHORIZED
    {
        return plain(refused.status, &format!("You are still signed in: {}.", refused.error.message));
    }
    let mut response = land(SIGN_IN);
    set_cookie(&mut response, &caller, "", 0);
    response
}

/// Name of the cookie on pages at this origin. On plain HTTP, all ports of a host share their cookies, so the name
/// contains the port.
pub fn cookie_name(origin: &str) -> String {
    match origin.strip_prefix("http://") {
        Some(authority) => format!("hostler-{}", authority.rsplit_once(':').map_or("80", |(_, port)| port)),
        None => "__Host-hostler".to_owned(),
    }
}

pub(crate) fn set_cookie(response: &mut Response, caller: &Caller, value: &str, seconds: u64) {
    let Way::Browser(origins) = &caller.way else { return };
    let Some(origin) = origins.first() else { return };
    let secure = if origin.starts_with("https://") { " Secure;" } else { "" };
    let name = cookie_name(origin);
    let cookie = format!("{name}={value};{secure} HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}");
    let cookie = HeaderValue::from_str(&cookie).expect("tokens are hexadecimal digits");
    response.headers_mut().append(header::SET_COOKIE, cookie);
}

/// The path of a page here, or the first page if `next` leads elsewhere.
pub(crate) fn local(next: &str) -> &str {
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_path = next.starts_with('/') && !next.starts_with("//");
    let is_uri = next.parse::<Uri>().is_ok_and(|uri| uri.authority().is_none());
    let path = next.split('?').next().unwrap_or_default();
    if is_plain && is_path && is_uri && !matches!(path, SIGN_IN | SIGN_OUT | openid::BEGIN) { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_page_is_always_local() {
        for next in ["/", "/jobs?state=failed&user=a%20b", "/jobs/12#log"] {
            assert_eq!(local(next), next);
        }
        for next in [
            "",
            "jobs",
            "//evil",
            "/\\evil",
            "\\\\evil",
            "https://evil",
            "/a\nb",
            "/ b",
            "/ä",
            "javascript:x",
            "/sign-in?next=/",
            "/sign-in/openid?next=/",
        ] {
            assert_eq!(local(next), "/", "{next}");
        }
    }

    #[test]
    fn cookie_is_bound_to_one_origin() {
        assert_eq!(cookie_name("https://cluster.example.org"), "__Host-hostler");
        assert_eq!(cookie_name("http://127.0.0.1:8080"), "hostler-8080");
    }
}

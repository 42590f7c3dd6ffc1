//! Sign-in and sign-out of browsers. A login code becomes a token, and a cookie holds the token.

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hostler_proto::join::LoginCode;
use hostler_proto::users::{CodeLogin, LoggedIn};
use serde::Deserialize;

use crate::api::{Api, Backend, Caller, Way};
use crate::assets::STYLE;
use crate::form::{Fields, FormToken};
use crate::openid;
use crate::page::{plain, render};
use crate::session::{Page, SIGN_IN, end_previous_session, land, local, set_cookie};

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

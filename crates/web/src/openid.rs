//! Sign-in of browsers with OpenID Connect: the way to the provider, and the way back.
//!
//! The browser keeps the secret of its sign-in, and the page that it wants, in a cookie of their own. That cookie is
//! `SameSite=Lax`: browsers send it when the provider sends them back. The way to the provider is a link, because some
//! browsers apply the policy for forms to redirects.

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::header::{COOKIE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use form_urlencoded::byte_serialize;
use hostler_proto::api::ErrorBody;
use hostler_proto::openid::{NOT_BEGUN, OpenIdBegun, OpenIdLogin, SignInSecret};
use hostler_proto::users::LoggedIn;
use serde::Deserialize;

use crate::api::{Api, Backend, Caller, Host, Refused, Way};
use crate::assets::STYLE;
use crate::page::render;
use crate::session::{self, OPENID_BEGIN, Page, cookie_name, land, local};

/// Time for a sign-in, in seconds.
const MAX_AGE_S: u64 = 600;

/// Maximum length of a cookie's value. Browsers drop cookies above 4 KiB.
const MAX_COOKIE_LEN: usize = 3_000;

/// Why a sign-in failed, and what to do.
#[derive(Template)]
#[template(path = "sign-in-failed.html")]
struct Failed<'a> {
    style: &'a str,
    message: &'a str,
    hints: &'a [String],
    /// Lines for a configuration file.
    lines: Option<&'a str>,
}

/// Parameters of the link to the provider.
#[derive(Deserialize)]
pub(crate) struct Begin {
    #[serde(default)]
    next: String,
}

/// What the provider returns.
#[derive(Deserialize)]
pub(crate) struct Returned {
    state: Option<String>,
    code: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// The link that signs in with the provider, and then leads to `next`.
pub(crate) fn link(next: &str) -> String {
    format!("{OPENID_BEGIN}?next={}", encode(next))
}

/// `GET /sign-in/openid`. Sends the browser to the provider.
pub(crate) async fn begin(
    State(backend): State<Backend>,
    Extension(caller): Extension<Caller>,
    Extension(Host(host)): Extension<Host>,
    Query(Begin { next }): Query<Begin>,
) -> Response {
    if matches!(caller.way, Way::Program) {
        return land("/");
    }
    let next = local(&next);
    let api = Api::new(backend, caller.clone());
    let OpenIdBegun { url, origin, secret } = match api.post("/login/openid/begin", &()).await {
        Ok(begun) => begun,
        Err(refused) => return fail(&refused),
    };
    // The provider sends browsers back to one address only, which must have set the cookie.
    let is_there = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
    if !is_there {
        return see_other(&format!("{origin}{}", link(next)));
    }
    let mut response = see_other(&url);
    let secret = String::from(secret);
    let value = format!("{secret}.{}", encode(next));
    let value = if value.len() > MAX_COOKIE_LEN { secret } else { value };
    set_cookie(&mut response, &caller, &value, MAX_AGE_S);
    response
}

/// `GET /sign-in/openid/callback`. The provider sends the browser here.
pub(crate) async fn callback(
    State(backend): State<Backend>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Query(Returned { state, code, error, error_description }): Query<Returned>,
) -> Response {
    let Some(origin) = origin(&caller) else { return land("/") };
    let begun = cookie(&headers, &own_cookie_name(origin)).and_then(secret_and_next);
    let (Some((secret, next)), Some(state)) = (begun, state) else { return fail(&not_begun()) };
    let api = Api::new(backend, caller.clone());
    let login = OpenIdLogin { secret, state, code, error, error_description };
    match api.post::<LoggedIn>("/login/openid", &login).await {
        Ok(LoggedIn { token, ends_in_ms, .. }) => {
            session::end_previous_session(&api, &caller).await;
            let mut response = land(&next);
            session::set_cookie(&mut response, &caller, &token, ends_in_ms / 1000);
            set_cookie(&mut response, &caller, "", 0);
            response
        }
        // The cookie stays: a link of somebody else must not end the sign-in that this browser has begun.
        Err(refused) => fail(&refused),
    }
}

/// The content of the cookie: the secret of a sign-in, and the page that follows the sign-in.
fn secret_and_next(kept: &str) -> Option<(SignInSecret, String)> {
    let (secret, next) = kept.split_once('.').unwrap_or((kept, ""));
    Some((secret.parse().ok()?, decode(next)))
}

/// The error of a browser that has begun no sign-in.
fn not_begun() -> Refused {
    let hints = vec!["sign in again, in one tab of the browser".to_owned()];
    let error = ErrorBody { code: "sign_in_failed".to_owned(), message: NOT_BEGUN.to_owned(), hints };
    Refused { status: StatusCode::UNAUTHORIZED, error }
}

fn fail(Refused { status, error }: &Refused) -> Response {
    let (hints, lines) = match error.hints.split_last() {
        Some((lines, hints)) if lines.contains('\n') => (hints, Some(lines.as_str())),
        _ => (error.hints.as_slice(), None),
    };
    let page = Failed { style: &STYLE.path, message: &error.message, hints, lines };
    (*status, Extension(Page), render(&page)).into_response()
}

fn see_other(place: &str) -> Response {
    match HeaderValue::from_str(place) {
        Ok(place) => (StatusCode::SEE_OTHER, [(LOCATION, place)], Extension(Page)).into_response(),
        Err(_) => land("/"),
    }
}

/// The origin whose cookies the browser uses.
fn origin(caller: &Caller) -> Option<&str> {
    let Way::Browser(origins) = &caller.way else { return None };
    origins.first().map(String::as_str)
}

fn own_cookie_name(origin: &str) -> String {
    format!("{}-openid", cookie_name(origin))
}

fn set_cookie(response: &mut Response, caller: &Caller, value: &str, seconds: u64) {
    let Some(origin) = origin(caller) else { return };
    let secure = if origin.starts_with("https://") { " Secure;" } else { "" };
    let name = own_cookie_name(origin);
    let cookie = format!("{name}={value};{secure} HttpOnly; SameSite=Lax; Path=/; Max-Age={seconds}");
    let cookie = HeaderValue::from_str(&cookie).expect("secrets are hexadecimal digits, and the page is encoded");
    response.headers_mut().append(SET_COOKIE, cookie);
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    cookies.find(|(cookie, _)| *cookie == name).map(|(_, value)| value)
}

fn encode(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

fn decode(text: &str) -> String {
    form_urlencoded::parse(text.as_bytes()).next().map(|(text, _)| text.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_page_survives_the_cookie() {
        for next in ["/", "/jobs?state=failed&user=a%20b", "/jobs/12;x=\"1\",2", ""] {
            let encoded = encode(next);
            assert!(!encoded.contains([';', ',', '"', ' ', '=', '&']), "{encoded}");
            assert_eq!(decode(&encoded), next);
        }
    }

    #[test]
    fn cookie_without_a_whole_secret_begins_no_sign_in() {
        let secret = "0a".repeat(32);
        for kept in ["", ".%2F", "x.%2F", &secret[1..], &format!("{secret}0.%2F"), &format!("%20{secret}")] {
            assert_eq!(secret_and_next(kept), None, "{kept}");
        }
        let (kept, next) = secret_and_next(&format!("{secret}.%2Fjobs")).expect("a secret");
        assert_eq!((String::from(kept), next.as_str()), (secret, "/jobs"));
    }

    #[test]
    fn cookie_is_bound_to_one_origin() {
        assert_eq!(own_cookie_name("https://cluster.example.org"), "__Host-hostler-openid");
        assert_eq!(own_cookie_name("http://127.0.0.1:8080"), "hostler-8080-openid");
        let headers = HeaderMap::from_iter([(COOKIE, HeaderValue::from_static("a=1; __Host-hostler-openid=x.%2F"))]);
        assert_eq!(cookie(&headers, "__Host-hostler-openid"), Some("x.%2F"));
        assert_eq!(cookie(&headers, "__Host-hostler"), None);
    }
}

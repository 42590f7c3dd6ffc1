//! Sessions of browsers: the cookie with the token, the pages that need no session, and the page that loads the next page.
//!
//! The answer to a sign-in is a page that loads the next page, not a redirect: browsers keep back the cookie
//! (`SameSite=Strict`) from a redirect that began on another site.

use askama::Template;
use axum::Extension;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::api::{Api, Caller, Way};
use crate::page::render;

/// Path of the sign-in page.
pub(crate) const SIGN_IN: &str = "/sign-in";

/// Path of the form that signs out.
pub(crate) const SIGN_OUT: &str = "/sign-out";

/// Path of the link to the provider.
pub(crate) const OPENID_BEGIN: &str = "/sign-in/openid";

/// Path of the page to which the provider sends browsers back.
pub(crate) const OPENID_CALLBACK: &str = "/sign-in/openid/callback";

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
    matches!(path, SIGN_IN | OPENID_BEGIN | OPENID_CALLBACK) || path.starts_with("/assets/")
}

/// Whether the response is a page of this module.
pub(crate) fn is_page(response: &Response) -> bool {
    response.extensions().get::<Page>().is_some()
}

/// A page that loads `next`, which must be local.
pub(crate) fn land(next: &str) -> Response {
    (Extension(Page), render(&Landing { next: local(next) })).into_response()
}

/// Revokes the token of the session that a new one replaces. The browser forgets it, and nobody else should have it.
pub(crate) async fn end_previous_session(api: &Api, caller: &Caller) {
    if caller.authorization.is_some() {
        // The new session does not depend on the end of the old one.
        let _ = api.post::<()>("/logout", &()).await;
    }
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
    if is_plain && is_path && is_uri && !matches!(path, SIGN_IN | SIGN_OUT | OPENID_BEGIN) { next } else { "/" }
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

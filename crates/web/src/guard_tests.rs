//! Tests of the guard over all routes of the dashboard.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::response::IntoResponse;
use hostler_proto::api::ErrorBody;
use tower::ServiceExt;

use super::*;

const OWN: &str = "https://cluster.example";
const HOST: &str = "cluster.example";

/// Requests that reached the API and could change something.
type Changes = Arc<Mutex<Vec<String>>>;

/// An API that refuses everything, and records changes.
fn api(changes: &Changes) -> Router {
    async fn answer(State(changes): State<Changes>, method: Method, uri: Uri) -> Response {
        if method != Method::GET {
            changes.lock().expect("no thread panicked").push(format!("{method} {uri}"));
        }
        let error = ErrorBody { code: "test".to_owned(), message: "test".to_owned(), hints: Vec::new() };
        (StatusCode::NOT_FOUND, axum::Json(error)).into_response()
    }
    Router::new().fallback(answer).with_state(Arc::clone(changes))
}

/// The paths of all routes in `lib.rs`, with 1 for each parameter.
fn paths() -> Vec<String> {
    let source = include_str!("lib.rs");
    let literal = source.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut paths: Vec<String> = literal
        .map(|path| {
            path.split('{')
                .map(|part| part.split_once('}').map_or(part, |(_, rest)| rest))
                .collect::<Vec<_>>()
                .join("1")
        })
        .collect();
    assert!(paths.iter().any(|path| path == "/"), "the routes are in lib.rs: {paths:?}");
    paths.extend(
        [session::SIGN_IN, session::SIGN_OUT, session::OPENID_BEGIN, session::OPENID_CALLBACK, "/no/such/page"]
            .map(str::to_owned),
    );
    paths
}

fn caller(way: Way, has_session: bool) -> Caller {
    let authorization = has_session.then(|| HeaderValue::from_static("Bearer secret"));
    let identity = if has_session { "token:secret" } else { "" }.to_owned();
    Caller { authorization, identity, way, ..Caller::default() }
}

fn browser() -> Way {
    Way::Browser(Arc::from([OWN.to_owned()]))
}

/// A request that the table describes.
#[derive(Debug, Clone, Copy)]
struct Case<'a> {
    method: &'a str,
    path: &'a str,
    host: &'a str,
    origin: Option<&'a str>,
    fetch_site: Option<&'a str>,
    has_session: bool,
    /// Whose form token the request carries.
    token: Token,
    upgrade: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Own,
    None,
    /// Of another session of the same host.
    Other,
    /// Of the same session at another host.
    OtherHost,
}

async fn send(routes: &Router, way: Way, case: Case<'_>) -> Response {
    let caller = caller(way, case.has_session);
    let other = Caller { identity: "token:other".to_owned(), ..caller.clone() };
    let body = match case.token {
        Token::None => "a=b".to_owned(),
        Token::Own => format!("a=b&token={}", FormToken::new(&caller, case.host).as_str()),
        Token::Other => format!("token={}", FormToken::new(&other, case.host).as_str()),
        Token::OtherHost => format!("token={}", FormToken::new(&caller, "other.example").as_str()),
    };
    let mut request = Request::builder()
        .method(case.method)
        .uri(case.path)
        .header(header::HOST, case.host)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(origin) = case.origin {
        request = request.header(header::ORIGIN, origin);
    }
    if let Some(site) = case.fetch_site {
        request = request.header("sec-fetch-site", site);
    }
    if case.upgrade {
        request = request.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "websocket");
    }
    let request = request.extension(caller).body(Body::from(body)).expect("a valid request");
    routes.clone().oneshot(request).await.unwrap_or_else(|never: Infallible| match never {})
}

fn may_pass(case: Case<'_>) -> bool {
    let is_own_page = match case.fetch_site {
        Some("same-origin") => matches!(case.origin, None | Some(OWN | "null")),
        Some(_) => false,
        None => case.origin == Some(OWN),
    };
    let is_own_page = if case.upgrade { case.origin == Some(OWN) } else { is_own_page };
    case.host == HOST && is_own_page && (case.upgrade || case.token == Token::Own)
}

#[tokio::test]
async fn only_forms_of_the_own_pages_reach_any_route() {
    let changes = Changes::default();
    let routes = crate::routes(api(&changes));
    let (mut passed, mut refused) = (0, 0);
    for path in paths() {
        for (method, upgrade) in [
            ("POST", false),
            ("PUT", false),
            ("DELETE", false),
            ("PATCH", false),
            ("OPTIONS", false),
            ("GET", true),
            ("POST", true),
        ] {
            for host in [HOST, "evil.example", "cluster.example:8443"] {
                let same = format!("https://{host}");
                for origin in [None, Some(OWN), Some("https://evil.example"), Some("null"), Some(same.as_str())] {
                    for fetch_site in [None, Some("same-origin"), Some("same-site"), Some("cross-site"), Some("none")] {
                        for (has_session, token) in [
                            (true, Token::Own),
                            (true, Token::None),
                            (true, Token::Other),
                            (true, Token::OtherHost),
                            (false, Token::Own),
                            (false, Token::None),
                        ] {
                            let path = path.as_str();
                            let case = Case { method, path, host, origin, fetch_site, has_session, token, upgrade };
                            let response = send(&routes, browser(), case).await;
                            let seen = std::mem::take(&mut *changes.lock().expect("no thread panicked"));
                            for name in
                                [header::CONTENT_SECURITY_POLICY, header::X_CONTENT_TYPE_OPTIONS, header::CACHE_CONTROL]
                            {
                                assert!(response.headers().contains_key(name), "{case:?}");
                            }
                            // An upgrade needs no token, but only GET can be one.
                            let may_pass = may_pass(case) && (method == "GET" || token == Token::Own);
                            if may_pass {
                                passed += 1;
                                assert_ne!(response.status(), StatusCode::FORBIDDEN, "{case:?}");
                            } else {
                                refused += 1;
                                assert_eq!(response.status(), StatusCode::FORBIDDEN, "{case:?}");
                            }
                            let is_sign_in =
                                matches!(path, session::SIGN_IN | session::OPENID_BEGIN | session::OPENID_CALLBACK);
                            let may_change = may_pass && (has_session || is_sign_in);
                            assert!(may_change || seen.is_empty(), "{case:?} caused {seen:?}");
                        }
                    }
                }
            }
        }
    }
    assert!(passed > 100 && refused > 10 * passed, "{passed} {refused}");
}

#[tokio::test]
async fn opening_pages_changes_nothing_and_needs_a_session() {
    let changes = Changes::default();
    let routes = crate::routes(api(&changes));
    for path in paths() {
        for (method, has_session, host, origin) in [
            ("GET", true, HOST, None),
            ("HEAD", true, HOST, None),
            ("GET", false, HOST, None),
            ("GET", true, "evil.example", None),
            ("GET", true, HOST, Some("https://evil.example")),
        ] {
            let (path, fetch_site, token, upgrade) = (path.as_str(), None, Token::None, false);
            let case = Case { method, path, host, origin, fetch_site, has_session, token, upgrade };
            let response = send(&routes, browser(), case).await;
            let is_foreign = host != HOST || origin.is_some();
            let mut seen = std::mem::take(&mut *changes.lock().expect("no thread panicked"));
            // The provider of OpenID Connect sends browsers back with a GET, which the cookie of the sign-in protects.
            if !is_foreign && matches!(path, session::OPENID_BEGIN | session::OPENID_CALLBACK) {
                seen.retain(|change| !change.starts_with("POST /api/v1/login/openid"));
            }
            assert!(seen.is_empty(), "{case:?} caused {seen:?}");
            if is_foreign {
                assert_eq!(response.status(), StatusCode::FORBIDDEN, "{case:?}");
            } else if !has_session && !session::is_open(path) {
                assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{case:?}");
            }
        }
    }
}

#[tokio::test]
async fn uploads_carry_the_token_in_a_header() {
    let routes = crate::routes(api(&Changes::default()));
    let caller = caller(browser(), true);
    let own = FormToken::new(&caller, HOST).as_str().to_owned();
    for (token, origin, is_fine) in [
        (own.as_str(), OWN, true),
        ("", OWN, false),
        (&own[1..], OWN, false),
        (own.as_str(), "https://evil.example", false),
    ] {
        // A token in the body does not count beside the header.
        let request = Request::post("/submit/chunks")
            .header(header::HOST, HOST)
            .header(header::ORIGIN, origin)
            .header(TOKEN_HEADER, token)
            .extension(caller.clone())
            .body(Body::from(format!("token={own}")))
            .expect("a valid request");
        let response = routes.clone().oneshot(request).await.unwrap_or_else(|never: Infallible| match never {});
        assert_eq!(response.status() != StatusCode::FORBIDDEN, is_fine, "{token} {origin}: {}", response.status());
    }
}

#[tokio::test]
async fn programs_need_a_token_too() {
    let changes = Changes::default();
    let routes = crate::routes(api(&changes));
    let own = format!("http://{HOST}");
    for (origin, token, is_fine) in [
        (Some(own.as_str()), Token::Own, true),
        (Some(own.as_str()), Token::None, false),
        (None, Token::Own, false),
        (Some("http://evil"), Token::Own, false),
    ] {
        let case = Case {
            method: "POST",
            path: "/no/such/page",
            host: HOST,
            origin,
            fetch_site: None,
            has_session: false,
            token,
            upgrade: false,
        };
        let status = send(&routes, Way::Program, case).await.status();
        assert_eq!(status != StatusCode::FORBIDDEN, is_fine, "{case:?}: {status}");
    }
}

#[tokio::test]
async fn link_from_another_site_reaches_its_page_with_the_cookie() {
    let routes = crate::routes(api(&Changes::default()));
    let open = |fetch_site: &'static str| {
        let request = Request::builder()
            .uri("/jobs?state=failed")
            .header(header::HOST, HOST)
            .header("sec-fetch-site", fetch_site)
            .header("sec-fetch-mode", "navigate")
            .header("sec-fetch-dest", "document")
            .extension(caller(browser(), false))
            .body(Body::empty())
            .expect("a valid request");
        let routes = routes.clone();
        async move {
            let response = routes.oneshot(request).await.unwrap_or_else(|never: Infallible| match never {});
            let status = response.status();
            let body = response.into_body().collect().await.expect("a body in memory").to_bytes();
            (status, String::from_utf8_lossy(&body).into_owned())
        }
    };
    // Without the cookie, the page loads itself once more. The browser then sends the cookie, if it has one.
    let (status, body) = open("cross-site").await;
    assert!(status == StatusCode::OK && body.contains(r#"content="0;url=/jobs?state=failed""#), "{status} {body}");
    let (status, body) = open("same-origin").await;
    assert!(status == StatusCode::UNAUTHORIZED && body.contains(r#"value="/jobs?state=failed""#), "{status} {body}");
}

//! Connects the dashboard's pages with the API in this process.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hostler_proto::users::RELAY_HEADER;
use hostler_web::{Caller, Way, cookie_name};

use crate::api::no_such_route;
use crate::blobs::name_of;
use crate::head::Head;
use crate::identify::Credentials;
use crate::identity::Identity;
use crate::lease::Lease;
use crate::listen::{Peer, Visitor};
use crate::proxy::ListenerKind;

/// The answer to a browser that reached the head under the cluster's own certificate. Browsers distrust that
/// certificate, so no page may depend on it.
const NOT_HERE: &str = "This is a Hostler head. Its dashboard is not at this address.\n\
     Run `hostler dashboard` on a machine of the cluster or after `hostler login`; it opens the dashboard in your browser.\n\
     An admin can give the dashboard an address of its own: see `hostler head run --help`, options --tls-cert and --http.\n";

const PLAIN: &str = "text/plain; charset=utf-8";

/// The API and the dashboard. All paths that are not below `/api` are pages.
pub(crate) fn routes(api: Router, head: &Arc<Head>) -> Router {
    let pages = hostler_web::routes(api.clone()).layer(from_fn_with_state(Arc::clone(head), identify));
    api.fallback_service(pages)
}

/// Gives pages what identifies the caller to the API: the connection's peer, or a token.
async fn identify(State(head): State<Arc<Head>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path == "/api" || path.starts_with("/api/") {
        return no_such_route().await.into_response();
    }
    let listener = request.extensions().get::<ListenerKind>().cloned().unwrap_or(ListenerKind::Socket);
    let peer = request.extensions().get::<Peer>().cloned();
    let headers = request.headers();
    let mut caller = Caller::default();
    match &listener {
        ListenerKind::Site { origins, .. } => {
            caller.authorization = origins.first().and_then(|origin| token_in_cookie(headers, &cookie_name(origin)));
            caller.is_public = head.engine.state().settings.dashboard_public;
            caller.provider = head.openid.name();
            caller.way = Way::Browser(Arc::clone(origins));
        }
        ListenerKind::Socket | ListenerKind::Cluster => {
            caller.authorization = headers.get(AUTHORIZATION).cloned();
            caller.relayed_user = headers.get(RELAY_HEADER).cloned();
            caller.way = Way::Program;
            // Browsers send this header only with the consent of the server, so the caller is a program.
            let is_stranger = peer == Some(Peer::Unknown) && caller.authorization.is_none();
            if is_stranger {
                return (StatusCode::NOT_FOUND, [(CONTENT_TYPE, PLAIN)], NOT_HERE).into_response();
            }
        }
    }
    caller.identity = identity(peer.as_ref(), &caller);
    if let Some(visitor) = request.extensions().get::<Visitor>() {
        caller.extensions.insert(visitor.clone());
    }
    let credentials = Credentials {
        peer: peer.clone(),
        authorization: caller.authorization.clone(),
        relayed_user: caller.relayed_user.clone(),
    };
    let lease = Lease::begin(&head.engine, credentials, caller.is_public);
    // Before the page reads the body of a form.
    if let (Identity::User(person), Some(visitor)) = (lease.identity(), request.extensions().get::<Visitor>())
        && person.is_identified()
        && let Err(full) = visitor.welcome(&person.name)
    {
        let text =
            format!("You have {} connections to the head, the maximum per user.\nClose some pages.\n", full.most);
        return (StatusCode::TOO_MANY_REQUESTS, [(CONTENT_TYPE, PLAIN)], text).into_response();
    }
    if let Some(peer) = peer {
        caller.extensions.insert(peer);
    }
    request.extensions_mut().insert(caller);
    lease.bind(next.run(request).await)
}

/// Text that differs for each caller and session.
fn identity(peer: Option<&Peer>, caller: &Caller) -> String {
    let text = |value: &Option<HeaderValue>| {
        value.as_ref().map_or_else(String::new, |value| name_of(value.as_bytes()).to_string())
    };
    match peer {
        Some(Peer::Local { uid, .. }) => format!("uid {uid}"),
        Some(Peer::Node(bearer)) => format!("node {} {}", bearer.node, text(&caller.relayed_user)),
        Some(Peer::Unknown) | None => format!("token {}", text(&caller.authorization)),
    }
}

/// The token in a browser's cookie, as an `Authorization` header. Only pages read the cookie: requests to the API
/// itself need the header.
fn token_in_cookie(headers: &HeaderMap, name: &str) -> Option<HeaderValue> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    let (_, token) = cookies.find(|(cookie, token)| *cookie == name && !token.is_empty())?;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_comes_from_the_named_cookie_only() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("hostler-80=x; a=b"));
        headers.append(COOKIE, HeaderValue::from_static("__Host-hostler=abc; __Host-hostler=later"));
        assert_eq!(token_in_cookie(&headers, "__Host-hostler"), Some(HeaderValue::from_static("Bearer abc")));
        assert_eq!(token_in_cookie(&headers, "hostler-80"), Some(HeaderValue::from_static("Bearer x")));
        assert_eq!(token_in_cookie(&headers, "hostler-81"), None);
    }
}

//! REST and server-sent events under `/api/v1`, with one file per resource.
//!
//! Handlers translate between requests and the engine or the state. [`access`] identifies and authorizes callers first.
//! Handlers receive the caller as [`who::User`], [`who::Agent`] or [`who::Anyone`].

pub(crate) mod access;
mod blobs;
pub(crate) mod error;
mod events;
mod extract;
mod info;
mod jobs;
mod login;
mod nodes;
mod output;
mod partitions;
mod peers;
mod results;
mod settings;
mod shutdown;
mod streams;
mod users;
mod version;
mod who;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post, put};
use hostler_proto::api::BASE;

use self::error::ApiError;
use crate::head::Head;

pub(crate) use self::jobs::LONGEST_PAGE_BYTES;

/// Maximum size of most JSON bodies: a job must fit into one frame of the agent link.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Maximum size of bodies that contain long lists: about two hundred thousand digests.
const MAX_LIST_BYTES: usize = 16 << 20;

/// All routes of the API. A test checks that [`crate::openapi`] describes each of them.
pub(crate) fn routes(head: &Arc<Head>) -> Router {
    let lists = Router::new()
        .route("/blobs/missing", post(blobs::missing))
        .route("/blobs/fetch", post(blobs::fetch))
        .route("/users/import", post(users::import))
        .layer(DefaultBodyLimit::max(MAX_LIST_BYTES));
    let routes = Router::new()
        .route("/info", get(info::info))
        .route("/openapi.json", get(info::openapi))
        .route("/shutdown", post(shutdown::shutdown))
        .route("/nodes", get(nodes::list))
        .route("/nodes/invite", post(nodes::invite))
        .route("/nodes/{name}", get(nodes::show))
        .route("/nodes/{name}/drain", post(nodes::drain))
        .route("/nodes/{name}/resume", post(nodes::resume))
        .route("/nodes/{name}/traits", post(nodes::set_traits))
        .route("/nodes/{name}/power", post(nodes::power))
        .route("/energy", get(nodes::energy))
        .route("/nodes/{name}/remove", post(nodes::remove))
        .route("/nodes/{name}/forget", post(nodes::forget))
        .route("/partitions", get(partitions::list).post(partitions::add))
        .route("/partitions/{name}", get(partitions::show).post(partitions::change).delete(partitions::remove))
        .route("/settings", get(settings::list))
        .route("/settings/{name}", put(settings::set).delete(settings::reset))
        .route("/jobs", post(jobs::submit).get(jobs::list))
        .route("/jobs/{id}", get(jobs::show))
        .route("/jobs/{id}/why", get(jobs::why))
        .route("/jobs/{id}/cancel", post(jobs::cancel))
        .route("/jobs/{id}/hold", post(jobs::hold))
        .route("/jobs/{id}/release", post(jobs::release))
        .route("/jobs/{id}/requeue", post(jobs::requeue))
        .route("/jobs/{id}/fetched", post(results::fetched))
        .route("/jobs/{id}/tasks/{index}/output/{output}", get(output::output))
        .route("/jobs/{id}/tasks/{index}/attach", get(output::attach))
        .route("/users", post(users::add).get(users::list))
        .route("/users/{name}", get(users::show))
        .route("/users/{name}/remove", post(users::remove))
        .route("/users/{name}/block", post(users::block))
        .route("/users/{name}/unblock", post(users::unblock))
        .route("/users/{name}/role", post(users::set_role))
        .route("/users/{name}/keys", post(users::change_keys))
        .route("/users/{name}/quota", post(users::set_quota))
        .route("/users/{name}/invite", post(users::invite))
        .route("/groups", get(users::groups))
        .route("/groups/{name}/quota", post(users::set_group_quota))
        .route("/audit", get(users::audit))
        .route("/login/challenge", post(login::challenge))
        .route("/login/key", post(login::by_key))
        .route("/login/code", post(login::by_code))
        .route("/logout", post(login::logout))
        .route("/results", get(results::list))
        .route("/events", get(events::events))
        .route("/blobs", post(blobs::upload))
        .route("/blobs/{digest}", get(blobs::show))
        .route("/snapshots/{digest}/commit", post(blobs::commit))
        .route("/agent/join", post(nodes::join))
        .route("/agent/renew", post(nodes::renew))
        .route("/agent/peers", get(peers::peers))
        .route("/agent/link", get(nodes::link))
        .route("/agent/streams/{id}", put(streams::upload))
        .route("/agent/streams/{id}/terminal", get(streams::terminal))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .merge(lists)
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_such_route)
        .layer(from_fn_with_state(Arc::clone(head), access::check))
        .layer(from_fn(version::check));
    Router::new().nest(BASE, routes).fallback(no_such_route).with_state(Arc::clone(head))
}

/// Parses a query with every query type. Returns the number of types that accept it.
#[cfg(feature = "fuzzing")]
pub(crate) fn queries(text: &str) -> usize {
    fn reads<T: serde::de::DeserializeOwned>(uri: &axum::http::Uri) -> usize {
        usize::from(axum::extract::Query::<T>::try_from_uri(uri).is_ok())
    }
    let Ok(uri) = format!("/?{text}").parse() else { return 0 };
    let _ = extract::list::<hostler_model::JobState>(Some(text));
    let _ = extract::list::<hostler_model::TaskId>(Some(text));
    reads::<jobs::Filter>(&uri)
        + reads::<jobs::Show>(&uri)
        + reads::<jobs::Which>(&uri)
        + reads::<output::Part>(&uri)
        + reads::<output::Size>(&uri)
        + reads::<results::Filter>(&uri)
        + reads::<blobs::Within>(&uri)
        + reads::<shutdown::Shutdown>(&uri)
        + reads::<users::Since>(&uri)
}

async fn no_such_route() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "no_such_route", "no operation exists at this path")
        .hint(format!("GET {BASE}/openapi.json describes all operations"))
}

async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path does not support this method")
        .hint(format!("GET {BASE}/openapi.json describes all operations"))
}

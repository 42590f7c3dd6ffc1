//! The cluster at a glance, and the description of the API.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use hostler_proto::api::{API_VERSION, HeadInfo, Info};

use super::who::User;
use crate::head::Head;

/// `GET /info`.
pub(crate) async fn info(_: User, State(head): State<Arc<Head>>) -> Json<Info> {
    let refusing = head.refusing();
    let state = head.engine.state();
    let (cpus, memory_bytes) = state.capacity();
    Json(Info {
        head: HeadInfo {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: API_VERSION,
            epoch: state.epoch.0,
            embedded: head.config.embedded,
            address: head.address(),
            authority: Some(head.trust.fingerprint()),
            directory: head.config.directory.display().to_string(),
            refusing,
            results_bytes: head.library.room().kept_bytes(),
            results_cap_bytes: head.library.room().cap_bytes(),
            warning: head.library.room().warning(),
        },
        nodes: state.node_counts(),
        tasks: state.live_counts(),
        cpus,
        memory_bytes,
    })
}

/// `GET /openapi.json`, for anyone: it says nothing about this cluster.
pub(crate) async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], crate::openapi())
}

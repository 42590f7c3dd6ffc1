//! Summary of the cluster, and the API description.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use hostler_proto::BUILD;
use hostler_proto::api::{API_VERSION, HeadInfo, HeadMachine, Info};
use tokio::sync::OnceCell;

use super::who::User;
use crate::head::Head;
use crate::trust::hostname;

/// `GET /info`.
pub(crate) async fn info(_: User, State(head): State<Arc<Head>>) -> Json<Info> {
    let machine = Some(machine().await.clone());
    let refusing = head.refusing();
    let warnings: Vec<String> =
        [head.library.room().warning(), head.notifier.warning(), head.openid.warning(), head.switches.warning()]
            .into_iter()
            .flatten()
            .collect();
    let state = head.engine.state();
    let tasks = state.live_counts();
    Json(Info {
        head: HeadInfo {
            pid: std::process::id(),
            version: BUILD.to_owned(),
            api: API_VERSION,
            epoch: state.epoch.0,
            embedded: head.config.embedded,
            address: head.address(),
            authority: Some(head.trust.fingerprint()),
            directory: head.config.directory.display().to_string(),
            refusing,
            results_bytes: head.library.room().kept_bytes(),
            results_cap_bytes: head.library.room().cap_bytes(),
            warning: (!warnings.is_empty()).then(|| warnings.join("; ")),
            machine,
        },
        nodes: state.node_counts(),
        pace: head.engine.metrics().ends().pace(|_| true, tasks.pending, Instant::now()),
        tasks,
        capacity: state.capacity(),
    })
}

/// Resources of the head's machine, detected at the first request.
async fn machine() -> &'static HeadMachine {
    static MACHINE: OnceCell<HeadMachine> = OnceCell::const_new();
    MACHINE
        .get_or_init(|| async {
            // Detection reads files, and drivers may be slow.
            let found = tokio::task::spawn_blocking(|| hostler_discovery::machine().resources()).await;
            let found = found.unwrap_or_default();
            let name = hostname().unwrap_or_else(|| "head".to_owned());
            HeadMachine { name, cpus: found.cpus.len(), memory_bytes: found.memory_bytes }
        })
        .await
}

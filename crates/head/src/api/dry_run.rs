//! Dry runs of submissions.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use hostler_core::head::{Command, Ended, SubmissionKey};
use hostler_proto::dry_run::{DryRunRequest, DryRunView};

use tokio::sync::Semaphore;

use super::error::ApiError;
use super::extract::Json as Body;
use super::submit::{bad_notification, check_parts, may_submit};
use super::who::User;
use crate::answers::Answer;
use crate::head::Head;
use crate::views;

/// Number of dry runs at the same time.
static AT_ONCE: Semaphore = Semaphore::const_new(1);

/// Memory to reserve for each job in a copy of the state, in bytes. The copy shares the jobs themselves.
const COPY_BYTES_PER_JOB: usize = 256;

/// `POST /dry-run`.
pub(crate) async fn dry_run(
    user: User,
    Extension(answer): Extension<Arc<Answer>>,
    State(head): State<Arc<Head>>,
    Body(DryRunRequest { spec }): Body<DryRunRequest>,
) -> Result<Json<DryRunView>, ApiError> {
    may_submit(&head)?;
    head.notifier.admit(spec.subscriptions()).map_err(bad_notification)?;
    let (mut spec, live) = {
        let state = head.engine.state();
        (state.complete(spec, head.engine.now().wall), state.job_count())
    };
    answer.reserve(&head.client_limits, live * COPY_BYTES_PER_JOB).await;
    check_parts(&mut spec).map_err(ApiError::bad_request)?;
    let spec = Arc::new(spec);
    let command = Command::Submit {
        caller: user.0,
        key: SubmissionKey(0),
        spec: Arc::clone(&spec),
        environment: None,
        snapshot_is_complete: true,
    };
    // Also if the client goes away, since a closed connection does not end the pass.
    let only_one = AT_ONCE.acquire().await.map_err(ApiError::internal)?;
    let tried = move || {
        let _only_one = only_one;
        // Copies keep the pass and the reading, which may take long, off the locks.
        let state = head.engine.state().clone();
        let moves = head.engine.archive().moves().clone();
        let ended = Ended::look_up(&state, &moves, head.engine.archive(), &command);
        let now = head.engine.now();
        let found = state.dry_run(&command, &ended.map_err(ApiError::internal)?, now)?;
        Ok(DryRunView {
            id: found.job,
            partition: spec.partition.clone(),
            cpus: u64::from(spec.request.cpus).saturating_mul(spec.nodes.into()),
            nodes: found.nodes,
            starts_at: found.starts_at.map(|at| views::wall_time(at, now)),
            reason: found.reason,
        })
    };
    tokio::task::spawn_blocking(tried).await.map_err(ApiError::internal)?.map(Json)
}

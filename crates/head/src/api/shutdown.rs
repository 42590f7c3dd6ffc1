//! Shutdown of the head. The request says what to do with jobs that have not ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::NoContent;
use hostler_core::head::{Active, Caller, Command, Job, State as Cluster};
use hostler_model::JobId;
use hostler_proto::api::JobAction;
use hostler_proto::link::HeadMessage;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

use super::error::ApiError;
use super::extract::Json as Body;
use super::who::User;
use crate::head::Head;

/// Maximum wait for cancelled jobs to end. After that, the head stops, and the shepherds end the remaining jobs.
const ENDING_TIME: Duration = Duration::from_secs(60);

/// The body of `POST /shutdown`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Shutdown {
    #[serde(default)]
    jobs: LiveJobs,
}

/// What to do with jobs that have not ended.
#[derive(Deserialize, ToSchema, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum LiveJobs {
    /// Do not stop if jobs have not ended.
    #[default]
    Refuse,
    /// Stop, but keep all jobs, waiting or running.
    Keep,
    /// Cancel all jobs before the stop.
    Cancel,
}

/// `POST /shutdown`. The response is sent when the head is about to stop.
pub(crate) async fn shutdown(
    user: User,
    State(head): State<Arc<Head>>,
    Body(Shutdown { jobs }): Body<Shutdown>,
) -> Result<NoContent, ApiError> {
    user.require_operator("stop the head")?;
    if head.closing.swap(true, Ordering::AcqRel) {
        // If the other shutdown fails, the head accepts work again. The client must then repeat this request.
        return Err(ApiError::refusing("the head is being stopped already"));
    }
    // Runs in a separate task: if the client disconnects, the head must not stay closed but running.
    let closing = tokio::spawn(close(head, user.0, jobs));
    closing.await.map_err(ApiError::internal)?.map(|()| NoContent)
}

async fn close(head: Arc<Head>, caller: Caller, jobs: LiveJobs) -> Result<(), ApiError> {
    match jobs {
        LiveJobs::Refuse => {
            // Wait for accepted submissions that are still in the queue, so that they are counted.
            let _ = head.engine.settled().await;
            let live = head.engine.state().jobs().count();
            if live > 0 {
                head.closing.store(false, Ordering::Release);
                return Err(jobs_live(live));
            }
        }
        LiveJobs::Keep => {}
        LiveJobs::Cancel => cancel_all(&head, &caller).await,
    }
    tracing::info!(user = caller.user, "shutdown requested");
    if head.config.embedded {
        // An embedded cluster includes its nodes. Nodes of other clusters wait for the head's restart.
        let state = head.engine.state();
        for link in state.nodes().filter_map(|node| node.link.as_ref()) {
            head.engine.send(link.connection, HeadMessage::Shutdown);
        }
    }
    head.stop.cancel();
    Ok(())
}

fn jobs_live(live: usize) -> ApiError {
    let (jobs, have) = if live == 1 { ("job", "has") } else { ("jobs", "have") };
    ApiError::new(StatusCode::CONFLICT, "jobs_live", format!("{live} {jobs} {have} not ended"))
        .hint("wait for the jobs to end, keep the jobs for the next start, or cancel the jobs")
}

/// Cancels all jobs and waits, with a timeout, for their end.
async fn cancel_all(head: &Head, caller: &Caller) {
    let deadline = Instant::now() + ENDING_TIME;
    let mut notices = head.engine.notices();
    let live: Vec<JobId> = head.engine.state().jobs().map(|job| job.id).collect();
    for job in live {
        let command = Command::Act { caller: caller.clone(), job, index: None, action: JobAction::Cancel };
        head.engine.post(command, Vec::new()).await;
    }
    // Waits until the engine has handled all cancellations, which are in its queue.
    let _ = head.engine.settled().await;
    while is_anything_ending(&head.engine.state()) {
        // Any notice is a reason to check again.
        if timeout_at(deadline, notices.recv()).await.is_err() {
            let left = head.engine.state().jobs().count();
            tracing::warn!(left, "jobs did not end within the timeout; stopping anyway");
            return;
        }
    }
}

/// Whether a live task runs on a connected node. Only such a node can report the end of a task.
fn is_anything_ending(state: &Cluster) -> bool {
    let on_connected_node = |job: &Arc<Job>| {
        let mut nodes = job.active.values().flat_map(Active::nodes);
        nodes.any(|name| state.node(name).is_some_and(|node| node.link.is_some()))
    };
    state.jobs().any(on_connected_node)
}

//! Waits for changes of a job.

use std::sync::Arc;
use std::time::Duration;

use hostler_core::head::Job;
use hostler_model::JobId;
use hostler_proto::api::Notice;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use crate::head::Head;

/// Maximum wait for the end of a job in one request. The client then repeats the request.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Waits until `done` returns true for the job (`None` if it has ended or does not exist), until the deadline, or until
/// the head stops. Evaluates `done` again only after a change of the job.
pub(crate) async fn until(head: &Head, id: JobId, deadline: Instant, done: impl Fn(Option<&Job>) -> bool) {
    // Subscribes before the first check, so that no change is missed.
    let mut notices = head.engine.notices();
    loop {
        if done(head.engine.state().job(id).map(Arc::as_ref)) {
            return;
        }
        tokio::select! {
            changed = timeout_at(deadline, next_change(&mut notices, id)) => if changed.is_err() { return },
            () = head.stop.cancelled() => return,
        }
    }
}

/// Waits for a change of the job. Also returns if notices were missed, because the job may have changed.
async fn next_change(notices: &mut Receiver<Notice>, id: JobId) {
    loop {
        match notices.recv().await {
            Ok(Notice::Job { id: changed, .. }) if changed != id => {}
            Ok(Notice::Node { .. }) => {}
            Ok(Notice::Job { .. } | Notice::Missed) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

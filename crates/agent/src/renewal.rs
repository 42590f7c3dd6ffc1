//! Keeping the node's certificate young: after two thirds of its life the agent asks for another, for a new key.
//!
//! The head says in how long that is, at every welcome and with every certificate; the node only counts the time, on its monotonic clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::engine::Node;
use crate::identity::Identity;

/// The first and the longest pause after a renewal that failed. There is a third of a certificate's life to succeed in.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// In how long a renewal is due, as the head last said; never when absent.
pub(crate) type Due = Option<Duration>;

/// Renews the certificate whenever that is due.
pub(crate) async fn keep(node: &Arc<Node>, identity: &Identity, mut due: watch::Receiver<Due>) {
    let mut pause = PAUSES.0;
    let mut wait = *due.borrow_and_update();
    loop {
        tokio::select! {
            () = sleep_for(wait) => {}
            changed = due.changed() => match changed {
                Ok(()) => {
                    wait = *due.borrow_and_update();
                    continue;
                }
                // The link has ended for good, and with it the agent.
                Err(_) => return,
            },
        }
        match identity.renew().await {
            Ok(renew_in_ms) => {
                node.head.renew_connections();
                tracing::info!(renew_in_ms, "the node has a new certificate");
                pause = PAUSES.0;
                wait = Some(Duration::from_millis(renew_in_ms).max(PAUSES.0));
            }
            Err(error) => {
                tracing::warn!(again_in = ?pause, "cannot renew the node's certificate: {error:#}");
                wait = Some(pause);
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

async fn sleep_for(wait: Due) {
    match wait {
        Some(wait) => sleep(wait).await,
        None => std::future::pending().await,
    }
}

//! Certificate renewal: after two thirds of the certificate's life, the agent requests a new one for a new key.
//!
//! The head sends the remaining time with every welcome and every certificate. The node measures it on its monotonic
//! clock.

use std::time::Duration;

use hostler_client::Client;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::link::identity::Identity;

/// First and longest delay after a failed renewal. When renewal begins, a third of the certificate's life is left for
/// retries.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// Time until the renewal, from the head; `None` for never.
pub(crate) type Due = Option<Duration>;

pub(crate) async fn keep(head: &Client, identity: &Identity, mut due: watch::Receiver<Due>) {
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
                // The link, and thus the agent, has ended.
                Err(_) => return,
            },
        }
        match identity.renew().await {
            Ok(renew_in_ms) => {
                head.renew_connections();
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

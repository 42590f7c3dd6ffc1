//! When a run should have ended, and the end of a run whose program does not start.
//!
//! A shepherd enforces the end of its run. It cannot do so while it waits for the start of the program, which takes for ever
//! on a file system that never answers. Then the agent kills the shepherd and writes the exit record in its place.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hostler_shepherd::{Cause, end_unstarted};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::runs::directory::RunDirectory;
use crate::runs::leaves::Leaves;

/// How long a shepherd may take to end its run before the agent checks whether the program has started, and the delay
/// between two checks.
const PATIENCE: Duration = Duration::from_secs(2);

/// When a run should end.
pub(crate) struct Ending {
    /// Whether an order to end the run has arrived.
    pub(crate) is_ordered: Arc<AtomicBool>,
    due: watch::Sender<Due>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Due {
    /// When the order to end the run arrived.
    ordered: Option<Instant>,
    /// Start of the time that the limit counts.
    begun: Option<Instant>,
    limit: Option<Duration>,
}

impl Due {
    /// The first time at which the run should end, and why.
    fn first(&self) -> Option<(Instant, Cause)> {
        let limit = self.begun.and_then(|begun| begun.checked_add(self.limit?));
        let all = [self.ordered.map(|at| (at, Cause::Cancelled)), limit.map(|at| (at, Cause::TimeLimit))];
        all.into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

impl Ending {
    pub(crate) fn new() -> Self {
        Self { is_ordered: Arc::default(), due: watch::Sender::new(Due::default()) }
    }

    /// Orders the end of the run.
    pub(crate) fn order(&self) {
        self.is_ordered.store(true, Ordering::Relaxed);
        self.due.send_modify(|due| {
            due.ordered.get_or_insert_with(Instant::now);
        });
    }

    /// The time limit begins to count, with `spent` as the time that has already passed.
    pub(crate) fn begin(&self, spent: Duration, limit: Option<Duration>) {
        self.due.send_modify(|due| (due.begun, due.limit) = (Instant::now().checked_sub(spent), limit));
    }

    pub(crate) fn change_limit(&self, limit: Option<Duration>) {
        self.due.send_modify(|due| due.limit = limit);
    }

    /// Waits until the run should have ended for [`PATIENCE`]. Returns why it should have ended.
    async fn overdue(&self) -> Cause {
        let mut changes = self.due.subscribe();
        loop {
            let first = changes.borrow_and_update().first();
            let passed = async {
                match first {
                    Some((at, cause)) => {
                        sleep_until(at + PATIENCE).await;
                        cause
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                cause = passed => return cause,
                _ = changes.changed() => {}
            }
        }
    }
}

/// Waits for `done`, which depends on a shepherd. If the run should have ended meanwhile but its program has not started,
/// ends the run and returns `None`; the journal then has the exit record. `done` would see the end of the shepherd late,
/// since the process that waits for the file system holds the shepherd's connections too.
pub(crate) async fn or_end<T>(
    leaves: &Arc<Leaves>,
    directory: &RunDirectory,
    ending: &Ending,
    done: impl Future<Output = T>,
) -> Option<T> {
    let mut done = pin!(done);
    loop {
        let cause = tokio::select! {
            biased;
            result = &mut done => return Some(result),
            cause = ending.overdue() => cause,
        };
        // `done` waits meanwhile, so that it does not hand another run to the shepherd.
        if end(leaves, directory, cause).await {
            return None;
        }
        if let Ok(result) = timeout(PATIENCE, &mut done).await {
            return Some(result);
        }
    }
}

/// Ends a run if its program has not started. Returns whether it has done so.
async fn end(leaves: &Arc<Leaves>, directory: &RunDirectory, cause: Cause) -> bool {
    let path = directory.path().to_owned();
    let ended = tokio::task::spawn_blocking(move || end_unstarted(&path, cause)).await;
    let path = directory.path().display();
    match ended.map_err(anyhow::Error::from).and_then(|ended| Ok(ended?)) {
        Ok(Some(record)) => {
            tracing::warn!(%path, "ended a run whose program did not start, because a file system does not answer");
            let leaves = Arc::clone(leaves);
            // In the background, since a process that cannot be killed would delay the report of the end.
            tokio::task::spawn_blocking(move || leaves.end_processes(Some(&record)));
            true
        }
        Ok(None) => false,
        Err(error) => {
            tracing::warn!(%path, %error, "cannot end a run whose program does not start; retrying");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn due(ending: &Ending) -> Option<(Instant, Cause)> {
        ending.due.borrow().first()
    }

    #[test]
    fn run_is_due_at_its_time_limit_or_at_the_first_order_to_end() {
        let ending = Ending::new();
        assert_eq!(due(&ending), None);
        let began = Instant::now();
        ending.begin(SECOND, Some(100 * SECOND));
        let (at, cause) = due(&ending).expect("it has a limit");
        assert_eq!(cause, Cause::TimeLimit);
        assert!(at >= began + 99 * SECOND && at <= Instant::now() + 99 * SECOND, "the time that was spent counts");

        ending.order();
        let first = due(&ending).expect("it was ordered to end");
        assert_eq!(first.1, Cause::Cancelled);
        ending.order();
        assert_eq!(due(&ending), Some(first), "a second order does not delay the end");
        assert!(ending.is_ordered.load(Ordering::Relaxed));
    }

    #[test]
    fn changed_time_limit_counts_from_the_start() {
        let ending = Ending::new();
        ending.begin(10 * SECOND, Some(20 * SECOND));
        ending.change_limit(None);
        assert_eq!(due(&ending), None);
        ending.change_limit(Some(5 * SECOND));
        assert!(due(&ending).expect("it has a limit").0 < Instant::now(), "the new limit has already passed");
    }
}

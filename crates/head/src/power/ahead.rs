//! While a machine boots, what it will ask for first is brought into the head's memory: the folders of the jobs that wait.
//!
//! All of a job's chunks are on the head before it is accepted, but perhaps on a slow disk, and cold since they came. Environments cannot be
//! begun: they are built on the machine itself.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hostler_model::{Digest, Work};

use crate::head::Head;

/// So much is read ahead at a time, in bytes: old laptops have not much memory.
const MOST: u64 = 512 << 20;

/// So many of the jobs that wait are looked at, in the order of the queue.
const JOBS: usize = 64;

/// Machines that are switched on together want the same.
const AGAIN: Duration = Duration::from_secs(20);

/// When it was done last.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<Option<Instant>>);

impl Ahead {
    /// Begins to read, beside everything else.
    pub(super) fn read(&self, head: &Arc<Head>) {
        let now = Instant::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now.duration_since(last) < AGAIN) {
            return;
        }
        *last = Some(now);
        let head = Arc::clone(head);
        tokio::task::spawn_blocking(move || {
            let bytes = read(&head);
            tracing::debug!(bytes, "reading ahead what waits for a machine that boots");
        });
    }
}

/// How much was asked for.
fn read(head: &Head) -> u64 {
    let state = head.engine.state();
    let (mut bytes, mut seen) = (0, HashSet::new());
    for job in state.queue().take(JOBS) {
        if let Work::Project { snapshot, .. } = &job.spec.work
            && seen.insert(*snapshot)
        {
            bytes += ahead_of(head, snapshot, MOST.saturating_sub(bytes));
        }
    }
    bytes
}

fn ahead_of(head: &Head, snapshot: &Digest, most: u64) -> u64 {
    // One that cannot be read is somebody else's to report: the job's launch.
    head.library.read_ahead(snapshot, most).unwrap_or_default()
}

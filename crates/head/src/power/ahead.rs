//! Read-ahead for booting machines: loads the folders of waiting jobs into the page cache.
//!
//! All chunks of a job are on the head before it accepts the job, but they may be on a slow disk and not cached.
//! Environments cannot be prepared, because the machine itself builds them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hostler_model::Work;

use crate::blobs::Library;
use crate::engine::Engine;

/// Maximum number of bytes per read-ahead, because some heads have little memory.
const MOST: u64 = 512 << 20;

/// Maximum number of waiting jobs whose folders are read ahead, in queue order.
const JOBS: usize = 64;

/// Minimum time between two read-aheads. Machines that are switched on together need the same data.
const AGAIN: Duration = Duration::from_secs(20);

/// Time of the last read-ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<Option<Instant>>);

impl Ahead {
    /// Starts a read-ahead in the background.
    pub(super) fn read(&self, engine: &Engine, library: &Arc<Library>) {
        let now = Instant::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now.duration_since(last) < AGAIN) {
            return;
        }
        *last = Some(now);
        let (engine, library) = (engine.clone(), Arc::clone(library));
        tokio::task::spawn_blocking(move || {
            let bytes = read(&engine, &library);
            tracing::debug!(bytes, "prefetched folders of waiting jobs for a booting machine");
        });
    }
}

/// Reads the folders of waiting jobs ahead. Returns the number of bytes that the kernel was asked to read.
fn read(engine: &Engine, library: &Library) -> u64 {
    let state = engine.state();
    let (mut bytes, mut seen) = (0, HashSet::new());
    for job in state.queue().take(JOBS) {
        if let Work::Project { snapshot, .. } = &job.spec.work
            && seen.insert(*snapshot)
        {
            // A read error is reported by the job's launch.
            bytes += library.read_ahead(snapshot, MOST.saturating_sub(bytes)).unwrap_or_default();
        }
    }
    bytes
}

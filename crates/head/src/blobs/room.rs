//! Disk usage of results: its limit, and the results to drop when they exceed it.
//!
//! The limit applies to content: each chunk of a kept result once, uncompressed, plus the manifests. Usage on disk is
//! usually lower. Captured folders do not count, because they are deleted with their jobs.
//!
//! Above the limit, downloaded results are dropped, starting with the job that ended first. Results without a download
//! stay until their retention time ends. They cause only a warning.
//!
//! The following collection deletes dropped results from disk, except chunks that a client asked for within the last
//! hour.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hostler_core::head::Command;
use hostler_model::{Digest, format_bytes};
use hostler_proto::record::TaskResult;
use tokio::sync::Notify;

use super::marks::Marks;
use super::{Library, LibraryError};
use crate::archive;
use crate::engine::Engine;

/// The usage is measured again when new results take at least the limit divided by this number.
const WORTH_PART: u64 = 32;

/// Number of jobs that are looked up at a time to drop their results.
const FIRST_TO_GO: usize = 100;

/// Measured disk usage of results.
#[derive(Debug)]
pub(crate) struct Room {
    cap_bytes: AtomicU64,
    /// Disk usage of results at the last measurement, in bytes.
    kept_bytes: AtomicU64,
    is_measured: AtomicBool,
    /// Size of results that arrived since the last measurement.
    come_bytes: AtomicU64,
    /// Notified when a new measurement is due.
    wanted: Notify,
}

impl Room {
    pub(super) fn new(cap_bytes: u64) -> Self {
        Self {
            cap_bytes: AtomicU64::new(cap_bytes),
            kept_bytes: AtomicU64::new(0),
            is_measured: AtomicBool::new(false),
            come_bytes: AtomicU64::new(0),
            wanted: Notify::new(),
        }
    }

    /// Records that a result was stored.
    pub(crate) fn came(&self, bytes: u64) {
        let come = self.come_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_worth_it = come >= self.cap_bytes() / WORTH_PART;
        if is_worth_it && self.kept_bytes.load(Ordering::Relaxed) + come > self.cap_bytes() {
            self.wanted.notify_one();
        }
    }

    /// Records that a client has downloaded results, so they may be dropped.
    pub(crate) fn fetched(&self) {
        if self.is_over() {
            self.wanted.notify_one();
        }
    }

    /// Waits until a collection is due because of the usage.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    fn is_over(&self) -> bool {
        self.kept_bytes.load(Ordering::Relaxed) > self.cap_bytes()
    }

    fn begin(&self) {
        self.come_bytes.store(0, Ordering::Relaxed);
    }

    fn measured(&self, bytes: u64) {
        self.kept_bytes.store(bytes, Ordering::Relaxed);
        self.is_measured.store(true, Ordering::Relaxed);
    }

    /// The limit for all results, in bytes.
    pub(crate) fn cap_bytes(&self) -> u64 {
        self.cap_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cap(&self, cap_bytes: u64) {
        self.cap_bytes.store(cap_bytes, Ordering::Relaxed);
        self.fetched();
    }

    /// Usage at the last measurement, in bytes.
    pub(crate) fn kept_bytes(&self) -> Option<u64> {
        self.is_measured.load(Ordering::Relaxed).then(|| self.kept_bytes.load(Ordering::Relaxed))
    }

    /// A warning for users if results exceed the limit.
    pub(crate) fn warning(&self) -> Option<String> {
        self.is_over().then(|| {
            format!(
                "results that were not fetched take {}, more than the limit of {}; they stay until their retention time ends: \
                 fetch them, or raise the setting `results-cap`",
                format_bytes(self.kept_bytes.load(Ordering::Relaxed)),
                format_bytes(self.cap_bytes())
            )
        })
    }
}

impl Library {
    /// Measures the usage of results, and drops downloaded results until the usage is below the limit. `tell` makes the
    /// head execute a command, and returns whether the command is durable.
    ///
    /// # Errors
    /// The disk fails.
    pub(super) fn make_room(&self, engine: &Engine, tell: &impl Fn(Command) -> bool) -> Result<(), LibraryError> {
        self.room.begin();
        // After the reply to a tick, the history contains all results recorded so far.
        if !tell(Command::Tick) {
            return Ok(());
        }
        let mut kept = self.measure(engine)?;
        if kept > self.room.cap_bytes() {
            kept = self.drop_fetched(engine, tell)?;
        }
        self.room.measured(kept);
        if let Some(warning) = self.room.warning() {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    /// Measures the total size of all kept results.
    fn measure(&self, engine: &Engine) -> Result<u64, LibraryError> {
        let mut kept = 0;
        let mut seen = Marks::new(self.turns.load(Ordering::Relaxed));
        self.each_kept_result(engine, &mut |result| {
            for (digest, bytes) in self.chunks_of(&result) {
                kept += if seen.insert(&digest) { bytes } else { 0 };
            }
            Ok(())
        })?;
        Ok(kept)
    }

    /// Drops downloaded results, starting with the job that ended first, until the size of the remaining results is
    /// below the limit. Returns this size. Counts the uses of each chunk, in memory that grows with the number of kept
    /// chunks.
    fn drop_fetched(&self, engine: &Engine, tell: &impl Fn(Command) -> bool) -> Result<u64, LibraryError> {
        let mut uses: HashMap<u64, (u64, u32)> = HashMap::new();
        self.each_kept_result(engine, &mut |result| {
            for (digest, bytes) in self.chunks_of(&result) {
                uses.entry(start_of(&digest)).or_insert((bytes, 0)).1 += 1;
            }
            Ok(())
        })?;
        let mut kept: u64 = uses.values().map(|(bytes, _)| bytes).sum();
        let mut tried = HashSet::new();
        while kept > self.room.cap_bytes() {
            // Jobs whose results were dropped do not appear again.
            let page = self.table.jobs_with_fetched_results(FIRST_TO_GO + tried.len())?;
            let jobs = page.iter().filter_map(|bytes| archive::read(bytes).ok());
            let mut jobs = jobs.filter(|job| tried.insert(job.id)).peekable();
            if jobs.peek().is_none() {
                break;
            }
            for job in jobs {
                if kept <= self.room.cap_bytes() {
                    break;
                }
                let indices = job.fetched_results();
                if !tell(Command::DropResults { job: job.id, indices: indices.clone() }) {
                    return Ok(kept);
                }
                let results = self.table.results_of(&[job.id])?;
                let dropped = results.iter().filter(|result| indices.contains(result.task.index));
                let chunks: Vec<(Digest, u64)> = dropped.flat_map(|result| self.chunks_of(result)).collect();
                let freed: u64 = chunks.iter().map(|(digest, _)| let_go(&mut uses, start_of(digest))).sum();
                kept -= freed;
                tracing::info!(
                    job = %job.id, tasks = indices.len(), bytes = freed,
                    "dropped downloaded results to free disk space"
                );
            }
        }
        Ok(kept)
    }

    /// The chunks of a result with their sizes, including its manifest. Empty if the manifest cannot be read.
    fn chunks_of(&self, result: &TaskResult) -> HashMap<Digest, u64> {
        let manifest = result.manifest;
        let Ok(bytes) = self.get(&manifest) else { return HashMap::new() };
        let Ok(anything) = Self::read(&manifest, &bytes) else { return HashMap::new() };
        let own = (manifest, bytes.len() as u64);
        anything.chunks().map(|chunk| (chunk.digest, u64::from(chunk.len))).chain([own]).collect()
    }
}

/// A short key for a digest, to save memory with millions of digests.
fn start_of(digest: &Digest) -> u64 {
    u64::from_le_bytes(*digest.0.first_chunk().expect("a digest has 32 bytes"))
}

/// Removes one use of a chunk. Returns the bytes that this frees.
fn let_go(uses: &mut HashMap<u64, (u64, u32)>, chunk: u64) -> u64 {
    let Some((bytes, count)) = uses.get_mut(&chunk) else { return 0 };
    *count -= 1;
    if *count == 0 { *bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurement_is_requested_after_enough_new_results() {
        let is_wanted = |room: &Room| {
            use futures_util::FutureExt;
            room.wanted().now_or_never().is_some()
        };
        let room = Room::new(3_200);
        room.came(3_200);
        assert!(!is_wanted(&room), "no measurement is needed within the limit");
        room.came(1);
        assert!(is_wanted(&room));
        room.begin();
        room.measured(4_000);
        assert!(room.warning().is_some_and(|text| text.contains("not fetched")));
        room.came(99);
        assert!(!is_wanted(&room), "no measurement is needed after few new results");
        room.came(1);
        assert!(is_wanted(&room));
        room.fetched();
        assert!(is_wanted(&room), "downloaded results may be dropped");
        room.measured(3_200);
        room.fetched();
        assert!(!is_wanted(&room) && room.warning().is_none());
    }

    #[test]
    fn shared_chunk_is_freed_with_its_last_use() {
        let mut uses = HashMap::from([(1, (10, 2))]);
        assert_eq!((let_go(&mut uses, 1), let_go(&mut uses, 1)), (0, 10));
    }
}

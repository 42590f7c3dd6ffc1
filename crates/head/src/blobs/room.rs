//! Room for results: what they take, what they may take, and which go first when that is too much.
//!
//! The cap is on content: every chunk of a kept result once, uncompressed, and its manifest. On disk it is usually less. What a
//! project folder takes is not counted, since it goes with its jobs.
//!
//! Above the cap, results that have been fetched go, those of the job that ended first before others. Results that nobody has fetched
//! stay until their retention ends, whatever they take: then there is only a warning. What is dropped leaves the disk with the
//! collection that follows, except for chunks that somebody asked for within the last hour.

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

/// What must have come since the last measurement to make another one worth while: this part of the cap.
const WORTH_PART: u64 = 32;

/// Jobs whose results are dropped before the next ones are looked for.
const FIRST_TO_GO: usize = 100;

/// What is known of the room that results take.
#[derive(Debug)]
pub(crate) struct Room {
    cap_bytes: AtomicU64,
    /// What they took when that was last measured.
    kept_bytes: AtomicU64,
    is_measured: AtomicBool,
    /// What has come since.
    come_bytes: AtomicU64,
    /// Somebody should measure again.
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

    /// A result of so many bytes has come, and the engine knows.
    pub(crate) fn came(&self, bytes: u64) {
        let come = self.come_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_worth_it = come >= self.cap_bytes() / WORTH_PART;
        if is_worth_it && self.kept_bytes.load(Ordering::Relaxed) + come > self.cap_bytes() {
            self.wanted.notify_one();
        }
    }

    /// Results have reached a client, so that they may go.
    pub(crate) fn fetched(&self) {
        if self.is_over() {
            self.wanted.notify_one();
        }
    }

    /// Waits until a collection is due because of what results take.
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

    /// The most that results should take, in bytes.
    pub(crate) fn cap_bytes(&self) -> u64 {
        self.cap_bytes.load(Ordering::Relaxed)
    }

    /// From now on they should take at most so many bytes.
    pub(crate) fn set_cap(&self, cap_bytes: u64) {
        self.cap_bytes.store(cap_bytes, Ordering::Relaxed);
        self.fetched();
    }

    /// What they took when that was last measured, in bytes.
    pub(crate) fn kept_bytes(&self) -> Option<u64> {
        self.is_measured.load(Ordering::Relaxed).then(|| self.kept_bytes.load(Ordering::Relaxed))
    }

    /// Why they take more than they should, if they do: words for users.
    pub(crate) fn warning(&self) -> Option<String> {
        self.is_over().then(|| {
            format!(
                "results that nobody has fetched take {}, and {} is set aside for results; none is dropped before its retention ends: \
                 fetch them",
                format_bytes(self.kept_bytes.load(Ordering::Relaxed)),
                format_bytes(self.cap_bytes())
            )
        })
    }
}

impl Library {
    /// Measures what results take and drops fetched ones until that is no more than the cap, or none is left to drop. `tell` has the
    /// head carry a command out and says whether that is durable.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn make_room(&self, engine: &Engine, tell: &impl Fn(Command) -> bool) -> Result<(), LibraryError> {
        self.room.begin();
        // Whatever was said to have come by now is in the history behind this.
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

    /// What all results that are kept take together.
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

    /// Drops fetched results, those of the job first that ended first, until the others take no more than the cap; says what they take.
    /// That needs to know how many results use each chunk, in memory that grows with what is kept.
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
            // One whose results were dropped is not among them any more.
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
                    "dropped results that were fetched, to make room"
                );
            }
        }
        Ok(kept)
    }

    /// The chunks that a result names, its manifest included, and their sizes. One that cannot be read takes no room worth counting.
    fn chunks_of(&self, result: &TaskResult) -> HashMap<Digest, u64> {
        let manifest = result.manifest;
        let Ok(bytes) = self.get(&manifest) else { return HashMap::new() };
        let Ok(anything) = Self::read(&manifest, &bytes) else { return HashMap::new() };
        let own = (manifest, bytes.len() as u64);
        anything.chunks().map(|chunk| (chunk.digest, u64::from(chunk.len))).chain([own]).collect()
    }
}

/// What stands for a digest where there may be millions.
fn start_of(digest: &Digest) -> u64 {
    u64::from_le_bytes(*digest.0.first_chunk().expect("a digest has 32 bytes"))
}

/// One result less uses a chunk; says how many bytes that frees.
fn let_go(uses: &mut HashMap<u64, (u64, u32)>, chunk: u64) -> u64 {
    let Some((bytes, count)) = uses.get_mut(&chunk) else { return 0 };
    *count -= 1;
    if *count == 0 { *bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_wanted_when_it_is_worth_while() {
        let is_wanted = |room: &Room| {
            use futures_util::FutureExt;
            room.wanted().now_or_never().is_some()
        };
        let room = Room::new(3_200);
        room.came(3_200);
        assert!(!is_wanted(&room), "that is still within the cap");
        room.came(1);
        assert!(is_wanted(&room));
        room.begin();
        room.measured(4_000);
        assert!(room.warning().is_some_and(|text| text.contains("nobody has fetched")));
        room.came(99);
        assert!(!is_wanted(&room), "too little has come since");
        room.came(1);
        assert!(is_wanted(&room));
        room.fetched();
        assert!(is_wanted(&room), "what was fetched may go");
        room.measured(3_200);
        room.fetched();
        assert!(!is_wanted(&room) && room.warning().is_none());
    }

    #[test]
    fn a_shared_chunk_is_free_only_with_its_last_use() {
        let mut uses = HashMap::from([(1, (10, 2))]);
        assert_eq!((let_go(&mut uses, 1), let_go(&mut uses, 1)), (0, 10));
    }
}

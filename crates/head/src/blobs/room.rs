//! Room for results: what they take, what they may take, and which go first when that is too much.
//!
//! The cap is on content: every chunk of a kept result once, uncompressed, and its manifest. On disk it is usually less. What a
//! project folder takes is not counted, since it goes with its jobs.
//!
//! Above the cap, results that have been fetched go, those of the job that ended first before others. Results that nobody has fetched
//! stay until their retention ends, whatever they take: then there is only a warning. What is dropped leaves the disk with the
//! collection that follows, except for chunks that somebody asked for within the last hour.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hostler_core::head::Command;
use hostler_model::{Digest, IndexSet, JobId, TaskId, format_bytes};
use hostler_proto::record::TaskResult;
use tokio::sync::Notify;

use super::{Library, LibraryError};
use crate::engine::Engine;

/// What must have come since the last measurement to make another one worth while: this part of the cap.
const WORTH_PART: u64 = 32;

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

/// A result and the chunks that it names, its manifest included.
struct Measured {
    task: TaskId,
    chunks: Vec<(Digest, u64)>,
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
        let results = self.measure(engine)?;
        let mut uses: HashMap<Digest, (u64, u32)> = HashMap::new();
        for (digest, bytes) in results.iter().flat_map(|result| &result.chunks) {
            uses.entry(*digest).or_insert((*bytes, 0)).1 += 1;
        }
        let mut kept: u64 = uses.values().map(|(bytes, _)| bytes).sum();
        if kept > self.room.cap_bytes() {
            let by_task: HashMap<TaskId, &Measured> = results.iter().map(|result| (result.task, result)).collect();
            let fetched: Vec<(JobId, IndexSet)> =
                engine.state().fetched_jobs().map(|job| (job.id, job.fetched_results())).collect();
            for (job, indices) in fetched {
                if kept <= self.room.cap_bytes() {
                    break;
                }
                if indices.is_empty() || !tell(Command::DropResults { job, indices: indices.clone() }) {
                    continue;
                }
                let dropped = indices.iter().filter_map(|index| by_task.get(&TaskId { job, index }));
                let freed: u64 = dropped.flat_map(|result| &result.chunks).map(|chunk| let_go(&mut uses, chunk)).sum();
                kept -= freed;
                tracing::info!(%job, tasks = indices.len(), bytes = freed, "dropped results that were fetched, to make room");
            }
        }
        self.room.measured(kept);
        if let Some(warning) = self.room.warning() {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    /// Every result that is kept and what it names. One that cannot be read takes no room worth counting.
    fn measure(&self, engine: &Engine) -> Result<Vec<Measured>, LibraryError> {
        let mut measured = Vec::new();
        for TaskResult { task, manifest, .. } in self.kept_results(engine)? {
            let Ok(bytes) = self.get(&manifest) else { continue };
            let Ok(anything) = Self::read(&manifest, &bytes) else { continue };
            let own = (manifest, bytes.len() as u64);
            let mut chunks: HashMap<Digest, u64> =
                anything.chunks().map(|chunk| (chunk.digest, u64::from(chunk.len))).collect();
            chunks.extend([own]);
            measured.push(Measured { task, chunks: chunks.into_iter().collect() });
        }
        Ok(measured)
    }
}

/// One result less uses a chunk; says how many bytes that frees.
fn let_go(uses: &mut HashMap<Digest, (u64, u32)>, (digest, _): &(Digest, u64)) -> u64 {
    let Some((bytes, count)) = uses.get_mut(digest) else { return 0 };
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
        let chunk = (Digest([1; 32]), 10);
        let mut uses = HashMap::from([(chunk.0, (10, 2))]);
        assert_eq!((let_go(&mut uses, &chunk), let_go(&mut uses, &chunk)), (0, 10));
    }
}

//! The head's disk: the daemon's store in memory, and the chunk files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use hostler_core::head::{EndedJobs, Job, Settings, State, SubmissionKey, read_ended_job};
use hostler_model::{Digest, JobId, RunId, TaskId, Timestamp};
use hostler_proto::stored::{Batch, Change};
use hostler_store::{Fault, MemoryStore, Records, Store};

#[derive(Debug, Default)]
pub(super) struct Disk {
    /// The log, the history and small blobs.
    pub(super) store: MemoryStore,
    /// Uploaded chunks.
    files: BTreeMap<Digest, ChunkFile>,
    /// When a blob was last uploaded or requested, in a file or in the store.
    touched_us: BTreeMap<Digest, u64>,
}

/// A chunk file.
#[derive(Debug)]
struct ChunkFile {
    bytes: Bytes,
    /// Whether the file is synced, so that it survives a crash of the machine.
    is_synced: bool,
}

impl Disk {
    /// Whether every write fails.
    pub(super) fn is_full(&self) -> bool {
        self.store.fault() == Some(Fault::DiskFull)
    }

    /// Marks the blobs of a stored batch as just uploaded.
    pub(super) fn note_blobs(&mut self, batch: &Batch, now_us: u64) {
        for change in &batch.changes {
            if let Change::PutBlob(name, _) = change {
                self.touched_us.insert(*name, now_us);
            }
        }
    }

    /// Stores an uploaded chunk.
    pub(super) fn upload(&mut self, name: Digest, bytes: Vec<u8>, now_us: u64) {
        self.files.insert(name, ChunkFile { bytes: bytes.into(), is_synced: false });
        self.touched_us.insert(name, now_us);
    }

    /// Drops unsynced data after a power failure.
    pub(super) fn lose_unsynced(&mut self) {
        self.files.retain(|_, file| file.is_synced);
    }

    fn in_store(&self, name: &Digest) -> Option<Bytes> {
        self.store.blob(name).expect("the memory store can always be read")
    }

    fn blob(&self, name: &Digest) -> Option<Bytes> {
        self.files.get(name).map(|file| file.bytes.clone()).or_else(|| self.in_store(name))
    }

    /// Every job that has ended.
    pub(super) fn jobs(&self) -> BTreeMap<JobId, Arc<Job>> {
        let read = |bytes: &[u8]| read_ended_job(bytes).expect("every stored job can be decoded");
        self.store.jobs().into_iter().map(|job| (job.id, read(&job.bytes))).collect()
    }

    /// Returns the digests in `names` without a blob. Marks the blobs that exist as just requested.
    pub(super) fn missing(&mut self, names: &[Digest], now_us: u64) -> Vec<Digest> {
        let mut missing = Vec::new();
        for name in names {
            if self.files.contains_key(name) || self.in_store(name).is_some() {
                self.touched_us.insert(*name, now_us);
            } else {
                missing.push(*name);
            }
        }
        missing
    }

    /// Whether the disk, together with the `inline` blobs, has a result and all its chunks. If so, syncs these chunks.
    pub(super) fn is_complete(&mut self, manifest: &Digest, inline: &[(Digest, Vec<u8>)], now_us: u64) -> bool {
        let along =
            |name: &Digest| inline.iter().find(|(digest, _)| digest == name).map(|(_, bytes)| bytes.clone().into());
        let bytes: Option<Bytes> = along(manifest).or_else(|| self.blob(manifest));
        let Some(mut names) = bytes.as_deref().and_then(content::chunks_of_manifest) else { return false };
        names.push(*manifest);
        names.retain(|name| along(name).is_none());
        if !self.missing(&names, now_us).is_empty() {
            return false;
        }
        for name in &names {
            if let Some(file) = self.files.get_mut(name) {
                file.is_synced = true;
            }
        }
        true
    }

    /// Whether a result is durable on the disk.
    pub(super) fn holds_result(&self, manifest: &Digest) -> bool {
        let durable =
            |name: &Digest| self.files.get(name).is_some_and(|file| file.is_synced) || self.in_store(name).is_some();
        let names = self.blob(manifest).and_then(|bytes| content::chunks_of_manifest(&bytes));
        durable(manifest) && names.is_some_and(|names| names.iter().all(durable))
    }

    /// Removes blobs that no result refers to and that were not touched since `before_us`; returns their number.
    /// `early` are results that have no history row yet.
    pub(super) fn sweep(&mut self, before_us: u64, early: Vec<Digest>, is_kept: impl Fn(TaskId) -> bool) -> usize {
        let mut live: BTreeSet<Digest> = BTreeSet::new();
        let rows = self.store.rows();
        let kept = rows.iter().filter(|row| is_kept(TaskId { job: row.job, index: row.index }));
        for manifest in kept.flat_map(|row| row.results()).map(|result| result.manifest).chain(early) {
            live.insert(manifest);
            live.extend(self.blob(&manifest).and_then(|bytes| content::chunks_of_manifest(&bytes)).unwrap_or_default());
        }
        let touched = &self.touched_us;
        let stays = |name: &Digest| live.contains(name) || touched.get(name).is_some_and(|at| *at >= before_us);
        let before = self.files.len();
        self.files.retain(|name, _| stays(name));
        let gone = before - self.files.len();
        let mut dropped = self.store.blobs_after(None, usize::MAX).expect("the memory store can always be read");
        dropped.retain(|name| !stays(name));
        let count = dropped.len();
        let batch = Batch::of_changes(dropped.into_iter().map(Change::DropBlob).collect());
        // If the write fails, the next sweep drops these blobs.
        let is_stored = self.store.commit(&batch).is_ok();
        gone + if is_stored { count } else { 0 }
    }
}

/// The error of a failed read.
#[derive(Debug, thiserror::Error)]
#[error("the disk cannot be read")]
pub(super) struct Unreadable;

impl Disk {
    fn check(&self) -> Result<&MemoryStore, Unreadable> {
        if self.store.fault() == Some(Fault::Io) { Err(Unreadable) } else { Ok(&self.store) }
    }
}

impl EndedJobs for Disk {
    type Error = Unreadable;

    fn job(&self, id: JobId) -> Result<Option<Arc<Job>>, Unreadable> {
        let bytes = self.check()?.ended_job(id).map_err(|_| Unreadable)?;
        Ok(bytes.map(|bytes| read_ended_job(&bytes).expect("every stored job can be decoded")))
    }

    fn job_of_key(&self, key: SubmissionKey) -> Result<Option<JobId>, Unreadable> {
        self.check()?.job_of_key(key.0).map_err(|_| Unreadable)
    }

    fn first_ended(&self, awaiting: bool, limit: usize) -> Result<Vec<(JobId, Timestamp)>, Unreadable> {
        self.check()?.first_ended(awaiting, limit).map_err(|_| Unreadable)
    }
}

/// The initial state of a head.
pub(super) fn empty_state(settings: &Settings) -> State {
    let mut state = State::default();
    state.settings = settings.clone();
    state
}

/// The content of results in the simulation.
pub(super) mod content {
    use super::{Digest, RunId};
    use crate::cluster::rng::mix;

    /// Beginning of a manifest, which lists other blobs.
    const MARK: &[u8] = b"result:";

    /// The digest of some bytes.
    pub(in crate::cluster) fn name_of(bytes: &[u8]) -> Digest {
        let mut name = [0; 32];
        for (lane, word) in name.chunks_exact_mut(8).enumerate() {
            let hash = bytes.iter().fold(lane as u64 + 1, |hash, byte| mix(hash ^ u64::from(*byte)).wrapping_add(1));
            word.copy_from_slice(&hash.to_le_bytes());
        }
        Digest(name)
    }

    /// The output of a run: its manifest first, then the chunks. Runs share chunks, as real output does.
    pub(in crate::cluster) fn left_by(run: RunId) -> Vec<Vec<u8>> {
        let chance = mix(run.task.job.0 ^ u64::from(run.task.index) << 20 ^ u64::from(run.attempt.0) << 40);
        let mut chunks: Vec<Vec<u8>> = Vec::new();
        if chance.is_multiple_of(3) {
            chunks.push(b"the same for everybody".to_vec());
        }
        if chance % 4 != 1 {
            chunks.push(format!("output of {run}").into_bytes());
        }
        if chance % 5 > 2 {
            chunks.push(format!("plot of task {}", run.task).into_bytes());
        }
        let mut manifest = MARK.to_vec();
        chunks.iter().for_each(|chunk| manifest.extend(name_of(chunk).0));
        manifest.extend(run.to_string().into_bytes());
        chunks.insert(0, manifest);
        chunks
    }

    /// Whether a result is so large that the agent uploads it before the report.
    pub(in crate::cluster) fn is_large(run: RunId) -> bool {
        mix(run.task.job.0 ^ u64::from(run.task.index) << 8).is_multiple_of(2)
    }

    /// Returns the digests that a manifest lists, or `None` for bytes that are not a manifest.
    pub(in crate::cluster) fn chunks_of_manifest(bytes: &[u8]) -> Option<Vec<Digest>> {
        let rest = bytes.strip_prefix(MARK)?;
        let name = |chunk: &[u8]| Digest(chunk.try_into().expect("each chunk has 32 bytes"));
        // The run's own text follows the digests. It is shorter than a digest, so `chunks_exact` ignores it.
        Some(rest.chunks_exact(32).map(name).collect())
    }
}

//! The head's disk: what survives a crash, and the queue of what is on its way there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;

use hostler_core::head::{Changes, Effect, EndedJobs, Job, Record, Settings, Stamped, State, SubmissionKey, update};
use hostler_model::{Digest, JobId, RunId, TaskId};
use hostler_proto::record::EndedTask;

use super::head::{Answer, ReplyTo};

/// What the head has on its disk.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// The latest snapshot and the number of the last event in it.
    snapshot: Option<(u64, Vec<u8>)>,
    /// The events after it.
    events: VecDeque<Vec<u8>>,
    pub(super) records: BTreeMap<TaskId, EndedTask>,
    /// Jobs that have ended.
    pub(super) jobs: BTreeMap<JobId, Arc<Job>>,
    /// Jobs with an environment that is kept.
    pub(super) environments: BTreeMap<JobId, Digest>,
    pub(super) blobs: BTreeMap<Digest, Blob>,
    /// Nothing can be written.
    pub(super) is_full: bool,
}

/// Content by name.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) bytes: Vec<u8>,
    /// A crash of the machine would not lose it.
    pub(super) is_synced: bool,
    /// When somebody last brought it or asked for it.
    pub(super) touched_us: u64,
}

/// An event that is to be stored, with what follows from it.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) bytes: Vec<u8>,
    pub(super) stamped: Stamped,
    pub(super) records: Vec<Record>,
}

/// A round of the head's loop on its way to the disk.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) first_sequence: u64,
    /// The number of the round.
    pub(super) round: u64,
    pub(super) events: Vec<Logged>,
    pub(super) blobs: Vec<(Digest, Vec<u8>)>,
    pub(super) effects: Vec<Effect>,
    pub(super) replies: Vec<(ReplyTo, Answer)>,
}

/// The thread that writes.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) queue: VecDeque<Order>,
    pub(super) current: Option<Work>,
    /// A batch failed, so those behind it must.
    pub(super) is_stopped: bool,
}

/// Something for the writer.
#[derive(Debug)]
pub(super) enum Order {
    Commit(Batch),
    /// A snapshot with the number of its last event, taken after so many loads.
    Snapshot {
        sequence: u64,
        bytes: Vec<u8>,
        loads: u64,
    },
    Reload,
}

/// What the writer is at.
#[derive(Debug)]
pub(super) enum Work {
    Group(Vec<Batch>),
    Snapshot { sequence: u64, bytes: Vec<u8>, loads: u64 },
    Reload,
}

impl Batch {
    /// Whether other batches depend on it.
    pub(super) fn is_sequenced(&self) -> bool {
        !self.events.is_empty()
    }
}

impl Writer {
    /// The next work: one order, or as many commits as stand together at the front, up to `most`.
    pub(super) fn take(&mut self, most: u64) -> Option<&Work> {
        let work = match self.queue.pop_front()? {
            Order::Snapshot { sequence, bytes, loads } => Work::Snapshot { sequence, bytes, loads },
            Order::Reload => Work::Reload,
            Order::Commit(first) => {
                let mut group = vec![first];
                while (group.len() as u64) < most {
                    match self.queue.pop_front() {
                        Some(Order::Commit(next)) => group.push(next),
                        Some(other) => {
                            self.queue.push_front(other);
                            break;
                        }
                        None => break,
                    }
                }
                Work::Group(group)
            }
        };
        Some(self.current.insert(work))
    }

    /// Whether nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.current.is_none()
    }
}

impl Disk {
    /// The number of the last event stored.
    pub(super) fn last_sequence(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.0) + self.events.len() as u64
    }

    /// Stores a batch.
    ///
    /// # Errors
    /// When its events do not follow on what is stored.
    pub(super) fn commit(&mut self, batch: &Batch, now_us: u64) -> Result<(), String> {
        let expected = self.last_sequence() + 1;
        if batch.is_sequenced() && batch.first_sequence != expected {
            return Err(format!("event {} is stored where {expected} belongs", batch.first_sequence));
        }
        for logged in &batch.events {
            self.events.push_back(logged.bytes.clone());
            logged.records.iter().for_each(|record| self.keep(record));
        }
        for (name, bytes) in &batch.blobs {
            let blob = self.blobs.entry(*name).or_insert_with(|| Blob {
                bytes: bytes.clone(),
                is_synced: true,
                touched_us: 0,
            });
            blob.is_synced = true;
            blob.touched_us = now_us;
        }
        Ok(())
    }

    fn keep(&mut self, record: &Record) {
        match record {
            Record::Ended(task) => {
                self.records.insert(TaskId { job: task.job, index: task.index }, (**task).clone());
            }
            Record::Reopened(task) => {
                self.records.remove(task);
            }
            Record::JobEnded(job) => {
                if job.environment.is_none() {
                    self.environments.remove(&job.id);
                }
                self.jobs.insert(job.id, Arc::clone(job));
            }
            Record::JobReopened(job) => {
                self.jobs.remove(job);
            }
            Record::Environment { job, digest } => {
                self.environments.insert(*job, *digest);
            }
            Record::Forgotten(job) => {
                self.records.retain(|task, _| task.job != *job);
                self.jobs.remove(job);
                self.environments.remove(job);
            }
        }
    }

    /// Replaces the log up to `sequence` by a snapshot; refused when that is not within the log.
    pub(super) fn save_snapshot(&mut self, sequence: u64, bytes: Vec<u8>) -> bool {
        let from = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.0);
        if sequence <= from || sequence > self.last_sequence() {
            return false;
        }
        self.events.drain(..(sequence - from) as usize);
        self.snapshot = Some((sequence, bytes));
        true
    }

    /// The state that is stored, loaded as the head loads it.
    ///
    /// # Errors
    /// When something stored cannot be read.
    pub(super) fn load(&self, settings: &Settings) -> Result<State, String> {
        let mut state = match &self.snapshot {
            Some((_, bytes)) => hostler_proto::decode::<State>(bytes).map_err(|error| error.to_string())?,
            None => empty_state(settings),
        }
        .restored();
        for event in &self.events {
            let event: Stamped = hostler_proto::decode(event).map_err(|error| error.to_string())?;
            update(&mut state, &event, &mut Changes::default());
        }
        Ok(state)
    }

    /// Those of `names` that are not here; the others count as asked for.
    pub(super) fn missing(&mut self, names: &[Digest], now_us: u64) -> Vec<Digest> {
        let mut missing = Vec::new();
        for name in names {
            match self.blobs.get_mut(name) {
                Some(blob) => blob.touched_us = now_us,
                None => missing.push(*name),
            }
        }
        missing
    }

    /// Whether a result and all that it names is here; if so it is synced.
    pub(super) fn is_complete(&mut self, manifest: &Digest, inline: &[(Digest, Vec<u8>)], now_us: u64) -> bool {
        let along = |name: &Digest| inline.iter().find(|(digest, _)| digest == name).map(|(_, bytes)| bytes.clone());
        let bytes = along(manifest).or_else(|| self.blobs.get(manifest).map(|blob| blob.bytes.clone()));
        let Some(mut names) = bytes.as_deref().and_then(content::named_by) else { return false };
        names.push(*manifest);
        names.retain(|name| along(name).is_none());
        if !self.missing(&names, now_us).is_empty() {
            return false;
        }
        self.sync(&names);
        true
    }

    /// Makes blobs durable.
    pub(super) fn sync(&mut self, names: &[Digest]) {
        for name in names {
            if let Some(blob) = self.blobs.get_mut(name) {
                blob.is_synced = true;
            }
        }
    }

    /// Whether a result is on the disk to stay.
    pub(super) fn holds_result(&self, manifest: &Digest) -> bool {
        let durable = |name: &Digest| self.blobs.get(name).is_some_and(|blob| blob.is_synced);
        let names = self.blobs.get(manifest).and_then(|blob| content::named_by(&blob.bytes));
        durable(manifest) && names.is_some_and(|names| names.iter().all(durable))
    }

    /// Removes what no result refers to and nobody has touched since `before_us`; says how much.
    /// `early` are results that no row tells of yet.
    pub(super) fn sweep(&mut self, before_us: u64, early: Vec<Digest>, is_kept: impl Fn(TaskId) -> bool) -> usize {
        let mut live: BTreeSet<Digest> = BTreeSet::new();
        let kept = self.records.iter().filter(|(task, _)| is_kept(**task));
        for manifest in kept.flat_map(|(_, row)| row.results()).map(|result| result.manifest).chain(early) {
            live.insert(manifest);
            live.extend(self.blobs.get(&manifest).and_then(|blob| content::named_by(&blob.bytes)).unwrap_or_default());
        }
        let before = self.blobs.len();
        self.blobs.retain(|name, blob| live.contains(name) || blob.touched_us >= before_us);
        before - self.blobs.len()
    }
}

impl EndedJobs for Disk {
    type Error = Infallible;

    fn job(&self, id: JobId) -> Result<Option<Arc<Job>>, Infallible> {
        Ok(self.jobs.get(&id).cloned())
    }

    fn job_of_key(&self, key: SubmissionKey) -> Result<Option<JobId>, Infallible> {
        Ok(self.jobs.values().find(|job| job.key == key).map(|job| job.id))
    }
}

/// The state of a head that has never run.
pub(super) fn empty_state(settings: &Settings) -> State {
    let mut state = State::default();
    state.settings = settings.clone();
    state
}

/// What results are made of here.
pub(super) mod content {
    use super::{Digest, RunId};
    use crate::cluster::rng::mix;

    /// A blob of this kind names others.
    const MARK: &[u8] = b"result:";

    /// The name of some bytes.
    pub(in crate::cluster) fn name_of(bytes: &[u8]) -> Digest {
        let mut name = [0; 32];
        for (lane, word) in name.chunks_exact_mut(8).enumerate() {
            let hash = bytes.iter().fold(lane as u64 + 1, |hash, byte| mix(hash ^ u64::from(*byte)).wrapping_add(1));
            word.copy_from_slice(&hash.to_le_bytes());
        }
        Digest(name)
    }

    /// What a run leaves behind: its manifest first, then the chunks. Chunks are shared between runs, as real output is.
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

    /// Whether it is so much that it is brought before the report instead of with it.
    pub(in crate::cluster) fn is_large(run: RunId) -> bool {
        mix(run.task.job.0 ^ u64::from(run.task.index) << 8).is_multiple_of(2)
    }

    /// What a manifest names; `None` when the bytes are none.
    pub(in crate::cluster) fn named_by(bytes: &[u8]) -> Option<Vec<Digest>> {
        let rest = bytes.strip_prefix(MARK)?;
        let name = |chunk: &[u8]| Digest(chunk.try_into().expect("chunks of 32"));
        // What follows the names is the run's own, which is shorter than a name.
        Some(rest.chunks_exact(32).map(name).collect())
    }
}

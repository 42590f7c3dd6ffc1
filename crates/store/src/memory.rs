//! A store in memory, for tests and the simulator: the same rules as on disk, plus fault injection.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeInclusive};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hostler_model::{Attempt, Digest, JobId, TaskId, Timestamp, WallTime};
use hostler_proto::accounting::GroupBy;
use hostler_proto::record::{EndedTask, TaskResult};

use crate::accounting::{Collector, MOST_NAMES};
use crate::store::Tail;
use crate::{
    Batch, Change, EndedJob, EndedPage, GroupedSums, History, HistoryFilter, JobFilter, Loaded, MessageKey, Reader,
    Records, Snapshot, Store, StoreError, StoredMessage, Sums, SumsFilter, day_of,
};

/// A store in memory, which ends with the process.
///
/// Clones are handles on the same contents, like two connections to one disk. [`MemoryStore::after_crash`] makes an
/// independent store of the committed data.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Disk>>);

/// A kind of failure that affects all operations until the test removes the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Commits and snapshots fail with [`StoreError::DiskFull`]; nothing is stored.
    DiskFull,
    /// Commits, snapshots and loading fail with [`StoreError::Io`]; nothing is stored.
    Io,
    /// Commits fail with [`StoreError::Io`] but are stored. Snapshots fail.
    Unreported,
    /// Commits fail with [`StoreError::Io`] and are not stored, but [the last one may appear after a
    /// crash](MemoryStore::show_unconfirmed). Snapshots fail.
    Unconfirmed,
}

#[derive(Debug, Clone, Default)]
struct Disk {
    contents: Contents,
    fault: Option<Fault>,
    /// The last transaction, if it failed and may appear after a crash.
    unconfirmed: Vec<Batch>,
    transactions: u64,
}

/// A day, user, partition and job name.
type SumsPlace = (i64, String, String, String);

/// All committed data. Rows are shared, so a copy costs only its index.
#[derive(Debug, Clone, Default)]
struct Contents {
    tail: Tail,
    snapshot: Option<Arc<Snapshot>>,
    events: Vec<Arc<[u8]>>,
    ended: BTreeMap<TaskId, Arc<EndedTask>>,
    /// Attempts that were requeued before their results were fetched.
    earlier: BTreeMap<(TaskId, Attempt), Arc<EndedTask>>,
    jobs: BTreeMap<JobId, EndedJob>,
    /// Sums by day, user, partition and name.
    sums: BTreeMap<SumsPlace, Sums>,
    environments: BTreeMap<Digest, Bytes>,
    environment_of: BTreeMap<JobId, Digest>,
    blobs: BTreeMap<Digest, Bytes>,
    outbox: BTreeMap<MessageKey, Bytes>,
}

impl MemoryStore {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The store that a head finds after a crash: the committed data on an independent disk, without faults.
    #[must_use]
    pub fn after_crash(&self) -> Self {
        let contents = self.disk().contents.clone();
        Self(Arc::new(Mutex::new(Disk { contents, ..Disk::default() })))
    }

    /// Injects a fault; `None` removes it.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.disk().fault = fault;
    }

    /// The number of stored transactions. With group commit, there are fewer transactions than batches.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.disk().transactions
    }

    /// The injected fault.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.disk().fault
    }

    /// Makes the [last failed](Fault::Unconfirmed) transaction appear, as after a crash, if nothing was stored after
    /// it. Returns whether it appeared.
    pub fn show_unconfirmed(&self) -> bool {
        let mut disk = self.disk();
        let batches = std::mem::take(&mut disk.unconfirmed);
        disk.store(&batches).is_ok() && !batches.is_empty()
    }

    /// The number of the last stored event.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.disk().contents.tail.last
    }

    /// The events after `sequence` that are still in the log.
    #[must_use]
    pub fn events_after(&self, sequence: u64) -> Vec<Arc<[u8]>> {
        let disk = self.disk();
        let (tail, events) = (disk.contents.tail, &disk.contents.events);
        let count = usize::try_from(tail.last.saturating_sub(sequence)).unwrap_or(usize::MAX);
        events[events.len() - count.min(events.len())..].to_vec()
    }

    /// Every row of the history.
    #[must_use]
    pub fn rows(&self) -> Vec<Arc<EndedTask>> {
        self.disk().contents.ended.values().cloned().collect()
    }

    /// Every ended job.
    #[must_use]
    pub fn jobs(&self) -> Vec<EndedJob> {
        self.disk().contents.jobs.values().cloned().collect()
    }

    /// The jobs with an environment in the store.
    #[must_use]
    pub fn environments(&self) -> BTreeMap<JobId, Digest> {
        self.disk().contents.environment_of.clone()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        // Contents change in steps that cannot panic halfway, so they are consistent even after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        let disk = self.disk();
        if disk.fault == Some(Fault::Io) {
            return Err(failed("load"));
        }
        Ok(Loaded {
            snapshot: disk.contents.snapshot.as_deref().cloned(),
            events: disk.contents.events.iter().map(|event| event.to_vec()).collect(),
        })
    }

    fn commit_all(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        let mut disk = self.disk();
        let is_nothing = batches.iter().all(|batch| batch.events.is_empty() && batch.changes.is_empty());
        match disk.fault {
            // An empty commit writes nothing, so it cannot fail.
            _ if is_nothing => {}
            Some(Fault::Unreported) => {
                disk.store(batches)?;
                return Err(failed("commit to"));
            }
            Some(Fault::Unconfirmed) => {
                disk.contents.tail_after(batches)?;
                disk.unconfirmed = batches.to_vec();
                return Err(failed("commit to"));
            }
            Some(Fault::DiskFull | Fault::Io) | None => disk.check()?,
        }
        disk.store(batches)
    }

    fn save_snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut disk = self.disk();
        disk.check()?;
        let contents = &mut disk.contents;
        let tail = contents.tail.after_snapshot(sequence)?;
        let covered = usize::try_from(sequence - contents.tail.snapshot)
            .expect("the number of events in memory fits into a usize");
        contents.events.drain(..covered);
        contents.snapshot = Some(Arc::new(Snapshot { sequence, bytes: bytes.to_vec() }));
        contents.tail = tail;
        disk.unconfirmed.clear();
        disk.transactions += 1;
        Ok(())
    }

    fn maintain(&mut self) {}

    fn reader(&self) -> Reader {
        Reader::new(self.clone())
    }
}

impl Disk {
    fn check(&self) -> Result<(), StoreError> {
        match self.fault {
            None => Ok(()),
            Some(Fault::DiskFull) => Err(StoreError::DiskFull { path: PathBuf::from("memory"), free_bytes: 0 }),
            Some(Fault::Io | Fault::Unreported | Fault::Unconfirmed) => Err(failed("commit to")),
        }
    }

    fn store(&mut self, batches: &[Batch]) -> Result<(), StoreError> {
        // All checks come before the first change; this makes the transaction atomic.
        let tail = self.contents.tail_after(batches)?;
        for batch in batches {
            self.contents.apply(batch);
        }
        self.contents.tail = tail;
        self.unconfirmed.clear();
        self.transactions += 1;
        Ok(())
    }
}

fn failed(operation: &'static str) -> StoreError {
    StoreError::io(operation, &PathBuf::from("memory"), std::io::Error::other("the test injected this fault"))
}

impl Contents {
    fn tail_after(&self, batches: &[Batch]) -> Result<Tail, StoreError> {
        batches.iter().try_fold(self.tail, Tail::after)
    }

    fn apply(&mut self, batch: &Batch) {
        self.events.extend(batch.events.iter().map(|event| Arc::from(event.as_slice())));
        for change in &batch.changes {
            self.change(change);
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Ended(task) => {
                self.ended.insert(TaskId { job: task.job, index: task.index }, Arc::new(task.clone()));
            }
            Change::Reopened(task) => {
                self.ended.remove(task);
            }
            Change::SetAside(task) => {
                if let Some(row) = self.ended.remove(task) {
                    self.earlier.insert((*task, row.attempt), row);
                }
            }
            Change::EarlierEnded(row) => {
                let task = TaskId { job: row.job, index: row.index };
                self.earlier.insert((task, row.attempt), Arc::new(row.clone()));
            }
            Change::EarlierFetched(task, attempt) => {
                self.earlier.remove(&(*task, *attempt));
            }
            Change::JobEnded(job) => {
                if !job.keeps_environment {
                    self.drop_environment(job.id);
                }
                self.uncount(job.id);
                self.count(job);
                self.jobs.insert(job.id, job.clone());
            }
            Change::JobReopened(id) => {
                self.uncount(*id);
                self.jobs.remove(id);
            }
            Change::Environment { job, digest, bytes } => {
                self.environments.entry(*digest).or_insert_with(|| bytes.clone());
                self.environment_of.insert(*job, *digest);
            }
            Change::Forgotten(job) => {
                self.ended.retain(|task, _| task.job != *job);
                self.earlier.retain(|(task, _), _| task.job != *job);
                self.jobs.remove(job);
                self.drop_environment(*job);
            }
            Change::PutBlob(digest, bytes) => {
                self.blobs.entry(*digest).or_insert_with(|| bytes.clone());
            }
            Change::DropBlob(digest) => {
                self.blobs.remove(digest);
            }
            Change::PutMessage(message) => {
                self.outbox.insert(message.key.clone(), message.bytes.clone());
            }
            Change::DropMessage(key) => {
                self.outbox.remove(key);
            }
        }
    }

    /// Adds an ended job to the sums of its day.
    fn count(&mut self, job: &EndedJob) {
        let place = self.place(job);
        let sums = self.sums.entry(place).or_default();
        *sums = sums.plus(Sums::of(job.state, &job.used));
    }

    /// Subtracts a stored job from the sums of its day.
    fn uncount(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let place = self.place(job);
        let gone = Sums::of(job.state, &job.used);
        if let Some(sums) = self.sums.get_mut(&place) {
            *sums = sums.minus(gone);
        }
    }

    fn place(&self, job: &EndedJob) -> SumsPlace {
        let day = day_of(job.used.ended_at);
        let partition = job.used.partition.as_ref().map_or_else(String::new, ToString::to_string);
        let place = (day, job.user.clone(), partition, job.used.name.clone());
        let of_user = self.sums.keys().filter(|(other, user, ..)| *other == day && *user == job.user);
        let names: BTreeSet<&str> = of_user.map(|(.., name)| name.as_str()).collect();
        if self.sums.contains_key(&place) || names.len() < MOST_NAMES {
            place
        } else {
            (place.0, place.1, place.2, String::new())
        }
    }

    /// Drops the environment of a job, unless another job has the same.
    fn drop_environment(&mut self, job: JobId) {
        if let Some(digest) = self.environment_of.remove(&job)
            && self.environment_of.values().all(|other| *other != digest)
        {
            self.environments.remove(&digest);
        }
    }

    fn tasks_of(&self, job: JobId, indices: RangeInclusive<u32>) -> impl Iterator<Item = (&TaskId, &Arc<EndedTask>)> {
        let (start, end) = indices.into_inner();
        // A map panics on a backward range, and a query may contain one.
        let range = (start <= end).then_some(TaskId { job, index: start }..=TaskId { job, index: end });
        range.into_iter().flat_map(|range| self.ended.range(range))
    }
}

impl Records for MemoryStore {
    fn ended_of(&self, job: JobId, indices: RangeInclusive<u32>, limit: usize) -> Result<Vec<EndedTask>, StoreError> {
        let disk = self.disk();
        Ok(disk.contents.tasks_of(job, indices).take(limit).map(|(_, task)| task.as_ref().clone()).collect())
    }

    fn ended_one(&self, task: TaskId) -> Result<Option<EndedTask>, StoreError> {
        Ok(self.disk().contents.ended.get(&task).map(|task| task.as_ref().clone()))
    }

    fn results_of(&self, jobs: &[JobId]) -> Result<Vec<TaskResult>, StoreError> {
        let disk = self.disk();
        let tasks = jobs.iter().flat_map(|job| disk.contents.tasks_of(*job, 0..=u32::MAX));
        Ok(tasks.flat_map(|(_, task)| task.results()).collect())
    }

    fn earlier_attempts(&self, after: (TaskId, Attempt), limit: usize) -> Result<Vec<EndedTask>, StoreError> {
        let disk = self.disk();
        let rows = disk.contents.earlier.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(rows.take(limit).map(|(_, row)| row.as_ref().clone()).collect())
    }

    fn ended_job(&self, id: JobId) -> Result<Option<Bytes>, StoreError> {
        Ok(self.disk().contents.jobs.get(&id).map(|job| job.bytes.clone()))
    }

    fn job_of_key(&self, key: u128) -> Result<Option<JobId>, StoreError> {
        Ok(self.disk().contents.jobs.values().find(|job| job.key == key).map(|job| job.id))
    }

    fn ended_jobs(&self, wanted: &JobFilter, before: Option<JobId>, limit: usize) -> Result<EndedPage, StoreError> {
        let disk = self.disk();
        let is_wanted = |job: &&EndedJob| {
            let mut other_states = job.other_states.iter().filter(|_| wanted.any_task);
            (wanted.wants(&job.user, job.state) || other_states.any(|state| wanted.wants(&job.user, *state)))
                && !wanted.except.contains(&job.id)
        };
        let all = || disk.contents.jobs.values().filter(is_wanted);
        let page = all().rev().filter(|job| before.is_none_or(|before| job.id < before)).take(limit);
        Ok(EndedPage { jobs: page.map(|job| job.bytes.clone()).collect(), total: all().count() as u64 })
    }

    fn sums(&self, wanted: &SumsFilter) -> Result<GroupedSums, StoreError> {
        let disk = self.disk();
        let mut groups: BTreeMap<String, Sums> = BTreeMap::new();
        let mut total = Sums::default();
        for ((day, user, partition, name), sums) in &disk.contents.sums {
            if !wanted.days.contains(day) || wanted.user.as_ref().is_some_and(|wanted| wanted != user) {
                continue;
            }
            total = total.plus(*sums);
            let key = match wanted.by {
                GroupBy::User => user.clone(),
                GroupBy::Partition => partition.clone(),
                GroupBy::Name => name.clone(),
                GroupBy::Day => day.to_string(),
            };
            let group = groups.entry(key).or_default();
            *group = group.plus(*sums);
        }
        let mut groups: Vec<(String, Sums)> = groups.into_iter().filter(|(_, sums)| sums.jobs() > 0).collect();
        match wanted.by {
            GroupBy::Day => groups.sort_by_key(|(day, _)| day.parse::<i64>().ok()),
            _ => groups.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.consumed.cpu_held_ms)),
        }
        groups.truncate(wanted.limit);
        Ok(GroupedSums { groups, total })
    }

    fn history(&self, wanted: &HistoryFilter) -> Result<History, StoreError> {
        let disk = self.disk();
        let mut jobs: Vec<(WallTime, &EndedJob)> =
            disk.contents.jobs.values().map(|job| (job.used.ended_at, job)).collect();
        jobs.sort_by_key(|(at, job)| std::cmp::Reverse((*at, job.id)));
        let mut collector = Collector::default();
        for (at, job) in jobs {
            let is_in_time = at >= wanted.from && (at, job.id) < wanted.before;
            if !is_in_time || wanted.user.as_ref().is_some_and(|user| *user != job.user) {
                continue;
            }
            let bytes = || Ok::<_, StoreError>(job.bytes.clone());
            if !collector.add(wanted, (at, job.id), (&job.used.name, job.state), bytes)? {
                return Ok(collector.page);
            }
        }
        Ok(collector.at_end())
    }

    fn jobs_with_results(
        &self,
        user: Option<&str>,
        unfetched: bool,
        after: JobId,
        limit: usize,
    ) -> Result<Vec<(JobId, Bytes)>, StoreError> {
        let disk = self.disk();
        let jobs = disk.contents.jobs.values().filter(|job| job.id > after);
        let jobs = jobs.filter(|job| user.is_none_or(|user| user == job.user));
        let jobs = jobs.filter(|job| if unfetched { job.results.unfetched } else { job.results.any });
        Ok(jobs.take(limit).map(|job| (job.id, job.bytes.clone())).collect())
    }

    fn jobs_with_fetched_results(&self, limit: usize) -> Result<Vec<Bytes>, StoreError> {
        let disk = self.disk();
        let mut jobs: Vec<&EndedJob> = disk.contents.jobs.values().filter(|job| job.results.fetched).collect();
        jobs.sort_by_key(|job| (job.ended, job.id));
        Ok(jobs.into_iter().take(limit).map(|job| job.bytes.clone()).collect())
    }

    fn first_ended(&self, awaiting: bool, limit: usize) -> Result<Vec<(JobId, Timestamp)>, StoreError> {
        let disk = self.disk();
        let is_wanted = |job: &&EndedJob| (job.results.unfetched && job.snapshot.is_some()) == awaiting;
        let mut jobs: Vec<_> = disk.contents.jobs.values().filter(is_wanted).map(|job| (job.ended, job.id)).collect();
        jobs.sort_unstable();
        Ok(jobs.into_iter().take(limit).map(|(ended, id)| (id, ended)).collect())
    }

    fn awaiting_fetch(&self, user: &str) -> Result<(u64, Option<Timestamp>), StoreError> {
        let disk = self.disk();
        let awaits = |job: &&EndedJob| job.user == user && job.results.unfetched && job.snapshot.is_some();
        let ends = disk.contents.jobs.values().filter(awaits).map(|job| job.ended);
        Ok((ends.clone().count() as u64, ends.min()))
    }

    fn snapshots_of_ended(&self) -> Result<Vec<Digest>, StoreError> {
        let disk = self.disk();
        let all: BTreeSet<Digest> = disk.contents.jobs.values().filter_map(|job| job.snapshot).collect();
        Ok(all.into_iter().collect())
    }

    fn environment(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError> {
        Ok(self.disk().contents.environments.get(digest).cloned())
    }

    fn blob(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError> {
        Ok(self.disk().contents.blobs.get(digest).cloned())
    }

    fn missing_blobs(&self, digests: &[Digest]) -> Result<Vec<Digest>, StoreError> {
        let disk = self.disk();
        Ok(digests.iter().copied().filter(|digest| !disk.contents.blobs.contains_key(digest)).collect())
    }

    fn blobs_after(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Digest>, StoreError> {
        use std::ops::Bound::{Excluded, Unbounded};
        let disk = self.disk();
        let start = after.map_or(Unbounded, Excluded);
        Ok(disk.contents.blobs.range((start, Unbounded)).take(limit).map(|(digest, _)| *digest).collect())
    }

    fn messages_after(&self, after: &MessageKey, limit: usize) -> Result<Vec<StoredMessage>, StoreError> {
        use std::ops::Bound::{Excluded, Unbounded};
        let disk = self.disk();
        let stored = |(key, bytes): (&MessageKey, &Bytes)| StoredMessage { key: key.clone(), bytes: bytes.clone() };
        Ok(disk.contents.outbox.range((Excluded(after), Unbounded)).take(limit).map(stored).collect())
    }

    fn free_bytes(&self) -> Result<u64, StoreError> {
        Ok(if self.disk().fault == Some(Fault::DiskFull) { 0 } else { u64::MAX })
    }
}

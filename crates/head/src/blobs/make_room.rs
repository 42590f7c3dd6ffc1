//! Measures the disk usage of results, and drops some if they exceed the limit of [`super::room::Room`].

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use hostler_core::head::{Command, Refusal};
use hostler_model::{Attempt, Digest, JobId, TaskId};
use hostler_proto::record::{EndedTask, TaskResult};

use super::marks::Marks;
use super::{Library, LibraryError};
use crate::archive;
use crate::engine::Engine;

/// Number of jobs that are looked up at a time to drop their results.
const JOBS_PER_DROP: usize = 100;

impl Library {
    /// Measures the usage of results, and drops downloaded ones until the usage is below the limit. `tell` makes the
    /// head execute a command, and returns whether it is durable.
    ///
    /// # Errors
    /// The disk fails.
    pub(super) fn make_room(&self, engine: &Engine, tell: &impl Fn(Command) -> bool) -> Result<(), LibraryError> {
        self.room.begin();
        // All results recorded up to here are then in the history.
        if !tell(Command::Tick) {
            return Ok(());
        }
        let mut kept = self.measure(engine)?;
        if kept > self.room.cap_bytes() {
            let before = kept;
            kept = self.drop_results(engine, tell)?;
            self.in_need.fetch_or(kept < before, Ordering::AcqRel);
        }
        self.room.measured(kept);
        if let Some(warning) = self.room.warning() {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    /// Total size of all kept results.
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

    /// Drops downloaded results, starting with the job that ended first, until the rest is below the limit. If that is not
    /// enough, deletes jobs whose results nobody has downloaded within their retention. Returns the remaining size. Counts
    /// the uses of each chunk, in memory that grows with the number of kept chunks.
    fn drop_results(&self, engine: &Engine, tell: &impl Fn(Command) -> bool) -> Result<u64, LibraryError> {
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
            let page = self.table.jobs_with_fetched_results(JOBS_PER_DROP + tried.len())?;
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
        if kept > self.room.cap_bytes() {
            for (job, _) in self.table.first_ended(true, usize::MAX)? {
                if kept <= self.room.cap_bytes() {
                    break;
                }
                let Ok(Some(before)) = engine.find_job(job) else { continue };
                let mut results = self.table.results_of(&[job])?;
                results.retain(|result| before.results.contains(result.task.index));
                results.extend(self.earlier_results(job)?);
                let command = Command::ForgetUnfetched { jobs: vec![job], for_space: true };
                // The retention of this job, and so of the later ones in the list, is not over.
                if !tell(command) || engine.state().missing_job(job) == Refusal::NoSuchJob(job) {
                    break;
                }
                let chunks = results.iter().flat_map(|result| self.chunks_of(result));
                let freed: u64 = chunks.map(|(digest, _)| let_go(&mut uses, start_of(&digest))).sum();
                kept -= freed;
                tracing::warn!(%job, bytes = freed, "deleted a job whose results nobody had fetched, to free disk space");
            }
        }
        Ok(kept)
    }

    /// The results of earlier attempts of a job.
    fn earlier_results(&self, job: JobId) -> Result<Vec<TaskResult>, LibraryError> {
        let (mut all, mut after) = (Vec::new(), (TaskId { job, index: 0 }, Attempt(0)));
        loop {
            let page = self.table.earlier_attempts(after, JOBS_PER_DROP)?;
            all.extend(page.iter().filter(|row| row.job == job).flat_map(EndedTask::results));
            match page.last() {
                Some(last) if last.job == job => after = (TaskId { job, index: last.index }, last.attempt),
                Some(_) | None => return Ok(all),
            }
        }
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
    fn shared_chunk_is_freed_with_its_last_use() {
        let mut uses = HashMap::from([(1, (10, 2))]);
        assert_eq!((let_go(&mut uses, 1), let_go(&mut uses, 1)), (0, 10));
    }
}

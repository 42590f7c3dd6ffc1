//! Counts how much of the head's memory each user's waiting jobs use.
//!
//! The totals are updated as jobs start and stop waiting, so a submission is checked without looking at other jobs. They depend on the
//! jobs alone: after a restart they are the same. Data that several jobs share counts for each of them, since which jobs share data
//! depends on their order of arrival.

use std::collections::BTreeMap;
use std::mem::size_of;

use hostler_model::{Dependency, JobId, JobSpec, Work};

use super::job::Job;

/// The memory that a string needs besides its text, in bytes: its struct and its allocation.
const STRING: usize = size_of::<String>() + 16;

/// An estimate of the memory of a constraint, in bytes per byte of its text. The text of `a|b|c` has about two bytes
/// per term.
const CONSTRAINT_BYTE: usize = 32;

/// How many jobs of one user wait, and how much of the head's memory these jobs use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingJobs {
    /// The number of jobs; an array counts once.
    pub jobs: u64,
    /// The memory that the specifications of these jobs use, in bytes.
    pub bytes: u64,
}

/// Counts the waiting jobs of every user.
#[derive(Debug, Clone, Default)]
pub(in crate::head) struct Waiting(BTreeMap<String, WaitingJobs>);

impl Waiting {
    pub(in crate::head) fn of(&self, user: &str) -> WaitingJobs {
        self.0.get(user).copied().unwrap_or_default()
    }

    /// Counts a job if any of its tasks waits.
    pub(in crate::head) fn add(&mut self, job: &Job) {
        if job.pending.is_empty() {
            return;
        }
        let bytes = memory_of(&job.spec) + Self::gaps_of(job);
        if !self.0.contains_key(&job.user) {
            self.0.insert(job.user.clone(), WaitingJobs::default());
        }
        let theirs = self.0.get_mut(&job.user).expect("just inserted");
        theirs.jobs += 1;
        theirs.bytes += bytes;
    }

    /// Stops counting a job. `gaps` is what [`Self::gaps_of`] was while the job was counted.
    pub(in crate::head) fn remove(&mut self, job: &Job, gaps: u64) {
        let theirs = self.0.get_mut(&job.user).expect("a waiting job is counted");
        theirs.jobs -= 1;
        theirs.bytes -= memory_of(&job.spec) + gaps;
        if theirs.jobs == 0 {
            self.0.remove(&job.user);
        }
    }

    /// Counts what the sets of a waiting job use now. `gaps` is what they used before.
    pub(in crate::head) fn resize(&mut self, job: &Job, gaps: u64) {
        let now = Self::gaps_of(job);
        if now != gaps {
            let theirs = self.0.get_mut(&job.user).expect("a waiting job is counted");
            theirs.bytes = theirs.bytes - gaps + now;
        }
    }

    /// The memory of a job's sets of tasks beyond what [`memory_of`] expects. A dependency of each task on the task with the same
    /// index can end every second task of a job.
    pub(in crate::head) fn gaps_of(job: &Job) -> u64 {
        let expected =
            job.spec.array.as_ref().map_or(0, |array| (copies_of_array(&job.spec) - 1) * array.indices.memory_bytes());
        job.memory_of_sets().saturating_sub(expected) as u64
    }
}

/// How many sets of all tasks a job has, at most: that of the specification, the waiting tasks, and those that dependencies
/// have freed.
fn copies_of_array(spec: &JobSpec) -> usize {
    if spec.after.is_empty() { 2 } else { 3 }
}

/// Returns the approximate memory of a specification in bytes: all parts of variable length, without the fixed size of
/// a job.
#[must_use]
pub fn memory_of(spec: &JobSpec) -> u64 {
    let JobSpec { name, work, request, partition, constraint, array, after, environment, files, .. } = spec;
    let words = |words: &[String]| words.iter().map(|word| STRING + word.len()).sum::<usize>();
    let work = match work {
        Work::Project { snapshot: _, entrypoint, args } => STRING + entrypoint.len() + words(args),
        Work::Command { argv, directory, script: _ } => words(argv) + STRING + directory.len(),
    };
    let counted: usize = request.counted.iter().map(|(name, _)| 2 * STRING + name.len()).sum();
    let partition = partition.as_ref().map_or(0, |partition| STRING + partition.as_str().len());
    let constraint = constraint.as_ref().map_or(0, |constraint| CONSTRAINT_BYTE * constraint.to_string().len());
    let array = array.as_ref().map_or(0, |array| copies_of_array(spec) * array.indices.memory_bytes());
    // Each dependency is in the specification, the list of unmet dependencies, and the index of dependents.
    let after = after.len() * (2 * size_of::<Dependency>() + 2 * size_of::<JobId>());
    let environment: usize = environment.iter().map(|(name, value)| 2 * STRING + name.len() + value.len()).sum();
    let files = files.as_ref().map_or(0, |files| files.paths().map(|path| STRING + path.len()).sum());
    let labels: usize = spec.labels().map(|(name, value)| 2 * STRING + name.len() + value.len()).sum();
    let submit_line = spec.surroundings.submit_line.as_ref().map_or(0, |line| line.len());
    let all =
        STRING + name.len() + work + counted + partition + constraint + array + after + files + labels + submit_line;
    u64::try_from(all + environment).unwrap_or(u64::MAX)
}

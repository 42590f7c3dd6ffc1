//! What the waiting jobs of each user take of the head's memory.
//!
//! The figures are kept as jobs begin and cease to wait, so a submission is judged without looking at other jobs. They are derived from
//! the jobs alone: a restart finds the same ones. Jobs that share equal parts in memory count in full all the same, since which jobs
//! share is an accident of the order in which they came.

use std::collections::BTreeMap;
use std::mem::size_of;

use hostler_model::{Dependency, JobId, JobSpec, Work};

use super::job::Job;

/// What a string takes beyond its text: where it is kept, and what an allocation costs.
const STRING: usize = size_of::<String>() + 16;

/// What a constraint takes for each byte of its text: `a|b|c` has a term of its own for every other byte.
const CONSTRAINT_BYTE: usize = 32;

/// The jobs of one user that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingJobs {
    /// How many they are, an array counting as one.
    pub jobs: u64,
    /// What was submitted with them takes this much memory, in bytes.
    pub bytes: u64,
}

/// The waiting jobs of every user who has some.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting(BTreeMap<String, WaitingJobs>);

impl Waiting {
    /// Those of one user.
    pub(super) fn of(&self, user: &str) -> WaitingJobs {
        self.0.get(user).copied().unwrap_or_default()
    }

    /// A job waits that did not, if it waits at all.
    pub(super) fn add(&mut self, job: &Job) {
        if job.pending.is_empty() {
            return;
        }
        let bytes = memory_of(&job.spec);
        if !self.0.contains_key(&job.user) {
            self.0.insert(job.user.clone(), WaitingJobs::default());
        }
        let theirs = self.0.get_mut(&job.user).expect("just inserted");
        theirs.jobs += 1;
        theirs.bytes += bytes;
    }

    /// A job that was counted waits no more.
    pub(super) fn remove(&mut self, job: &Job) {
        let theirs = self.0.get_mut(&job.user).expect("a job that waits was counted when it began to");
        theirs.jobs -= 1;
        theirs.bytes -= memory_of(&job.spec);
        if theirs.jobs == 0 {
            self.0.remove(&job.user);
        }
    }
}

/// Roughly what a specification takes of the head's memory, in bytes, beyond what is the same for every job: all parts whose length its
/// submitter has chosen.
#[must_use]
pub fn memory_of(spec: &JobSpec) -> u64 {
    let JobSpec { name, work, request, partition, constraint, array, after, environment, .. } = spec;
    let words = |words: &[String]| words.iter().map(|word| STRING + word.len()).sum::<usize>();
    let work = match work {
        Work::Project { snapshot: _, entrypoint, args } => STRING + entrypoint.len() + words(args),
        Work::Command { argv, directory } => words(argv) + STRING + directory.len(),
    };
    let counted: usize = request.counted.iter().map(|(name, _)| 2 * STRING + name.len()).sum();
    let partition = partition.as_ref().map_or(0, |partition| STRING + partition.as_str().len());
    let constraint = constraint.as_ref().map_or(0, |constraint| CONSTRAINT_BYTE * constraint.to_string().len());
    // The tasks that wait are a set of their own beside that of the indices.
    let array = array.as_ref().map_or(0, |array| 2 * array.indices.memory_bytes());
    // Each dependency stands in the specification, in the list of unmet dependencies, and in the index of dependents.
    let after = after.len() * (2 * size_of::<Dependency>() + 2 * size_of::<JobId>());
    let environment: usize = environment.iter().map(|(name, value)| 2 * STRING + name.len() + value.len()).sum();
    let all = STRING + name.len() + work + counted + partition + constraint + array + after;
    u64::try_from(all + environment).unwrap_or(u64::MAX)
}

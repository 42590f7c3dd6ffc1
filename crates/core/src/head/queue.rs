//! The queue: startable jobs in scheduling order.
//!
//! Each partition has its own line. The queue counts the jobs of a line in blocks of neighbouring ids, and so finds a job's position
//! without visiting every job ahead of it. A list of thousands of waiting jobs can therefore show each job's position.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::iter::Peekable;

use hostler_model::{JobId, PartitionName};

use super::job::Job;

/// How many ids a block spans. At 100 000 jobs, counting within a block then costs about as much as counting blocks.
const BLOCK: u64 = 256;

/// Jobs ordered by priority of the partition, priority of the job, and submission.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    lines: BTreeMap<Option<PartitionName>, Line>,
}

/// The queued jobs of one partition, or of all jobs without a partition. Kept even when it is empty.
#[derive(Debug, Clone, Default)]
struct Line {
    tier: i32,
    places: BTreeSet<Place>,
    /// How many jobs have each priority, by block of ids.
    blocks: BTreeMap<(Reverse<i32>, u64), u64>,
}

/// The sort key of a job in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    priority: Reverse<i32>,
    job: JobId,
}

impl Place {
    fn of(job: &Job) -> Self {
        Self { priority: Reverse(job.spec.priority), job: job.id }
    }

    fn block(self) -> (Reverse<i32>, u64) {
        (self.priority, self.job.0 / BLOCK)
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.values().all(|line| line.places.is_empty())
    }

    /// Iterates over the jobs of the `wanted` partitions, in scheduling order.
    pub(super) fn iter(&self, wanted: impl Fn(Option<&PartitionName>) -> bool) -> impl Iterator<Item = JobId> {
        let lines = self.lines.iter().filter(|(partition, _)| wanted(partition.as_ref()));
        let lines = lines.filter(|(_, line)| !line.places.is_empty());
        Merge { lines: lines.map(|(_, line)| (Reverse(line.tier), line.places.iter().peekable())).collect() }
    }

    /// Inserts a job, and sets the priority of its partition; returns whether the job is new.
    pub(super) fn insert(&mut self, job: &Job, tier: i32) -> bool {
        let place = Place::of(job);
        // A lookup avoids copying the partition's name, except for the first job of a line.
        let line = match self.lines.get_mut(&job.spec.partition) {
            Some(line) => line,
            None => self.lines.entry(job.spec.partition.clone()).or_default(),
        };
        line.tier = tier;
        let is_new = line.places.insert(place);
        if is_new {
            *line.blocks.entry(place.block()).or_default() += 1;
        }
        is_new
    }

    /// Removes a job, if it is in the queue.
    pub(super) fn remove(&mut self, job: &Job) {
        let place = Place::of(job);
        let Some(line) = self.lines.get_mut(&job.spec.partition) else { return };
        if !line.places.remove(&place) {
            return;
        }
        let count = line.blocks.get_mut(&place.block()).expect("every queued job is counted in its block");
        *count -= 1;
        if *count == 0 {
            line.blocks.remove(&place.block());
        }
    }

    /// Sets the priority of a partition.
    pub(super) fn set_tier(&mut self, partition: &PartitionName, tier: i32) {
        if let Some(line) = self.lines.get_mut(&Some(partition.clone())) {
            line.tier = tier;
        }
    }

    /// Returns the number of queued jobs in a partition.
    pub(super) fn len_of(&self, partition: &PartitionName) -> u64 {
        self.lines.get(&Some(partition.clone())).map_or(0, |line| line.places.len() as u64)
    }

    /// Returns the number of jobs ahead of `job` in the partition of `job`, which need not be in the queue.
    pub(super) fn ahead_of(&self, job: &Job) -> u64 {
        let Some(line) = self.lines.get(&job.spec.partition) else { return 0 };
        let place = Place::of(job);
        let first_of_block = Place { job: JobId(place.block().1 * BLOCK), ..place };
        let in_blocks: u64 = line.blocks.range(..place.block()).map(|(_, count)| count).sum();
        in_blocks + line.places.range(first_of_block..place).count() as u64
    }
}

/// An iterator that merges the partitions' lines in scheduling order. Each step compares the first job of every line,
/// since lines are few.
struct Merge<'a> {
    lines: Vec<(Reverse<i32>, Peekable<btree_set::Iter<'a, Place>>)>,
}

impl Iterator for Merge<'_> {
    type Item = JobId;

    fn next(&mut self) -> Option<JobId> {
        if let [(_, only)] = self.lines.as_mut_slice() {
            return only.next().map(|place| place.job);
        }
        let first = |(at, (tier, line)): (usize, &mut (Reverse<i32>, Peekable<btree_set::Iter<'_, Place>>))| {
            line.peek().map(|place| (*tier, **place, at))
        };
        let (_, _, at) = self.lines.iter_mut().enumerate().filter_map(first).min()?;
        self.lines[at].1.next().map(|place| place.job)
    }
}

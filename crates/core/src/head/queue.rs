//! The queue: jobs that could start as far as they themselves are concerned, in the order in which they should.
//!
//! It also knows how many jobs stand before one without counting them one by one: jobs are counted in blocks of neighbouring ids, so
//! that a list of thousands of waiting jobs can say that of each.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use hostler_model::JobId;

use super::job::Job;

/// How many ids a block spans; with this, counting costs about the same within blocks and over them at a hundred thousand jobs.
const BLOCK: u64 = 256;

/// Jobs in order: higher priority first, then the order of submission.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    places: BTreeSet<Place>,
    /// How many jobs stand in each block of each priority.
    blocks: BTreeMap<(Reverse<i32>, u64), u64>,
}

/// Where a job stands.
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
        self.places.is_empty()
    }

    /// The jobs in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = JobId> {
        self.places.iter().map(|place| place.job)
    }

    /// Puts a job in its place; says whether it was not there.
    pub(super) fn insert(&mut self, job: &Job) -> bool {
        let place = Place::of(job);
        let is_new = self.places.insert(place);
        if is_new {
            *self.blocks.entry(place.block()).or_default() += 1;
        }
        is_new
    }

    /// Takes a job out if it is there.
    pub(super) fn remove(&mut self, job: &Job) {
        let place = Place::of(job);
        if !self.places.remove(&place) {
            return;
        }
        let count = self.blocks.get_mut(&place.block()).expect("every place is counted");
        *count -= 1;
        if *count == 0 {
            self.blocks.remove(&place.block());
        }
    }

    /// How many jobs are ahead of this one, which need not be there itself.
    pub(super) fn ahead_of(&self, job: &Job) -> u64 {
        let place = Place::of(job);
        let first_of_block = Place { job: JobId(place.block().1 * BLOCK), ..place };
        let in_blocks: u64 = self.blocks.range(..place.block()).map(|(_, count)| count).sum();
        in_blocks + self.places.range(first_of_block..place).count() as u64
    }
}

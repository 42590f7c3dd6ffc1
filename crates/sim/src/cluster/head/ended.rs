//! What the head's loop has to do with jobs that have ended: where they are, and until when.

use std::sync::Arc;

use hostler_core::head::{Job, Stamped};
use hostler_model::{JobId, Timestamp};

use super::{Process, apply};
use crate::cluster::disk::Batch;
use crate::cluster::world::World;

impl World {
    /// When time alone next matters: to the state, or because the retention of a job is over.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let process = self.head.process.as_ref()?;
        let moved = process.moves.jobs().filter_map(|job| job.ended);
        let first = self.ended_on_disk(process).map(|(_, ended)| ended).chain(moved).min();
        let retention = first.map(|ended| process.state.kept_until(ended).plus_ms(1));
        process.state.next_deadline().into_iter().chain(retention).min()
    }

    /// Jobs that the disk has for good, and when they ended.
    pub(super) fn ended_on_disk(&self, process: &Process) -> impl Iterator<Item = (JobId, Timestamp)> {
        let is_there = |job: &&Arc<Job>| process.moves.job(job.id).is_none();
        self.head.disk.jobs.values().filter(is_there).filter_map(|job| Some((job.id, job.ended?)))
    }
}

impl Process {
    /// Applies an event of a round.
    pub(super) fn apply(&mut self, batch: &mut Batch, stamped: &Stamped) {
        let logged = apply(&mut self.state, stamped, &mut batch.effects);
        let records = logged.iter().flat_map(|logged| &logged.records);
        records.for_each(|record| self.moves.note(record, batch.round));
        batch.events.extend(logged);
    }
}

//! Dry runs: what would happen to a job if it was submitted now.

use hostler_model::{JobId, NodeName, Reason, Timestamp};

use super::ended::Ended;
use super::explain::explain;
use super::schedule::schedule;
use crate::head::command::{Command, Refusal};
use crate::head::decide::decide;
use crate::head::event::{Changes, Event, Stamped};
use crate::head::ids::Now;
use crate::head::state::State;
use crate::head::update::update;

/// What would happen to a job if it was submitted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// The id that the job would get.
    pub job: JobId,
    /// Nodes on which the first task would start, or which would be reserved for it. Empty if that is not known yet.
    pub nodes: Vec<NodeName>,
    /// Latest time at which the job would start; `None` if it is unknown.
    pub starts_at: Option<Timestamp>,
    /// Why the job would wait; `None` if it would start at once.
    pub reason: Option<Reason>,
}

impl State {
    /// Carries out a submission on this state, which the caller has copied, and schedules once.
    ///
    /// # Errors
    /// Refuses what the submission would refuse.
    pub fn dry_run(mut self, submission: &Command, ended: &Ended, now: Now) -> Result<DryRun, Refusal> {
        let job = self.next_job();
        for event in decide(&self, submission, ended, now)? {
            update(&mut self, &Stamped { now, event }, &mut Changes::default());
        }
        if self.job(job).is_none() {
            let why = "a dependency can never be satisfied, so the job would be cancelled at once";
            return Err(Refusal::Contradiction(why));
        }
        let placed = schedule(&mut self, now).map(|event| match event {
            Event::Placed { starts } => starts,
            _ => Vec::new(),
        });
        let mut starts = placed.into_iter().flatten().filter(|start| start.run.task.job == job).peekable();
        if let Some(first) = starts.peek().map(|start| start.run) {
            let nodes = starts.take_while(|start| start.run == first).map(|start| start.node).collect();
            return Ok(DryRun { job, nodes, starts_at: Some(now.at), reason: None });
        }
        let reserved = self.reservations.iter().filter(|reservation| reservation.job == job);
        let nodes = reserved.flat_map(|it| &it.nodes).filter_map(|ix| self.names.get(ix)).cloned().collect();
        let reason = self.job(job).and_then(|job| explain(&self, job));
        Ok(DryRun { job, nodes, starts_at: self.expected_start(job), reason })
    }
}

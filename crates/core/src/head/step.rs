//! The application of one event.

use std::collections::VecDeque;
use std::sync::Arc;

use hostler_model::{IndexSet, JobId, NodeName};
use hostler_proto::api::Notice;
use hostler_proto::link::HeadMessage;

use super::event::{Changes, Effect, TaskChange, TaskCount};
use super::ids::{ConnectionId, Now};
use super::jobs::job::Job;
use super::state::State;

/// The application of one event.
pub(super) struct Step<'a> {
    pub(super) state: &'a mut State,
    pub(super) now: Now,
    pub(super) changes: &'a mut Changes,
    /// Jobs that ended with this event, and jobs that had ended before it.
    pub(super) moved: Vec<JobId>,
    /// Dependents to check, while others are being checked.
    pub(super) dependents: Option<VecDeque<Dependent>>,
}

/// A dependent job, and the tasks of the other job that started or ended.
pub(super) struct Dependent {
    pub(super) job: JobId,
    /// The tasks of the other job.
    pub(super) tasks: IndexSet,
}

impl Step<'_> {
    pub(super) fn job(&self, id: JobId) -> &Arc<Job> {
        self.state.job(id).expect("the event was decided for a job that exists")
    }

    pub(super) fn send(&mut self, connection: ConnectionId, message: HeadMessage) {
        self.changes.effects.push(Effect::Send { connection, message });
    }

    pub(super) fn notify(&mut self, id: JobId) {
        let state = self.job(id).state();
        self.changes.effects.push(Effect::Notify(Notice::Job { id, state }));
    }

    /// Counts what happened to tasks of a job.
    pub(super) fn count(&mut self, id: JobId, what: TaskChange) {
        let partition = self.job(id).spec.partition.clone();
        self.changes.effects.push(Effect::Count(TaskCount { partition, what }));
    }

    pub(super) fn notify_node(&mut self, name: &NodeName) {
        let state = self.state.node_state(&self.state.nodes[name]);
        self.changes.effects.push(Effect::Notify(Notice::Node { name: name.clone(), state }));
    }
}

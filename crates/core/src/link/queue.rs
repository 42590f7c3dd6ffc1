//! The agent's queue of outgoing messages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hostler_model::RunId;
use hostler_proto::link::{AgentMessage, RunStatus};

/// The delay of a stage report; a later report of the run may replace it in this time. No report of a run that was `Ready` is delayed: the
/// head starts its program, and then its steps, when it has them.
const REPORT_DELAY: Duration = Duration::from_millis(5);

/// An agent's queue of outgoing messages, in order, with at most one report per run.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    messages: Vec<AgentMessage>,
    reports: BTreeMap<RunId, usize>,
    /// The runs that were `Ready` and have not ended.
    ready: BTreeSet<RunId>,
    due: Option<Duration>,
}

impl Queue {
    /// Adds a message. Reports of short stages wait briefly, so that a later report of the same run can replace them.
    /// All other messages are due at once, together with the whole queue.
    pub(super) fn add(&mut self, message: AgentMessage, now: Duration) {
        let due = now + self.delay(&message);
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        let AgentMessage::Report(report) = &message else { return self.messages.push(message) };
        match self.reports.get(&report.run) {
            Some(&at) => self.messages[at] = message,
            None => {
                self.reports.insert(report.run, self.messages.len());
                self.messages.push(message);
            }
        }
    }

    fn delay(&mut self, message: &AgentMessage) -> Duration {
        let AgentMessage::Report(report) = message else { return Duration::ZERO };
        let awaited = match report.status {
            RunStatus::Ready { .. } => {
                self.ready.insert(report.run);
                true
            }
            RunStatus::Ended(_) => {
                self.ready.remove(&report.run);
                true
            }
            _ => self.ready.contains(&report.run),
        };
        if awaited { Duration::ZERO } else { REPORT_DELAY }
    }

    /// When the queue must be sent.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Takes the whole queue.
    pub(super) fn take(&mut self) -> Vec<AgentMessage> {
        self.reports.clear();
        self.due = None;
        std::mem::take(&mut self.messages)
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::{Attempt, Epoch, JobId, TaskId};
    use hostler_proto::link::RunReport;

    use super::*;

    #[test]
    fn later_report_of_a_run_replaces_the_earlier_one_that_waits() {
        let run = |index| RunId { task: TaskId { job: JobId(1), index }, attempt: Attempt(1), epoch: Epoch(1) };
        let report = |index, status| AgentMessage::Report(RunReport { run: run(index), status });
        let at = Duration::from_millis;
        let mut queue = Queue::default();
        queue.add(report(1, RunStatus::Accepted), at(10));
        queue.add(report(2, RunStatus::Accepted), at(11));
        queue.add(report(1, RunStatus::Running), at(12));
        assert_eq!(queue.due(), Some(at(15)), "the first one has waited long enough");
        queue.add(AgentMessage::Heartbeat, at(13));
        assert_eq!(queue.due(), Some(at(13)));
        let all = vec![report(1, RunStatus::Running), report(2, RunStatus::Accepted), AgentMessage::Heartbeat];
        assert_eq!((queue.take(), queue.due()), (all, None));
    }

    #[test]
    fn no_report_of_a_run_that_was_ready_waits() {
        let run = RunId { task: TaskId { job: JobId(1), index: 0 }, attempt: Attempt(1), epoch: Epoch(1) };
        let report = |status| AgentMessage::Report(RunReport { run, status });
        let now = Duration::from_millis(10);
        let mut queue = Queue::default();
        for (status, delay) in [
            (RunStatus::Accepted, REPORT_DELAY),
            (RunStatus::Ready { port: 1, endpoint: None }, Duration::ZERO),
            (RunStatus::Running, Duration::ZERO),
        ] {
            queue.add(report(status), now);
            assert_eq!((queue.due(), queue.take().len()), (Some(now + delay), 1));
        }
    }
}

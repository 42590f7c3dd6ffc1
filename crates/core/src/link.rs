//! The agent link without its connection: sequence numbers and sizes of frames, the agent's waiting messages, and detection of a
//! suspended agent.
//!
//! A transport may repeat or lose frames. The receiver drops repeated frames and closes the connection when one is missing. Both
//! sides then start again with the agent's hello.

use std::collections::BTreeMap;
use std::time::Duration;

use hostler_model::RunId;
use hostler_proto::link::{AgentMessage, Frame, MAX_FRAME_BYTES, RunStatus};

/// The size at which a frame gets no further message, in bytes. Only commands, environments and results can be large.
/// The size limit of a submission ensures that one more message keeps the frame below [`MAX_FRAME_BYTES`].
const FRAME_BYTES: usize = MAX_FRAME_BYTES / 4;

/// How long a stage report waits, so that a later report of the same run can replace it.
const REPORT_DELAY: Duration = Duration::from_millis(5);

/// Numbers the outgoing frames of a connection.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    sent: u64,
}

impl Outbox {
    /// Creates the next frame with `messages`.
    pub fn frame<M>(&mut self, messages: Vec<M>) -> Frame<M> {
        self.sent += 1;
        Frame { sequence: self.sent, messages }
    }
}

/// Checks the numbers of incoming frames.
#[derive(Debug, Clone, Default)]
pub struct Inbox {
    received: u64,
}

/// The error when a frame is missing. The connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame {expected} is missing: frame {found} arrived instead")]
pub struct Gap {
    /// The number of the missing frame.
    pub expected: u64,
    /// The number of the frame that arrived.
    pub found: u64,
}

impl Inbox {
    /// Returns the messages of a new frame; none for a repeated frame.
    ///
    /// # Errors
    /// When frames before this one are missing.
    pub fn accept<M>(&mut self, frame: Frame<M>) -> Result<Vec<M>, Gap> {
        let expected = self.received + 1;
        match frame.sequence.cmp(&expected) {
            std::cmp::Ordering::Less => Ok(Vec::new()),
            std::cmp::Ordering::Equal => {
                self.received = expected;
                Ok(frame.messages)
            }
            std::cmp::Ordering::Greater => Err(Gap { expected, found: frame.sequence }),
        }
    }
}

/// Divides messages into batches that fit into a frame. `size` estimates the encoded size of a message in bytes.
pub fn cut<M>(messages: impl IntoIterator<Item = M>, size: impl Fn(&M) -> usize) -> Vec<Vec<M>> {
    let mut batches = Vec::new();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for message in messages {
        let message_bytes = size(&message);
        if bytes + message_bytes > FRAME_BYTES && !batch.is_empty() {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += message_bytes;
        batch.push(message);
    }
    batches.push(batch);
    batches.retain(|batch| !batch.is_empty());
    batches
}

/// An agent's queue of outgoing messages, in order, with at most one report per run. Times count from an arbitrary
/// start.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    messages: Vec<AgentMessage>,
    reports: BTreeMap<RunId, usize>,
    due: Option<Duration>,
}

impl Outgoing {
    /// Adds a message. A stage report waits briefly, so that a later report of the same run can replace it. Every other
    /// message is due at once, and the whole queue with it.
    pub fn add(&mut self, message: AgentMessage, now: Duration) {
        let patience = match &message {
            AgentMessage::Report(report) if !matches!(report.status, RunStatus::Ended(_)) => REPORT_DELAY,
            _ => Duration::ZERO,
        };
        let due = now + patience;
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

    /// Returns when the queue must be sent.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Takes the whole queue, divided into frames.
    pub fn take(&mut self) -> Vec<Vec<AgentMessage>> {
        self.reports.clear();
        self.due = None;
        cut(std::mem::take(&mut self.messages), size_of_message)
    }
}

/// Returns the approximate encoded size of a message, in bytes.
fn size_of_message(message: &AgentMessage) -> usize {
    const FIXED: usize = 512;
    match message {
        AgentMessage::Report(report) => match &report.status {
            RunStatus::Ended(end) => {
                let inline: usize = end.result.iter().flat_map(|result| &result.inline).map(|blob| blob.len()).sum();
                FIXED + inline + end.message.as_ref().map_or(0, String::len)
            }
            RunStatus::Accepted | RunStatus::Ready { .. } | RunStatus::Running | RunStatus::Completing => FIXED,
        },
        AgentMessage::Heartbeat | AgentMessage::Drawing { .. } => FIXED,
        AgentMessage::Resting { busy, .. } => FIXED + busy.as_ref().map_or(0, String::len),
    }
}

/// An agent's heartbeat timer, which also detects that the agent was suspended.
///
/// A resumed agent may find old messages of the head, whose launches the head may have placed on other nodes by now.
/// The agent therefore ignores the messages and closes the link; its next hello reports the actual state. The head
/// waits longer than the agent before it gives up the link.
#[derive(Debug, Clone, Copy)]
pub struct Beat {
    heartbeat: Duration,
    next: Duration,
}

impl Beat {
    /// Starts the timer with this heartbeat interval, when the head has accepted the agent's hello.
    #[must_use]
    pub fn new(heartbeat: Duration, now: Duration) -> Self {
        Self { heartbeat, next: now + heartbeat }
    }

    /// Restarts the interval, because the agent has just sent a message.
    pub fn spoke(&mut self, now: Duration) {
        self.next = now + self.heartbeat;
    }

    /// Returns when the next heartbeat is due.
    #[must_use]
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Returns how late the next heartbeat is, if it is so late that the agent must have been suspended.
    #[must_use]
    pub fn stood_still(&self, now: Duration) -> Option<Duration> {
        let late = now.saturating_sub(self.next);
        (late > self.heartbeat / 2).then_some(late)
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
        let mut outgoing = Outgoing::default();
        outgoing.add(report(1, RunStatus::Accepted), at(10));
        outgoing.add(report(2, RunStatus::Accepted), at(11));
        outgoing.add(report(1, RunStatus::Running), at(12));
        assert_eq!(outgoing.due(), Some(at(15)), "the first one has waited long enough");
        outgoing.add(AgentMessage::Heartbeat, at(13));
        assert_eq!(outgoing.due(), Some(at(13)));
        let all = vec![report(1, RunStatus::Running), report(2, RunStatus::Accepted), AgentMessage::Heartbeat];
        assert_eq!((outgoing.take(), outgoing.due()), (vec![all], None));
    }

    #[test]
    fn agent_that_is_late_by_more_than_half_a_heartbeat_stood_still() {
        let at = Duration::from_millis;
        let mut beat = Beat::new(at(1_000), at(0));
        assert_eq!((beat.next(), beat.stood_still(at(1_500))), (at(1_000), None));
        assert_eq!(beat.stood_still(at(1_501)), Some(at(501)));
        beat.spoke(at(1_400));
        assert_eq!(beat.stood_still(at(2_900)), None);
    }

    #[test]
    fn repeated_frames_are_dropped_and_a_gap_is_an_error() {
        let (mut outbox, mut inbox) = (Outbox::default(), Inbox::default());
        let frames: Vec<Frame<u8>> = (1..=4).map(|n| outbox.frame(vec![n])).collect();
        assert_eq!(inbox.accept(frames[0].clone()), Ok(vec![1]));
        assert_eq!(inbox.accept(frames[0].clone()), Ok(vec![]));
        assert_eq!(inbox.accept(frames[1].clone()), Ok(vec![2]));
        assert_eq!(inbox.accept(frames[3].clone()), Err(Gap { expected: 3, found: 4 }));
    }
}

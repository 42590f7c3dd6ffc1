//! The agent's end of a link: waits for the welcome, queues and sends messages, sends heartbeats, and ends the link if the head does not
//! answer, a frame is missing or the agent was suspended.

use std::collections::VecDeque;
use std::time::Duration;

use hostler_proto::link::{AgentMessage, Frame, HeadHello, HeadMessage};

use super::frames::{Gap, Inbox, Outbox};
use super::queue::Queue;

/// Timeout for an agent's hello, and for the head's answer.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The agent's end of one link. Starts when the hello is sent.
#[derive(Debug)]
pub struct AgentLink {
    phase: Phase,
    inbox: Inbox,
    outbox: Outbox,
    queue: Queue,
    /// The queue of an earlier moment, divided into frames.
    frames: VecDeque<Frame<AgentMessage>>,
}

#[derive(Debug)]
enum Phase {
    /// The hello is sent, and the head must answer by this time.
    Introduced(Duration),
    Open(Beat),
}

/// Parameters from the head's welcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The time until the agent's certificate needs renewal.
    pub renew_in: Option<Duration>,
    /// Time span for a random reconnect delay.
    pub return_within: Duration,
}

/// Why an agent ends its link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkEnd {
    /// The head did not answer the hello in time.
    #[error("the head does not answer the hello")]
    NoAnswer,
    /// The head refuses this agent, for the given reason.
    #[error("the head refuses this agent: {0}")]
    Refused(String),
    /// A frame is missing.
    #[error(transparent)]
    Gap(#[from] Gap),
    /// The agent did not run for a while.
    #[error("this agent was suspended: its heartbeat is {0:.1?} late")]
    Suspended(Duration),
}

impl AgentLink {
    /// A link on which the hello is sent at `now`.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self {
            phase: Phase::Introduced(now + HELLO_TIMEOUT),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            queue: Queue::default(),
            frames: VecDeque::new(),
        }
    }

    /// Whether the head has sent the welcome.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// Handles the head's answer to the hello.
    ///
    /// # Errors
    /// If the head refuses this agent.
    pub fn answered(&mut self, answer: HeadHello, now: Duration) -> Result<Terms, LinkEnd> {
        match answer {
            HeadHello::Welcome { heartbeat_ms, renew_in_ms, return_within_ms, .. } => {
                let heartbeat = Duration::from_millis(heartbeat_ms);
                self.phase = Phase::Open(Beat { heartbeat, next: now + heartbeat });
                Ok(Terms {
                    renew_in: renew_in_ms.map(Duration::from_millis),
                    return_within: Duration::from_millis(return_within_ms),
                })
            }
            HeadHello::Refused { message } => Err(LinkEnd::Refused(message)),
        }
    }

    /// Returns the messages of a frame from the head.
    ///
    /// # Errors
    /// If a frame is missing, or the agent was suspended. The messages of a suspended agent may be outdated.
    pub fn receive(&mut self, frame: Frame<HeadMessage>, now: Duration) -> Result<Vec<HeadMessage>, LinkEnd> {
        self.check_time(now)?;
        Ok(self.inbox.accept(frame)?)
    }

    /// Queues a message. Messages wait for the welcome.
    pub fn send(&mut self, message: AgentMessage, now: Duration) {
        self.queue.add(message, now);
    }

    /// The next frame that must be sent now, if any. Adds a heartbeat if it is due.
    ///
    /// # Errors
    /// If the head has not answered the hello in time, or the agent was suspended.
    pub fn next_frame(&mut self, now: Duration) -> Result<Option<Frame<AgentMessage>>, LinkEnd> {
        self.check_time(now)?;
        let Phase::Open(beat) = &mut self.phase else { return Ok(None) };
        if self.frames.is_empty() {
            if beat.next <= now {
                self.queue.add(AgentMessage::Heartbeat, now);
            }
            if self.queue.due().is_some_and(|due| due <= now) {
                self.frames.extend(self.outbox.frames(self.queue.take()));
            }
        }
        let frame = self.frames.pop_front();
        if frame.is_some() {
            beat.next = now + beat.heartbeat;
        }
        Ok(frame)
    }

    /// When [`AgentLink::next_frame`] must be called.
    #[must_use]
    pub fn wake_at(&self) -> Duration {
        match &self.phase {
            Phase::Introduced(until) => *until,
            Phase::Open(beat) => self.queue.due().map_or(beat.next, |due| due.min(beat.next)),
        }
    }

    fn check_time(&self, now: Duration) -> Result<(), LinkEnd> {
        match &self.phase {
            Phase::Introduced(until) if *until <= now => Err(LinkEnd::NoAnswer),
            Phase::Introduced(_) => Ok(()),
            Phase::Open(beat) => beat.late(now).map_or(Ok(()), |late| Err(LinkEnd::Suspended(late))),
        }
    }
}

/// The heartbeat timer of an agent, which also detects that the agent was suspended. A resumed agent may find old
/// messages of the head. By now the head may have placed their launches on other nodes, so the agent ignores the
/// messages and closes the link. The next hello reports the actual state. The head waits longer than the agent before
/// it gives up the link.
#[derive(Debug)]
struct Beat {
    heartbeat: Duration,
    /// When the next heartbeat is due. Any message restarts the interval, because it shows that the node lives.
    next: Duration,
}

impl Beat {
    /// How late the agent is, if it is so late that it must have been suspended.
    fn late(&self, now: Duration) -> Option<Duration> {
        let late = now.saturating_sub(self.next);
        (late > self.heartbeat / 2).then_some(late)
    }
}

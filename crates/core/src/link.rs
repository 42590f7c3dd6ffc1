//! Sequence numbers of the frames that one side of an agent connection sends.
//!
//! A transport may repeat or lose frames. The receiver drops repeated frames and closes the connection when one is missing. Both
//! sides then start again with the agent's hello.

use hostler_proto::link::Frame;

/// Numbers outgoing frames.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    sent: u64,
}

impl Outbox {
    /// Puts `messages` in the next frame.
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

/// A frame is missing, so the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame {expected} is missing: frame {found} arrived instead")]
pub struct Gap {
    /// The expected number.
    pub expected: u64,
    /// The received number.
    pub found: u64,
}

impl Inbox {
    /// The messages of a new frame; none for a repeated frame.
    ///
    /// # Errors
    /// When a frame between the last one and this one is missing.
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

#[cfg(test)]
mod tests {
    use super::*;

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

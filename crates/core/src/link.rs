//! Numbering of the frames on one connection of the agent link, in one direction.
//!
//! A transport may repeat frames or lose them; numbers turn the first into nothing and the second into a broken connection, after
//! which both sides start from the agent's hello.

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

/// A frame is missing: the connection cannot be trusted any more and must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame {expected} is missing, frame {found} came instead")]
pub struct Gap {
    /// The number that should have come.
    pub expected: u64,
    /// The number that came.
    pub found: u64,
}

impl Inbox {
    /// The messages of a new frame; none for a frame that came before.
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
    fn once_and_in_order_or_not_at_all() {
        let (mut outbox, mut inbox) = (Outbox::default(), Inbox::default());
        let frames: Vec<Frame<u8>> = (1..=4).map(|n| outbox.frame(vec![n])).collect();
        assert_eq!(inbox.accept(frames[0].clone()), Ok(vec![1]));
        assert_eq!(inbox.accept(frames[0].clone()), Ok(vec![]));
        assert_eq!(inbox.accept(frames[1].clone()), Ok(vec![2]));
        assert_eq!(inbox.accept(frames[3].clone()), Err(Gap { expected: 3, found: 4 }));
    }
}

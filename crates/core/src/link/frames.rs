//! Frames of the agent link: numbers and sizes.
//!
//! A transport may repeat or lose frames. The receiver drops repeated frames and closes the connection when one is missing. Both
//! sides then start again with the agent's hello.

use hostler_proto::link::{AgentMessage, Frame, HeadMessage, RunStatus};

/// Estimated size limit of a frame before its last message, in bytes. Only commands, environments and results can be
/// large. The size limits for a submission ensure that one more message stays below [`hostler_proto::link::MAX_FRAME_BYTES`].
const FRAME_BYTES: usize = 1 << 20;

/// Estimates the encoded size of a message.
pub trait EncodedSize {
    /// The approximate size in bytes.
    fn encoded_size(&self) -> usize;
}

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

    /// Divides `messages` into frames that are small enough to send.
    pub fn frames<M: EncodedSize>(&mut self, messages: Vec<M>) -> Vec<Frame<M>> {
        let mut frames = Vec::new();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for message in messages {
            let message_bytes = message.encoded_size();
            if bytes + message_bytes > FRAME_BYTES && !batch.is_empty() {
                frames.push(self.frame(std::mem::take(&mut batch)));
                bytes = 0;
            }
            bytes += message_bytes;
            batch.push(message);
        }
        if !batch.is_empty() {
            frames.push(self.frame(batch));
        }
        frames
    }
}

/// Checks the numbers of incoming frames.
#[derive(Debug, Clone, Default)]
pub struct Inbox {
    received: u64,
}

/// A missing frame: the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame {expected} is missing: frame {found} arrived instead")]
pub struct Gap {
    /// The expected number.
    pub expected: u64,
    /// The received number.
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

impl EncodedSize for AgentMessage {
    fn encoded_size(&self) -> usize {
        const FIXED: usize = 512;
        match self {
            Self::Report(report) => match &report.status {
                RunStatus::Ended(end) => {
                    let inline: usize =
                        end.result.iter().flat_map(|result| &result.inline).map(|blob| blob.len()).sum();
                    let steps: usize = end.steps.iter().map(|step| 512 + step.name.len() + 64 * step.nodes.len()).sum();
                    let certificate = end.certificate.as_ref().map_or(0, |it| it.encoded_size());
                    FIXED + inline + steps + certificate + end.message.as_ref().map_or(0, String::len)
                }
                RunStatus::Accepted
                | RunStatus::Staged
                | RunStatus::Ready { .. }
                | RunStatus::Running
                | RunStatus::Completing => FIXED,
            },
            Self::Heartbeat | Self::Drawing { .. } => FIXED,
            Self::Resting { busy, .. } => FIXED + busy.as_ref().map_or(0, String::len),
        }
    }
}

/// Only launches and account lists can be large.
impl EncodedSize for HeadMessage {
    fn encoded_size(&self) -> usize {
        const FIXED: usize = 256;
        match self {
            Self::Launch(launch) => hostler_proto::encode(launch).len(),
            Self::Accounts { accounts, blocked, guarded, system } => {
                let names: usize = accounts.iter().chain(blocked).map(|account| account.name.as_str().len() + 32).sum();
                FIXED + names + 5 * (guarded.len() + system.uids().len())
            }
            Self::End { .. }
            | Self::TimeLimit { .. }
            | Self::Signal { .. }
            | Self::Begin { .. }
            | Self::Forget { .. }
            | Self::Resend { .. }
            | Self::Stream(_)
            | Self::Watch { .. }
            | Self::PeersChanged
            | Self::Rest { .. }
            | Self::Rise
            | Self::PowerOff
            | Self::WakeUp { .. }
            | Self::Shutdown => FIXED,
        }
    }
}

#[cfg(test)]
mod tests {
    use hostler_model::{Attempt, Epoch, JobId, RunId, TaskId};
    use hostler_proto::link::{Account, MAX_FRAME_BYTES, SystemAccounts};

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

    #[test]
    fn estimate_covers_account_lists_with_names_of_any_length() {
        for name in ["a".to_owned(), "a".repeat(33), "a".repeat(255)] {
            let account = |uid| Account { name: name.parse().expect("a name"), uid };
            let list = |count: u32| (0..count).map(|n| account(u32::MAX - n)).collect::<Vec<_>>();
            for (accounts, blocked) in [(list(1000), vec![]), (vec![], list(1000)), (list(500), list(500))] {
                let guarded = vec![u32::MAX; 1000];
                let message =
                    HeadMessage::Accounts { accounts, blocked, system: SystemAccounts::Only(guarded.clone()), guarded };
                assert!(hostler_proto::encode(&message).len() <= message.encoded_size(), "{} characters", name.len());
            }
        }
    }

    #[test]
    fn many_messages_are_divided_into_frames_in_order() {
        let run = |index| RunId { task: TaskId { job: JobId(1), index }, attempt: Attempt(1), epoch: Epoch(1) };
        let messages: Vec<HeadMessage> = (0..20_000).map(|index| HeadMessage::Forget { run: run(index) }).collect();
        let frames = Outbox::default().frames(messages.clone());
        assert!(frames.len() > 1);
        for (number, frame) in (1..).zip(&frames) {
            assert!(frame.sequence == number && hostler_proto::encode(frame).len() < MAX_FRAME_BYTES);
        }
        assert_eq!(frames.into_iter().flat_map(|frame| frame.messages).collect::<Vec<_>>(), messages);
    }
}

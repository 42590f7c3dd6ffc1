//! The part of the caller's own agent in a conversation about a tree: relays its frames.

use std::time::Duration;

use hostler_remote::{Channel, Event, Frame, Stream};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// Returns a node's answer to a start request. Relays the node's questions about the tree to the caller meanwhile,
/// and sets `has_told` on the first. `bound` limits each wait. Returns `None` when the caller is gone or violates the
/// protocol.
pub(in crate::exec) async fn answer_of(
    channel: &mut Channel,
    there: &mut Channel,
    bound: Duration,
    has_told: &mut bool,
) -> Option<Result<Option<Frame>, Elapsed>> {
    loop {
        tokio::select! {
            answer = timeout(bound, there.receive()) => match answer {
                Ok(Some(frame @ (Frame::Data(Stream::TREE, _) | Frame::Credit(Stream::TREE, _)))) => {
                    *has_told = true;
                    channel.send(frame).await.ok()?;
                }
                answer => return Some(answer),
            },
            said = channel.receive() => match said? {
                frame @ (Frame::Data(Stream::TREE, _) | Frame::Credit(Stream::TREE, _)) => drop(there.send(frame).await),
                _ => return None,
            },
        }
    }
}

/// Tells the caller to discard the conversation, so that another node may ask. Returns `None` when the caller is
/// gone.
pub(in crate::exec) async fn begin_anew(channel: &mut Channel, bound: Duration) -> Option<()> {
    channel.send(Frame::Event(Event::ResetTree)).await.ok()?;
    loop {
        match timeout(bound, channel.receive()).await.ok()?? {
            Frame::Event(Event::ResetTree) => return Some(()),
            // The caller sent this before it received the reset.
            Frame::Data(Stream::TREE, _) | Frame::Credit(Stream::TREE, _) => {}
            _ => return None,
        }
    }
}

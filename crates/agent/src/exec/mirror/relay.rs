//! Relays frames between the caller and another node's agent until the command starts.

use std::time::Duration;

use hostler_remote::{Channel, Event, Frame, Stream};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// Waits for a node's answer to a start request, and returns it. Meanwhile, relays the node's requests to the caller,
/// and sets `has_told` at the first question about the tree. `bound` limits each wait. Returns `None` if the caller has
/// disconnected or violates the protocol.
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
                Ok(Some(frame @ Frame::Event(Event::RemoveProof))) => channel.send(frame).await.ok()?,
                answer => return Some(answer),
            },
            said = channel.receive() => match said? {
                frame @ (Frame::Data(Stream::TREE, _) | Frame::Credit(Stream::TREE, _)) => drop(there.send(frame).await),
                _ => return None,
            },
        }
    }
}

/// Tells the caller to start over with the tree, because another node will ask for it. Returns `None` if the caller has
/// disconnected or does not confirm.
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

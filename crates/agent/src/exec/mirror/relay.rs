//! What the caller's own agent has to do with its tree: passing on what is said of it.

use std::time::Duration;

use hostler_remote::{Channel, Event, Frame, Stream};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// What a node answers that was told to start a command; before that it may ask the caller about the tree, each time anew within `bound`, and then
/// it `has_told` something. `None` when nobody waits for it any more: a caller has nothing else to say now.
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

/// Has the caller forget what it was asked, so that another node may ask. `None` when it is gone.
pub(in crate::exec) async fn begin_anew(channel: &mut Channel, bound: Duration) -> Option<()> {
    channel.send(Frame::Event(Event::ResetTree)).await.ok()?;
    loop {
        match timeout(bound, channel.receive()).await.ok()?? {
            Frame::Event(Event::ResetTree) => return Some(()),
            // Said before it heard.
            Frame::Data(Stream::TREE, _) | Frame::Credit(Stream::TREE, _) => {}
            _ => return None,
        }
    }
}

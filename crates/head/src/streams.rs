//! Connects readers of a job's output, terminal or port with the agent that runs the job.
//!
//! The head cannot open connections to agents, because nodes may be behind NAT. A reader registers under a random name,
//! and the head sends this name to the agent over the link. The agent opens a connection with that name, which is
//! handed to the reader. Nothing is buffered: the agent's connection is read as fast as the reader reads.

use crate::names::random_name;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::ws::WebSocket;
use futures_util::Stream;
use hostler_listen::UsageLimits;
use hostler_model::{NodeName, RunId};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Maximum number of clients that read the output of one live run at once. Each needs a connection and a watch of the
/// agent.
const OUTPUT_READERS: usize = 64;

/// Maximum number of clients that are attached to the terminal of one run at once. A shepherd has the same limit.
const TERMINAL_CLIENTS: usize = 32;

/// Maximum number of connections to the ports of one run at once. A browser keeps a few for each page.
const FORWARDED: usize = 128;

pub(crate) struct Streams {
    pub(crate) outputs: StreamRegistry<Upload>,
    /// Terminals and ports.
    pub(crate) sockets: StreamRegistry<WebSocket>,
    pub(crate) output_readers: Arc<UsageLimits<RunId>>,
    pub(crate) terminal_clients: Arc<UsageLimits<RunId>>,
    pub(crate) forwarded: Arc<UsageLimits<RunId>>,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            outputs: StreamRegistry::default(),
            sockets: StreamRegistry::default(),
            output_readers: UsageLimits::of(OUTPUT_READERS),
            terminal_clients: UsageLimits::of(TERMINAL_CLIENTS),
            forwarded: UsageLimits::of(FORWARDED),
        }
    }
}

/// Matches waiting readers with arriving agents.
pub(crate) struct StreamRegistry<T> {
    waiting: Arc<Mutex<HashMap<String, Waiting<T>>>>,
}

impl<T> Default for StreamRegistry<T> {
    fn default() -> Self {
        Self { waiting: Arc::default() }
    }
}

struct Waiting<T> {
    /// The only node that may answer.
    node: NodeName,
    reader: oneshot::Sender<T>,
}

/// A registered reader. Dropping it removes the registration.
pub(crate) struct Place<T> {
    /// Random name that the agent must present.
    pub(crate) name: String,
    arrival: oneshot::Receiver<T>,
    meeting: StreamRegistry<T>,
}

impl<T> StreamRegistry<T> {
    /// Registers a reader that waits for a connection from `node`.
    pub(crate) fn wait_for(&self, node: &NodeName) -> Place<T> {
        let name = random_name();
        let (reader, arrival) = oneshot::channel();
        self.waiting().insert(name.clone(), Waiting { node: node.clone(), reader });
        Place { name, arrival, meeting: Self { waiting: Arc::clone(&self.waiting) } }
    }

    /// Hands `node`'s connection to the reader called `name`. Returns the connection if no reader waits for this node
    /// under that name.
    pub(crate) fn deliver(&self, name: &str, node: &NodeName, thing: T) -> Result<(), T> {
        let waiting = {
            let mut all = self.waiting();
            match all.get(name) {
                Some(waiting) if waiting.node == *node => all.remove(name),
                _ => None,
            }
        };
        match waiting {
            Some(waiting) => waiting.reader.send(thing),
            None => Err(thing),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Waiting<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Place<T> {
    /// Waits for the agent's connection. Cancel safe.
    pub(crate) async fn arrival(&mut self) -> Option<T> {
        (&mut self.arrival).await.ok()
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        self.meeting.waiting().remove(&self.name);
    }
}

/// Which part of an output a response contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Offset of the first byte.
    pub(crate) offset: u64,
    /// Size of the whole output when it was read.
    pub(crate) size: u64,
}

/// The body of an agent's request, read by another task.
pub(crate) struct Upload {
    body: BodyDataStream,
    /// Which part of the output the body is.
    pub(crate) extent: Extent,
    /// Sent when the body was read completely; dropped if the reader disconnects before that.
    complete: Option<oneshot::Sender<()>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Upload {
    /// Wraps a body, which fails when the head stops. The returned receiver reports whether the whole body was read.
    pub(crate) fn new(body: Body, extent: Extent, stop: &CancellationToken) -> (Self, oneshot::Receiver<()>) {
        let (complete, outcome) = oneshot::channel();
        let stop = Box::pin(stop.clone().cancelled_owned());
        (Self { body: body.into_data_stream(), extent, complete: Some(complete), stop }, outcome)
    }
}

impl Stream for Upload {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stop.as_mut().poll(context).is_ready() {
            // Ends the stream with an error, so that the reader does not treat its data as complete.
            return Poll::Ready(Some(Err(axum::Error::new("the head is stopping"))));
        }
        let next = Pin::new(&mut self.body).poll_next(context);
        if matches!(next, Poll::Ready(None))
            && let Some(complete) = self.complete.take()
        {
            // The agent may have disconnected after its last byte.
            let _ = complete.send(());
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a valid name")
    }

    #[tokio::test]
    async fn only_the_requested_node_can_deliver() {
        let meeting = StreamRegistry::default();
        let mut place = meeting.wait_for(&node("a"));
        assert_eq!(meeting.deliver(&place.name, &node("b"), 1), Err(1));
        assert_eq!(meeting.deliver("guess", &node("a"), 2), Err(2));
        assert_eq!(meeting.deliver(&place.name, &node("a"), 3), Ok(()));
        assert_eq!(place.arrival().await, Some(3));
        assert_eq!(meeting.deliver(&place.name, &node("a"), 4), Err(4));
    }

    #[test]
    fn dropped_reader_is_removed() {
        let meeting = StreamRegistry::<()>::default();
        drop(meeting.wait_for(&node("a")));
        assert!(meeting.waiting().is_empty());
    }
}

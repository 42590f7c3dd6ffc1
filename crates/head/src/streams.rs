//! Joins those who want to see a job's output or terminal with the agent that has it.
//!
//! Agents cannot be dialled: nodes may sit behind NAT. So a reader leaves its name here, the agent is asked over the link, and what
//! it opens in answer is handed to the reader. Nothing is buffered: the agent's connection is read only as fast as the reader reads.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::ws::WebSocket;
use futures_util::Stream;
use hostler_model::NodeName;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::trust::random_name;

/// Readers that wait, by what they wait for.
#[derive(Default)]
pub(crate) struct Streams {
    /// For output.
    pub(crate) outputs: Meeting<Upload>,
    /// For terminals.
    pub(crate) terminals: Meeting<WebSocket>,
}

/// A place where readers wait and agents arrive.
pub(crate) struct Meeting<T> {
    waiting: Arc<Mutex<HashMap<String, Waiting<T>>>>,
}

impl<T> Default for Meeting<T> {
    fn default() -> Self {
        Self { waiting: Arc::default() }
    }
}

struct Waiting<T> {
    /// Nobody but this node may answer.
    node: NodeName,
    reader: oneshot::Sender<T>,
}

/// A reader's place. Dropping it gives the place up.
pub(crate) struct Place<T> {
    /// What the agent must ask for; nobody can guess it.
    pub(crate) name: String,
    arrival: oneshot::Receiver<T>,
    meeting: Meeting<T>,
}

impl<T> Meeting<T> {
    /// Waits for `node`.
    pub(crate) fn wait_for(&self, node: &NodeName) -> Place<T> {
        let name = random_name();
        let (reader, arrival) = oneshot::channel();
        self.waiting().insert(name.clone(), Waiting { node: node.clone(), reader });
        Place { name, arrival, meeting: Self { waiting: Arc::clone(&self.waiting) } }
    }

    /// Hands over what `node` brings for the place called `name`; gives it back when nobody waits there for this node.
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
    /// What the agent brings. Cancel safe.
    pub(crate) async fn arrival(&mut self) -> Option<T> {
        (&mut self.arrival).await.ok()
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        self.meeting.waiting().remove(&self.name);
    }
}

/// The body of an agent's request, to be read by somebody else.
pub(crate) struct Upload {
    body: BodyDataStream,
    /// Told when all of it was read; dropped when the reader goes away before that.
    complete: Option<oneshot::Sender<()>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Upload {
    /// Wraps a body, which breaks off when the head stops. The receiver says whether all of it was read.
    pub(crate) fn new(body: Body, stop: &CancellationToken) -> (Self, oneshot::Receiver<()>) {
        let (complete, outcome) = oneshot::channel();
        let stop = Box::pin(stop.clone().cancelled_owned());
        (Self { body: body.into_data_stream(), complete: Some(complete), stop }, outcome)
    }
}

impl Stream for Upload {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stop.as_mut().poll(context).is_ready() {
            // Not an end: the reader must not take what it has for all there is.
            return Poll::Ready(Some(Err(axum::Error::new("the head is stopping"))));
        }
        let next = Pin::new(&mut self.body).poll_next(context);
        if matches!(next, Poll::Ready(None))
            && let Some(complete) = self.complete.take()
        {
            // The agent may have gone away right after its last byte.
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
    async fn only_the_node_that_was_asked_is_heard() {
        let meeting = Meeting::default();
        let mut place = meeting.wait_for(&node("a"));
        assert_eq!(meeting.deliver(&place.name, &node("b"), 1), Err(1));
        assert_eq!(meeting.deliver("guess", &node("a"), 2), Err(2));
        assert_eq!(meeting.deliver(&place.name, &node("a"), 3), Ok(()));
        assert_eq!(place.arrival().await, Some(3));
        assert_eq!(meeting.deliver(&place.name, &node("a"), 4), Err(4));
    }

    #[test]
    fn a_reader_that_leaves_leaves_nothing_behind() {
        let meeting = Meeting::<()>::default();
        drop(meeting.wait_for(&node("a")));
        assert!(meeting.waiting().is_empty());
    }
}

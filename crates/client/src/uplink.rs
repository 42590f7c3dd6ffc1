//! For agents: output on its way up, as the body of a request that goes on for as long as the output does.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::Method;
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connection::{Body, Connection, collect, interrupted, request};
use crate::{Client, ClientError, Endpoint};

/// Pieces on their way: enough to keep the connection busy while the next one is read, few enough to hold little memory.
const PIECES_IN_FLIGHT: usize = 4;

/// What goes through the channel to the body.
enum Piece {
    Bytes(Bytes),
    /// The clean end. A sender that is dropped without it breaks the body off, so that nobody takes a part for the whole.
    End,
}

/// An output being sent. Dropping it breaks the stream off; [`Uplink::finish`] ends it.
#[derive(Debug)]
pub struct Uplink {
    pieces: mpsc::Sender<Piece>,
    answer: JoinHandle<Result<(), ClientError>>,
    endpoint: Endpoint,
}

impl Client {
    /// Opens the stream that the head asked for. Needs a tokio runtime; not tried again.
    #[must_use]
    pub fn send_stream(&self, stream: &str) -> Uplink {
        let (pieces, receiver) = mpsc::channel(PIECES_IN_FLIGHT);
        let endpoint = self.endpoint().clone();
        let answer = tokio::spawn(put(endpoint.clone(), format!("/agent/streams/{stream}"), receiver));
        Uplink { pieces, answer, endpoint }
    }
}

async fn put(endpoint: Endpoint, path: String, pieces: mpsc::Receiver<Piece>) -> Result<(), ClientError> {
    let mut connection = Connection::open(&endpoint, 0).await?;
    let request = request(Method::PUT, &path, Some("application/octet-stream"), body(pieces));
    let response = connection.exchange(&endpoint, request).await?;
    collect(&endpoint, response).await.map(drop)
}

/// The body that `pieces` make.
fn body(pieces: mpsc::Receiver<Piece>) -> Body {
    let frames = stream::unfold(Some(pieces), |pieces| async {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(Frame::data(bytes)), Some(pieces))),
            Some(Piece::End) => None,
            None => Some((Err(io::Error::other("the sender gave up")), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Uplink {
    /// Sends `bytes`, waiting while the head is slower than the job.
    ///
    /// # Errors
    /// When the reader has gone away or the connection broke; nothing more can be sent then.
    pub async fn send(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        if self.pieces.send(Piece::Bytes(bytes)).await.is_ok() {
            return Ok(());
        }
        match (&mut self.answer).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Err(interrupted(&self.endpoint, "nobody reads this output any more")),
        }
    }

    /// Waits until nobody reads any more: the head ended the request or the connection broke. For a sender with nothing to send.
    pub async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Ends the stream and waits until the head has taken all of it.
    ///
    /// # Errors
    /// When the connection broke before that.
    pub async fn finish(self) -> Result<(), ClientError> {
        let Self { pieces, answer, endpoint } = self;
        // If nobody takes it, the answer says why.
        pieces.send(Piece::End).await.ok();
        answer.await.unwrap_or_else(|_| Err(interrupted(&endpoint, "the transfer was stopped")))
    }
}

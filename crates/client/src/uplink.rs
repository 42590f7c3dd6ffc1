//! For agents: sends output as the body of a long-running request.

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

/// Capacity of the channel: enough to keep the connection busy, few enough to limit memory.
const PIECES_IN_FLIGHT: usize = 4;

/// A piece of the body.
enum Piece {
    Bytes(Bytes),
    /// The regular end. If the sender is dropped without it, the body is aborted, so that it is not mistaken for
    /// complete.
    End,
}

/// An output that is being sent. Dropping it aborts the stream; [`Uplink::finish`] ends it.
#[derive(Debug)]
pub struct Uplink {
    pieces: mpsc::Sender<Piece>,
    answer: JoinHandle<Result<(), ClientError>>,
    endpoint: Endpoint,
}

impl Client {
    /// Opens the stream that the head requested: `offset` is that of its first byte in the output, and `size` the size
    /// of the output. Needs a tokio runtime. Not retried.
    #[must_use]
    pub fn send_stream(&self, stream: &str, offset: u64, size: u64) -> Uplink {
        let (pieces, receiver) = mpsc::channel(PIECES_IN_FLIGHT);
        let endpoint = self.endpoint().clone();
        let answer = tokio::spawn(put(
            endpoint.clone(),
            format!("/agent/streams/{stream}?offset={offset}&size={size}"),
            receiver,
        ));
        Uplink { pieces, answer, endpoint }
    }
}

async fn put(endpoint: Endpoint, path: String, pieces: mpsc::Receiver<Piece>) -> Result<(), ClientError> {
    let mut connection = Connection::open(&endpoint, 0).await?;
    let request = request(Method::PUT, &path, Some("application/octet-stream"), body(pieces));
    let response = connection.exchange(&endpoint, request).await?;
    collect(&endpoint, response).await.map(drop)
}

fn body(pieces: mpsc::Receiver<Piece>) -> Body {
    let frames = stream::unfold(Some(pieces), |pieces| async {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(Frame::data(bytes)), Some(pieces))),
            Some(Piece::End) => None,
            None => Some((Err(io::Error::other("the sender was dropped")), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Uplink {
    /// Sends `bytes`. Waits if the head reads more slowly than the job writes.
    ///
    /// # Errors
    /// If the reader has disconnected or the connection broke. Nothing more can be sent then.
    pub async fn send(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        if self.pieces.send(Piece::Bytes(bytes)).await.is_ok() {
            return Ok(());
        }
        match (&mut self.answer).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Err(interrupted(&self.endpoint, "the reader of this output has disconnected")),
        }
    }

    /// Waits until the head has ended the request or the connection has closed. A sender that waits for data notices
    /// the end of the request in this way.
    pub async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Ends the stream and waits until the head has received all of it.
    ///
    /// # Errors
    /// If the connection broke before that.
    pub async fn finish(self) -> Result<(), ClientError> {
        let Self { pieces, answer, endpoint } = self;
        // If the sending fails, the answer contains the reason.
        pieces.send(Piece::End).await.ok();
        answer.await.unwrap_or_else(|_| Err(interrupted(&endpoint, "the transfer was aborted")))
    }
}

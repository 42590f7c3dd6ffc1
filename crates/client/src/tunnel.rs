//! A connection to a TCP port or a Unix socket of a job over a WebSocket; see [`hostler_proto::forward`].
//!
//! Each direction reads a piece only when the piece before has been written, so nothing is buffered beyond the sockets of
//! the operating system.

use std::convert::Infallible;
use std::io;

use bytes::BytesMut;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hostler_model::TaskId;
use hostler_proto::forward::{
    Announcement, Destination, End, ForwardAnswer, MAX_MESSAGE_BYTES, PING_INTERVAL, SILENCE,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::connection::interrupted;
use crate::routes::escape;
use crate::{Client, ClientError, Endpoint, LocalError, Stream, websocket};

/// A connection to a TCP port or a Unix socket of a job. Dropping it breaks the connection.
#[derive(Debug)]
pub struct Tunnel {
    socket: WebSocketStream<Stream>,
    endpoint: Endpoint,
}

impl Client {
    /// Connects to a port or socket on which a task listens, on its node of this rank. Not retried.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `no_listener` if the task does not listen there, `not_running` if it does not
    /// run, and `forbidden` if it belongs to another user.
    pub async fn forward(&self, task: TaskId, rank: u32, to: &Destination) -> Result<Tunnel, ClientError> {
        let TaskId { job, index } = task;
        let to = match to {
            Destination::Port(port) => format!("port={port}"),
            Destination::Socket(path) => format!("socket={}", escape(path)),
            Destination::Accepted(number) => format!("accepted={number}"),
        };
        self.tunnel(&format!("/jobs/{job}/tasks/{index}/forward?{to}&node_rank={rank}")).await
    }

    /// Listens on a port or Unix socket for programs of a task, on its node of this rank. Returns the listener, which lives
    /// as long as the connection, and its port, which is 0 for a socket. Not retried.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with code `address_taken` if the task cannot listen there, and else as for
    /// [`Client::forward`].
    pub async fn listen(
        &self,
        task: TaskId,
        rank: u32,
        at: &Destination,
    ) -> Result<(ForwardControl, u16), ClientError> {
        let TaskId { job, index } = task;
        let at = match at {
            Destination::Port(port) => format!("port={port}"),
            Destination::Socket(path) => format!("socket={}", escape(path)),
            Destination::Accepted(_) => {
                return Err(
                    LocalError::new("cannot listen", "an accepted connection is not an address to listen on").into()
                );
            }
        };
        let tunnel = self.tunnel(&format!("/jobs/{job}/tasks/{index}/listen?{at}&node_rank={rank}")).await?;
        let mut control = tunnel.into_control();
        match control.next().await? {
            Announcement::Listening(port) => Ok((control, port)),
            Announcement::Accepted(_) => Err(broken(&"the node did not say where it listens")),
        }
    }

    /// For agents: opens the other end of a user's tunnel, and says whether it is connected.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if no user waits for this stream.
    pub async fn stream_forward(&self, stream: &str, answer: &ForwardAnswer) -> Result<Tunnel, ClientError> {
        let mut tunnel = self.tunnel(&format!("/agent/streams/{stream}/forward")).await?;
        let sent = tunnel.socket.send(text(answer)).await;
        sent.map_err(|error| interrupted(&tunnel.endpoint, error.to_string()))?;
        Ok(tunnel)
    }

    async fn tunnel(&self, path: &str) -> Result<Tunnel, ClientError> {
        let config = WebSocketConfig::default()
            .read_buffer_size(MAX_MESSAGE_BYTES)
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let (socket, _) = websocket::open(self.endpoint(), path, Some(config)).await?;
        Ok(Tunnel { socket, endpoint: self.endpoint().clone() })
    }
}

/// The WebSocket of a listener in a job; see [`hostler_proto::forward`]. Dropping it ends the listener.
#[derive(Debug)]
pub struct ForwardControl {
    tunnel: Tunnel,
    next_ping: Instant,
    last_heard: Instant,
}

impl ForwardControl {
    /// For agents: tells the client of the listener.
    ///
    /// # Errors
    /// [`ClientError::TunnelBroken`].
    pub async fn send(&mut self, announcement: &Announcement) -> Result<(), ClientError> {
        self.tunnel.socket.send(text(announcement)).await.map_err(|error| broken(&error))
    }

    /// Waits for the next announcement, and pings meanwhile. Cancel safe.
    ///
    /// # Errors
    /// [`ClientError::TunnelBroken`] at the end.
    pub async fn next(&mut self) -> Result<Announcement, ClientError> {
        loop {
            let message = tokio::select! {
                message = self.tunnel.socket.next() => message,
                () = sleep_until(self.next_ping) => {
                    self.next_ping = Instant::now() + PING_INTERVAL;
                    self.ping().await?;
                    continue;
                }
                () = sleep_until(self.last_heard + SILENCE) => return Err(broken(&silence())),
            };
            self.last_heard = Instant::now();
            match message {
                Some(Ok(Message::Text(text))) => {
                    if let Ok(announcement) = serde_json::from_str(&text) {
                        return Ok(announcement);
                    }
                }
                Some(Ok(Message::Close(_))) | None => return Err(broken(&"the connection was closed")),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(&error)),
            }
        }
    }

    async fn ping(&mut self) -> Result<(), ClientError> {
        let sent = timeout(SILENCE, self.tunnel.socket.send(Message::Ping(Bytes::new()))).await;
        sent.map_err(|_| broken(&silence()))?.map_err(|error| broken(&error))
    }
}

impl Tunnel {
    /// Makes this the WebSocket of a listener.
    #[must_use]
    pub fn into_control(self) -> ForwardControl {
        let now = Instant::now();
        ForwardControl { tunnel: self, next_ping: now + PING_INTERVAL, last_heard: now }
    }

    /// Carries bytes between the tunnel and `near` until both directions have ended. The end of one direction shuts down
    /// the other side's writing half.
    ///
    /// # Errors
    /// [`ClientError::TunnelBroken`] if the tunnel broke, and [`ClientError::Local`] if `near` did. Bytes may be lost then:
    /// the caller resets `near`.
    pub async fn carry(self, near: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<(), ClientError> {
        let Self { socket, .. } = self;
        let (mut sink, mut source) = socket.split();
        let (from_near, to_near) = split(near);
        let (all_sent, is_all_sent) = oneshot::channel();
        let sending = send_all(from_near, &mut sink, all_sent);
        let receiving = receive_all(&mut source, to_near, is_all_sent);
        let carried = tokio::select! {
            broken = sending => broken.map(|never| match never {}),
            outcome = receiving => outcome,
        };
        carried.map_err(|broken| match broken {
            Broken::Near(error) => LocalError::new("the local connection broke", error).into(),
            Broken::Far(what) => ClientError::TunnelBroken { what },
        })?;
        let close = async {
            // Everything has arrived here, so the other side's failures no longer matter.
            let _ = sink.close().await;
            std::future::pending::<()>().await;
        };
        // Dropping the connection now would discard bytes that are on their way to the other side.
        let other_side = async { while let Ok(Some(Ok(_))) = timeout(SILENCE, source.next()).await {} };
        tokio::select! {
            () = close => {}
            () = other_side => {}
        }
        Ok(())
    }
}

/// Why a tunnel broke.
enum Broken {
    Near(io::Error),
    Far(String),
}

/// Sends what `near` writes. Then pings until the tunnel breaks.
async fn send_all(
    mut near: impl AsyncRead + Unpin,
    sink: &mut SplitSink<WebSocketStream<Stream>, Message>,
    all_sent: oneshot::Sender<()>,
) -> Result<Infallible, Broken> {
    let mut piece = BytesMut::new();
    loop {
        piece.reserve(MAX_MESSAGE_BYTES);
        let mut part = (&mut near).take(MAX_MESSAGE_BYTES as u64);
        let message = match timeout(PING_INTERVAL, part.read_buf(&mut piece)).await {
            Ok(Ok(0)) => break,
            Ok(Ok(_)) => Message::Binary(piece.split().freeze()),
            Ok(Err(error)) => return Err(Broken::Near(error)),
            Err(_) => Message::Ping(Bytes::new()),
        };
        sink.send(message).await.map_err(|error| Broken::Far(error.to_string()))?;
    }
    sink.send(text(&End { end: true })).await.map_err(|error| Broken::Far(error.to_string()))?;
    // The receiver lives as long as this function.
    let _ = all_sent.send(());
    loop {
        sleep(PING_INTERVAL).await;
        sink.send(Message::Ping(Bytes::new())).await.map_err(|error| Broken::Far(error.to_string()))?;
    }
}

/// Writes what arrives to `near`. Returns when both directions have ended.
async fn receive_all(
    source: &mut SplitStream<WebSocketStream<Stream>>,
    mut near: impl AsyncWrite + Unpin,
    mut is_all_sent: oneshot::Receiver<()>,
) -> Result<(), Broken> {
    let mut has_ended = false;
    loop {
        let message = tokio::select! {
            message = timeout(SILENCE, source.next()) => message,
            _ = &mut is_all_sent, if has_ended => return Ok(()),
        };
        let message = message.map_err(|_| Broken::Far(silence()))?;
        match message {
            Some(Ok(Message::Binary(bytes))) => {
                near.write_all(&bytes).await.map_err(Broken::Near)?;
                // Standard output keeps an unfinished line back.
                near.flush().await.map_err(Broken::Near)?;
            }
            Some(Ok(Message::Text(text))) => {
                if serde_json::from_str(&text).is_ok_and(|End { end }| end) {
                    near.shutdown().await.map_err(Broken::Near)?;
                    has_ended = true;
                }
            }
            Some(Ok(Message::Close(_))) => return Ok(()),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(error)) => return Err(Broken::Far(error.to_string())),
            None => return Err(Broken::Far("the connection was closed".to_owned())),
        }
    }
}

fn broken(what: &impl ToString) -> ClientError {
    ClientError::TunnelBroken { what: what.to_string() }
}

fn silence() -> String {
    format!("nothing heard for {} seconds", SILENCE.as_secs())
}

fn text(message: &impl serde::Serialize) -> Message {
    Message::text(serde_json::to_string(message).expect("API types are valid JSON"))
}

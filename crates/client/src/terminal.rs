//! A job's terminal over a WebSocket: bytes in both directions, window sizes from the user.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hostler_model::{TaskId, WindowSize};
use hostler_proto::api::WATCHING_HEADER;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use crate::connection::interrupted;
use crate::{Client, ClientError, Endpoint, Stream, websocket};

/// A connection to a job's terminal.
#[derive(Debug)]
pub struct Terminal {
    socket: WebSocketStream<Stream>,
    endpoint: Endpoint,
    types: bool,
}

/// A message of a terminal connection.
#[derive(Debug, PartialEq, Eq)]
pub enum TerminalMessage {
    Output(Bytes),
    /// A new window size; only agents receive it.
    Resize(WindowSize),
}

impl Client {
    /// Connects to a task's terminal.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the task has no terminal or is not running.
    pub async fn attach(&self, task: TaskId, size: WindowSize) -> Result<Terminal, ClientError> {
        let WindowSize { rows, columns } = size;
        let TaskId { job, index } = task;
        self.terminal(&format!("/jobs/{job}/tasks/{index}/attach?rows={rows}&columns={columns}")).await
    }

    /// For agents: opens the other end of a user's terminal connection.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if no user waits for this stream.
    pub async fn stream_terminal(&self, stream: &str) -> Result<Terminal, ClientError> {
        self.terminal(&format!("/agent/streams/{stream}/terminal")).await
    }

    async fn terminal(&self, path: &str) -> Result<Terminal, ClientError> {
        let (socket, response) = websocket::open(self.endpoint(), path, None).await?;
        let types = !response.headers().contains_key(WATCHING_HEADER);
        Ok(Terminal { socket, endpoint: self.endpoint().clone(), types })
    }
}

impl Terminal {
    /// Whether the head passes this user's input on. Others than the job's owner only watch.
    #[must_use]
    pub fn types(&self) -> bool {
        self.types
    }

    /// The next message, or `None` if the other side has closed the connection. Cancel safe.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] if the connection broke.
    pub async fn next(&mut self) -> Result<Option<TerminalMessage>, ClientError> {
        while let Some(message) = self.socket.next().await {
            match message {
                Ok(Message::Binary(bytes)) => return Ok(Some(TerminalMessage::Output(bytes))),
                Ok(Message::Text(text)) => {
                    if let Ok(size) = serde_json::from_str(text.as_str()) {
                        return Ok(Some(TerminalMessage::Resize(size)));
                    }
                }
                Ok(Message::Close(_)) | Err(WebSocketError::ConnectionClosed) => return Ok(None),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Err(error) => return Err(interrupted(&self.endpoint, error.to_string())),
            }
        }
        Ok(None)
    }

    /// Sends bytes to the other side.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] if the connection broke.
    pub async fn send(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.send_message(Message::Binary(bytes)).await
    }

    /// Sends a new window size.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] if the connection broke.
    pub async fn resize(&mut self, size: WindowSize) -> Result<(), ClientError> {
        let text = serde_json::to_string(&size).expect("API types are valid JSON");
        self.send_message(Message::text(text)).await
    }

    /// Detaches; the job continues.
    pub async fn leave(mut self) {
        // An error means that the other side has already closed the connection.
        self.socket.close(None).await.ok();
    }

    async fn send_message(&mut self, message: Message) -> Result<(), ClientError> {
        self.socket.send(message).await.map_err(|error| interrupted(&self.endpoint, error.to_string()))
    }
}

//! Connections to TCP ports and Unix sockets of jobs: messages of the WebSockets between client and head, and between head and agent.
//!
//! Binary messages are bytes. The text message [`End`] says that no more bytes follow in its direction. A WebSocket that
//! is closed with a close frame is complete; one that ends without it is broken, and so is the connection that it
//! carries.
//!
//! Both ends ping every [`PING_INTERVAL`], also while their other direction is blocked, and the head passes pings on. An
//! end that waits for a message therefore knows after [`SILENCE`] that the connection is broken.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum size of a message.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Time without another message after which an end sends a ping.
pub const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Time without any message after which an end considers the connection broken.
pub const SILENCE: Duration = Duration::from_secs(20);

/// Maximum length of the path of a socket, in bytes: that of all paths.
pub const MAX_PATH_BYTES: usize = 4095;

/// Where a server of a job listens, on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A TCP port.
    Port(u16),
    /// The path of a Unix socket, absolute or relative to the job's folder.
    Socket(String),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "port {port}"),
            Self::Socket(path) => write!(f, "socket {path}"),
        }
    }
}

/// The text message at the end of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Always `true`.
    pub end: bool,
}

/// The first message of an agent, as text: whether the agent has connected to the destination. The head does not pass it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardAnswer {
    /// The agent is connected, and bytes follow.
    Connected,
    /// No process of the run listens on the port. Also the answer of an agent that does not know sockets, because it looks
    /// for port 0 instead.
    NothingListens,
    /// No process of the run listens on the socket.
    NothingOnSocket,
    /// The connection failed for this reason.
    Failed(String),
}

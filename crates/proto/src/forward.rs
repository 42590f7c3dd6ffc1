//! Connections to TCP ports and Unix sockets of jobs, and from jobs to the machine of their user: messages of the WebSockets
//! between client and head, and between head and agent.
//!
//! Binary messages are bytes. The text message [`End`] says that no more bytes follow in its direction. A WebSocket that
//! is closed with a close frame is complete; one that ends without it is broken, and so is the connection that it
//! carries.
//!
//! Both ends ping every [`PING_INTERVAL`], also while their other direction is blocked, and the head passes pings on. An
//! end that waits for a message therefore knows after [`SILENCE`] that the connection is broken.
//!
//! A listener in a job has a WebSocket without bytes, on which the agent sends an [`Announcement`] for each connection. The
//! client opens a WebSocket to each of them, as to a server of the job. The listener ends with its WebSocket.

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

/// The path of a socket that stands for the one of the job's step host on that node. It exists in no file tree.
pub const STEP_HOST: &str = "/proc/hostler/step-host";

/// Time after which an agent gives up a connection that the client of its listener has not asked for.
pub const PICKUP: Duration = Duration::from_secs(10);

/// Where a server of a job listens, on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A TCP port.
    Port(u16),
    /// The path of a Unix socket, absolute or relative to the job's folder.
    Socket(String),
    /// A connection that a program of the job has made to a listener, by its number in the [`Announcement`].
    Accepted(u64),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "port {port}"),
            Self::Socket(path) => write!(f, "socket {path}"),
            Self::Accepted(_) => write!(f, "a program of the job"),
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
    /// The agent is connected, and bytes follow. For a listener: it listens, and announcements follow.
    Connected,
    /// No process of the run listens on the port.
    NothingListens,
    /// No process of the run listens on the socket.
    NothingOnSocket,
    /// The agent cannot listen there, because somebody else does, or another file has the name.
    Taken,
    /// The connection failed for this reason.
    Failed(String),
}

/// A text message of the agent on the WebSocket of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Announcement {
    /// The first message: the listener's port, or 0 for a socket.
    Listening(u16),
    /// A program of the job has connected. The connection waits for the client under this number, for [`PICKUP`].
    Accepted(u64),
}

//! Connections to TCP ports of jobs: messages of the WebSockets between client and head, and between head and agent.
//!
//! Binary messages are bytes. The text message [`End`] says that no more bytes follow in its direction. A WebSocket that
//! is closed with a close frame is complete; one that ends without it is broken, and so is the connection that it
//! carries.
//!
//! Both ends ping every [`PING_INTERVAL`], also while their other direction is blocked, and the head passes pings on. An
//! end that waits for a message therefore knows after [`SILENCE`] that the connection is broken.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum size of a message.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Time without another message after which an end sends a ping.
pub const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Time without any message after which an end considers the connection broken.
pub const SILENCE: Duration = Duration::from_secs(20);

/// The text message at the end of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Always `true`.
    pub end: bool,
}

/// The first message of an agent, as text: whether the agent has connected to the port. The head does not pass it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardAnswer {
    /// The agent is connected, and bytes follow.
    Connected,
    /// No process of the run listens on the port.
    NothingListens,
    /// The connection failed for this reason.
    Failed(String),
}

//! The way to the head: an async client of `/api/v1`, used by the command line, agents and tests.
//!
//! A [`Client`] speaks HTTP/1.1 over an [`Endpoint`]: the head's Unix socket, or TLS. It keeps one idle connection and nothing
//! else, so it costs a command next to nothing to make one. Calls that may safely be made twice are made again when the head
//! goes away in mid-call, for as long as [`Patience`] allows: a restart of the head is a pause, not an error.
//!
//! - [`Client`]: a method for each route.
//! - [`upload`] and [`download`]: captured folders to the head, results from it; both resume.
//! - [`Follow`]: live output across reconnections and attempts.
//! - [`Terminal`]: a job's terminal.
//! - [`elsewhere`]: for users who are on no machine of the cluster.
//! - [`Uplink`] and [`tls`]: what only agents need.
//!
//! Nothing here prints, decides where files go, or reads configuration.

mod client;
mod connection;
pub mod download;
pub mod elsewhere;
mod endpoint;
mod error;
mod events;
mod logs;
mod patience;
mod people;
mod routes;
mod terminal;
pub mod tls;
mod uplink;
pub mod upload;

pub use client::Client;
pub use endpoint::{Endpoint, Stream};
pub use error::{ClientError, ConnectFailure, HEAD_AWAY, LocalError};
pub use events::Events;
pub use logs::{Follow, LogEvent, OutputPart, OutputStream};
pub use patience::{Outage, Patience};
pub use routes::{JobFilter, LiveJobs};
pub use terminal::{Terminal, TerminalMessage};
pub use uplink::Uplink;

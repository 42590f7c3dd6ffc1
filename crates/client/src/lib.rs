//! An async client of the head's API `/api/v1`, used by the command line, agents and tests.
//!
//! A [`Client`] speaks HTTP/1.1 over an [`Endpoint`]: the head's Unix socket, or TLS. It keeps one idle connection
//! and is cheap to create. Idempotent calls are retried for as long as [`RetryLimits`] allows, so a restart of the head
//! is a pause and not an error.
//!
//! - [`Client`]: a method per route.
//! - [`ProjectFolder`]: captures a folder and submits it, with [`upload`], which resumes.
//! - [`fetch`]: downloads results and places their files, with [`download`], which resumes.
//! - [`Follow`]: live output across reconnections and attempts of a task.
//! - [`Terminal`]: a job's terminal.
//! - [`Tunnel`]: a connection to a port of a job.
//! - [`remote_head`]: logins of users outside the cluster.
//! - [`Uplink`] and [`tls`]: for agents.
//!
//! This crate does not print, choose paths or read configuration.

mod capture_cache;
mod client;
mod connection;
pub mod download;
mod endpoint;
mod error;
mod events;
pub mod fetch;
mod logs;
mod people;
pub mod remote_head;
mod retry_limits;
mod routes;
mod submit;
mod terminal;
pub mod tls;
mod tunnel;
mod uplink;
pub mod upload;
mod websocket;

pub use capture_cache::CaptureCache;
pub use client::Client;
pub use endpoint::{Endpoint, SharedAddress, Stream, Token};
pub use error::{ClientError, ConnectFailure, HEAD_AWAY, LocalError};
pub use events::Events;
pub use hostler_project::Unread;
pub use logs::{Follow, LogEvent, OutputPart, OutputStream};
pub use retry_limits::{Outage, RetryLimits};
pub use routes::{JobFilter, LiveJobs, RecordFilter, escape};
pub use submit::{CapturedFolder, ProjectFolder, SubmitError, SubmitEvent, check_same, new_key};
pub use terminal::{Terminal, TerminalMessage};
pub use tunnel::{ForwardControl, Tunnel};
pub use uplink::Uplink;

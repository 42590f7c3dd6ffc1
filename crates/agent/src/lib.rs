//! The agent: the daemon on every node. It takes runs from the head, makes their folders and environments ready, hands them to
//! shepherds, and brings results home.
//!
//! Decisions are in `hostler_core::agent`; this crate carries them out. Rooms, in the order a run meets them:
//!
//! - [`engine`]: the loop that owns the state.
//! - [`link`]: the WebSocket to the head.
//! - [`stage`] and [`environment`]: folder, environment, command line.
//! - [`supervise`]: shepherds and what they report.
//! - [`collect`] and [`transfer`]: results, and chunks on their way.
//! - [`output`] and [`terminal`]: what people watch while it runs.
//! - [`directory`]: a run's files, which outlive the agent; [`recover`]: what a new agent makes of them.
//! - [`door`]: a socket for the users of this machine; [`accounts`]: what they are called.
//! - [`identity`]: who this node is, and how it came to be trusted.
//!
//! Absent: whatever concerns more than this node, and any knowledge of other runs' users.

#![warn(unreachable_pub)]

mod accounts;
mod collect;
mod directory;
mod door;
mod engine;
pub mod environment;
mod identity;
mod link;
mod output;
mod readiness;
mod recover;
mod stage;
mod start;
mod supervise;
mod terminal;
mod transfer;
mod variables;

pub use accounts::Accounts;
pub use start::{Config, run};

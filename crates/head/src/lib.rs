//! The head: the daemon that keeps the queue, decides what runs where, and answers users and agents.
//!
//! A thin shell around `hostler-core`. [`engine`] is the loop that makes decisions durable; everything else turns the world into
//! commands for it and the state into answers:
//!
//! - [`start`] opens the store, brings the state back and starts and ends everything else.
//! - [`listen`] accepts connections, on a Unix socket and on one TLS port, and finds out who is at the other end; [`trust`] is the
//!   cluster's own certificate authority, and [`invitations`] says who may join.
//! - [`api`] is REST and server-sent events under `/api/v1`, a file a noun; [`views`] turns the state into what it answers, and
//!   [`openapi`] describes it. [`rights`] says who may do what; [`audit`] keeps who did.
//! - [`guests`] bounds what one party may have of the head at once; [`answers`] holds it until an answer is sent.
//! - [`login`]: how somebody elsewhere shows who they are.
//! - [`link`] carries messages to and from an agent; [`streams`] joins those who want to see a job's output with the agent that has it.
//! - [`blobs`] keeps captured folders and results.
//!
//! Absent on purpose: decisions (they are in the core), polling (readers wait for notices) and any trust in wall clocks.

mod answers;
mod api;
mod archive;
mod audit;
mod blobs;
mod engine;
mod environments;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guests;
mod head;
mod invitations;
mod link;
mod listen;
mod login;
mod openapi;
mod power;
mod reserve;
mod restore;
mod rights;
mod start;
mod streams;
mod trust;
mod views;

pub use openapi::openapi;
pub use reserve::release_if_full;
pub use start::{Config, prepare, run};

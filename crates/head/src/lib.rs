//! The head: the daemon that keeps the job queue, schedules jobs, and serves users and agents.
//!
//! The decisions are in `hostler-core`; this crate connects the core to the network, the disk and the clock. The
//! [`engine`] loop makes each decision durable. The other modules turn requests into commands for the engine, and the
//! engine's state into answers:
//!
//! - [`start`] opens the store, restores the state, and starts and stops all other parts.
//! - [`listen`] accepts connections on a Unix socket and on one TLS port, and identifies the peer. [`trust`] is the
//!   cluster's certificate authority. [`identify`] says who a caller is. [`invitations`] holds the join codes.
//! - [`api`] serves REST and server-sent events under `/api/v1`, with one file per resource. [`views`] builds its
//!   responses from the state, and [`openapi`] describes it. [`rights`] checks permissions, and [`audit`] records
//!   requests.
//! - [`client_limits`] limits the connections, requests and memory of each client. [`answers`] holds that memory until the
//!   response is sent.
//! - [`login`] checks logins from machines outside the cluster, and [`failures`] counts failed ones. [`site`] and
//!   [`dashboard`] serve browsers, and [`openid`] signs their users in with a provider of OpenID Connect. [`proxy`] finds
//!   the connections of a reverse proxy. [`seal`] makes secrets that the head recognises without keeping them.
//! - [`link`] carries messages to and from an agent. [`streams`] connects readers of a job's output with its agent.
//! - [`metrics`] counts what happens, for `/metrics`.
//! - [`usage`] keeps figures over time, and shares live measurements among all who watch.
//! - [`notify`] delivers messages to users and operators. [`outgoing`] sends requests to other servers, and
//!   [`private_file`] reads configuration files with secrets.
//! - [`blobs`] stores captured folders and results.
//!
//! This crate makes no scheduling decisions (they are in the core), does not poll (readers wait for notices), and does
//! not rely on wall clocks.

mod answers;
mod api;
mod archive;
mod audit;
mod blobs;
mod changed_values;
mod client_limits;
mod config;
mod dashboard;
mod engine;
mod environments;
mod failures;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod head;
mod identify;
mod identity;
mod invitations;
mod job_reads;
mod lease;
mod link;
mod listen;
mod login;
mod metrics;
mod names;
mod notify;
mod openapi;
mod openid;
mod outgoing;
mod power;
mod private_file;
mod proxy;
mod reserve;
mod rights;
mod seal;
mod site;
mod sorted_jobs;
mod start;
mod streams;
mod trust;
mod usage;
mod views;
pub use api::openapi;
pub use config::{Config, SiteConfig};
pub use reserve::release_if_full;
pub use start::{is_prepared, prepare, run};

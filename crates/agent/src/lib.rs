//! The agent: the daemon on every node. It gets runs from the head, prepares their folders and environments, hands them
//! to shepherds, and uploads the results.
//!
//! `hostler_core::agent` makes the decisions; this crate carries them out. Modules, in the order in which a run meets
//! them:
//!
//! - [`start`]: from the [`config`] to a running agent; [`assemble`]: services, each with what it needs of the others.
//! - [`engine`]: the loop that owns the state; [`handle`]: events for it; [`node`]: what the engine has of the node.
//! - [`link`]: the WebSocket to the head, and the node's certificate for it.
//! - [`provision`]: folders, environments, images and command lines.
//! - [`containers`]: jobs in containers of an engine, and in sandboxes.
//! - [`job_network`]: packets between the sandboxes of a job on several nodes.
//! - [`runs`]: shepherds, what surrounds a run, its end and its result.
//! - [`forward`]: connections to ports and sockets of runs.
//! - [`measure`]: certificates, quiet machines, figures over time and metrics.
//! - [`account`]: the user of a run; [`rights`]: actions with the rights of that user; [`users`]: all other users.
//! - [`activity`]: what keeps the machine from being switched off.
//! - [`gossip`]: load gossip between nodes; [`exec`]: remote commands, which run immediately on the least loaded node.
//! - [`headless`]: gossip alone, for machines without a head.
//!
//! Anything beyond this node, such as scheduling and authorization, is decided by the head.

#![warn(unreachable_pub)]

pub mod account;
mod activity;
mod assemble;
mod config;
mod containers;
mod engine;
mod exec;
mod forward;
mod gossip;
mod handle;
pub mod headless;
mod job_network;
mod link;
mod measure;
mod mutex;
mod node;
mod provision;
mod random;
mod readiness;
mod rights;
mod runs;
mod start;
mod users;

pub use config::Config;
pub use containers::sandbox::SandboxSettings;
pub use gossip::{Machine, Machines, StatusPorts, Weight, Weights};
pub use hostler_gossip::Policy;
pub use hostler_image::{LayerOrder, Limits as LayerLimits, Sha256};
pub use hostler_shepherd::cgroup::{Device, leave_cgroup};
pub use hostler_shepherd::ranks::Ranks;
pub use hostler_shepherd::session_leader;
pub use link::identity::{Introduction, has_joined, join, leave};
pub use measure::certificate::NoiseLimits;
pub use measure::quiet::{Knob, QuietSettings, Unit};
pub use provision::environment;
pub use provision::gpus::{DeviceFile, MachineGpu};
pub use provision::images::pull::ImageSettings;
pub use provision::images::registry::fetch_image;
pub use provision::images::unpack_layer;
pub use provision::program_in_image::{LIBRARIES as LIBRARIES_IN_IMAGE, OF_THE_LOADER, set_aside};
pub use start::{run, run_and_say, run_ports_beside};
pub use users::roster::NewAccounts;

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
//! - [`account`]: whose a run is here, and acting with a user's rights.
//! - [`directory`]: a run's files, which outlive the agent, and [`temporary`] those that it need not keep; [`recover`]: what a new agent makes of them.
//! - [`door`]: a socket for the users of this machine; [`roster`]: what they are called.
//! - [`gossip`]: what nodes tell each other of their load; [`calls`]: commands that run now, on the node with the most room.
//! - [`identity`]: who this node is, and how it came to be trusted; [`renewal`] keeps that fresh.
//!
//! Absent: whatever concerns more than this node, and who may do what on it: the head has decided that.

#![warn(unreachable_pub)]

pub mod account;
mod activity;
mod calls;
mod collect;
mod directory;
mod door;
mod engine;
pub mod environment;
mod gossip;
mod gpus;
mod identity;
mod link;
mod output;
mod rapl;
mod readiness;
mod recover;
mod renewal;
mod roster;
mod stage;
mod start;
mod steps;
mod supervise;
mod temporary;
mod terminal;
mod transfer;
mod variables;

pub use gossip::{Machine, Machines, StatusPorts, Weight, Weights};
pub use gpus::{DeviceFile, MachineGpu};
pub use hostler_gossip::Policy;
pub use hostler_shepherd::cgroup::{Device, step_aside};
pub use hostler_shepherd::ranks::Ranks;
pub use hostler_shepherd::seat;
pub use identity::{Introduction, has_joined, is_running, join, leave};
pub use roster::NewAccounts;
pub use start::{Config, run, run_and_say, run_ports_beside};

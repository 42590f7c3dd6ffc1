//! The agent: the daemon on every node. It gets runs from the head, prepares their folders and environments, hands them
//! to shepherds, and uploads the results.
//!
//! `hostler_core::agent` makes the decisions; this crate carries them out. Modules, in the order in which a run meets
//! them:
//!
//! - [`engine`]: the loop that owns the state; [`handle`]: events for it; [`node`]: what all modules share.
//! - [`link`]: the WebSocket to the head.
//! - [`stage`] and [`environment`]: folder, environment and command line.
//! - [`images`]: images of root directories, unpacked once. [`pull`] and [`registry`] get them from registries.
//! - [`supervise`]: shepherds and their reports; [`shepherds`]: connections to them.
//! - [`certificate`]: what disturbed an exclusive job; [`quiet`]: settings of the machine that are changed for one.
//! - [`collect`] and [`transfer`]: results, and upload and download of chunks.
//! - [`output`], [`terminal`] and [`forward`]: live output, terminals, and connections to ports.
//! - [`account`]: the user of a run; [`rights`]: actions with the rights of that user.
//! - [`directory`]: files of a run that outlive the agent; [`temporary`]: files that need not; [`recover`]: recovery of
//!   runs after an agent restart.
//! - [`local_socket`]: the socket for local users; [`roster`]: creation of their accounts.
//! - [`metrics`]: what `/metrics` shows.
//! - [`usage`]: figures over time of the node and its runs; [`gpu_use`] and [`nvidia_smi`]: those of GPUs.
//! - [`gossip`]: load gossip between nodes; [`exec`]: remote commands, which run immediately on the least loaded node.
//! - [`job_network`]: packets between the sandboxes of a job on several nodes.
//! - [`identity`]: the node's key and certificate; [`renewal`]: renewal of the certificate.
//!
//! Anything beyond this node, such as scheduling and authorization, is decided by the head.

#![warn(unreachable_pub)]

pub mod account;
mod activity;
mod assemble;
mod certificate;
mod collect;
mod config;
mod directory;
mod driver;
mod ending;
mod engine;
mod engines;
pub mod environment;
mod exec;
mod forward;
mod gossip;
mod gpu_use;
mod gpus;
mod handle;
mod identity;
mod images;
mod job_network;
mod leaves;
mod link;
mod local_socket;
mod metrics;
mod mutex;
mod node;
mod nvidia_smi;
mod output;
mod process_limits;
mod program_directory;
mod program_in_image;
mod pull;
mod quiet;
mod random;
mod rapl;
mod readiness;
mod recover;
mod registry;
mod renewal;
mod restrictions;
mod rights;
mod roster;
mod runs;
mod sandbox;
mod shepherds;
mod stage;
mod start;
mod steps;
mod supervise;
mod temporary;
mod terminal;
mod transfer;
mod usage;
mod variables;

pub use certificate::NoiseLimits;
pub use config::Config;
pub use gossip::{Machine, Machines, StatusPorts, Weight, Weights};
pub use gpus::{DeviceFile, MachineGpu};
pub use hostler_gossip::Policy;
pub use hostler_image::{LayerOrder, Limits as LayerLimits, Sha256};
pub use hostler_shepherd::cgroup::{Device, leave_cgroup};
pub use hostler_shepherd::ranks::{Ranks, variables as rank_variables};
pub use hostler_shepherd::session_leader;
pub use identity::{Introduction, has_joined, is_running, join, leave};
pub use images::unpack_layer;
pub use program_in_image::{COMMANDS as COMMANDS_IN_IMAGE, LIBRARIES as LIBRARIES_IN_IMAGE, OF_THE_LOADER, set_aside};
pub use pull::ImageSettings;
pub use quiet::{Knob, QuietSettings, Unit};
pub use registry::fetch_image;
pub use roster::NewAccounts;
pub use sandbox::SandboxSettings;
pub use start::{run, run_and_say, run_ports_beside};

//! Access to the machine: observation, execution of steps, and records on disk.

mod boot;
mod carry_out;
mod command;
mod error;
mod gateway;
mod guard;
mod observe;
mod process;
mod records;
mod service;
mod status;
mod trial;
mod vpn_clients;

pub use error::GatewayError;
pub use gateway::Gateway;
pub use records::{RolledBack, Trial};
pub use status::{ClientState, Lease, Planned, Running, Status, VpnStatus};
pub use trial::{Applied, Confirmation};

/// Default directory of the gateway's records.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/hostler/gateway";

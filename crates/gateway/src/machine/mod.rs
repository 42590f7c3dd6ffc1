//! Access to the machine: observation, execution of steps, and records on disk.

mod boot;
mod carry_out;
mod command;
mod error;
mod guard;
mod observe;
mod process;
mod records;
mod service;
mod status;
mod trial;
mod vpn_clients;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use error::GatewayError;
pub use records::{RolledBack, Trial};
pub use status::{ClientState, Lease, Planned, Running, Status, VpnStatus};
pub use trial::{Applied, Confirmation};

use records::Records;
use service::Services;

/// Default directory of the gateway's records.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/hostler/gateway";

/// The gateway of this machine. A machine has at most one; its state is in the directory.
#[derive(Debug)]
pub struct Gateway {
    records: Records,
    services: Services,
    /// This executable. It guards changes on trial, and sets the gateway up after a boot.
    program: PathBuf,
}

impl Gateway {
    /// Creates a handle for the gateway with its state in `directory`. Does not access the disk.
    #[must_use]
    pub fn new(directory: &Path, program: PathBuf) -> Self {
        let records = Records::new(directory.to_owned());
        Self { services: Services::of_this_machine(records.clone()), records, program }
    }

    /// Arguments for this executable to run a `hostler gateway` subcommand.
    fn own_command(&self, part: &str) -> Vec<OsString> {
        let words = ["gateway", part, "--directory"].map(OsString::from);
        words.into_iter().chain([self.records.directory().into()]).collect()
    }
}

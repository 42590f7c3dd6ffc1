//! The machine itself: what looks at it, what carries steps out, and what is kept on its disk.

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

/// Where the gateway usually keeps its state.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/hostler/gateway";

/// The gateway of this machine. It is at most one; what is known of it is in its directory.
#[derive(Debug)]
pub struct Gateway {
    records: Records,
    services: Services,
    /// This program, which guards trials and sets the gateway up after a boot.
    program: PathBuf,
}

impl Gateway {
    /// The gateway whose state is in `directory`. Nothing is read or made yet.
    #[must_use]
    pub fn new(directory: &Path, program: PathBuf) -> Self {
        let records = Records::new(directory.to_owned());
        Self { services: Services::of_this_machine(records.clone()), records, program }
    }

    /// What this program is to be called with, for that part of it.
    fn own_command(&self, part: &str) -> Vec<OsString> {
        let words = ["gateway", part, "--directory"].map(OsString::from);
        words.into_iter().chain([self.records.directory().into()]).collect()
    }
}

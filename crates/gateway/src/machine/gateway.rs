//! The handle for the gateway of this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::records::Records;
use super::service::Services;

/// The gateway of this machine. A machine has at most one gateway, whose state is in one directory.
#[derive(Debug)]
pub struct Gateway {
    pub(super) records: Records,
    pub(super) services: Services,
    /// The path of this executable, which guards changes on trial and sets the gateway up after a boot.
    pub(super) program: PathBuf,
}

impl Gateway {
    /// Creates a handle for the gateway with its state in `directory`. Does not access the disk.
    #[must_use]
    pub fn new(directory: &Path, program: PathBuf) -> Self {
        let records = Records::new(directory.to_owned());
        Self { services: Services::of_this_machine(records.clone()), records, program }
    }

    /// Arguments for this executable to run a `hostler gateway` subcommand.
    pub(super) fn own_command(&self, part: &str) -> Vec<OsString> {
        let words = ["gateway", part, "--directory"].map(OsString::from);
        words.into_iter().chain([self.records.directory().into()]).collect()
    }
}

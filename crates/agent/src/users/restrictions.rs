//! Accounts for which this node runs no jobs or commands, as the head has said.
//!
//! The agent keeps them on its disk, so that a node that starts while the head is away refuses the same accounts as
//! before.

use std::fs;
use std::io;
use std::path::Path;

use hostler_proto::link::{Account, SystemAccounts};
use serde::{Deserialize, Serialize};

/// The restrictions in the head's last message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Restrictions {
    /// Accounts that an admin has blocked.
    pub(crate) blocked: Vec<Account>,
    /// Uids of the account that runs the head and of accounts with a role above *user*. Other nodes may not run commands
    /// for these accounts.
    pub(crate) guarded: Vec<u32>,
    /// The system accounts that may run jobs and commands.
    pub(crate) system: SystemAccounts,
}

impl Restrictions {
    /// Reads the restrictions. Without a readable file, no account is blocked or guarded, and no system account is
    /// allowed.
    pub(crate) fn load(file: &Path) -> Self {
        let read = fs::read(file).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        read.unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(file = %file.display(), %error, "cannot read which accounts are blocked; the head will send it");
            }
            Self::default()
        })
    }

    pub(crate) fn store(&self, file: &Path) -> io::Result<()> {
        hostler_sys::replace_file(file, &serde_json::to_vec(self)?, 0o600)
    }
}

//! Errors of the gateway on the machine, with hints.

use std::io;
use std::path::PathBuf;

use crate::clients::ClientsError;

#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("only root can read this machine's packet rules and change its network")]
    NotRoot,
    #[error("the program `{program}` is not installed")]
    Missing {
        program: &'static str,
        /// The Debian package that contains the program.
        package: &'static str,
    },
    /// Neither the kernel nor a program supports WireGuard.
    #[error("the kernel does not support WireGuard, and the program `wireguard-go` is not installed")]
    NoWireGuard,
    #[error("`{command}` failed: {said}")]
    Command {
        /// The command line; never contains secrets.
        command: String,
        said: String,
    },
    #[error("cannot {what} {}", path.display())]
    File {
        /// The operation, e.g. `read`.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("a change waits for confirmation; {0} s are left")]
    Pending(u64),
    #[error("no change waits for confirmation{}", .0.as_ref().map(|why| format!("; the last change was rolled back: {why}")).unwrap_or_default())]
    NothingToConfirm(Option<String>),
    #[error("the change failed and was rolled back")]
    RolledBack(#[source] Box<Self>),
    /// The change and its rollback failed.
    #[error("the change failed, and the rollback failed too: {1}")]
    RollbackFailed(#[source] Box<Self>, String),
    #[error("the process for the rollback did not start; nothing was changed")]
    NoGuard,
    /// Addresses of clients would be outside the VPN's subnet.
    #[error("addresses of VPN clients would be outside the VPN's new subnet: {0}")]
    Misplaced(String),
    #[error("no VPN has been set up on this machine")]
    NoVpn,
    #[error("no gateway has been set up on this machine")]
    NotSetUp,
    #[error(transparent)]
    Clients(#[from] ClientsError),
}

impl GatewayError {
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::NotRoot => "run the command as root, e.g. with sudo".to_owned(),
            Self::Missing { package, .. } => format!("install the program; on Debian, with `apt install {package}`"),
            Self::NoWireGuard => {
                "install wireguard-go (on Debian, with `apt install wireguard-go`), or remove the table [vpn] from the description"
                    .to_owned()
            }
            Self::Pending(_) => {
                "`hostler gateway confirm` keeps the change; without it, the change is rolled back at the deadline".to_owned()
            }
            Self::NothingToConfirm(Some(_)) => "`hostler gateway apply` applies the configuration file again".to_owned(),
            Self::RollbackFailed(..) => {
                "remove the cause, then `hostler gateway start` loads the previous configuration".to_owned()
            }
            Self::Misplaced(_) => {
                "revoke these clients with `hostler gateway client revoke`, and add them again after the change".to_owned()
            }
            Self::NoVpn => "add a table [vpn] to the description and run `hostler gateway apply`".to_owned(),
            Self::NotSetUp => "`hostler gateway plan --example` prints an example description".to_owned(),
            _ => return Vec::new(),
        };
        vec![hint]
    }
}

//! What can go wrong on the machine, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::clients::ClientsError;
use crate::setup::{TABLE, VPN_INTERFACE};

/// Why something was not done, or not known.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The caller may not set up networks.
    #[error("only root may look at this machine's packet rules and change its network")]
    NotRoot,
    /// A program that does a part of the work.
    #[error("the program `{program}` is not on this machine")]
    Missing {
        /// Which.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// Nothing can do the VPN.
    #[error("the kernel of this machine has no WireGuard, and the program `wireguard-go` is not on it")]
    NoWireGuard,
    /// A program said no.
    #[error("`{command}` failed: {said}")]
    Command {
        /// What was called; no secret is ever in it.
        command: String,
        /// What it wrote to its standard error.
        said: String,
    },
    /// A file could not be read or written.
    #[error("cannot {what} {}", path.display())]
    File {
        /// Such as `read`.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record of ours makes no sense.
    #[error("{} is damaged", path.display())]
    Record {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Something has our name and is not from here.
    #[error("{0} is there already, and was not made by this gateway")]
    Foreign(String),
    /// An attempt has not been confirmed yet.
    #[error("a change waits to be confirmed, for another {0} s")]
    Pending(u64),
    /// There is no attempt.
    #[error("no change waits to be confirmed{}", .0.as_ref().map(|why| format!("; the last one was taken back: {why}")).unwrap_or_default())]
    NothingToConfirm(Option<String>),
    /// It failed, and the machine is as it was.
    #[error("the change failed, and everything is as it was before")]
    TakenBack(#[source] Box<Self>),
    /// It failed, and so did going back.
    #[error("the change failed, and going back did not succeed either: {1}")]
    HalfDone(#[source] Box<Self>, String),
    /// Some of it could not be taken away.
    #[error("not everything could be taken away: {0}")]
    NotRemoved(String),
    /// Nobody would have taken a change back.
    #[error("the guard that takes the change back did not start; nothing was changed")]
    NoGuard,
    /// Clients would be in no network any more.
    #[error("clients of the VPN have addresses that would not be in it any more: {0}")]
    Misplaced(String),
    /// There is no VPN to let clients in.
    #[error("no VPN has been set up on this machine")]
    NoVpn,
    /// Nothing was applied.
    #[error("no gateway has been set up on this machine")]
    NotSetUp,
    /// A client that cannot be.
    #[error(transparent)]
    Clients(#[from] ClientsError),
    /// A service ended as soon as it was started.
    #[error("{name} does not run: {said}")]
    Service {
        /// Which.
        name: &'static str,
        /// The end of what it said.
        said: String,
    },
}

impl GatewayError {
    /// What a person may do about it.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::NotRoot => "call it as root, for example with sudo".to_owned(),
            Self::Missing { package, .. } => format!("install it, on Debian with `apt install {package}`"),
            Self::NoWireGuard => {
                "install wireguard-go, on Debian with `apt install wireguard-go`, or take the table [vpn] out of the description"
                    .to_owned()
            }
            Self::Record { .. } => "`hostler gateway remove` starts anew, if it is not known what was there".to_owned(),
            Self::Foreign(_) => format!(
                "if it is left from a gateway whose state was lost: `nft delete table inet {TABLE}`, `ip link delete {VPN_INTERFACE}`"
            ),
            Self::Pending(_) => {
                "`hostler gateway confirm` keeps it; otherwise it is taken back when the time is up".to_owned()
            }
            Self::NothingToConfirm(Some(_)) => "`hostler gateway apply` tries again".to_owned(),
            Self::Misplaced(_) => {
                "`hostler gateway client revoke` them first, and add them again afterwards".to_owned()
            }
            Self::NoVpn => "add a table [vpn] to the description and call `hostler gateway apply`".to_owned(),
            Self::NotSetUp => "`hostler gateway plan --example` prints a description to begin with".to_owned(),
            Self::Command { command, .. } if command.contains("type wireguard") => return Self::NoWireGuard.hints(),
            Self::TakenBack(source) | Self::HalfDone(source, _) => return source.hints(),
            _ => return Vec::new(),
        };
        vec![hint]
    }
}

//! What can go wrong between a client and its head, told apart by what the user can do about it.

use std::io;

use hostler_model::Digest;
use hostler_proto::api::{API_VERSION, ErrorBody};

/// What an agent answers for a head that it cannot reach.
pub const HEAD_AWAY: &str = "head_away";

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no connection.
    #[error("cannot reach the head at {endpoint}: {failure}")]
    Connect {
        /// Where it should listen.
        endpoint: String,
        /// What kind of failure.
        failure: ConnectFailure,
        /// The system's word for it.
        source: io::Error,
    },
    /// The head understood and said no.
    #[error("{}", body.message)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it said.
        body: ErrorBody,
    },
    /// Whoever listens there does not speak as a head does.
    #[error("what listens at {endpoint} is not a Hostler head: {what}")]
    NotAHead {
        /// Where.
        endpoint: String,
        /// What gave it away.
        what: String,
    },
    /// The head asks for a signature that counts in another cluster.
    #[error(
        "the head at {endpoint} asks you to sign a login to another cluster: it names the authority {named}, and {trusted} is \
         trusted there; nothing was signed"
    )]
    OtherCluster {
        /// Where.
        endpoint: String,
        /// The authority that is trusted at this address.
        trusted: Digest,
        /// The authority that its challenge names.
        named: Digest,
    },
    /// A head of another API version.
    #[error("the head at {endpoint} speaks version {theirs} of the API, this program version {API_VERSION}")]
    OtherVersion {
        /// Where.
        endpoint: String,
        /// What the head speaks, as it says.
        theirs: String,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection to the head at {endpoint} was lost: {what}")]
    Interrupted {
        /// Where.
        endpoint: String,
        /// How.
        what: String,
    },
    /// Files on this side.
    #[error(transparent)]
    Local(#[from] LocalError),
}

/// A failure on this side of the connection.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct LocalError {
    /// What was being done.
    pub what: String,
    /// Why it failed.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFailure {
    /// No socket of that name.
    #[error("no such socket")]
    NoSocket,
    /// The socket is there, but nobody listens: the head that made it is gone.
    #[error("the head that made this socket is gone")]
    StaleSocket,
    /// The system does not let us.
    #[error("permission denied")]
    NotAllowed,
    /// One side did not trust the other's certificate.
    #[error("no trusted connection")]
    NotTrusted,
    /// Anything else: refused, timed out, no such host.
    #[error("no connection")]
    Unreachable,
}

impl ClientError {
    /// Whether the same call may succeed a moment later, because the head was merely away.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { failure, .. } => match failure {
                ConnectFailure::NoSocket | ConnectFailure::StaleSocket | ConnectFailure::Unreachable => true,
                ConnectFailure::NotAllowed | ConnectFailure::NotTrusted => false,
            },
            Self::Interrupted { .. } => true,
            // `stalled`: what we had sent stopped coming, as when a link is cut for a while.
            Self::Refused { body, .. } => ["stopping", "stalled", HEAD_AWAY].contains(&body.code.as_str()),
            Self::NotAHead { .. } | Self::OtherCluster { .. } | Self::OtherVersion { .. } | Self::Local(_) => false,
        }
    }

    /// The stable word of an answer that said no, such as `no_such_job`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { body, .. } => Some(&body.code),
            _ => None,
        }
    }

    /// What the user can do, a line each.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::Connect { failure, .. } => match failure {
                ConnectFailure::NoSocket => vec![
                    "is the head running? `hostler up` starts a cluster on this machine".to_owned(),
                    "another cluster is named by `--head`, HOSTLER_HEAD or ~/.config/hostler/config.toml".to_owned(),
                ],
                ConnectFailure::StaleSocket => {
                    vec!["the head stopped or crashed; `hostler up` starts it again, with every job it had".to_owned()]
                }
                ConnectFailure::NotAllowed => vec!["the socket belongs to another user".to_owned()],
                ConnectFailure::NotTrusted | ConnectFailure::Unreachable => {
                    vec!["is the head running, and is the address right?".to_owned()]
                }
            },
            Self::Refused { body, .. } => body.hints.clone(),
            Self::NotAHead { .. } => {
                vec!["check the address in `--head`, HOSTLER_HEAD and ~/.config/hostler/config.toml".to_owned()]
            }
            Self::OtherCluster { .. } => vec![
                "whoever runs it could use the signature to log in to that cluster as you; tell the admins of both"
                    .to_owned(),
            ],
            Self::OtherVersion { .. } => vec!["use the same release of hostler on both sides".to_owned()],
            Self::Interrupted { .. } => vec!["is the head still running? `hostler info` shows it".to_owned()],
            Self::Local(_) => Vec::new(),
        }
    }
}

impl LocalError {
    /// Says what was being done when `source` came up.
    pub(crate) fn new(what: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { what: what.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_stalled_is_tried_again_and_other_refusals_are_not() {
        let refused = |code: &str| {
            let body = ErrorBody { code: code.to_owned(), message: String::new(), hints: Vec::new() };
            ClientError::Refused { status: 400, body }
        };
        assert!(refused("stalled").is_transient() && refused("stopping").is_transient());
        assert!(!refused("bad_pack").is_transient());
    }
}

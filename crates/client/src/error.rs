//! Errors of the client, distinguished by what the user can do.

use std::io;

use hostler_model::Digest;
use hostler_proto::api::{API_VERSION, ErrorBody};

/// Code of the error with which an agent answers when the head is unreachable.
pub const HEAD_AWAY: &str = "head_away";

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot reach the head at {endpoint}: {failure}")]
    Connect { endpoint: String, failure: ConnectFailure, source: io::Error },
    #[error("{}", body.message)]
    Refused {
        status: u16,
        /// The head's reason for the refusal.
        body: ErrorBody,
    },
    /// The server does not behave like a head.
    #[error("the server at {endpoint} is not a Hostler head: {what}")]
    NotAHead { endpoint: String, what: String },
    /// The head requested a signature that would be valid in another cluster.
    #[error(
        "the head at {endpoint} requests a signature for another cluster: its challenge names the authority {named} instead of \
         {trusted}; nothing was signed"
    )]
    OtherCluster {
        endpoint: String,
        /// Authority that is trusted at this address.
        trusted: Digest,
        /// Authority in the challenge.
        named: Digest,
    },
    /// The head has another API version than this program.
    #[error("the head at {endpoint} has API version {theirs}, this program has version {API_VERSION}")]
    OtherVersion {
        endpoint: String,
        /// Version of the head.
        theirs: String,
    },
    /// The connection closed before the answer was complete.
    #[error("the connection to the head at {endpoint} was lost: {what}")]
    Interrupted { endpoint: String, what: String },
    /// A connection to a port of a job broke.
    #[error("the job, its node or the head broke the connection: {what}")]
    TunnelBroken { what: String },
    /// A local failure, e.g. of a file.
    #[error(transparent)]
    Local(#[from] LocalError),
}

#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct LocalError {
    /// What went wrong, without the cause.
    pub what: String,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFailure {
    /// The socket does not exist.
    #[error("no such socket")]
    NoSocket,
    /// The socket exists, but its head has ended.
    #[error("the head that created this socket has ended")]
    StaleSocket,
    #[error("permission denied")]
    NotAllowed,
    #[error("certificate not trusted")]
    NotTrusted,
    /// Other failures: connection refused, timeout, unknown host.
    #[error("connection failed")]
    Unreachable,
}

impl ClientError {
    /// Whether a retry may succeed, because the head is only temporarily unreachable.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { failure, .. } => match failure {
                ConnectFailure::NoSocket | ConnectFailure::StaleSocket | ConnectFailure::Unreachable => true,
                ConnectFailure::NotAllowed | ConnectFailure::NotTrusted => false,
            },
            Self::Interrupted { .. } => true,
            // `stalled`: the head stopped receiving data, e.g. because a link was cut for a while.
            Self::Refused { body, .. } => ["stopping", "stalled", HEAD_AWAY].contains(&body.code.as_str()),
            Self::NotAHead { .. }
            | Self::OtherCluster { .. }
            | Self::OtherVersion { .. }
            | Self::TunnelBroken { .. }
            | Self::Local(_) => false,
        }
    }

    /// The error code of a refusal, e.g. `no_such_job`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { body, .. } => Some(&body.code),
            _ => None,
        }
    }

    /// Advice for the user, one hint per item.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::Connect { failure, endpoint, .. } => match failure {
                ConnectFailure::NoSocket => vec![
                    "check that the head is running; `hostler up` starts a cluster on this machine".to_owned(),
                    "to use another cluster, set `--head`, HOSTLER_HEAD or ~/.config/hostler/config.toml".to_owned(),
                ],
                ConnectFailure::StaleSocket => vec![
                    "the head has stopped or crashed; its jobs are kept".to_owned(),
                    "start it again: with `hostler up` if it is this machine's own cluster, else as its service"
                        .to_owned(),
                ],
                ConnectFailure::NotAllowed => vec!["the socket belongs to another user".to_owned()],
                ConnectFailure::NotTrusted => vec![
                    format!(
                        "another cluster answers at {endpoint}, or the cluster's authority was replaced, or this is an attack"
                    ),
                    format!(
                        "if an admin replaced the authority, ask for the new fingerprint, which `hostler info` on the head shows, \
                         and log in with `hostler login {endpoint} --authority FINGERPRINT`"
                    ),
                ],
                ConnectFailure::Unreachable => {
                    vec!["check that the head is running and that the address is correct".to_owned()]
                }
            },
            Self::Refused { body, .. } => body.hints.clone(),
            Self::NotAHead { .. } => {
                vec!["check the address in `--head`, HOSTLER_HEAD and ~/.config/hostler/config.toml".to_owned()]
            }
            Self::OtherCluster { .. } => vec![
                "the signature could be used to log in to that cluster as you; tell the admins of both clusters"
                    .to_owned(),
            ],
            Self::OtherVersion { .. } => vec!["use the same release of Hostler on both sides".to_owned()],
            Self::Interrupted { .. } => vec!["check with `hostler info` whether the head is running".to_owned()],
            Self::TunnelBroken { .. } | Self::Local(_) => Vec::new(),
        }
    }
}

impl LocalError {
    pub(crate) fn new(what: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { what: what.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_transfers_are_retried_and_other_refusals_are_not() {
        let refused = |code: &str| {
            let body = ErrorBody { code: code.to_owned(), message: String::new(), hints: Vec::new() };
            ClientError::Refused { status: 400, body }
        };
        assert!(refused("stalled").is_transient() && refused("stopping").is_transient());
        assert!(!refused("bad_pack").is_transient());
    }
}

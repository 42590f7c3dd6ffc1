//! The identity of a caller, and how it was established.

use hostler_core::head::{Caller, KeyRefusal, UsersRefusal};
use hostler_model::{Digest, NodeName, ParseError, Role, UserName};

use crate::trust::Bearer;

/// The identity of a caller.
#[derive(Debug, Clone)]
pub(crate) enum Identity {
    User(Person),
    /// An agent on its own behalf.
    Agent(Bearer),
    /// An unidentified or rejected caller.
    Unidentified(Unidentified),
}

/// A user, and how the user was identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: String,
    /// The uid from a kernel, or the uid that the cluster knows for the name.
    pub(crate) uid: u32,
    /// The user's role on this way of access.
    pub(crate) role: Role,
    pub(crate) origin: Origin,
}

/// How a user was identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// On the head's own socket.
    Socket { uid: u32 },
    /// On a node's socket.
    Node { node: NodeName, uid: u32 },
    /// By a token with this hash.
    Token(Digest),
    /// Not at all: an unidentified caller who may look at what is public.
    Public,
}

/// Why a caller is not a known user or agent.
#[derive(Debug, Clone)]
pub(crate) enum Unidentified {
    /// The caller sent no credentials.
    Stranger,
    /// The token was never issued, or was revoked.
    BadToken,
    /// The token has expired.
    ExpiredToken,
    /// The cluster knows the caller's user name with another uid.
    NameMismatch { name: String, uid: u32, owner_uid: u32 },
    /// The cluster knows the caller's uid with another user name.
    UidMismatch { name: String, uid: u32, owner: UserName },
    /// An admin has blocked the user.
    Blocked { uid: u32, refusal: UsersRefusal },
    /// The relay header of a node is malformed.
    BadRelay,
    /// The name of the caller's account cannot be the name of a user.
    UnusableName(ParseError),
    /// The name of the caller's account is the name of a user who comes through a node, such as `ada@n1`.
    NameOfNode(String),
    /// The certificate of the relaying node is no longer valid.
    BadNode(KeyRefusal),
}

impl Origin {
    /// The node that relayed the request, if any.
    pub(crate) fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Node { node, .. } => Some(node),
            Self::Socket { .. } | Self::Token(_) | Self::Public => None,
        }
    }
}

impl Person {
    /// An unidentified caller who may look at what is public. No user has this name and uid.
    pub(crate) fn public() -> Self {
        Self { name: String::new(), uid: u32::MAX, role: Role::User, origin: Origin::Public }
    }

    /// Whether the caller is a known user.
    pub(crate) fn is_identified(&self) -> bool {
        self.origin != Origin::Public
    }

    /// The caller for the core.
    pub(crate) fn caller(&self) -> Caller {
        Caller { user: self.name.clone(), uid: Some(self.uid), operator: self.role >= Role::Operator }
    }
}

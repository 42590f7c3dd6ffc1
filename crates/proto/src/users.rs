//! REST + JSON about users, logging in and who did what: the part of [`crate::api`] that is about people.

use std::collections::BTreeSet;
use std::fmt;

use hostler_model::{Digest, NodeName, Quota, Role, UserName, WallTime};
use serde::{Deserialize, Serialize};

/// What a signature for a login is good for, and for nothing else: the namespace of `ssh-keygen -Y sign`.
pub const LOGIN_NAMESPACE: &str = "hostler-login@v1";

/// The longest nonce of a challenge, in characters.
const MAX_NONCE_LEN: usize = 256;

/// The header in which an agent says for which user of its machine it passes a request on, as `1000:ada`. The head heeds it only from
/// whoever shows a node's certificate.
pub const RELAY_HEADER: &str = "hostler-relayed-user";

/// A user, in `GET /users`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    /// The name, on every machine.
    pub name: UserName,
    /// The uid, on every machine.
    pub uid: u32,
    /// What they may do.
    pub role: Role,
    /// Groups, for quotas.
    pub groups: BTreeSet<UserName>,
    /// SSH public keys, as lines of an `authorized_keys` file.
    pub keys: Vec<String>,
    /// How much they may have.
    pub quota: Quota,
    /// Whether they were added. Not so for who was removed and whose quota still counts, and for an account that is only blocked.
    #[serde(default = "yes")]
    pub added: bool,
    /// Present when an admin keeps the account out.
    #[serde(default)]
    pub blocked: Option<BlockView>,
}

const fn yes() -> bool {
    true
}

/// That an account is kept out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockView {
    /// Who wants that.
    pub by: String,
    /// Why, in their words.
    #[serde(default)]
    pub reason: Option<String>,
    /// When, on the head's wall clock.
    pub at: WallTime,
}

/// `POST /users/{name}/block`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockUser {
    /// The account's uid, for one that neither the cluster nor the head's machine knows.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Why: one line of at most 500 bytes.
    #[serde(default)]
    pub reason: Option<String>,
}

/// `POST /users`, and a row of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddUser {
    /// The name.
    pub name: UserName,
    /// The uid; when absent that of the account of this name on the head's machine, or one that is free.
    #[serde(default)]
    pub uid: Option<u32>,
    /// What they may do.
    #[serde(default)]
    pub role: Role,
    /// Groups, for quotas.
    #[serde(default)]
    pub groups: BTreeSet<UserName>,
    /// SSH public keys, as lines of an `authorized_keys` file.
    #[serde(default)]
    pub keys: Vec<String>,
}

/// `POST /users/import`: all of them or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportUsers {
    /// In the order of the roster.
    pub users: Vec<AddUser>,
}

/// `POST /users/{name}/role`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRole {
    /// The new role.
    pub role: Role,
}

/// `POST /users/{name}/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeKeys {
    /// These come.
    #[serde(default)]
    pub add: Vec<String>,
    /// These go; they need not carry their comment.
    #[serde(default)]
    pub remove: Vec<String>,
}

/// What a group may have, in `GET /groups`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// The group.
    pub name: UserName,
    /// What its users may have together.
    pub quota: Quota,
}

/// The answer to `POST /login/challenge`: what to sign, within a minute and once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// Random; used up by the first login that names it.
    pub nonce: String,
    /// The fingerprint of the head's authority. The client refuses one that it does not trust at this address.
    pub cluster: Digest,
}

/// The text that a key signs to log `user` in. Nothing that is signed for one cluster, user or moment is any good for another.
///
/// `authority` is the fingerprint that the signer trusts, never one that a peer has named: a head could name another cluster's and use
/// the signature there.
#[must_use]
pub fn login_text(authority: &Digest, nonce: &str, user: &str) -> String {
    format!("{LOGIN_NAMESPACE}\ncluster {authority}\nnonce {nonce}\nuser {user}\n")
}

impl Challenge {
    /// Whether the nonce is what heads make: hexadecimal digits, so that it cannot add a line to the text that is signed.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        (1..=MAX_NONCE_LEN).contains(&self.nonce.len()) && self.nonce.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

/// `POST /login/key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLogin {
    /// The name of the user, as they know it.
    pub user: String,
    /// The challenge's nonce.
    pub nonce: String,
    /// The signature of [`login_text`], as `ssh-keygen -Y sign` writes it.
    pub signature: String,
}

/// `POST /login/code`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLogin {
    /// The one-time secret of a login code.
    pub secret: String,
}

/// The answer to a login.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedIn {
    /// Who one is now.
    pub user: UserName,
    /// With which role.
    pub role: Role,
    /// Stands for the user in the header `Authorization: Bearer`. It is a secret.
    pub token: String,
    /// How long it is good for, in milliseconds of the head's running time.
    pub ends_in_ms: u64,
}

/// Without the secret.
impl fmt::Debug for CodeLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeLogin").finish_non_exhaustive()
    }
}

/// Without the token.
impl fmt::Debug for LoggedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedIn").field("user", &self.user).field("role", &self.role).finish_non_exhaustive()
    }
}

/// Something that somebody did or tried to do, in `GET /audit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When, on the head's wall clock.
    pub at: WallTime,
    /// When, on the cluster's clock, in milliseconds since the cluster was made.
    pub clock_ms: u64,
    /// Who; absent for somebody who is not known.
    #[serde(default)]
    pub user: Option<String>,
    /// From where: `socket`, `node`, `token` or `stranger`; `blocked` for a user whom an admin keeps out.
    pub from: String,
    /// The uid that the kernel named, here or on the node.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The node through which it came, or which it was itself.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// The address it came from.
    #[serde(default)]
    pub address: Option<String>,
    /// What, as a method and a path of the API.
    pub action: String,
    /// What came into being by it, such as `job 12`.
    #[serde(default)]
    pub about: Option<String>,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The code of the error, when it was refused.
    #[serde(default)]
    pub error: Option<String>,
}

/// `GET /audit`: oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// What is left after the filter.
    pub entries: Vec<AuditEntry>,
    /// Whether older ones were left out because there are more than were asked for.
    pub cut: bool,
}

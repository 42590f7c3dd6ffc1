//! REST + JSON about users, logins and the audit log (part of [`crate::api`]).

use std::collections::BTreeSet;
use std::fmt;

use hostler_model::{Digest, NodeName, Quota, Role, UserName, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Namespace of login signatures (`ssh-keygen -Y sign`). It makes them useless for other purposes.
pub const LOGIN_NAMESPACE: &str = "hostler-login@v1";

/// Maximum length of a challenge's nonce, in characters.
const MAX_NONCE_LEN: usize = 256;

/// Header with the local user for whom an agent forwards a request, e.g. `1000:ada`. The head accepts it only on
/// connections with a node's certificate.
pub const RELAY_HEADER: &str = "hostler-relayed-user";

/// A user, in `GET /users`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserView {
    /// Name, the same on every machine.
    pub name: UserName,
    /// Uid, the same on every machine.
    pub uid: u32,
    /// Role of the user.
    pub role: Role,
    /// Groups, which matter for quotas.
    pub groups: BTreeSet<UserName>,
    /// SSH public keys, as lines of an `authorized_keys` file.
    pub keys: Vec<String>,
    /// Quota of the user.
    pub quota: Quota,
    /// Whether the user was added. False for a removed user whose quota still applies, and for an account that is only
    /// blocked.
    #[serde(default = "yes")]
    pub added: bool,
    /// The block, if an admin has blocked the account.
    #[serde(default)]
    pub blocked: Option<BlockView>,
}

const fn yes() -> bool {
    true
}

/// Block of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockView {
    /// Admin who blocked the account.
    pub by: String,
    /// Reason that the admin gave.
    #[serde(default)]
    pub reason: Option<String>,
    /// Time of the block, on the head's wall clock.
    pub at: WallTime,
}

/// `POST /users/{name}/block`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockUser {
    /// Uid of the account. Needed if neither the cluster nor the head's machine knows the account.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Reason: one line of at most 500 characters.
    #[serde(default)]
    #[schema(pattern = r"^[^\x00-\x1f\x7f-\x9f]{0,500}$")]
    pub reason: Option<String>,
}

/// `POST /users`, and one row of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUser {
    /// Name of the user.
    pub name: UserName,
    /// Uid. If absent, the uid of the account with this name on the head's machine, or else a free one.
    #[serde(default)]
    #[schema(minimum = 1000, maximum = 4_294_967_293_u32)]
    pub uid: Option<u32>,
    /// Role of the user.
    #[serde(default)]
    pub role: Role,
    /// Groups, which matter for quotas.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub groups: BTreeSet<UserName>,
    /// SSH public keys, as lines of an `authorized_keys` file.
    #[serde(default)]
    #[schema(value_type = Vec<PublicKey>, max_items = 64)]
    pub keys: Vec<String>,
}

/// An SSH public key, as a line of an `authorized_keys` file: ed25519, ecdsa with nistp256, or rsa of at least 2048 bits.
#[derive(ToSchema)]
#[schema(value_type = String, format = "ssh-public-key")]
#[expect(dead_code, reason = "used only for its schema")]
struct PublicKey(String);

/// `POST /users/import`: adds all users or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportUsers {
    /// The users, in the order of the imported list.
    pub users: Vec<AddUser>,
}

/// `POST /users/{name}/role`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetRole {
    /// The new role.
    pub role: Role,
}

/// `POST /users/{name}/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeKeys {
    /// Keys to add.
    #[serde(default)]
    #[schema(value_type = Vec<PublicKey>, max_items = 64)]
    pub add: Vec<String>,
    /// Keys to remove; their comments may be left out.
    #[serde(default)]
    #[schema(value_type = Vec<PublicKey>)]
    pub remove: Vec<String>,
}

/// Quota of a group, in `GET /groups`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// Name of the group.
    pub name: UserName,
    /// Quota of all its users together.
    pub quota: Quota,
}

/// The answer to `POST /login/challenge`: what the client signs. Valid once, for a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Challenge {
    /// Random value. The first login with it invalidates it.
    pub nonce: String,
    /// Fingerprint of the head's authority. The client refuses it unless it trusts this authority at this address.
    pub cluster: Digest,
}

/// The text that a key signs to log `user` in. A signature is valid for one cluster, user and nonce only.
///
/// `authority` must be the fingerprint that the signer trusts, not one that a peer sent: a malicious head could send
/// another cluster's fingerprint and use the signature there.
#[must_use]
pub fn login_text(authority: &Digest, nonce: &str, user: &str) -> String {
    format!("{LOGIN_NAMESPACE}\ncluster {authority}\nnonce {nonce}\nuser {user}\n")
}

impl Challenge {
    /// Whether the nonce consists of hexadecimal digits, so that it cannot add a line to the signed text.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        (1..=MAX_NONCE_LEN).contains(&self.nonce.len()) && self.nonce.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

/// `POST /login/key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyLogin {
    /// Name of the user.
    pub user: String,
    /// Nonce of the challenge.
    pub nonce: String,
    /// Signature of [`login_text`], in the format of `ssh-keygen -Y sign`.
    pub signature: String,
}

/// `POST /login/code`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CodeLogin {
    /// One-time secret of a login code.
    pub secret: String,
}

/// The answer to a login.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoggedIn {
    /// The authenticated user.
    pub user: UserName,
    /// Role of the user.
    pub role: Role,
    /// Secret for the header `Authorization: Bearer`.
    pub token: String,
    /// Validity, in milliseconds of the head's running time.
    pub ends_in_ms: u64,
}

/// Omits the secret.
impl fmt::Debug for CodeLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeLogin").finish_non_exhaustive()
    }
}

/// Omits the token.
impl fmt::Debug for LoggedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedIn").field("user", &self.user).field("role", &self.role).finish_non_exhaustive()
    }
}

/// One entry of the audit log, in `GET /audit`: a change or a refused request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Time on the head's wall clock.
    pub at: WallTime,
    /// Time on the cluster's clock, in milliseconds since the cluster was created.
    pub clock_ms: u64,
    /// User; absent if unknown.
    #[serde(default)]
    pub user: Option<String>,
    /// Origin: `socket`, `node`, `token`, `stranger`, or `blocked` for a blocked user.
    pub from: String,
    /// Uid that the kernel reported, on the head or on the node.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Node that forwarded or made the request.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// Address of the client.
    #[serde(default)]
    pub address: Option<String>,
    /// Method and API path of the request.
    pub action: String,
    /// Object that the request created, e.g. `job 12`.
    #[serde(default)]
    pub about: Option<String>,
    /// HTTP status of the answer.
    pub status: u16,
    /// Error code, if the request was refused.
    #[serde(default)]
    pub error: Option<String>,
}

/// `GET /audit`: entries, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// Entries that match the filter.
    pub entries: Vec<AuditEntry>,
    /// Whether older entries were omitted because of the requested limit.
    pub cut: bool,
}

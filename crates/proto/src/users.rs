//! REST + JSON about users, logins and the audit log (part of [`crate::api`]).

use std::collections::BTreeSet;
use std::fmt;

use hostler_model::{Digest, NodeName, Quota, Role, UserName, WallTime};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Namespace of login signatures (`ssh-keygen -Y sign`). A signature in this namespace is not valid for other purposes,
/// such as signing commits.
pub const LOGIN_NAMESPACE: &str = "hostler-login@v1";

/// The largest number of users that a cluster knows.
pub const MAX_USERS: usize = 20_000;

/// The largest number of groups of a user.
pub const MAX_GROUPS: usize = 64;

/// Maximum length of a nonce, in hexadecimal digits.
const MAX_NONCE_LEN: usize = 256;

/// Header with the local user for whom an agent forwards a request, e.g. `1000:ada`. The head accepts it only on
/// connections with a node's certificate.
pub const RELAY_HEADER: &str = "hostler-relayed-user";

/// Answer of `GET /me`: who the caller is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// Name of the caller. A caller whom a node identifies only partly is `NAME@NODE`.
    pub user: String,
    /// Uid of the caller.
    pub uid: u32,
    /// Role of the caller on this way of access.
    pub role: Role,
    /// Whether the caller is a user. False for a caller without credentials, who may look at what is public: `user` is
    /// empty then.
    #[serde(default = "yes")]
    pub identified: bool,
    /// The head's wall clock. A client that computes times, such as two hours ago, starts from this one: its own may be wrong.
    pub now: WallTime,
}

/// A user of the cluster, in the answer of `GET /users`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserView {
    /// Name, the same on every machine.
    pub name: UserName,
    /// Uid, the same on every machine.
    pub uid: u32,
    /// Role of the user.
    pub role: Role,
    /// Groups of the user, which matter for quotas and partitions.
    pub groups: BTreeSet<UserName>,
    /// SSH public keys, as lines of an `authorized_keys` file.
    pub keys: Vec<String>,
    /// Own quota of the user.
    pub quota: Quota,
    /// Limits in effect: those of the own quota, and else the largest that a group of the user gives to each member.
    /// Absent from heads that give groups no such quotas: the own quota is in effect.
    #[serde(default)]
    pub effective_quota: Option<Quota>,
    /// Whether the cluster has the user now. False for a removed user whose quota still applies, and for an account
    /// that is only blocked.
    #[serde(default = "yes")]
    pub added: bool,
    /// The block of the account; absent if it is not blocked.
    #[serde(default)]
    pub blocked: Option<BlockView>,
}

impl UserView {
    /// Limits in effect, whatever the version of the head.
    #[must_use]
    pub fn limits(&self) -> Quota {
        self.effective_quota.unwrap_or(self.quota)
    }
}

const fn yes() -> bool {
    true
}

/// A block of an account, in [`UserView`].
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

/// Request body of `POST /users/{name}/block`: blocks an account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockUser {
    /// Uid of the account. Needed if neither the cluster nor the head's machine knows the account.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Reason for the block: one line of at most 500 characters.
    #[serde(default)]
    #[schema(pattern = r"^[^\x00-\x1f\x7f-\x9f]{0,500}$")]
    pub reason: Option<String>,
}

/// Request body of `POST /users`: adds a user. Also one row of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddUser {
    /// Name of the user.
    pub name: UserName,
    /// Uid of the user. If absent, the user gets the uid of the account with this name on the head's machine, or else a
    /// free uid.
    #[serde(default)]
    #[schema(minimum = 1000, maximum = 4_294_967_293_u32)]
    pub uid: Option<u32>,
    /// Role of the user.
    #[serde(default)]
    pub role: Role,
    /// Groups of the user, which matter for quotas and partitions.
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
#[schema(
    value_type = String,
    format = "ssh-public-key",
    pattern = "^(ssh-ed25519|ecdsa-sha2-nistp256|ssh-rsa) +AAAA[A-Za-z0-9+/]+={0,2}( .*)?$",
    examples("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ada@laptop")
)]
#[expect(dead_code, reason = "the type only provides the schema")]
struct PublicKey(String);

/// Request body of `POST /users/import`: adds all users or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportUsers {
    /// The users, in the order of the imported list.
    pub users: Vec<AddUser>,
}

/// Request body of `POST /users/{name}/role`: changes a user's role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetRole {
    /// The new role.
    pub role: Role,
}

/// Request body of `POST /users/{name}/keys`: adds and removes SSH keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeKeys {
    /// SSH keys to add.
    #[serde(default)]
    #[schema(value_type = Vec<PublicKey>, max_items = 64)]
    pub add: Vec<String>,
    /// Keys to remove; their comments may be left out.
    #[serde(default)]
    #[schema(value_type = Vec<PublicKey>)]
    pub remove: Vec<String>,
}

/// A group and its quota, in the answer of `GET /groups`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// Name of the group.
    pub name: UserName,
    /// Quota that all users of the group share.
    pub quota: Quota,
    /// Quota of each user of the group. It counts where the user's own quota sets no limit.
    #[serde(default)]
    pub member_quota: Quota,
}

/// The answer to `POST /login/challenge`, from which the client builds the text to sign. Valid once, for a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Challenge {
    /// Random value, which becomes invalid with the first login that uses it.
    pub nonce: String,
    /// Fingerprint of the head's authority. The client refuses the challenge unless it trusts this authority at this
    /// address.
    pub cluster: Digest,
}

/// Returns the text that a key signs to log `user` in. A signature is valid for one cluster, user and nonce only.
///
/// `authority` must be the fingerprint that the signer trusts, not one that a peer sent. A malicious head could send
/// another cluster's fingerprint and use the signature there.
#[must_use]
pub fn login_text(authority: &Digest, nonce: &str, user: &str) -> String {
    format!("{LOGIN_NAMESPACE}\ncluster {authority}\nnonce {nonce}\nuser {user}\n")
}

impl Challenge {
    /// Returns whether the nonce consists of hexadecimal digits, so that it cannot add a line to the signed text.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        (1..=MAX_NONCE_LEN).contains(&self.nonce.len()) && self.nonce.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

/// Request body of `POST /login/key`: logs in with an SSH key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyLogin {
    /// Name of the user.
    pub user: String,
    /// Nonce of the challenge.
    pub nonce: String,
    /// Signature of [`login_text`], in the format of `ssh-keygen -Y sign`.
    pub signature: String,
}

/// Request body of `POST /login/code`, which logs in with a login code, and of `POST /codes/revoke`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CodeLogin {
    /// One-time secret of a login code; for `POST /codes/revoke`, of a login code or a join code.
    pub secret: String,
}

/// The answer to `POST /login/link`: a link that signs the caller in to the dashboard.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginLink {
    /// Address for a browser, with a one-time secret.
    pub url: String,
    /// Time until the link expires, in milliseconds.
    pub ends_in_ms: u64,
}

/// Formats the link without its secret.
impl fmt::Debug for LoginLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginLink").finish_non_exhaustive()
    }
}

/// The answer to a successful login.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoggedIn {
    /// The authenticated user.
    pub user: UserName,
    /// Role of the user.
    pub role: Role,
    /// Secret for the header `Authorization: Bearer`.
    pub token: String,
    /// Time until the token expires, in milliseconds. Time during which no head runs does not count.
    pub ends_in_ms: u64,
}

/// Formats the request without its secret.
impl fmt::Debug for CodeLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeLogin").finish_non_exhaustive()
    }
}

/// Formats the answer without the token.
impl fmt::Debug for LoggedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedIn").field("user", &self.user).field("role", &self.role).finish_non_exhaustive()
    }
}

/// The origin of an entry of the audit log that is no request but an event of the cluster.
pub const FROM_CLUSTER: &str = "cluster";

/// An entry of the audit log, in the answer of `GET /audit`: a change, a refused request or an event of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Time on the head's wall clock.
    pub at: WallTime,
    /// Time on the cluster's clock, in milliseconds since the cluster was created.
    pub clock_ms: u64,
    /// User who made the request; absent if unknown.
    #[serde(default)]
    pub user: Option<String>,
    /// How the request arrived: `socket`, `node`, `token` or `stranger`; `blocked` for a request of a blocked user; `cluster` for an
    /// event, such as a node that goes down.
    pub from: String,
    /// Uid of the user as reported by the kernel of the head's machine or of the node.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Node that forwarded or made the request, or to which the event happened.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// Address of the client.
    #[serde(default)]
    pub address: Option<String>,
    /// Method and API path of the request, or what happened, e.g. `node n1 is down`.
    pub action: String,
    /// What the request created, e.g. `job 12`, or the tasks or the reason of an event; absent for others.
    #[serde(default)]
    pub about: Option<String>,
    /// HTTP status of the answer; 0 for an event.
    pub status: u16,
    /// Error code, if the request was refused.
    #[serde(default)]
    pub error: Option<String>,
}

/// A page of the audit log, in the answer of `GET /audit`; oldest entries first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// Entries that match the filter of the request.
    pub entries: Vec<AuditEntry>,
    /// Whether older entries were omitted because of the requested limit.
    pub cut: bool,
}

//! Users of the cluster: names, roles, keys, quotas and login tokens.
//!
//! Every account on the head's machine may use the cluster with the role of a user. The state contains only additions: other roles, uids
//! that apply to all nodes, SSH keys for logins from other machines, quotas, and login tokens. A token is stored only as its hash and is
//! resolved to its user at each use, so a lost role takes effect at once. Tokens expire on the cluster's clock, which stops while no head
//! runs.
//!
//! There are no passwords. The shell parses keys and verifies signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use hostler_model::{Digest, NodeName, Quota, Role, Timestamp, UserName, WallTime};
use hostler_proto::link::{Account, HeadMessage};
use serde::{Deserialize, Serialize};

use super::decide::{MAX_REASON_CHARACTERS, is_reason};
use super::event::{Changes, ConnectionId, Effect, Now};
use super::state::State;

/// The lifetime of a token, in milliseconds on the cluster's clock.
pub const TOKEN_TTL_MS: u64 = 12 * 3600 * 1000;

/// The most tokens per user; a further one revokes the oldest.
const TOKENS_EACH: usize = 64;

const MAX_USERS: usize = 20_000;

const MAX_KEYS: usize = 64;

const MAX_GROUPS: usize = 64;

/// The range of uids for users who are added without a uid. It lies above the uids that systems assign to accounts, and
/// below the uids of containers, dynamic users and `nobody`.
const AUTOMATIC_UIDS: RangeInclusive<u32> = 20_000..=59_999;

/// A user of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user's name on every machine.
    pub name: UserName,
    /// The user's uid on every machine.
    pub uid: u32,
    /// What the user may do: user, operator or admin.
    pub role: Role,
    /// The user's groups, which matter for quotas and partitions only.
    pub groups: BTreeSet<UserName>,
    /// SSH public keys as lines of an `authorized_keys` file: type, base64, comment.
    pub keys: Vec<String>,
    /// The user's own quota.
    pub quota: Quota,
}

/// The data of a user to add or import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUser {
    /// The user's name.
    pub name: UserName,
    /// The uid. `None`: the user's current or former uid, else one that no user has or had. The shell must check that
    /// no account on the head's machine has it.
    pub uid: Option<u32>,
    /// What the user may do.
    pub role: Role,
    /// The user's groups.
    pub groups: BTreeSet<UserName>,
    /// SSH public keys, in the format of [`User::keys`].
    pub keys: Vec<String>,
}

/// A login token. The map's key is the hash of the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Token {
    user: UserName,
    /// When the token expires, on the cluster's clock.
    ends: Timestamp,
}

/// All users, groups, tokens and blocks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Users {
    users: BTreeMap<UserName, User>,
    /// Quotas that all users of a group share.
    groups: BTreeMap<UserName, Quota>,
    tokens: BTreeMap<Digest, Token>,
    /// Users who were removed. Accounts and files on the nodes still have their uids.
    #[serde(default)]
    former: BTreeMap<UserName, Former>,
    /// Blocked accounts, whether or not they were ever users.
    #[serde(default)]
    blocked: BTreeMap<UserName, Block>,
}

/// What the head keeps about a removed user. Quotas still apply to an account of this name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// The user's former uid.
    pub uid: u32,
    /// The groups, whose quotas still apply.
    #[serde(default)]
    pub groups: BTreeSet<UserName>,
    /// The quota, which still applies.
    #[serde(default)]
    pub quota: Quota,
}

/// A block of an account, by name and by uid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The account's uid.
    pub uid: u32,
    /// The admin's name.
    pub by: String,
    /// The reason, in the admin's words.
    #[serde(default)]
    pub reason: Option<String>,
    /// When the account was blocked.
    pub at: WallTime,
}

/// A change of users, groups, quotas, blocks or tokens. The shell has already checked the caller's rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsersCommand {
    /// Add a user to the cluster.
    Add(NewUser),
    /// Add or update several users, all or none: replaces uid, role and groups, and adds keys.
    Import(Vec<NewUser>),
    /// Remove a user. Jobs stay, and quotas continue to apply to the name.
    Remove(UserName),
    /// Block an account: its requests are refused and its waiting jobs do not start. Running jobs continue.
    Block {
        /// The account's name.
        name: UserName,
        /// The account's uid; `None` if the shell does not know it.
        uid: Option<u32>,
        /// The admin's name.
        by: String,
        /// The reason, in the admin's words.
        reason: Option<String>,
    },
    /// Unblock an account.
    Unblock(UserName),
    /// Give a user this role.
    SetRole(UserName, Role),
    /// Add and remove keys; keys to remove need no comment.
    ChangeKeys {
        /// The user whose keys change.
        user: UserName,
        /// The keys to add.
        add: Vec<String>,
        /// The keys to remove.
        remove: Vec<String>,
    },
    /// Set a user's quota.
    SetQuota(UserName, Quota),
    /// Set a group's quota.
    SetGroupQuota(UserName, Quota),
    /// A login succeeded: store the hash of a token for the user.
    IssueToken {
        /// The token's hash.
        token: Digest,
        /// The token's user.
        user: UserName,
    },
    /// Revoke the token with this hash.
    RevokeToken(Digest),
}

/// Users, quotas, blocks or tokens have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsersEvent {
    /// Users were added or changed.
    Put(Vec<User>),
    /// A user was removed, and all tokens of the user were revoked.
    Removed(UserName),
    /// An account was blocked.
    Blocked {
        /// The account's name.
        name: UserName,
        /// The admin and the reason of the block.
        block: Block,
    },
    /// An account was unblocked.
    Unblocked(UserName),
    /// The quota of a removed user was set.
    FormerQuota {
        /// The removed user's name.
        name: UserName,
        /// The quota, which replaces the earlier quota.
        quota: Quota,
    },
    /// A group's quota was set.
    GroupQuota {
        /// The group's name.
        group: UserName,
        /// The quota, which replaces the earlier quota.
        quota: Quota,
    },
    /// A login succeeded, and the user got a token.
    TokenIssued {
        /// The token's hash.
        token: Digest,
        /// The token's user.
        user: UserName,
        /// When the token expires, on the cluster's clock.
        ends: Timestamp,
    },
    /// A token was revoked.
    TokenRevoked {
        /// The token's hash.
        token: Digest,
    },
}

/// Why a change of users is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsersRefusal {
    /// The user does not exist.
    #[error("there is no user {0}")]
    NoSuchUser(UserName),
    /// A user with this name exists.
    #[error("there is a user {0} already")]
    Exists(UserName),
    /// The uid belongs to another user.
    #[error("uid {uid} belongs to {owner}, so {wanted} cannot have it")]
    UidTaken {
        /// The requested uid.
        uid: u32,
        /// The user who has the uid already.
        owner: UserName,
        /// The user for whom the uid was requested.
        wanted: UserName,
    },
    /// An import names the same user twice.
    #[error("the import names {0} twice")]
    Twice(UserName),
    /// The user does not have this key.
    #[error("{0} does not have that key")]
    NoSuchKey(UserName),
    /// A limit on the number of users, keys, groups or automatic uids is exceeded.
    #[error("{0}")]
    TooMany(String),
    /// The account is blocked.
    #[error("{user} is blocked on this cluster{}", because(.reason.as_deref()))]
    Blocked {
        /// The account's name.
        user: UserName,
        /// The reason, in an admin's words.
        reason: Option<String>,
    },
    /// The account is not blocked.
    #[error("{0} is not blocked")]
    NotBlocked(UserName),
    /// The uid of the account to block is unknown.
    #[error("cannot block {0}: neither the cluster nor the head's machine knows its uid")]
    UnknownUid(UserName),
    /// Root cannot be blocked.
    #[error("{0} is always an admin on the head's machine and cannot be blocked")]
    CannotBlock(UserName),
    /// The reason is too long or contains control characters.
    #[error("a reason is one line of at most {MAX_REASON_CHARACTERS} characters")]
    BadReason,
}

fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

impl UsersRefusal {
    /// Returns the stable error code of the API.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchUser(_) => "no_such_user",
            Self::Exists(_) => "user_exists",
            Self::UidTaken { .. } => "uid_taken",
            Self::Twice(_) => "user_twice",
            Self::NoSuchKey(_) => "no_such_key",
            Self::TooMany(_) => "too_many",
            Self::Blocked { .. } => "blocked",
            Self::NotBlocked(_) => "not_blocked",
            Self::UnknownUid(_) => "unknown_uid",
            Self::CannotBlock(_) => "cannot_block",
            Self::BadReason => "bad_spec",
        }
    }
}

impl Users {
    /// Returns a user by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// Iterates over users by name.
    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// Returns the user with this uid.
    #[must_use]
    pub fn by_uid(&self, uid: u32) -> Option<&User> {
        self.users.values().find(|user| user.uid == uid)
    }

    /// Returns an allocator of uids for new users.
    #[must_use]
    pub fn automatic_uids(&self) -> AutomaticUids {
        AutomaticUids {
            owned: self.users.values().map(|user| user.uid).collect(),
            former: self.former.iter().map(|(name, former)| (name.clone(), former.uid)).collect(),
            reserved: self.former.values().map(|former| former.uid).collect(),
            next: *AUTOMATIC_UIDS.start(),
        }
    }

    /// Iterates over groups that have a quota.
    pub fn groups(&self) -> impl Iterator<Item = (&UserName, &Quota)> {
        self.groups.iter()
    }

    /// Returns a group's quota, with the group's name.
    pub(super) fn group_quota(&self, group: &UserName) -> Option<(&UserName, &Quota)> {
        self.groups.get_key_value(group.as_str())
    }

    /// Returns whether any quota or block exists.
    pub(super) fn has_limits(&self) -> bool {
        let of_users = self.users.values().any(|user| !user.quota.is_unlimited());
        let of_former = || self.former.values().any(|former| !former.quota.is_unlimited());
        !self.groups.is_empty() || !self.blocked.is_empty() || of_users || of_former()
    }

    /// Returns the name, the groups and the quota that apply to a user's name, also for removed users.
    pub(super) fn limits_of(&self, name: &str) -> Option<(&UserName, &BTreeSet<UserName>, &Quota)> {
        let of_user = self.users.get_key_value(name).map(|(name, user)| (name, &user.groups, &user.quota));
        of_user.or_else(|| self.former.get_key_value(name).map(|(name, it)| (name, &it.groups, &it.quota)))
    }

    /// Iterates over removed users, by name.
    pub fn former(&self) -> impl Iterator<Item = (&UserName, &Former)> {
        self.former.iter()
    }

    /// Iterates over blocked accounts, by name.
    pub fn blocks(&self) -> impl Iterator<Item = (&UserName, &Block)> {
        self.blocked.iter()
    }

    /// Returns the block that applies to this name or uid; `None` if there is none.
    #[must_use]
    pub fn block_of(&self, name: &str, uid: Option<u32>) -> Option<(&UserName, &Block)> {
        let by_uid = || self.blocked.iter().find(|(_, block)| Some(block.uid) == uid);
        self.blocked.get_key_value(name).or_else(by_uid)
    }

    /// Checks that an account is not blocked.
    ///
    /// # Errors
    /// [`UsersRefusal::Blocked`], with the name that was blocked.
    pub fn let_in(&self, name: &str, uid: Option<u32>) -> Result<(), UsersRefusal> {
        let Some((user, block)) = self.block_of(name, uid) else { return Ok(()) };
        Err(UsersRefusal::Blocked { user: user.clone(), reason: block.reason.clone() })
    }

    /// Returns the accounts that every node must block.
    fn kept_out(&self) -> Vec<Account> {
        self.blocked.iter().map(|(name, block)| Account { name: name.clone(), uid: block.uid }).collect()
    }

    /// Returns the user of a token, by the token's hash, and when the token expires. `None` if the token is unknown or
    /// has expired.
    #[must_use]
    pub fn by_token(&self, token: &Digest, now: Timestamp) -> Option<(&User, Timestamp)> {
        let token = self.tokens.get(token).filter(|token| now < token.ends)?;
        Some((self.users.get(token.user.as_str())?, token.ends))
    }

    /// Returns whether a token with this hash has expired, so that the error can say so.
    #[must_use]
    pub fn has_ended(&self, token: &Digest, now: Timestamp) -> bool {
        self.tokens.get(token).is_some_and(|token| now >= token.ends)
    }

    /// Returns the accounts that every node must create.
    fn accounts(&self) -> Vec<Account> {
        self.users.values().map(|user| Account { name: user.name.clone(), uid: user.uid }).collect()
    }

    fn user(&self, name: &UserName) -> Result<&User, UsersRefusal> {
        self.users.get(name.as_str()).ok_or_else(|| UsersRefusal::NoSuchUser(name.clone()))
    }
}

impl State {
    /// Returns whether an account has more rights than the role *user*, by its role or because the head runs under its
    /// uid. Jobs and remote commands of the account have the same rights.
    #[must_use]
    pub fn is_privileged(&self, uid: u32, role: Role) -> bool {
        role > Role::User || self.owner == Some(uid)
    }

    /// Returns the uids of privileged accounts. Requests of these accounts are refused when they come through a node.
    /// Empty if an admin allows these requests. Root is handled separately.
    #[must_use]
    pub fn guarded_uids(&self) -> Vec<u32> {
        if self.settings.roles_through_nodes {
            return Vec::new();
        }
        let with_role = self.users.iter().filter(|user| user.role > Role::User).map(|user| user.uid);
        let all: BTreeSet<u32> = with_role.chain(self.owner).filter(|uid| *uid != 0).collect();
        all.into_iter().collect()
    }

    /// Returns whether a name belongs to an account of one node, such as `root@n1`.
    pub(super) fn is_name_through_node(&self, user: &str) -> bool {
        let node = user.rsplit_once('@').and_then(|(_, node)| node.parse::<NodeName>().ok());
        node.is_some_and(|node| self.member(&node).is_some() || self.node(&node).is_some())
    }
}

/// Returns the events that follow from `command`.
pub(super) fn decide_users(users: &Users, command: &UsersCommand, now: Now) -> Result<Vec<UsersEvent>, UsersRefusal> {
    match command {
        UsersCommand::Add(new) if users.users.contains_key(new.name.as_str()) => {
            Err(UsersRefusal::Exists(new.name.clone()))
        }
        UsersCommand::Add(new) => Uids::of(users).admit(users, std::slice::from_ref(new)),
        UsersCommand::Import(all) => Uids::of(users).admit(users, all),
        UsersCommand::Remove(name) => users.user(name).map(|user| vec![UsersEvent::Removed(user.name.clone())]),
        UsersCommand::Block { name, uid, by, reason } => block(users, name, *uid, by, reason.as_deref(), now),
        UsersCommand::Unblock(name) if users.blocked.contains_key(name.as_str()) => {
            Ok(vec![UsersEvent::Unblocked(name.clone())])
        }
        UsersCommand::Unblock(name) => Err(UsersRefusal::NotBlocked(name.clone())),
        UsersCommand::SetRole(name, role) => put(users, name, |user| user.role = *role),
        UsersCommand::ChangeKeys { user, add, remove } => change_keys(users.user(user)?, add, remove),
        UsersCommand::SetQuota(name, quota)
            if !users.users.contains_key(name.as_str()) && users.former.contains_key(name.as_str()) =>
        {
            Ok(vec![UsersEvent::FormerQuota { name: name.clone(), quota: *quota }])
        }
        UsersCommand::SetQuota(name, quota) => put(users, name, |user| user.quota = *quota),
        UsersCommand::SetGroupQuota(group, quota) => {
            Ok(vec![UsersEvent::GroupQuota { group: group.clone(), quota: *quota }])
        }
        UsersCommand::IssueToken { token, user } => users.user(user).and_then(|user| {
            users.let_in(user.name.as_str(), Some(user.uid))?;
            let ends = now.at.plus_ms(TOKEN_TTL_MS);
            Ok(vec![UsersEvent::TokenIssued { token: *token, user: user.name.clone(), ends }])
        }),
        UsersCommand::RevokeToken(token) if users.tokens.contains_key(token) => {
            Ok(vec![UsersEvent::TokenRevoked { token: *token }])
        }
        UsersCommand::RevokeToken(_) => Ok(Vec::new()),
    }
}

fn block(
    users: &Users,
    name: &UserName,
    uid: Option<u32>,
    by: &str,
    reason: Option<&str>,
    now: Now,
) -> Result<Vec<UsersEvent>, UsersRefusal> {
    if reason.is_some_and(|reason| !is_reason(reason)) {
        return Err(UsersRefusal::BadReason);
    }
    let known = users.get(name.as_str()).map(|user| user.uid);
    let known = known.or_else(|| users.former.get(name.as_str()).map(|former| former.uid));
    // A uid of a current or former user takes precedence: the head's machine may use the name for another person.
    let uid = known.or(uid).ok_or_else(|| UsersRefusal::UnknownUid(name.clone()))?;
    if uid == 0 || name.as_str() == "root" {
        return Err(UsersRefusal::CannotBlock(name.clone()));
    }
    let block = Block { uid, by: by.to_owned(), reason: reason.map(str::to_owned), at: now.wall };
    Ok(vec![UsersEvent::Blocked { name: name.clone(), block }])
}

fn put(users: &Users, name: &UserName, change: impl FnOnce(&mut User)) -> Result<Vec<UsersEvent>, UsersRefusal> {
    let mut user = users.user(name)?.clone();
    change(&mut user);
    Ok(vec![UsersEvent::Put(vec![user])])
}

fn change_keys(user: &User, add: &[String], remove: &[String]) -> Result<Vec<UsersEvent>, UsersRefusal> {
    let mut user = user.clone();
    for key in remove {
        let before = user.keys.len();
        user.keys.retain(|held| !is_same_key(held, key));
        if user.keys.len() == before {
            return Err(UsersRefusal::NoSuchKey(user.name));
        }
    }
    add_keys(&mut user, add)?;
    Ok(vec![UsersEvent::Put(vec![user])])
}

fn add_keys(user: &mut User, add: &[String]) -> Result<(), UsersRefusal> {
    for key in add {
        if !user.keys.iter().any(|held| is_same_key(held, key)) {
            user.keys.push(key.clone());
        }
    }
    if user.keys.len() > MAX_KEYS {
        return Err(UsersRefusal::TooMany(format!("{} has more than {MAX_KEYS} keys", user.name)));
    }
    Ok(())
}

/// Returns whether two lines contain the same key, ignoring comments.
fn is_same_key(one: &str, other: &str) -> bool {
    let key = |line: &str| -> Vec<String> { line.split_ascii_whitespace().take(2).map(str::to_owned).collect() };
    key(one) == key(other)
}

/// Allocates uids for new users, each once.
#[derive(Debug, Clone)]
pub struct AutomaticUids {
    owned: BTreeSet<u32>,
    former: BTreeMap<UserName, u32>,
    reserved: BTreeSet<u32>,
    /// The lowest uid that may be free. All lower ones are allocated or taken.
    next: u32,
}

impl AutomaticUids {
    /// Marks a uid as taken.
    pub fn reserve(&mut self, uid: u32) {
        self.owned.insert(uid);
    }

    /// Allocates a uid: the user's former uid, else the first that no user has or had and for which `is_taken` is false. `None` when
    /// none is left.
    pub fn take(&mut self, name: &UserName, mut is_taken: impl FnMut(u32) -> bool) -> Option<u32> {
        let had = self.former.get(name).copied().filter(|uid| !self.owned.contains(uid) && !is_taken(*uid));
        let uid = had.or_else(|| {
            let is_free = |uid: &u32| !self.owned.contains(uid) && !self.reserved.contains(uid) && !is_taken(*uid);
            let uid = (self.next..=*AUTOMATIC_UIDS.end()).find(is_free)?;
            self.next = uid + 1;
            Some(uid)
        })?;
        self.owned.insert(uid);
        Some(uid)
    }
}

/// The owner of each uid, while several users are added.
struct Uids {
    owners: BTreeMap<u32, UserName>,
    automatic: AutomaticUids,
}

impl Uids {
    fn of(users: &Users) -> Self {
        let owners = users.users.values().map(|user| (user.uid, user.name.clone())).collect();
        Self { owners, automatic: users.automatic_uids() }
    }

    /// Returns the events that add or update all users, or an error if one user is invalid.
    fn admit(mut self, users: &Users, all: &[NewUser]) -> Result<Vec<UsersEvent>, UsersRefusal> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = all.iter().find(|new| !seen.insert(&new.name)) {
            return Err(UsersRefusal::Twice(twice.name.clone()));
        }
        // Free the uids that will be replaced first, so that two users can swap uids.
        for new in all.iter().filter(|new| new.uid.is_some()) {
            new.uid.into_iter().for_each(|uid| self.automatic.reserve(uid));
            self.owners.retain(|_, owner| *owner != new.name);
        }
        let mut admitted = Vec::with_capacity(all.len());
        for new in all {
            let known = users.users.get(new.name.as_str());
            let uid = self.take(new, known.map(|known| known.uid))?;
            if new.groups.len() > MAX_GROUPS {
                return Err(UsersRefusal::TooMany(format!("{} is in more than {MAX_GROUPS} groups", new.name)));
            }
            let mut user = User {
                name: new.name.clone(),
                uid,
                role: new.role,
                groups: new.groups.clone(),
                keys: known.map(|known| known.keys.clone()).unwrap_or_default(),
                // A returning user gets the former quota.
                quota: users.limits_of(new.name.as_str()).map(|(_, _, quota)| *quota).unwrap_or_default(),
            };
            add_keys(&mut user, &new.keys)?;
            admitted.push(user);
        }
        let names: BTreeSet<&UserName> = users.users.keys().chain(seen).collect();
        if names.len() > MAX_USERS {
            return Err(UsersRefusal::TooMany(format!("a cluster has at most {MAX_USERS} users")));
        }
        Ok(vec![UsersEvent::Put(admitted)])
    }

    /// Returns the uid for a user: the requested uid, else the current or former one, else a free one.
    fn take(&mut self, new: &NewUser, known: Option<u32>) -> Result<u32, UsersRefusal> {
        let uid = new.uid.or(known).or_else(|| self.automatic.take(&new.name, |_| false));
        let uid = uid.ok_or_else(|| {
            let (first, last) = (AUTOMATIC_UIDS.start(), AUTOMATIC_UIDS.end());
            UsersRefusal::TooMany(format!("no uid from {first} to {last} is left for {}", new.name))
        })?;
        match self.owners.insert(uid, new.name.clone()) {
            Some(owner) if owner != new.name => Err(UsersRefusal::UidTaken { uid, owner, wanted: new.name.clone() }),
            _ => Ok(uid),
        }
    }
}

/// Applies one event, and tells the agents when accounts change.
pub(super) fn update_users(state: &mut State, event: &UsersEvent, now: Now, changes: &mut Changes) {
    let before = match event {
        UsersEvent::Put(_) | UsersEvent::Removed(_) | UsersEvent::Blocked { .. } | UsersEvent::Unblocked(_) => {
            Some(accounts_now(state))
        }
        UsersEvent::FormerQuota { .. } | UsersEvent::GroupQuota { .. } => None,
        UsersEvent::TokenIssued { .. } | UsersEvent::TokenRevoked { .. } => None,
    };
    let users = &mut state.users;
    if let UsersEvent::TokenIssued { .. } = event {
        // Deletes old tokens at each login, which saves a timer. A token stays for one more lifetime after it expires, so that
        // the error can say that it has expired.
        users.tokens.retain(|_, token| now.at < token.ends.plus_ms(TOKEN_TTL_MS));
    }
    match event {
        UsersEvent::Put(all) => {
            all.iter().for_each(|user| drop(users.former.remove(user.name.as_str())));
            users.users.extend(all.iter().map(|user| (user.name.clone(), user.clone())));
        }
        UsersEvent::Removed(name) => {
            if let Some(User { uid, groups, quota, .. }) = users.users.remove(name.as_str()) {
                users.former.insert(name.clone(), Former { uid, groups, quota });
            }
            users.tokens.retain(|_, token| token.user != *name);
        }
        UsersEvent::Blocked { name, block } => {
            users.blocked.insert(name.clone(), block.clone());
        }
        UsersEvent::Unblocked(name) => {
            users.blocked.remove(name.as_str());
        }
        UsersEvent::FormerQuota { name, quota } => {
            users.former.get_mut(name.as_str()).into_iter().for_each(|former| former.quota = *quota);
        }
        UsersEvent::GroupQuota { group, quota } if quota.is_unlimited() => {
            users.groups.remove(group.as_str());
        }
        UsersEvent::GroupQuota { group, quota } => {
            users.groups.insert(group.clone(), *quota);
        }
        UsersEvent::TokenIssued { token, user, ends } => issue(users, *token, user, *ends),
        UsersEvent::TokenRevoked { token } => {
            users.tokens.remove(token);
        }
    }
    // A new quota or group may let waiting jobs start.
    state.needs_pass |= !matches!(event, UsersEvent::TokenIssued { .. } | UsersEvent::TokenRevoked { .. });
    if before.is_some_and(|before| before != accounts_now(state)) {
        tell_all_accounts(state, changes);
    }
}

/// Sends all agents the current accounts.
pub(super) fn tell_all_accounts(state: &State, changes: &mut Changes) {
    for &connection in state.connections.keys() {
        changes.effects.push(Effect::Send { connection, message: accounts_now(state) });
    }
}

fn issue(users: &mut Users, token: Digest, user: &UserName, ends: Timestamp) {
    let of_user = |users: &Users| -> Vec<(Timestamp, Digest)> {
        let held = users.tokens.iter().filter(|(_, token)| token.user == *user);
        held.map(|(digest, token)| (token.ends, *digest)).collect()
    };
    let mut held = of_user(users);
    if held.len() >= TOKENS_EACH {
        held.sort_unstable();
        users.tokens.remove(&held[0].1);
    }
    users.tokens.insert(token, Token { user: user.clone(), ends });
}

fn accounts_now(state: &State) -> HeadMessage {
    let users = &state.users;
    HeadMessage::Accounts { accounts: users.accounts(), blocked: users.kept_out(), guarded: state.guarded_uids() }
}

/// Sends an agent the accounts that the agent's machine needs, unless there are no users, blocks or privileged
/// accounts.
pub(super) fn tell_accounts(state: &State, connection: ConnectionId, changes: &mut Changes) {
    if !state.users.users.is_empty() || !state.users.blocked.is_empty() || !state.guarded_uids().is_empty() {
        changes.effects.push(Effect::Send { connection, message: accounts_now(state) });
    }
}

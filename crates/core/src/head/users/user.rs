//! Users, groups and tokens as the state holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use hostler_model::{Digest, Quota, Role, Timestamp, UserName, WallTime};
use hostler_proto::link::Account;
use serde::{Deserialize, Serialize};

use crate::head::limits::MAX_REASON_CHARACTERS;

/// The lifetime of a token, in milliseconds on the cluster's clock.
pub const TOKEN_TTL_MS: u64 = 12 * 3600 * 1000;

/// The uids for users who are added without one: above the range that systems assign themselves, and below the ranges for containers,
/// dynamic users and `nobody`.
pub(in crate::head) const AUTOMATIC_UIDS: RangeInclusive<u32> = 20_000..=59_999;

/// A user of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name, on every machine.
    pub name: UserName,
    /// The uid, on every machine.
    pub uid: u32,
    /// The role.
    pub role: Role,
    /// Groups, for quotas.
    pub groups: BTreeSet<UserName>,
    /// SSH public keys as lines of an `authorized_keys` file: type, base64, comment.
    pub keys: Vec<String>,
    /// The quota.
    pub quota: Quota,
}

/// The data of a user to add or import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUser {
    /// The name.
    pub name: UserName,
    /// The uid. When absent: the user's current or former uid, else one that no user has or had. The shell must check that the
    /// head's machine does not use it.
    pub uid: Option<u32>,
    /// The role.
    pub role: Role,
    /// Groups.
    pub groups: BTreeSet<UserName>,
    /// SSH public keys, in the format of [`User::keys`].
    pub keys: Vec<String>,
}

/// A login token. Its hash is the key in the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::head) struct Token {
    pub(in crate::head) user: UserName,
    /// The expiry on the cluster's clock.
    pub(in crate::head) ends: Timestamp,
}

/// All users, groups, tokens and blocks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Users {
    pub(in crate::head) users: BTreeMap<UserName, User>,
    /// Quotas that all users of a group share.
    pub(in crate::head) groups: BTreeMap<UserName, Quota>,
    /// Quotas that each user of a group has, where the user's own quota sets no limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::head) member_quotas: BTreeMap<UserName, Quota>,
    pub(in crate::head) tokens: BTreeMap<Digest, Token>,
    /// Users who were removed. Accounts and files on nodes keep their uids.
    #[serde(default)]
    pub(in crate::head) former: BTreeMap<UserName, Former>,
    /// Uids that users had before an admin gave them others. Files on nodes may still belong to these uids.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(in crate::head) replaced_uids: BTreeSet<u32>,
    /// Blocked accounts, whether or not they were ever users.
    #[serde(default)]
    pub(in crate::head) blocked: BTreeMap<UserName, Block>,
}

/// The remaining data of a removed user. Quotas still apply to an account of that name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// The former uid.
    pub uid: u32,
    /// Groups, for quotas.
    #[serde(default)]
    pub groups: BTreeSet<UserName>,
    /// The quota.
    #[serde(default)]
    pub quota: Quota,
}

/// A block of an account, by name and by uid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The account's uid.
    pub uid: u32,
    /// The admin.
    pub by: String,
    /// The reason, in the admin's words.
    #[serde(default)]
    pub reason: Option<String>,
    /// When the account was blocked.
    pub at: WallTime,
}

/// A change of users. The shell has already checked the caller's rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsersCommand {
    /// Add a user.
    Add(NewUser),
    /// Add or update several users, all or none: replaces uid, role and groups, and adds keys.
    Import(Vec<NewUser>),
    /// Remove a user. Jobs stay, and quotas continue to apply to the name.
    Remove(UserName),
    /// Block an account: its requests are refused and its waiting jobs do not start. Running jobs continue.
    Block {
        /// The account's name.
        name: UserName,
        /// The account's uid, if the shell knows it.
        uid: Option<u32>,
        /// The admin.
        by: String,
        /// The reason, in the admin's words.
        reason: Option<String>,
    },
    /// Unblock an account.
    Unblock(UserName),
    /// Change a role.
    SetRole(UserName, Role),
    /// Add and remove keys; keys to remove need no comment.
    ChangeKeys {
        /// The user.
        user: UserName,
        /// The keys to add.
        add: Vec<String>,
        /// The keys to remove.
        remove: Vec<String>,
    },
    /// Set a user's quota.
    SetQuota(UserName, Quota),
    /// Set the quota that the users of a group share.
    SetGroupQuota(UserName, Quota),
    /// Set the quota that each user of a group has.
    SetMemberQuota(UserName, Quota),
    /// A login succeeded: store the hash of a token for the user.
    IssueToken {
        /// The token's hash.
        token: Digest,
        /// The token's user.
        user: UserName,
        /// When the token must end at the latest.
        until: Option<Timestamp>,
    },
    /// Revoke a token.
    RevokeToken(Digest),
}

/// An event about users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsersEvent {
    /// Users were added or changed.
    Put(Vec<User>),
    /// A user was removed, with all their tokens.
    Removed(UserName),
    /// An account was blocked.
    Blocked {
        /// The account's name.
        name: UserName,
        /// Who blocked it, and why.
        block: Block,
    },
    /// An account was unblocked.
    Unblocked(UserName),
    /// The quota of a removed user was set.
    FormerQuota {
        /// Their name.
        name: UserName,
        /// Their quota.
        quota: Quota,
    },
    /// A group's quota was set.
    GroupQuota {
        /// The group.
        group: UserName,
        /// Its quota.
        quota: Quota,
    },
    /// The quota of each user of a group was set.
    MemberQuota {
        /// The group.
        group: UserName,
        /// The quota of each user.
        quota: Quota,
    },
    /// A login succeeded.
    TokenIssued {
        /// The token's hash.
        token: Digest,
        /// The token's user.
        user: UserName,
        /// The expiry, on the cluster's clock.
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
    /// The name is taken.
    #[error("there is a user {0} already")]
    Exists(UserName),
    /// The uid is taken.
    #[error("uid {uid} belongs to {owner}, so {wanted} cannot have it")]
    UidTaken {
        /// The uid.
        uid: u32,
        /// The user who has it.
        owner: UserName,
        /// The user who should get it.
        wanted: UserName,
    },
    /// An import names the same user twice.
    #[error("the import names {0} twice")]
    Twice(UserName),
    /// The user does not have this key.
    #[error("{0} does not have that key")]
    NoSuchKey(UserName),
    /// A limit is exceeded.
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

pub(in crate::head) fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

impl UsersRefusal {
    /// A stable code for programs.
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
    /// A user by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// Users by name.
    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// The user with this uid.
    #[must_use]
    pub fn by_uid(&self, uid: u32) -> Option<&User> {
        self.users.values().find(|user| user.uid == uid)
    }

    /// An allocator of uids for new users.
    #[must_use]
    pub fn automatic_uids(&self) -> AutomaticUids {
        AutomaticUids {
            owned: self.users.values().map(|user| user.uid).collect(),
            former: self.former.iter().map(|(name, former)| (name.clone(), former.uid)).collect(),
            reserved: self.former.values().map(|former| former.uid).chain(self.replaced_uids.iter().copied()).collect(),
            next: *AUTOMATIC_UIDS.start(),
        }
    }

    /// Groups that have a quota: the quota that their users share, and the quota of each user.
    pub fn groups(&self) -> impl Iterator<Item = (&UserName, Quota, Quota)> {
        let names: BTreeSet<&UserName> = self.groups.keys().chain(self.member_quotas.keys()).collect();
        let of = |quotas: &BTreeMap<UserName, Quota>, name: &UserName| quotas.get(name).copied().unwrap_or_default();
        names.into_iter().map(move |name| (name, of(&self.groups, name), of(&self.member_quotas, name)))
    }

    /// The limits in effect for a user with these groups: the user's own, and else the largest that a group gives to each of
    /// its users.
    #[must_use]
    pub fn effective_quota(&self, groups: &BTreeSet<UserName>, own: Quota) -> Quota {
        if self.member_quotas.is_empty() {
            return own;
        }
        let given = groups.iter().filter_map(|group| self.member_quotas.get(group));
        own.or(given.copied().reduce(Quota::largest).unwrap_or_default())
    }

    /// A group's quota, with the group's name.
    pub(in crate::head) fn group_quota(&self, group: &UserName) -> Option<(&UserName, &Quota)> {
        self.groups.get_key_value(group.as_str())
    }

    /// Whether any quota or block exists.
    pub(in crate::head) fn has_limits(&self) -> bool {
        let of_users = self.users.values().any(|user| !user.quota.is_unlimited());
        let of_former = || self.former.values().any(|former| !former.quota.is_unlimited());
        let of_groups = !self.groups.is_empty() || !self.member_quotas.is_empty();
        of_groups || !self.blocked.is_empty() || of_users || of_former()
    }

    /// The groups and the own quota of a name, including removed users.
    pub(in crate::head) fn limits_of(&self, name: &str) -> Option<(&UserName, &BTreeSet<UserName>, &Quota)> {
        let of_user = self.users.get_key_value(name).map(|(name, user)| (name, &user.groups, &user.quota));
        of_user.or_else(|| self.former.get_key_value(name).map(|(name, it)| (name, &it.groups, &it.quota)))
    }

    /// Removed users, by name.
    pub fn former(&self) -> impl Iterator<Item = (&UserName, &Former)> {
        self.former.iter()
    }

    /// Blocked accounts, by name.
    pub fn blocks(&self) -> impl Iterator<Item = (&UserName, &Block)> {
        self.blocked.iter()
    }

    /// The block that applies to this name or uid, if any.
    #[must_use]
    pub fn block_of(&self, name: &str, uid: Option<u32>) -> Option<(&UserName, &Block)> {
        let by_uid = || self.blocked.iter().find(|(_, block)| Some(block.uid) == uid);
        self.blocked.get_key_value(name).or_else(by_uid)
    }

    /// Refuses a blocked account.
    ///
    /// # Errors
    /// [`UsersRefusal::Blocked`], with the name that was blocked.
    pub fn check_not_blocked(&self, name: &str, uid: Option<u32>) -> Result<(), UsersRefusal> {
        let Some((user, block)) = self.block_of(name, uid) else { return Ok(()) };
        Err(UsersRefusal::Blocked { user: user.clone(), reason: block.reason.clone() })
    }

    /// The accounts that every node blocks.
    pub(in crate::head) fn blocked_accounts(&self) -> Vec<Account> {
        self.blocked.iter().map(|(name, block)| Account { name: name.clone(), uid: block.uid }).collect()
    }

    /// The user of a token, by its hash, and the token's expiry; `None` if it has expired.
    #[must_use]
    pub fn by_token(&self, token: &Digest, now: Timestamp) -> Option<(&User, Timestamp)> {
        let token = self.tokens.get(token).filter(|token| now < token.ends)?;
        Some((self.users.get(token.user.as_str())?, token.ends))
    }

    /// Whether a token with this hash has expired. The error may say so to its holder.
    #[must_use]
    pub fn has_ended(&self, token: &Digest, now: Timestamp) -> bool {
        self.tokens.get(token).is_some_and(|token| now >= token.ends)
    }

    /// The accounts that every node needs.
    pub(in crate::head) fn accounts(&self) -> Vec<Account> {
        self.users.values().map(|user| Account { name: user.name.clone(), uid: user.uid }).collect()
    }

    pub(in crate::head) fn user(&self, name: &UserName) -> Result<&User, UsersRefusal> {
        self.users.get(name.as_str()).ok_or_else(|| UsersRefusal::NoSuchUser(name.clone()))
    }
}

/// Allocates uids for new users, each once.
#[derive(Debug, Clone)]
pub struct AutomaticUids {
    pub(in crate::head) owned: BTreeSet<u32>,
    pub(in crate::head) former: BTreeMap<UserName, u32>,
    pub(in crate::head) reserved: BTreeSet<u32>,
    /// Every uid below this one is allocated or taken.
    pub(in crate::head) next: u32,
}

impl AutomaticUids {
    /// Excludes a uid.
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

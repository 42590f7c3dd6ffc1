//! Users: who is known by which name, role and key, and which tokens stand for whom.
//!
//! Everybody whom the kernel of the head's machine knows may use the cluster, with the role of a user; what is kept here is what goes
//! beyond that: other roles, uids that hold on all nodes, keys for logging in from elsewhere, quotas, and tokens that were given out
//! for a login. A token is kept only as its hash and is bound to its user when it is used: a role that is taken away is gone at once.
//! Tokens end on the cluster's clock, which stands still while no head runs.
//!
//! Passwords are absent, and so is any knowledge of what a key or a signature is: the shell reads those.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use hostler_model::{Digest, NodeName, Quota, Role, Timestamp, UserName, WallTime};
use hostler_proto::link::{Account, HeadMessage};
use serde::{Deserialize, Serialize};

use super::event::{Changes, ConnectionId, Effect, Now};
use super::state::State;

/// How long a token is good for, in milliseconds on the cluster's clock.
pub const TOKEN_TTL_MS: u64 = 12 * 3600 * 1000;

/// Tokens that one user may have at once; a new one beyond that makes the oldest void.
const TOKENS_EACH: usize = 64;

/// Users that may be known.
const MAX_USERS: usize = 20_000;

/// Keys that a user may have.
const MAX_KEYS: usize = 64;

/// The longest reason for a block, in bytes.
const MAX_REASON_BYTES: usize = 500;

/// Groups that a user may be in.
const MAX_GROUPS: usize = 64;

/// The uids that are given to users for whom none was asked for: above what systems give out by themselves, and below what they use for
/// containers, dynamic users and nobody.
const AUTOMATIC_UIDS: RangeInclusive<u32> = 20_000..=59_999;

/// A user of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name, on every machine.
    pub name: UserName,
    /// The uid, on every machine.
    pub uid: u32,
    /// What they may do.
    pub role: Role,
    /// Groups, for quotas.
    pub groups: BTreeSet<UserName>,
    /// SSH public keys as lines of an `authorized_keys` file: type, base64, comment.
    pub keys: Vec<String>,
    /// How much they may have.
    pub quota: Quota,
}

/// A user as somebody wants to have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUser {
    /// The name.
    pub name: UserName,
    /// The uid. When absent, the one they have or had, or else one that nobody of the cluster has or had; whether the head's machine
    /// knows that one is for the shell to find out.
    pub uid: Option<u32>,
    /// The role.
    pub role: Role,
    /// Groups.
    pub groups: BTreeSet<UserName>,
    /// SSH public keys, in the form in which [`User::keys`] has them.
    pub keys: Vec<String>,
}

/// Stands for a user until it ends. Its name in the map is its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Token {
    user: UserName,
    /// On the cluster's clock.
    ends: Timestamp,
}

/// Everything the head knows of users.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Users {
    users: BTreeMap<UserName, User>,
    /// Quotas that all users of a group share.
    groups: BTreeMap<UserName, Quota>,
    tokens: BTreeMap<Digest, Token>,
    /// Users who were removed. Accounts and files on nodes keep their uids.
    #[serde(default)]
    former: BTreeMap<UserName, Former>,
    /// Who is kept out, whether they were ever added or not.
    #[serde(default)]
    blocked: BTreeMap<UserName, Block>,
}

/// What is kept of a user who was removed: whoever the machines know by that name still counts against the quotas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// The uid they had.
    pub uid: u32,
    /// Groups, for quotas.
    #[serde(default)]
    pub groups: BTreeSet<UserName>,
    /// How much they may have.
    #[serde(default)]
    pub quota: Quota,
}

/// That an account is kept out, by its name and by its uid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The account's uid.
    pub uid: u32,
    /// Who wants that.
    pub by: String,
    /// Why, in their words.
    #[serde(default)]
    pub reason: Option<String>,
    /// When.
    pub at: WallTime,
}

/// What somebody wants to have done about users. Who may want it is settled before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsersCommand {
    /// A new user.
    Add(NewUser),
    /// Several users, new or not, all or none: what they had of uid, role and groups is replaced, keys are added.
    Import(Vec<NewUser>),
    /// A user is no user any more. Their jobs stay as they are, and their quotas count for whoever has the name.
    Remove(UserName),
    /// An account is kept out: it is refused whatever it asks, and what waits of its jobs does not start. What runs goes on.
    Block {
        /// Its name.
        name: UserName,
        /// Its uid, if the shell knows it.
        uid: Option<u32>,
        /// Who wants that.
        by: String,
        /// Why, in their words.
        reason: Option<String>,
    },
    /// An account is let in again.
    Unblock(UserName),
    /// Another role.
    SetRole(UserName, Role),
    /// More keys and fewer; keys to remove need not carry their comment.
    ChangeKeys {
        /// Whose.
        user: UserName,
        /// These come.
        add: Vec<String>,
        /// These go.
        remove: Vec<String>,
    },
    /// How much a user may have.
    SetQuota(UserName, Quota),
    /// How much a group may have.
    SetGroupQuota(UserName, Quota),
    /// A login succeeded: this hash of a token stands for the user.
    IssueToken {
        /// The token's hash.
        token: Digest,
        /// For whom it stands.
        user: UserName,
    },
    /// A token is not to be good any more.
    RevokeToken(Digest),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsersEvent {
    /// Users are new, or have changed.
    Put(Vec<User>),
    /// A user was removed, with all their tokens.
    Removed(UserName),
    /// An account is kept out.
    Blocked {
        /// Its name.
        name: UserName,
        /// Why, and by whom.
        block: Block,
    },
    /// An account is let in again.
    Unblocked(UserName),
    /// How much somebody may have who was removed.
    FormerQuota {
        /// Their name.
        name: UserName,
        /// Their quota.
        quota: Quota,
    },
    /// What a group may have.
    GroupQuota {
        /// The group.
        group: UserName,
        /// Its quota.
        quota: Quota,
    },
    /// A login succeeded.
    TokenIssued {
        /// The token's hash.
        token: Digest,
        /// For whom it stands.
        user: UserName,
        /// Until when, on the cluster's clock.
        ends: Timestamp,
    },
    /// A token is not good any more.
    TokenRevoked {
        /// Its hash.
        token: Digest,
    },
}

/// Why something is not done about users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsersRefusal {
    /// There is no such user.
    #[error("there is no user {0}")]
    NoSuchUser(UserName),
    /// The name is taken.
    #[error("there is a user {0} already")]
    Exists(UserName),
    /// The uid is taken.
    #[error("uid {uid} is {owner}'s already, so {wanted} cannot have it")]
    UidTaken {
        /// The uid.
        uid: u32,
        /// Who has it.
        owner: UserName,
        /// Who wants it.
        wanted: UserName,
    },
    /// An import names the same user twice.
    #[error("{0} is there twice")]
    Twice(UserName),
    /// The user does not have this key.
    #[error("{0} does not have that key")]
    NoSuchKey(UserName),
    /// More of something than is kept.
    #[error("{0}")]
    TooMany(String),
    /// The account is kept out.
    #[error("{user} is blocked on this cluster{}", because(.reason.as_deref()))]
    Blocked {
        /// Its name.
        user: UserName,
        /// Why, in an admin's words.
        reason: Option<String>,
    },
    /// The account is not kept out.
    #[error("{0} is not blocked")]
    NotBlocked(UserName),
    /// Nobody knows the uid of an account that is to be kept out.
    #[error("neither the cluster nor the head's machine knows the uid of {0}")]
    UnknownUid(UserName),
    /// Nobody can keep root out.
    #[error("{0} is an admin by the head's machine itself and cannot be blocked")]
    CannotBlock(UserName),
    /// The reason is no line.
    #[error("a reason is one line of at most {MAX_REASON_BYTES} bytes")]
    BadReason,
}

fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

impl UsersRefusal {
    /// A stable word for programs.
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
    /// A user by name. Names that no user of the cluster can have are nobody's.
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

    /// The uids that new users may get for whom none is asked for.
    #[must_use]
    pub fn automatic_uids(&self) -> AutomaticUids {
        AutomaticUids {
            owned: self.users.values().map(|user| user.uid).collect(),
            former: self.former.iter().map(|(name, former)| (name.clone(), former.uid)).collect(),
            reserved: self.former.values().map(|former| former.uid).collect(),
            next: *AUTOMATIC_UIDS.start(),
        }
    }

    /// Groups that have a quota.
    pub fn groups(&self) -> impl Iterator<Item = (&UserName, &Quota)> {
        self.groups.iter()
    }

    /// A group's quota, with the group's name.
    pub(super) fn group_quota(&self, group: &UserName) -> Option<(&UserName, &Quota)> {
        self.groups.get_key_value(group.as_str())
    }

    /// Whether anybody has a quota, or is kept out.
    pub(super) fn has_limits(&self) -> bool {
        let of_users = self.users.values().any(|user| !user.quota.is_unlimited());
        let of_former = || self.former.values().any(|former| !former.quota.is_unlimited());
        !self.groups.is_empty() || !self.blocked.is_empty() || of_users || of_former()
    }

    /// The groups and the quota that count for a name, which may be of a user who was removed.
    pub(super) fn limits_of(&self, name: &str) -> Option<(&UserName, &BTreeSet<UserName>, &Quota)> {
        let of_user = self.users.get_key_value(name).map(|(name, user)| (name, &user.groups, &user.quota));
        of_user.or_else(|| self.former.get_key_value(name).map(|(name, it)| (name, &it.groups, &it.quota)))
    }

    /// Users who were removed, by name.
    pub fn former(&self) -> impl Iterator<Item = (&UserName, &Former)> {
        self.former.iter()
    }

    /// Accounts that are kept out, by name.
    pub fn blocks(&self) -> impl Iterator<Item = (&UserName, &Block)> {
        self.blocked.iter()
    }

    /// Why whoever has this name, or this uid, is kept out.
    #[must_use]
    pub fn block_of(&self, name: &str, uid: Option<u32>) -> Option<(&UserName, &Block)> {
        let by_uid = || self.blocked.iter().find(|(_, block)| Some(block.uid) == uid);
        self.blocked.get_key_value(name).or_else(by_uid)
    }

    /// Refuses whoever is kept out.
    ///
    /// # Errors
    /// [`UsersRefusal::Blocked`], with the name that was blocked.
    pub fn let_in(&self, name: &str, uid: Option<u32>) -> Result<(), UsersRefusal> {
        let Some((user, block)) = self.block_of(name, uid) else { return Ok(()) };
        Err(UsersRefusal::Blocked { user: user.clone(), reason: block.reason.clone() })
    }

    /// The accounts that are kept out of every node.
    fn kept_out(&self) -> Vec<Account> {
        self.blocked.iter().map(|(name, block)| Account { name: name.clone(), uid: block.uid }).collect()
    }

    /// For whom a token stands now, by its hash, and until when.
    #[must_use]
    pub fn by_token(&self, token: &Digest, now: Timestamp) -> Option<(&User, Timestamp)> {
        let token = self.tokens.get(token).filter(|token| now < token.ends)?;
        Some((self.users.get(token.user.as_str())?, token.ends))
    }

    /// Whether a token with this hash was given out and is only too old: its holder may be told so.
    #[must_use]
    pub fn has_ended(&self, token: &Digest, now: Timestamp) -> bool {
        self.tokens.get(token).is_some_and(|token| now >= token.ends)
    }

    /// The accounts that belong on every node.
    fn accounts(&self) -> Vec<Account> {
        self.users.values().map(|user| Account { name: user.name.clone(), uid: user.uid }).collect()
    }

    fn user(&self, name: &UserName) -> Result<&User, UsersRefusal> {
        self.users.get(name.as_str()).ok_or_else(|| UsersRefusal::NoSuchUser(name.clone()))
    }
}

impl State {
    /// Whether an account has more rights than the role *user*: by its role, or because the head runs under its uid. Its jobs and remote
    /// commands have the same rights.
    #[must_use]
    pub fn is_privileged(&self, uid: u32, role: Role) -> bool {
        role > Role::User || self.owner == Some(uid)
    }

    /// The uids of such accounts, for which no node's word is taken; none when an admin has allowed that. Root has rules of its own.
    #[must_use]
    pub fn guarded_uids(&self) -> Vec<u32> {
        if self.settings.roles_through_nodes {
            return Vec::new();
        }
        let with_role = self.users.iter().filter(|user| user.role > Role::User).map(|user| user.uid);
        let all: BTreeSet<u32> = with_role.chain(self.owner).filter(|uid| *uid != 0).collect();
        all.into_iter().collect()
    }

    /// Whether a name is one that somebody has through a node alone, such as `root@n1`.
    pub(super) fn is_name_through_node(&self, user: &str) -> bool {
        let node = user.rsplit_once('@').and_then(|(_, node)| node.parse::<NodeName>().ok());
        node.is_some_and(|node| self.member(&node).is_some() || self.node(&node).is_some())
    }
}

/// The events that follow from `command`.
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
    if reason.is_some_and(|reason| reason.len() > MAX_REASON_BYTES || reason.contains(char::is_control)) {
        return Err(UsersRefusal::BadReason);
    }
    let known = users.get(name.as_str()).map(|user| user.uid);
    let known = known.or_else(|| users.former.get(name.as_str()).map(|former| former.uid));
    // A name that nobody was added under may be another person's on the head's machine, so what is said comes first.
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

/// Whether two lines hold the same key, whatever their comments.
fn is_same_key(one: &str, other: &str) -> bool {
    let key = |line: &str| -> Vec<String> { line.split_ascii_whitespace().take(2).map(str::to_owned).collect() };
    key(one) == key(other)
}

/// Hands out uids to new users, each once.
#[derive(Debug, Clone)]
pub struct AutomaticUids {
    owned: BTreeSet<u32>,
    former: BTreeMap<UserName, u32>,
    reserved: BTreeSet<u32>,
    /// Those before are handed out or taken.
    next: u32,
}

impl AutomaticUids {
    /// Nobody gets this one.
    pub fn reserve(&mut self, uid: u32) {
        self.owned.insert(uid);
    }

    /// A uid for a new user: the one they had before they were removed, or else the first that nobody of the cluster has or had and
    /// for which `is_taken` does not hold. `None` when none is left.
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

/// Who has which uid, while several users are being admitted.
struct Uids {
    owners: BTreeMap<u32, UserName>,
    automatic: AutomaticUids,
}

impl Uids {
    fn of(users: &Users) -> Self {
        let owners = users.users.values().map(|user| (user.uid, user.name.clone())).collect();
        Self { owners, automatic: users.automatic_uids() }
    }

    /// New users, or new particulars of known ones; all or none.
    fn admit(mut self, users: &Users, all: &[NewUser]) -> Result<Vec<UsersEvent>, UsersRefusal> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = all.iter().find(|new| !seen.insert(&new.name)) {
            return Err(UsersRefusal::Twice(twice.name.clone()));
        }
        // What is to be replaced makes room first, so that two users may exchange their uids.
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
                // Who comes back has the quota from before.
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

    /// The uid that a user gets: the one asked for, the one they have, or one that is free.
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

/// Applies one event, and tells the agents when accounts have changed.
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
    // With another quota, or in another group, what waited may start.
    state.needs_pass |= !matches!(event, UsersEvent::TokenIssued { .. } | UsersEvent::TokenRevoked { .. });
    if before.is_some_and(|before| before != accounts_now(state)) {
        tell_all_accounts(state, changes);
    }
}

/// Tells all agents which accounts there are and what holds for them.
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

/// Tells an agent which accounts its machine should have. A cluster without users of its own has nothing to say.
pub(super) fn tell_accounts(state: &State, connection: ConnectionId, changes: &mut Changes) {
    if !state.users.users.is_empty() || !state.users.blocked.is_empty() || !state.guarded_uids().is_empty() {
        changes.effects.push(Effect::Send { connection, message: accounts_now(state) });
    }
}

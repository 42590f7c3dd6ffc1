//! Users: who is known by which name, role and key, and which tokens stand for whom.
//!
//! Everybody whom the kernel of the head's machine knows may use the cluster, with the role of a user; what is kept here is what goes
//! beyond that: other roles, uids that hold on all nodes, keys for logging in from elsewhere, quotas, and tokens that were given out
//! for a login. A token is kept only as its hash and is bound to its user when it is used: a role that is taken away is gone at once.
//! Tokens end on the cluster's clock, which stands still while no head runs.
//!
//! Passwords are absent, and so is any knowledge of what a key or a signature is: the shell reads those.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{Digest, Quota, Role, Timestamp, UserName};
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

/// Groups that a user may be in.
const MAX_GROUPS: usize = 64;

/// The first uid that is given to a user for whom none was asked for: above what systems give out by themselves.
const FIRST_UID: u32 = 20_000;

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
    /// The uid; one that is free when absent.
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
}

/// What somebody wants to have done about users. Who may want it is settled before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsersCommand {
    /// A new user.
    Add(NewUser),
    /// Several users, new or not, all or none: what they had of uid, role and groups is replaced, keys are added.
    Import(Vec<NewUser>),
    /// A user is no user any more. Their jobs stay as they are.
    Remove(UserName),
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

    /// Groups that have a quota.
    pub fn groups(&self) -> impl Iterator<Item = (&UserName, &Quota)> {
        self.groups.iter()
    }

    /// A group's quota, with the group's name.
    pub(super) fn group_quota(&self, group: &UserName) -> Option<(&UserName, &Quota)> {
        self.groups.get_key_value(group.as_str())
    }

    /// Whether anybody has a quota.
    pub(super) fn has_quotas(&self) -> bool {
        !self.groups.is_empty() || self.users.values().any(|user| !user.quota.is_unlimited())
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

/// The events that follow from `command`.
pub(super) fn decide_users(users: &Users, command: &UsersCommand, now: Now) -> Result<Vec<UsersEvent>, UsersRefusal> {
    match command {
        UsersCommand::Add(new) if users.users.contains_key(new.name.as_str()) => {
            Err(UsersRefusal::Exists(new.name.clone()))
        }
        UsersCommand::Add(new) => Uids::of(users).admit(users, std::slice::from_ref(new)),
        UsersCommand::Import(all) => Uids::of(users).admit(users, all),
        UsersCommand::Remove(name) => users.user(name).map(|user| vec![UsersEvent::Removed(user.name.clone())]),
        UsersCommand::SetRole(name, role) => put(users, name, |user| user.role = *role),
        UsersCommand::ChangeKeys { user, add, remove } => change_keys(users.user(user)?, add, remove),
        UsersCommand::SetQuota(name, quota) => put(users, name, |user| user.quota = *quota),
        UsersCommand::SetGroupQuota(group, quota) => {
            Ok(vec![UsersEvent::GroupQuota { group: group.clone(), quota: *quota }])
        }
        UsersCommand::IssueToken { token, user } => users.user(user).map(|user| {
            let ends = now.at.plus_ms(TOKEN_TTL_MS);
            vec![UsersEvent::TokenIssued { token: *token, user: user.name.clone(), ends }]
        }),
        UsersCommand::RevokeToken(token) if users.tokens.contains_key(token) => {
            Ok(vec![UsersEvent::TokenRevoked { token: *token }])
        }
        UsersCommand::RevokeToken(_) => Ok(Vec::new()),
    }
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

/// Who has which uid, while several users are being admitted.
struct Uids(BTreeMap<u32, UserName>);

impl Uids {
    fn of(users: &Users) -> Self {
        Self(users.users.values().map(|user| (user.uid, user.name.clone())).collect())
    }

    /// New users, or new particulars of known ones; all or none.
    fn admit(mut self, users: &Users, all: &[NewUser]) -> Result<Vec<UsersEvent>, UsersRefusal> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = all.iter().find(|new| !seen.insert(&new.name)) {
            return Err(UsersRefusal::Twice(twice.name.clone()));
        }
        // What is to be replaced makes room first, so that two users may exchange their uids.
        for new in all.iter().filter(|new| new.uid.is_some()) {
            self.0.retain(|_, owner| *owner != new.name);
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
                quota: known.map(|known| known.quota).unwrap_or_default(),
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
        let uid = new.uid.or(known).unwrap_or_else(|| {
            let last = self.0.range(FIRST_UID..).next_back().map_or(FIRST_UID - 1, |(last, _)| *last);
            last.saturating_add(1)
        });
        match self.0.insert(uid, new.name.clone()) {
            Some(owner) if owner != new.name => Err(UsersRefusal::UidTaken { uid, owner, wanted: new.name.clone() }),
            _ => Ok(uid),
        }
    }
}

/// Applies one event, and tells the agents when accounts have changed.
pub(super) fn update_users(state: &mut State, event: &UsersEvent, now: Now, changes: &mut Changes) {
    let users = &mut state.users;
    // Some other time would do as well; this way it costs nothing while nobody logs in.
    let before = match event {
        UsersEvent::TokenIssued { .. } => {
            // Kept for as long again, so that whoever shows one can be told what is wrong with it.
            users.tokens.retain(|_, token| now.at < token.ends.plus_ms(TOKEN_TTL_MS));
            None
        }
        UsersEvent::Put(_) | UsersEvent::Removed(_) => Some(users.accounts()),
        UsersEvent::GroupQuota { .. } | UsersEvent::TokenRevoked { .. } => None,
    };
    match event {
        UsersEvent::Put(all) => {
            users.users.extend(all.iter().map(|user| (user.name.clone(), user.clone())));
        }
        UsersEvent::Removed(name) => {
            users.users.remove(name.as_str());
            users.tokens.retain(|_, token| token.user != *name);
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
    state.needs_pass |= matches!(event, UsersEvent::Put(_) | UsersEvent::Removed(_) | UsersEvent::GroupQuota { .. });
    if before.is_some_and(|before| before != users.accounts()) {
        let connections: Vec<ConnectionId> = state.connections.keys().copied().collect();
        for connection in connections {
            tell_accounts(state, connection, changes);
        }
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

/// Tells an agent which accounts its machine should have. A cluster without users of its own has nothing to say.
pub(super) fn tell_accounts(state: &State, connection: ConnectionId, changes: &mut Changes) {
    let accounts = state.users.accounts();
    if !accounts.is_empty() {
        let message = HeadMessage::Accounts { accounts };
        changes.effects.push(Effect::Send { connection, message });
    }
}

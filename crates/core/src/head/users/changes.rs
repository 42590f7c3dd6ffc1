//! Users of the cluster: names, roles, keys, quotas and login tokens.
//!
//! Every account on the head's machine may use the cluster with the role of a user. The state contains only additions: other roles, uids
//! that apply to all nodes, SSH keys for logins from other machines, quotas, and login tokens. A token is stored only as its hash and is
//! resolved to its user at each use, so a lost role takes effect at once. Tokens expire on the cluster's clock, which stops while no head
//! runs.
//!
//! There are no passwords. The shell parses keys and verifies signatures.

use std::collections::{BTreeMap, BTreeSet};

use hostler_model::{Digest, NodeName, Quota, Role, Timestamp, UserName, is_system_uid};
use hostler_proto::link::{HeadMessage, SystemAccounts};
use hostler_proto::users::{MAX_GROUPS, MAX_USERS};

use super::user::{
    AUTOMATIC_UIDS, AutomaticUids, Block, Former, NewUser, TOKEN_TTL_MS, Token, User, Users, UsersCommand, UsersEvent,
    UsersRefusal,
};
use crate::head::event::{Changes, Effect};
use crate::head::ids::{ConnectionId, Now};
use crate::head::limits::is_reason;
use crate::head::state::State;

/// The most tokens per user; a further one revokes the oldest.
const TOKENS_EACH: usize = 64;

const MAX_KEYS: usize = 64;

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

    /// Returns the system accounts that may run jobs and commands: all if an admin allows it, else the account that runs
    /// the head and those that an admin has added as users.
    #[must_use]
    pub fn system_accounts(&self) -> SystemAccounts {
        if self.settings.system_accounts {
            return SystemAccounts::All;
        }
        let all = self.users.iter().map(|user| user.uid).chain(self.owner);
        let uids: BTreeSet<u32> = all.filter(|uid| is_system_uid(*uid)).collect();
        SystemAccounts::Only(uids.into_iter().collect())
    }

    /// Returns whether a name belongs to an account of one node, such as `root@n1`.
    #[must_use]
    pub fn is_name_through_node(&self, user: &str) -> bool {
        node_in_name(user).is_some_and(|node| self.member(&node).is_some() || self.node(&node).is_some())
    }

    /// Returns a user whose name would belong to an account of this node if the node joined.
    pub(in crate::head) fn user_named_after(&self, node: &NodeName) -> Option<&UserName> {
        self.users.iter().map(|user| &user.name).find(|name| node_in_name(name.as_str()).as_ref() == Some(node))
    }
}

/// The name after the last `@` of a user's name, if it is valid as the name of a node.
fn node_in_name(user: &str) -> Option<NodeName> {
    user.rsplit_once('@').and_then(|(_, node)| node.parse().ok())
}

/// Returns the events that follow from `command`.
pub(in crate::head) fn decide_users(
    users: &Users,
    command: &UsersCommand,
    now: Now,
) -> Result<Vec<UsersEvent>, UsersRefusal> {
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
        UsersCommand::SetMemberQuota(group, quota) => {
            Ok(vec![UsersEvent::MemberQuota { group: group.clone(), quota: *quota }])
        }
        UsersCommand::IssueToken { token, user, until } => users.user(user).and_then(|user| {
            users.check_not_blocked(user.name.as_str(), Some(user.uid))?;
            let ends = now.at.plus_ms(TOKEN_TTL_MS);
            let ends = until.map_or(ends, |until| until.min(ends));
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

/// The owners of uids while several users are added.
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
pub(in crate::head) fn update_users(state: &mut State, event: &UsersEvent, now: Now, changes: &mut Changes) {
    let before = match event {
        UsersEvent::Put(_) | UsersEvent::Removed(_) | UsersEvent::Blocked { .. } | UsersEvent::Unblocked(_) => {
            Some(accounts_now(state))
        }
        UsersEvent::FormerQuota { .. } | UsersEvent::GroupQuota { .. } | UsersEvent::MemberQuota { .. } => None,
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
            for user in all {
                let former = users.former.remove(user.name.as_str()).map(|former| former.uid);
                let before = users.users.get(user.name.as_str()).map(|before| before.uid).or(former);
                users.replaced_uids.extend(before.filter(|uid| *uid != user.uid));
            }
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
        UsersEvent::GroupQuota { group, quota } => set_quota(&mut users.groups, group, *quota),
        UsersEvent::MemberQuota { group, quota } => set_quota(&mut users.member_quotas, group, *quota),
        UsersEvent::TokenIssued { token, user, ends } => issue(users, *token, user, *ends),
        UsersEvent::TokenRevoked { token } => {
            users.tokens.remove(token);
        }
    }
    // A new quota or group may let waiting jobs start.
    state.needs_pass |= !matches!(event, UsersEvent::TokenIssued { .. } | UsersEvent::TokenRevoked { .. });
    if before.is_some_and(|before| before != accounts_now(state)) {
        send_accounts_to_all(state, changes);
    }
}

/// Sends all agents the current accounts.
pub(in crate::head) fn send_accounts_to_all(state: &State, changes: &mut Changes) {
    for &connection in state.connections.keys() {
        send_accounts(state, connection, changes);
    }
}

/// Sets or, if the quota has no limits, removes the quota of a group.
fn set_quota(quotas: &mut BTreeMap<UserName, Quota>, group: &UserName, quota: Quota) {
    match quota.is_unlimited() {
        true => drop(quotas.remove(group.as_str())),
        false => drop(quotas.insert(group.clone(), quota)),
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
    HeadMessage::Accounts {
        accounts: users.accounts(),
        blocked: users.blocked_accounts(),
        guarded: state.guarded_uids(),
        system: state.system_accounts(),
    }
}

/// Sends an agent the current accounts. The agent may have missed changes while it was disconnected.
pub(in crate::head) fn send_accounts(state: &State, connection: ConnectionId, changes: &mut Changes) {
    changes.effects.push(Effect::Send { connection, message: accounts_now(state) });
}

//! Users and groups: accounts, roles, quotas, keys and login codes.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::NoContent;
use axum::{Extension, Json};
use hostler_core::head::{
    AutomaticUids, Block, Command, Former, NewUser, Refusal, User as Known, Users, UsersCommand, UsersRefusal,
};
use hostler_model::{FIRST_PERSON_UID, Quota, Role, UserName, WallTime, plural};
use hostler_proto::api::Invitation;
use hostler_proto::join::LoginCode;
use hostler_proto::users::{
    AddUser, AuditPage, BlockUser, BlockView, ChangeKeys, GroupView, ImportUsers, Me, SetRole, UserView,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::access::name_of_node;
use super::error::ApiError;
use super::extract::{Json as Body, Path, Query};
use super::reply::List;
use crate::audit::About;
use crate::head::Head;
use crate::identity::Person;
use crate::login::normal_key;

/// Default number of audit log entries per response.
const ENTRIES: usize = 200;
/// Maximum number of audit log entries per response.
const MOST_ENTRIES: usize = 100_000;

/// `GET /me`.
pub(crate) async fn me(person: Person, State(head): State<Arc<Head>>) -> Json<Me> {
    let identified = person.is_identified();
    Json(Me { user: person.name, uid: person.uid, role: person.role, identified, now: head.engine.now().wall })
}

/// `GET /users`.
pub(crate) async fn list(State(head): State<Arc<Head>>) -> List<UserView> {
    let state = head.engine.state();
    let mut views: Vec<UserView> = state.users.iter().map(|user| view(&state.users, user)).collect();
    // Lists a removed user only if a quota, group or block of the name is still in effect.
    let counts = |name: &UserName, former: &Former| {
        !former.quota.is_unlimited() || !former.groups.is_empty() || is_blocked(&state.users, name)
    };
    views.extend(
        state.users.former().filter(|(name, it)| counts(name, it)).map(|(name, it)| gone(&state.users, name, it)),
    );
    views.extend(state.users.blocks().filter_map(|(name, block)| only_blocked(&state.users, name, block)));
    views.sort_by(|a, b| a.name.cmp(&b.name));
    List(views)
}

/// `GET /users/{name}`, for the user and for admins.
pub(crate) async fn show(
    person: Person,
    State(head): State<Arc<Head>>,
    Path(name): Path<UserName>,
) -> Result<Json<UserView>, ApiError> {
    if person.role < Role::Admin && person.name != name.as_str() {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "admins_only",
            format!("{} may not read the account data of {name}", person.name),
        )
        .hint("only the user and admins may read the account data"));
    }
    Ok(Json(found(&head.engine.state().users, &name)?))
}

/// `POST /users`.
pub(crate) async fn add(
    State(head): State<Arc<Head>>,
    Body(user): Body<AddUser>,
) -> Result<(Extension<About>, Json<UserView>), ApiError> {
    let name = user.name.clone();
    let _alone = head.admitting.lock().await;
    let new = admissible(&head, vec![user])
        .await?
        .pop()
        .ok_or_else(|| ApiError::internal("the check of a new user returned no user"))?;
    carry_out(&head, UsersCommand::Add(new)).await?;
    answer(&head, &name, format!("user {name}"))
}

/// `POST /users/import`.
pub(crate) async fn import(
    State(head): State<Arc<Head>>,
    Body(ImportUsers { users }): Body<ImportUsers>,
) -> Result<(Extension<About>, NoContent), ApiError> {
    let count = users.len();
    let _alone = head.admitting.lock().await;
    let all = admissible(&head, users).await?;
    carry_out(&head, UsersCommand::Import(all)).await?;
    Ok((Extension(About(plural(count, "user"))), NoContent))
}

/// `POST /users/{name}/remove`.
pub(crate) async fn remove(State(head): State<Arc<Head>>, Path(name): Path<UserName>) -> Result<NoContent, ApiError> {
    carry_out(&head, UsersCommand::Remove(name)).await?;
    Ok(NoContent)
}

/// `POST /users/{name}/block`.
pub(crate) async fn block(
    person: Person,
    State(head): State<Arc<Head>>,
    Path(name): Path<UserName>,
    Body(BlockUser { uid, reason }): Body<BlockUser>,
) -> Result<(Extension<About>, Json<UserView>), ApiError> {
    let wanted = name.clone();
    let here = tokio::task::spawn_blocking(move || account_here(&wanted)).await.map_err(ApiError::internal)??;
    let own = nix::unistd::geteuid().as_raw();
    if [uid, here].contains(&Some(own)) {
        return Err(Refusal::from(UsersRefusal::CannotBlock(name)).into());
    }
    let command = UsersCommand::Block { name: name.clone(), uid: uid.or(here), by: person.name, reason };
    carry_out(&head, command).await?;
    answer(&head, &name, format!("{name} is blocked"))
}

/// `POST /users/{name}/unblock`.
pub(crate) async fn unblock(State(head): State<Arc<Head>>, Path(name): Path<UserName>) -> Result<NoContent, ApiError> {
    carry_out(&head, UsersCommand::Unblock(name)).await?;
    Ok(NoContent)
}

/// `POST /users/{name}/role`.
pub(crate) async fn set_role(
    State(head): State<Arc<Head>>,
    Path(name): Path<UserName>,
    Body(SetRole { role }): Body<SetRole>,
) -> Result<(Extension<About>, Json<UserView>), ApiError> {
    carry_out(&head, UsersCommand::SetRole(name.clone(), role)).await?;
    answer(&head, &name, format!("{name} is {role}"))
}

/// `POST /users/{name}/keys`.
pub(crate) async fn change_keys(
    State(head): State<Arc<Head>>,
    Path(user): Path<UserName>,
    Body(ChangeKeys { add, remove }): Body<ChangeKeys>,
) -> Result<Json<UserView>, ApiError> {
    let (add, remove) = (usable(&user, add)?, usable(&user, remove)?);
    carry_out(&head, UsersCommand::ChangeKeys { user: user.clone(), add, remove }).await?;
    answer(&head, &user, String::new()).map(|(_, view)| view)
}

/// `POST /users/{name}/quota`.
pub(crate) async fn set_quota(
    State(head): State<Arc<Head>>,
    Path(name): Path<UserName>,
    Body(quota): Body<Quota>,
) -> Result<Json<UserView>, ApiError> {
    carry_out(&head, UsersCommand::SetQuota(name.clone(), quota)).await?;
    answer(&head, &name, String::new()).map(|(_, view)| view)
}

/// `POST /users/{name}/invite`.
pub(crate) async fn invite(
    State(head): State<Arc<Head>>,
    Path(name): Path<UserName>,
) -> Result<Json<Invitation>, ApiError> {
    if head.engine.state().users.get(name.as_str()).is_none() {
        return Err(Refusal::from(UsersRefusal::NoSuchUser(name)).into());
    }
    let (address, authority) = (head.address(), head.trust.fingerprint());
    let code = LoginCode { address, authority, secret: head.logins.invite(name) };
    Ok(Json(Invitation { code: code.to_string() }))
}

/// `GET /groups`: groups with a quota.
pub(crate) async fn groups(State(head): State<Arc<Head>>) -> List<GroupView> {
    let state = head.engine.state();
    let view =
        |(name, quota, member_quota): (&UserName, Quota, Quota)| GroupView { name: name.clone(), quota, member_quota };
    List(state.users.groups().map(view).collect())
}

/// `POST /groups/{name}/quota`.
pub(crate) async fn set_group_quota(
    State(head): State<Arc<Head>>,
    Path(name): Path<UserName>,
    Body(quota): Body<Quota>,
) -> Result<NoContent, ApiError> {
    carry_out(&head, UsersCommand::SetGroupQuota(name, quota)).await?;
    Ok(NoContent)
}

/// `POST /groups/{name}/member-quota`.
pub(crate) async fn set_member_quota(
    State(head): State<Arc<Head>>,
    Path(name): Path<UserName>,
    Body(quota): Body<Quota>,
) -> Result<NoContent, ApiError> {
    carry_out(&head, UsersCommand::SetMemberQuota(name, quota)).await?;
    Ok(NoContent)
}

/// The query of `GET /audit`.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Since {
    /// Only entries from this time on, in milliseconds since the Unix epoch.
    since: Option<WallTime>,
    /// Return only this many of the newest entries; 200 if absent.
    limit: Option<u32>,
}

/// `GET /audit`.
pub(crate) async fn audit(
    State(head): State<Arc<Head>>,
    Query(Since { since, limit }): Query<Since>,
) -> Result<Json<AuditPage>, ApiError> {
    let limit = limit.map_or(ENTRIES, |limit| limit as usize).min(MOST_ENTRIES);
    let read = move || head.audit.read(since, limit);
    Ok(Json(tokio::task::spawn_blocking(read).await.map_err(ApiError::internal)?.map_err(ApiError::internal)?))
}

async fn carry_out(head: &Head, command: UsersCommand) -> Result<(), ApiError> {
    head.engine.command(Command::Users(command)).await?;
    Ok(())
}

/// The response with a user's current data.
fn answer(head: &Head, name: &UserName, about: String) -> Result<(Extension<About>, Json<UserView>), ApiError> {
    Ok((Extension(About(about)), Json(found(&head.engine.state().users, name)?)))
}

/// Returns everything that the cluster knows about a user name: a user, a removed user, or a blocked account.
fn found(users: &Users, name: &UserName) -> Result<UserView, ApiError> {
    let known = users.get(name.as_str()).map(|user| view(users, user));
    let former = || users.former().find(|(it, _)| *it == name).map(|(name, former)| gone(users, name, former));
    let blocked = || users.blocks().find(|(it, _)| *it == name).and_then(|(name, it)| only_blocked(users, name, it));
    known.or_else(former).or_else(blocked).ok_or_else(|| Refusal::from(UsersRefusal::NoSuchUser(name.clone())).into())
}

fn is_blocked(users: &Users, name: &UserName) -> bool {
    block_view(users, name).is_some()
}

fn block_view(users: &Users, name: &UserName) -> Option<BlockView> {
    let (_, Block { by, reason, at, .. }) = users.blocks().find(|(blocked, _)| *blocked == name)?;
    Some(BlockView { by: by.clone(), reason: reason.clone(), at: *at })
}

/// The view of a removed user.
fn gone(users: &Users, name: &UserName, former: &Former) -> UserView {
    UserView {
        name: name.clone(),
        uid: former.uid,
        role: Role::User,
        groups: former.groups.clone(),
        keys: Vec::new(),
        quota: former.quota,
        effective_quota: Some(users.effective_quota(&former.groups, former.quota)),
        added: false,
        blocked: block_view(users, name),
    }
}

/// Returns the view of a blocked account, if the block is all that the cluster knows about the account.
fn only_blocked(users: &Users, name: &UserName, block: &Block) -> Option<UserView> {
    let is_known = users.get(name.as_str()).is_some() || users.former().any(|(former, _)| former == name);
    let nothing = Former { uid: block.uid, groups: BTreeSet::new(), quota: Quota::default() };
    (!is_known).then(|| gone(users, name, &nothing))
}

fn view(users: &Users, user: &Known) -> UserView {
    UserView {
        name: user.name.clone(),
        uid: user.uid,
        role: user.role,
        groups: user.groups.clone(),
        keys: user.keys.clone(),
        quota: user.quota,
        effective_quota: Some(users.effective_quota(&user.groups, user.quota)),
        added: true,
        blocked: block_view(users, &user.name),
    }
}

/// Checks uids and keys of users. A new user without a uid gets the uid of the account with this name on this machine.
/// If there is no such account, the user gets a uid that is free in the cluster and on this machine.
async fn admissible(head: &Head, users: Vec<AddUser>) -> Result<Vec<NewUser>, ApiError> {
    let (mut uids, known) = {
        let state = head.engine.state();
        if let Some(user) = users.iter().find(|user| state.is_name_through_node(user.name.as_str())) {
            return Err(name_of_node(user.name.as_str()));
        }
        let known: BTreeSet<UserName> = state.users.iter().map(|user| user.name.clone()).collect();
        (state.users.automatic_uids(), known)
    };
    users.iter().filter_map(|user| user.uid).for_each(|uid| uids.reserve(uid));
    // The lookup blocks: names may come from a directory server.
    let look = move || -> Vec<_> { users.into_iter().map(|user| admit(user, &known, &mut uids)).collect() };
    let looked = tokio::task::spawn_blocking(look).await.map_err(ApiError::internal)?;
    let (mut admitted, mut refused) = (Vec::new(), Vec::new());
    for user in looked {
        match user {
            Ok(user) => admitted.push(user),
            Err(error) => refused.push(error),
        }
    }
    ApiError::all(refused).map_or(Ok(admitted), Err)
}

fn admit(user: AddUser, known: &BTreeSet<UserName>, uids: &mut AutomaticUids) -> Result<NewUser, ApiError> {
    let AddUser { name, uid, role, groups, keys } = user;
    let keys = usable(&name, keys)?;
    let uid = match uid {
        Some(uid) if !(FIRST_PERSON_UID..u32::MAX - 1).contains(&uid) => {
            return Err(ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "bad_uid",
                format!("{name} cannot have uid {uid}: uids below {FIRST_PERSON_UID} are reserved for system accounts"),
            )
            .hint("omit the uid to use the uid of the account on the head's machine, or a free uid"));
        }
        Some(uid) => match other_account(uid, &name)? {
            Some(other) => return Err(taken_here(&name, uid, &other)),
            None => Some(uid),
        },
        None => match uid_here(&name)? {
            // Existing users keep their uid.
            None if known.contains(&name) => None,
            None => {
                creatable(&name, known)?;
                Some(free_uid(&name, uids)?)
            }
            here => here,
        },
    };
    Ok(NewUser { name, uid, role, groups, keys })
}

/// Refuses a new user for whom no agent could create an account. The head's machine has no account of this name.
fn creatable(name: &UserName, known: &BTreeSet<UserName>) -> Result<(), ApiError> {
    let refusal = |why: String| {
        ApiError::new(StatusCode::CONFLICT, "bad_name", why)
            .hint("if the nodes have an account with this name, give its uid with --uid")
    };
    let text = name.as_str();
    let fits = text.len() <= MAX_ACCOUNT_BYTES
        && text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-@".contains(letter));
    if !fits {
        return Err(refusal(format!(
            "no account can have the name {text:?}: up to {MAX_ACCOUNT_BYTES} letters, digits, `.`, `_`, `-` and `@`"
        )));
    }
    match known.iter().find(|other| other.as_str().eq_ignore_ascii_case(text)) {
        Some(other) => Err(refusal(format!("{name} and the user {other} differ only in upper and lower case"))),
        None => Ok(()),
    }
}

/// Longest name that `useradd` gives an account.
const MAX_ACCOUNT_BYTES: usize = 32;

/// Chooses a uid that is free in the cluster and on this machine.
fn free_uid(name: &UserName, uids: &mut AutomaticUids) -> Result<u32, ApiError> {
    let mut failure = None;
    let is_taken = |uid: u32| {
        is_known_here(uid, name).unwrap_or_else(|error| {
            failure = Some(error);
            // Ends the search.
            false
        })
    };
    let uid = uids.take(name, is_taken);
    failure.map_or(Ok(()), Err)?;
    uid.ok_or_else(|| bad_uid(format!("no free uid for {name} on the head's machine")).hint("choose a uid with --uid"))
}

/// Whether this machine has an account or a group with this number and another name.
fn is_known_here(id: u32, name: &UserName) -> Result<bool, ApiError> {
    if other_account(id, name)?.is_some() {
        return Ok(true);
    }
    let group = nix::unistd::Group::from_gid(id.into()).map_err(ApiError::internal)?;
    Ok(group.is_some_and(|group| group.name != name.as_str()))
}

/// The name of another account with this uid on this machine.
fn other_account(uid: u32, name: &UserName) -> Result<Option<String>, ApiError> {
    let found = nix::unistd::User::from_uid(uid.into()).map_err(ApiError::internal)?;
    Ok(found.map(|user| user.name).filter(|other| other != name.as_str()))
}

/// Looks up the uid of the account with this name on this machine. The call may block.
fn account_here(name: &UserName) -> Result<Option<u32>, ApiError> {
    let found = nix::unistd::User::from_name(name.as_str()).map_err(ApiError::internal)?;
    Ok(found.map(|user| user.uid.as_raw()))
}

/// Like [`account_here`], but returns an error for root, because root cannot be a user of the cluster.
fn uid_here(name: &UserName) -> Result<Option<u32>, ApiError> {
    match account_here(name)? {
        Some(0) => Err(bad_uid(format!(
            "{name} is the superuser of the head's machine, who is always an admin and cannot be added as a user"
        ))),
        uid => Ok(uid),
    }
}

fn bad_uid(message: String) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "bad_uid", message)
}

fn taken_here(name: &UserName, uid: u32, other: &str) -> ApiError {
    ApiError::new(
        StatusCode::CONFLICT,
        "uid_taken",
        format!("uid {uid} belongs to {other} on the head's machine, so {name} cannot have it"),
    )
    .hint("a uid must belong to the same person on all machines; omit the uid to get a free one")
}

fn usable(name: &UserName, keys: Vec<String>) -> Result<Vec<String>, ApiError> {
    let check = |line: String| {
        normal_key(&line).map_err(|why| {
            let start: String = line.chars().filter(|c| !c.is_control()).take(40).collect();
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_key_line", format!("key `{start}…` of {name} {why}"))
        })
    };
    keys.into_iter().map(check).collect()
}

//! Users and groups: who is known, what they may do and have, and how they get in.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use hostler_core::head::{Command, NewUser, User as Known, UsersCommand, UsersRefusal};
use hostler_model::{Quota, Role, UserName, WallTime};
use hostler_proto::api::Invitation;
use hostler_proto::join::LoginCode;
use hostler_proto::users::{AddUser, AuditPage, ChangeKeys, GroupView, ImportUsers, SetRole, UserView};
use serde::Deserialize;

use super::access::{About, Person};
use super::error::ApiError;
use super::extract::{Json as Body, Path, Query};
use crate::head::Head;
use crate::login::normal_key;

/// Entries of the audit log when the client does not say, and at most.
const ENTRIES: usize = 200;
const MOST_ENTRIES: usize = 100_000;

/// Uids below this are the system's own, on every distribution that matters.
const FIRST_PERSON: u32 = 1000;

/// `GET /users`.
pub(crate) async fn list(State(head): State<Arc<Head>>) -> Json<Vec<UserView>> {
    Json(head.engine.state().users.iter().map(view).collect())
}

/// `GET /users/{name}`, for themselves and admins.
pub(crate) async fn show(
    person: Person,
    State(head): State<Arc<Head>>,
    Path(name): Path<UserName>,
) -> Result<Json<UserView>, ApiError> {
    if person.role < Role::Admin && person.name != name.as_str() {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "admins_only",
            format!("{} may not see {name}'s particulars", person.name),
        )
        .hint("admins may"));
    }
    let state = head.engine.state();
    let user =
        state.users.get(name.as_str()).ok_or(hostler_core::head::Refusal::from(UsersRefusal::NoSuchUser(name)))?;
    Ok(Json(view(user)))
}

/// `POST /users`.
pub(crate) async fn add(
    State(head): State<Arc<Head>>,
    Body(user): Body<AddUser>,
) -> Result<(Extension<About>, Json<UserView>), ApiError> {
    let name = user.name.clone();
    let new = admissible(user).await?;
    carry_out(&head, UsersCommand::Add(new)).await?;
    answer(&head, &name, format!("user {name}"))
}

/// `POST /users/import`.
pub(crate) async fn import(
    State(head): State<Arc<Head>>,
    Body(ImportUsers { users }): Body<ImportUsers>,
) -> Result<(Extension<About>, StatusCode), ApiError> {
    let count = users.len();
    let mut all = Vec::with_capacity(count);
    for user in users {
        all.push(admissible(user).await?);
    }
    carry_out(&head, UsersCommand::Import(all)).await?;
    Ok((Extension(About(format!("{count} users"))), StatusCode::NO_CONTENT))
}

/// `POST /users/{name}/remove`.
pub(crate) async fn remove(State(head): State<Arc<Head>>, Path(name): Path<UserName>) -> Result<StatusCode, ApiError> {
    carry_out(&head, UsersCommand::Remove(name)).await?;
    Ok(StatusCode::NO_CONTENT)
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
        return Err(hostler_core::head::Refusal::from(UsersRefusal::NoSuchUser(name)).into());
    }
    let (address, authority) = (head.address(), head.trust.fingerprint());
    let code = LoginCode { address, authority, secret: head.logins.invite(name) };
    Ok(Json(Invitation { code: code.to_string() }))
}

/// `GET /groups`: those that have a quota.
pub(crate) async fn groups(State(head): State<Arc<Head>>) -> Json<Vec<GroupView>> {
    let state = head.engine.state();
    Json(state.users.groups().map(|(name, quota)| GroupView { name: name.clone(), quota: *quota }).collect())
}

/// `POST /groups/{name}/quota`.
pub(crate) async fn set_group_quota(
    State(head): State<Arc<Head>>,
    Path(name): Path<UserName>,
    Body(quota): Body<Quota>,
) -> Result<StatusCode, ApiError> {
    carry_out(&head, UsersCommand::SetGroupQuota(name, quota)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The query of `GET /audit`.
#[derive(Deserialize)]
pub(crate) struct Since {
    since: Option<WallTime>,
    limit: Option<usize>,
}

/// `GET /audit`.
pub(crate) async fn audit(
    State(head): State<Arc<Head>>,
    Query(Since { since, limit }): Query<Since>,
) -> Result<Json<AuditPage>, ApiError> {
    let limit = limit.unwrap_or(ENTRIES).min(MOST_ENTRIES);
    let read = move || head.audit.read(since, limit);
    Ok(Json(tokio::task::spawn_blocking(read).await.map_err(ApiError::internal)?.map_err(ApiError::internal)?))
}

async fn carry_out(head: &Head, command: UsersCommand) -> Result<(), ApiError> {
    head.engine.command(Command::Users(command)).await?;
    Ok(())
}

/// A user as they are now.
fn answer(head: &Head, name: &UserName, about: String) -> Result<(Extension<About>, Json<UserView>), ApiError> {
    let state = head.engine.state();
    let user = state
        .users
        .get(name.as_str())
        .ok_or_else(|| hostler_core::head::Refusal::from(UsersRefusal::NoSuchUser(name.clone())))?;
    Ok((Extension(About(about)), Json(view(user))))
}

fn view(user: &Known) -> UserView {
    UserView {
        name: user.name.clone(),
        uid: user.uid,
        role: user.role,
        groups: user.groups.clone(),
        keys: user.keys.clone(),
        quota: user.quota,
    }
}

/// A user as the core takes them, after their uid and keys were looked at.
async fn admissible(user: AddUser) -> Result<NewUser, ApiError> {
    let AddUser { name, uid, role, groups, keys } = user;
    let keys = usable(&name, keys)?;
    let uid = match uid {
        Some(uid) if !(FIRST_PERSON..u32::MAX - 1).contains(&uid) => {
            return Err(ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "bad_uid",
                format!("{name} cannot have uid {uid}: uids below {FIRST_PERSON} are the system's own"),
            )
            .hint("leave it out to take that of the account on the head's machine, or one that is free"));
        }
        Some(uid) => Some(uid),
        None => uid_here(&name).await?,
    };
    Ok(NewUser { name, uid, role, groups, keys })
}

/// The uid of the account of this name on this machine; root is nobody's name in the cluster.
async fn uid_here(name: &UserName) -> Result<Option<u32>, ApiError> {
    let text = name.to_string();
    // Where names come from a directory server, this may take a while.
    let found = tokio::task::spawn_blocking(move || nix::unistd::User::from_name(&text));
    let found = found.await.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
    match found.map(|user| user.uid.as_raw()) {
        Some(0) => Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "bad_uid",
            format!("{name} is the superuser here, who is an admin anyway and whose role cannot be lent"),
        )),
        uid => Ok(uid),
    }
}

fn usable(name: &UserName, keys: Vec<String>) -> Result<Vec<String>, ApiError> {
    let check = |line: String| {
        normal_key(&line).map_err(|why| {
            let start: String = line.chars().filter(|c| !c.is_control()).take(40).collect();
            ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "bad_key_line",
                format!("what should be a key of {name}, `{start}…`, {why}"),
            )
        })
    };
    keys.into_iter().map(check).collect()
}

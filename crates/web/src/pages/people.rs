//! Users: roles, quotas, blocks and login codes. Admins see all users, others see themselves.

use askama::Template;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use hostler_model::{Quota, Role, UserName, format_bytes, parse_bytes, plural};
use hostler_proto::api::Invitation;
use hostler_proto::users::{AddUser, BlockUser, ChangeKeys, GroupView, SetRole, UserView};
use serde_json::Value;

use crate::api::Refused;
use crate::form::Fields;
use crate::notice::Notice;
use crate::page::{Frame, render};
use crate::parts::{Action, Badge, Tone};
use crate::url::Url;

const ROLES: [Role; 3] = [Role::User, Role::Operator, Role::Admin];

#[derive(Template)]
#[template(path = "people.html")]
struct People {
    frame: Frame,
    is_admin: bool,
    users: Vec<UserView>,
    groups: Vec<GroupView>,
}

#[derive(Template)]
#[template(path = "person.html")]
struct Person {
    frame: Frame,
    is_admin: bool,
    user: UserView,
    url: Url,
    actions: Vec<Action>,
    /// A new login code. It is in no other answer.
    code: Option<String>,
}

impl People {
    fn url(&self, name: &UserName) -> Url {
        person(name.as_str())
    }

    fn limits(&self, user: &UserView) -> String {
        quota_words(&user.limits())
    }

    fn quota(&self, quota: &Quota) -> String {
        quota_words(quota)
    }

    fn badge(&self, user: &UserView) -> Option<Badge> {
        badge(user)
    }

    fn groups_of(&self, user: &UserView) -> String {
        groups(user)
    }
}

impl Person {
    fn badge(&self) -> Option<Badge> {
        badge(&self.user)
    }

    fn quota(&self) -> String {
        quota_words(&self.user.limits())
    }

    fn groups(&self) -> String {
        groups(&self.user)
    }

    /// The value of a field of the quota form.
    fn limit(&self, name: &str) -> String {
        let Quota { cpus, memory_bytes, jobs, queued } = self.user.quota;
        match name {
            "memory" => memory_bytes.map(format_bytes),
            "cpus" => cpus.map(|it| it.to_string()),
            "jobs" => jobs.map(|it| it.to_string()),
            _ => queued.map(|it| it.to_string()),
        }
        .unwrap_or_default()
    }
}

fn person(name: &str) -> Url {
    Url::of(["people", name])
}

fn groups(user: &UserView) -> String {
    user.groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn badge(user: &UserView) -> Option<Badge> {
    match (&user.blocked, user.added) {
        (Some(_), _) => Some(Badge::new("blocked", Tone::Bad)),
        (None, false) => Some(Badge::new("not added", Tone::Muted)),
        (None, true) => None,
    }
}

/// The limits of a quota in words.
fn quota_words(quota: &Quota) -> String {
    let limits = [
        quota.cpus.map(|it| plural(it, "CPU")),
        quota.memory_bytes.map(|it| format!("{} memory", format_bytes(it))),
        quota.jobs.map(|it| plural(it, "running task")),
        quota.queued.map(|it| plural(it, "waiting task")),
    ];
    let said: Vec<String> = limits.into_iter().flatten().collect();
    if said.is_empty() { "no limit".to_owned() } else { said.join(", ") }
}

/// `GET /people`.
pub(crate) async fn list(frame: Frame) -> Result<Html<String>, Refused> {
    let is_admin = frame.me.role == Role::Admin;
    let users = if is_admin {
        frame.api.get("/users").await?
    } else {
        match frame.api.get::<UserView>(&Url::of(["users", &frame.me.user])).await {
            Ok(me) => vec![me],
            Err(refused) if refused.status == StatusCode::NOT_FOUND => Vec::new(),
            Err(refused) => return Err(refused),
        }
    };
    let groups = frame.api.get("/groups").await?;
    Ok(render(&People { frame, is_admin, users, groups }))
}

/// `GET /people/{name}`.
pub(crate) async fn show(frame: Frame, Path(name): Path<String>) -> Result<Html<String>, Refused> {
    page(frame, &name, None).await
}

async fn page(frame: Frame, name: &str, code: Option<String>) -> Result<Html<String>, Refused> {
    let user: UserView = frame.api.get(&Url::of(["users", name])).await?;
    let is_admin = frame.me.role == Role::Admin;
    let actions = if is_admin { actions(&frame, &user) } else { Vec::new() };
    Ok(render(&Person { url: person(name), is_admin, user, actions, code, frame }))
}

fn actions(frame: &Frame, user: &UserView) -> Vec<Action> {
    let name = &user.name;
    let button =
        |label: &str, action: &str| Action::new(person(name.as_str()), label, frame.token()).field("action", action);
    let mut actions = Vec::new();
    if user.blocked.is_some() {
        actions.push(button("Unblock", "unblock"));
    } else {
        let question =
            format!("Block {name}? Requests of {name} fail, and waiting jobs do not start. Running jobs continue.");
        actions.push(button("Block", "block").confirm(question));
    }
    if user.added {
        actions.push(button("Create a login code", "code"));
        let question = format!("Remove {name} and all tokens of {name}? Jobs do not change.");
        actions.push(button("Remove", "remove").confirm(question));
    }
    actions
}

/// `POST /people`: adds a user.
pub(crate) async fn add(frame: Frame, fields: Fields) -> Result<Response, Refused> {
    let name: UserName = fields.read("name")?.ok_or_else(|| Refused::bad_request("a user needs a name"))?;
    let user = AddUser {
        name: name.clone(),
        uid: fields.read("uid")?,
        role: role(&fields)?.unwrap_or(Role::User),
        groups: names(fields.get("groups").unwrap_or_default())?,
        keys: lines(fields.get("keys").unwrap_or_default()),
    };
    let added: Result<UserView, Refused> = frame.api.post("/users", &user).await;
    Ok(match added {
        Ok(_) => frame.redirect(&person(name.as_str()), Notice::good(format!("User {name} is added."))),
        Err(refused) => frame.redirect(&Url::of(["people"]), refused.notice()),
    })
}

/// `POST /people/{name}`.
pub(crate) async fn act(frame: Frame, Path(name): Path<String>, fields: Fields) -> Result<Response, Refused> {
    let action = fields.get("action").unwrap_or_default();
    if action == "code" {
        let invitation: Invitation = frame.api.post(&Url::of(["users", &name, "invite"]), &()).await?;
        return Ok(page(frame, &name, Some(invitation.code)).await?.into_response());
    }
    let back = if action == "remove" { Url::of(["people"]) } else { person(&name) };
    Ok(match change(&frame, &name, action, &fields).await {
        Ok(said) => frame.redirect(&back, Notice::good(said)),
        Err(refused) => frame.redirect(&person(&name), refused.notice()),
    })
}

async fn change(frame: &Frame, name: &str, action: &str, fields: &Fields) -> Result<String, Refused> {
    let url = Url::of(["users", name]);
    match action {
        "block" => {
            let body = BlockUser { uid: None, reason: fields.text("reason").map(str::to_owned) };
            let _: Value = frame.api.post(&url.then("block"), &body).await?;
            Ok(format!("{name} is blocked."))
        }
        "unblock" => {
            let _: Value = frame.api.post(&url.then("unblock"), &()).await?;
            Ok(format!("{name} is no longer blocked."))
        }
        "remove" => {
            let _: Value = frame.api.post(&url.then("remove"), &()).await?;
            Ok(format!("{name} is removed."))
        }
        "role" => {
            let role = role(fields)?.ok_or_else(|| Refused::bad_request("choose a role"))?;
            let _: Value = frame.api.post(&url.then("role"), &SetRole { role }).await?;
            Ok(format!("{name} has the role {}.", role.as_str()))
        }
        "quota" => {
            let memory = fields.text("memory").map(parse_bytes).transpose();
            let quota = Quota {
                cpus: fields.read("cpus")?,
                memory_bytes: memory.map_err(|error| Refused::bad_request(error.to_string()))?,
                jobs: fields.read("jobs")?,
                queued: fields.read("queued")?,
            };
            let _: Value = frame.api.post(&url.then("quota"), &quota).await?;
            Ok(format!("Changed the quota of {name}."))
        }
        "keys" => {
            let add = lines(fields.get("add").unwrap_or_default());
            let remove = fields.all("remove").map(str::to_owned).collect();
            let _: Value = frame.api.post(&url.then("keys"), &ChangeKeys { add, remove }).await?;
            Ok(format!("Changed the keys of {name}."))
        }
        other => Err(Refused::bad_request(format!("`{other}` is not an action on a user"))),
    }
}

fn role(fields: &Fields) -> Result<Option<Role>, Refused> {
    let Some(text) = fields.text("role") else { return Ok(None) };
    let found = ROLES.into_iter().find(|role| role.as_str() == text);
    found.map(Some).ok_or_else(|| Refused::bad_request(format!("`{text}` is not a role")))
}

/// Non-empty lines of a text.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Names that are separated by commas or spaces.
pub(super) fn names<T: std::str::FromStr<Err: std::fmt::Display> + Ord>(
    text: &str,
) -> Result<std::collections::BTreeSet<T>, Refused> {
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|error| Refused::bad_request(format!("{error}")))).collect()
}

//! Settings: list and changes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use hostler_core::head::{Command, Setting, Settings};
use hostler_model::{Role, format_bytes};
use hostler_proto::settings::{NewValue, SettingSource, SettingView};

use super::access::role_too_low;
use super::error::ApiError;
use super::extract::{Json as Body, Path};
use super::reply::List;
use super::who::User;
use crate::head::Head;
use crate::identity::Person;

/// `GET /settings`.
pub(crate) async fn list(_: User, State(head): State<Arc<Head>>) -> List<SettingView> {
    List(Setting::ALL.into_iter().map(|setting| view(&head, setting)).collect())
}

/// `PUT /settings/{name}`.
pub(crate) async fn set(
    person: Person,
    State(head): State<Arc<Head>>,
    Path(name): Path<String>,
    Body(NewValue { value }): Body<NewValue>,
) -> Result<Json<SettingView>, ApiError> {
    change(&person, &head, &name, Some(value)).await
}

/// `DELETE /settings/{name}`.
pub(crate) async fn reset(
    person: Person,
    State(head): State<Arc<Head>>,
    Path(name): Path<String>,
) -> Result<Json<SettingView>, ApiError> {
    change(&person, &head, &name, None).await
}

async fn change(
    person: &Person,
    head: &Head,
    name: &str,
    value: Option<String>,
) -> Result<Json<SettingView>, ApiError> {
    User::from(person).require_operator("change settings")?;
    let setting: Setting = name.parse().map_err(|_| no_such(name))?;
    // With the first, root on any node can act as an admin; with the second, services run programs on other nodes; with
    // the third, anyone sees who runs what.
    let is_for_admins =
        matches!(setting, Setting::RolesThroughNodes | Setting::SystemAccounts | Setting::DashboardPublic);
    if is_for_admins && person.role < Role::Admin {
        return Err(role_too_low(Role::Admin, person));
    }
    let by = person.name.clone();
    head.engine.command(Command::Set { by: by.clone(), setting, value: value.clone() }).await?;
    tracing::info!(%setting, value = value.as_deref().unwrap_or("default"), by, "setting changed");
    if setting == Setting::ResultsCap {
        head.apply_results_cap();
    }
    Ok(Json(view(head, setting)))
}

fn no_such(name: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "no_such_setting", format!("unknown setting {name}"))
        .hint(format!("available settings: {}", Setting::ALL.map(Setting::as_str).join(", ")))
}

fn view(head: &Head, setting: Setting) -> SettingView {
    let state = head.engine.state();
    let set_by = state.set_by.get(&setting);
    let source = match set_by {
        Some(_) => SettingSource::Set,
        None if setting == Setting::ResultsCap && head.config.results_cap_bytes.is_some() => SettingSource::File,
        None => SettingSource::Default,
    };
    SettingView {
        name: setting.to_string(),
        unit: setting.kind().unit().to_owned(),
        meaning: setting.meaning().to_owned(),
        allowed: setting.kind().to_string(),
        default: setting.default_text(),
        value: value(head, &state.settings, setting),
        source,
        by: set_by.map(|set_by| set_by.user.clone()),
        set_at: set_by.map(|set_by| set_by.at),
    }
}

/// The effective value of a setting.
fn value(head: &Head, settings: &Settings, setting: Setting) -> String {
    match settings.get(setting) {
        Some(value) => setting.write(value),
        None if setting == Setting::ResultsCap => format_bytes(head.library.room().cap_bytes()),
        None => setting.default_text(),
    }
}

//! Settings of the head, as the API shows them (part of [`crate::api`]).

use hostler_model::WallTime;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A setting of the head, in the answer of `GET /settings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingView {
    /// Name of the setting.
    pub name: String,
    /// Unit of the value: `time`, `size`, `number` or `word`.
    pub unit: String,
    /// What the setting does, as a sentence fragment.
    pub meaning: String,
    /// Which values are allowed, as a sentence fragment.
    pub allowed: String,
    /// Value that applies if the setting is not set.
    pub default: String,
    /// Current value in its readable form, e.g. `90s`.
    pub value: String,
    /// Where the current value comes from.
    pub source: SettingSource,
    /// User who set the current value.
    pub by: Option<String>,
    /// Time at which the current value was set, in milliseconds since the Unix epoch.
    pub set_at: Option<WallTime>,
}

/// Where a setting's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    /// The value is the default.
    Default,
    /// The value comes from a command-line flag or the settings file of the head.
    File,
    /// An operator has set the value.
    Set,
}

/// Request body of `PUT /settings/{name}`: changes a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewValue {
    /// New value in its readable form, e.g. `90s`, `14d` or `2G`.
    pub value: String,
}

//! Settings of the head, as the API shows them (part of [`crate::api`]).

use hostler_model::WallTime;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One setting, in `GET /settings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingView {
    /// Name of the setting.
    pub name: String,
    /// Unit of the value: `time`, `size`, `number` or `word`.
    pub unit: String,
    /// Meaning, as the rest of a sentence.
    pub meaning: String,
    /// Allowed values, as the rest of a sentence.
    pub allowed: String,
    /// Value that applies if the setting is not set.
    pub default: String,
    /// Current value in its readable form, e.g. `90s`.
    pub value: String,
    /// Origin of the current value.
    pub source: SettingSource,
    /// User who set it.
    pub by: Option<String>,
    /// Time at which it was set, in milliseconds since the Unix epoch.
    pub set_at: Option<WallTime>,
}

/// Origin of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    /// The default.
    Default,
    /// A flag of the head or its settings file.
    File,
    /// An operator.
    Set,
}

/// `PUT /settings/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewValue {
    /// New value in its readable form, e.g. `90s`, `14d` or `2G`.
    pub value: String,
}

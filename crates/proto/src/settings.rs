//! Settings of the head, as the API shows them: part of [`crate::api`].

use hostler_model::WallTime;
use serde::{Deserialize, Serialize};

/// One setting, in `GET /settings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingView {
    /// Its name.
    pub name: String,
    /// `time`, `size`, `number` or `word`.
    pub unit: String,
    /// What it means, as the rest of a sentence.
    pub meaning: String,
    /// What it may be, as the rest of a sentence.
    pub allowed: String,
    /// What it is when nobody has set it.
    pub default: String,
    /// What it is, as people write it.
    pub value: String,
    /// Why it is that.
    pub source: SettingSource,
    /// Who has set it.
    pub by: Option<String>,
    /// When it was set, in milliseconds since the Unix epoch.
    pub set_at: Option<WallTime>,
}

/// Why a setting is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    /// Nobody has said anything.
    Default,
    /// The head was started with it, by a flag or its settings file.
    File,
    /// An operator has set it.
    Set,
}

/// `PUT /settings/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewValue {
    /// As people write it: `90s`, `14d`, `2G`.
    pub value: String,
}

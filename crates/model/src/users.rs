//! Users: names, roles and quotas.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ParseError, format_bytes, plural};

/// The lowest uid of a person. On all common distributions, lower uids belong to root and to system accounts.
pub const FIRST_PERSON_UID: u32 = 1_000;

/// The uid of the system account `nobody`.
const NOBODY_UID: u32 = 65_534;

/// Returns whether a uid belongs to a system account, such as `daemon` or `nobody`. Root is not a system account.
#[must_use]
pub const fn is_system_uid(uid: u32) -> bool {
    (uid != 0 && uid < FIRST_PERSON_UID) || uid == NOBODY_UID
}

/// The name of a user or group, as account databases have them, e.g. `ada`, `carla.diaz`, `LAB\bob` or `ada@lab.example`.
/// It cannot be mistaken for an option, a path, a list or a uid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(
    value_type = String,
    min_length = 1,
    max_length = 255,
    pattern = r"^([0-9]+[^0-9 \u0000-\u001f\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufffd:/,]|[^0-9 .\-\u0000-\u001f\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufffd:/,])([^\u0000-\u001f\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufffd:/,]*[^ \u0000-\u001f\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufffd:/,])?$"
)]
pub struct UserName(Arc<str>);

/// Maximum length of a name.
const MAX_NAME_CHARACTERS: usize = 255;

impl UserName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        // Digits alone could be a uid. Readers replace bytes that are not text, so such names would become one.
        let forbidden = |c: char| {
            c.is_control() || (c.is_whitespace() && c != ' ') || ":/,".contains(c) || c == char::REPLACEMENT_CHARACTER
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let valid = (1..=MAX_NAME_CHARACTERS).contains(&text.chars().count())
            && digits < text.len()
            && !text[digits..].starts_with(' ')
            && !text.starts_with(['-', '.'])
            && !text.ends_with(' ')
            && !text.contains(forbidden);
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(ParseError::new(
                text,
                "a name of a user or group: up to 255 characters, no control characters, `:`, `/` and `,`, no space at the ends, no `-` or \
                 `.` first, not only digits",
            ))
        }
    }
}

impl TryFrom<String> for UserName {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<UserName> for String {
    fn from(name: UserName) -> Self {
        name.0.as_ref().to_owned()
    }
}

/// Allows lookups by text in maps with names as keys.
impl std::borrow::Borrow<str> for UserName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The rights of a user. Each role includes the rights of the role before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May submit jobs and see the cluster's state, without the contents of other users' jobs.
    #[default]
    User,
    /// May also manage all jobs and nodes.
    Operator,
    /// May also manage users and everything else.
    Admin,
}

impl Role {
    /// Returns the role as a word in output and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl Role {
    /// Returns the role with its article, such as `an admin`, for sentences.
    #[must_use]
    pub const fn with_article(self) -> &'static str {
        match self {
            Self::User => "a user",
            Self::Operator => "an operator",
            Self::Admin => "an admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        [Self::User, Self::Operator, Self::Admin]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| ParseError::new(text, "a role: user, operator or admin"))
    }
}

/// Limits for a user, or for all users of a group together. An absent limit means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quota {
    /// CPUs of all running jobs together.
    #[serde(default)]
    pub cpus: Option<u64>,
    /// Memory of all running jobs together, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The number of running tasks. A job without an array has one task.
    #[serde(default)]
    pub jobs: Option<u64>,
    /// The number of waiting tasks.
    #[serde(default)]
    pub queued: Option<u64>,
}

impl Quota {
    /// Returns whether the quota has no limits.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the limits of this quota, and those of `other` where this one sets none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            cpus: self.cpus.or(other.cpus),
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            jobs: self.jobs.or(other.jobs),
            queued: self.queued.or(other.queued),
        }
    }

    /// Returns the larger of each limit; a limit that only one quota sets counts.
    #[must_use]
    pub fn largest(self, other: Self) -> Self {
        Self {
            cpus: self.cpus.max(other.cpus),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            jobs: self.jobs.max(other.jobs),
            queued: self.queued.max(other.queued),
        }
    }
}

/// A resource that a quota limits for running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaKind {
    /// The number of CPUs.
    Cpus,
    /// The memory.
    Memory,
    /// The number of tasks.
    Jobs,
}

impl QuotaKind {
    /// Formats an amount with its unit, for people.
    #[must_use]
    pub fn amount(self, value: u64) -> String {
        match self {
            Self::Cpus => plural(value, "CPU"),
            Self::Memory => format!("{} of memory", format_bytes(value)),
            Self::Jobs => plural(value, "task"),
        }
    }

    /// Formats an amount without a unit.
    #[must_use]
    pub fn figure(self, value: u64) -> String {
        match self {
            Self::Cpus | Self::Jobs => value.to_string(),
            Self::Memory => format_bytes(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_are_those_of_account_databases() {
        let long = "a".repeat(255);
        for name in [
            "ada",
            "_ada",
            "a-b_c9",
            "x",
            "carla.diaz",
            r"LAB\bob",
            "ada@lab.example",
            "dora@n1",
            "Ada",
            "größe",
            "9a",
            "1-a",
            "svc$",
            r"LAB\jane doe",
            "a+b",
            "a%20b",
            "a?b#c",
            &long,
        ] {
            assert_eq!(name.parse::<UserName>().expect(name).as_str(), name);
        }
        for name in [
            "",
            "-ada",
            ".",
            "..",
            ".ada",
            "a/b",
            "a:b",
            "a,b",
            "ada\n",
            "a\tb",
            "a\u{85}",
            "a\u{a0}b",
            "1000",
            "1 a",
            " a",
            "a ",
            " ",
            "caf\u{fffd}",
            &"a".repeat(256),
        ] {
            assert!(name.parse::<UserName>().is_err(), "{name}");
        }
    }

    #[test]
    fn uids_of_services_and_of_nobody_are_system_uids() {
        assert_eq!([1, 5, 999, 65_534].map(is_system_uid), [true; 4]);
        assert_eq!([0, 1_000, 20_000, 65_533, 65_535, u32::MAX].map(is_system_uid), [false; 6]);
    }

    #[test]
    fn roles_are_ordered_by_rights() {
        assert!(Role::User < Role::Operator && Role::Operator < Role::Admin);
        for role in [Role::User, Role::Operator, Role::Admin] {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }
}

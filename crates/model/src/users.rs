//! Users: their names, what they may do, and how much they may have.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ParseError, format_bytes};

/// The name of a user or a group of the cluster: what `useradd` accepts on any system. It is never an option of a command or a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserName(Arc<str>);

impl UserName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let valid = (1..=32).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c));
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(ParseError::new(text, "a name of up to 32 lower-case letters, digits, `-` and `_`, a letter first"))
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

/// For maps whose keys are names.
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

/// What somebody may do. Each role may do what those before it may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// See everything that is no content, and have jobs of one's own.
    #[default]
    User,
    /// Touch everybody's jobs, and look after nodes.
    Operator,
    /// Decide who is a user, and everything else.
    Admin,
}

impl Role {
    /// The word for it.
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
    /// The word for somebody who has it, with its article.
    #[must_use]
    pub const fn of_one(self) -> &'static str {
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

/// How much a user, or all users of a group together, may have. What is absent is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// CPUs of what runs.
    #[serde(default)]
    pub cpus: Option<u64>,
    /// Memory of what runs, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Tasks that run; a job that is no array has one.
    #[serde(default)]
    pub jobs: Option<u64>,
    /// Tasks that wait.
    #[serde(default)]
    pub queued: Option<u64>,
}

impl Quota {
    /// Whether it limits nothing.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// What a quota limits of what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaKind {
    /// CPUs.
    Cpus,
    /// Memory.
    Memory,
    /// Tasks.
    Jobs,
}

impl QuotaKind {
    /// So much of it, for people.
    #[must_use]
    pub fn amount(self, value: u64) -> String {
        match self {
            Self::Cpus if value == 1 => "1 CPU".to_owned(),
            Self::Cpus => format!("{value} CPUs"),
            Self::Memory => format!("{} of memory", format_bytes(value)),
            Self::Jobs if value == 1 => "1 task".to_owned(),
            Self::Jobs => format!("{value} tasks"),
        }
    }

    /// The same without saying of what.
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
    fn names_are_what_useradd_takes_and_nothing_else() {
        for name in ["ada", "_ada", "a-b_c9", "x", &"a".repeat(32)] {
            assert_eq!(name.parse::<UserName>().expect(name).as_str(), name);
        }
        for name in ["", "-ada", "9a", "Ada", "a.b", "a b", "a/b", "ada\n", "größe", "a:b", &"a".repeat(33)] {
            assert!(name.parse::<UserName>().is_err(), "{name}");
        }
    }

    #[test]
    fn roles_are_ordered_by_what_they_may() {
        assert!(Role::User < Role::Operator && Role::Operator < Role::Admin);
        for role in [Role::User, Role::Operator, Role::Admin] {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }
}

//! Dependencies: conditions on other jobs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::text_schema;
use crate::{JobId, ParseError};

/// A condition on another job that must hold before a job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dependency {
    /// What must have happened to the other job.
    pub condition: Condition,
    /// The id of the other job.
    pub job: JobId,
}

/// What must have happened to another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// The other job has started (every task, for an array) or was cancelled.
    After,
    /// The other job has ended in any state.
    AfterAny,
    /// The other job has completed: every task with exit code 0.
    AfterOk,
    /// The other job has ended, but not completed.
    AfterNotOk,
}

impl Condition {
    /// Returns the condition as a word on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::After => "after",
            Self::AfterAny => "afterany",
            Self::AfterOk => "afterok",
            Self::AfterNotOk => "afternotok",
        }
    }
}

impl Dependency {
    /// Parses a list such as `afterok:3:4,after:5`. A job id without a condition means `afterok`.
    ///
    /// # Errors
    /// When a part of the list is not a dependency.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ParseError> {
        let error = || ParseError::new(text, "a dependency such as afterok:12, afterany:12:13 or 12");
        let mut all = Vec::new();
        for part in text.split(',').map(str::trim) {
            let mut words = part.split(':');
            let first = words.next().unwrap_or_default();
            let condition = match first {
                "after" => Condition::After,
                "afterany" => Condition::AfterAny,
                "afterok" => Condition::AfterOk,
                "afternotok" => Condition::AfterNotOk,
                _ => {
                    all.push(Self { condition: Condition::AfterOk, job: first.parse().map_err(|_| error())? });
                    if words.next().is_some() {
                        return Err(error());
                    }
                    continue;
                }
            };
            let before = all.len();
            for job in words {
                all.push(Self { condition, job: job.parse().map_err(|_| error())? });
            }
            if all.len() == before {
                return Err(error());
            }
        }
        Ok(all)
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.condition.as_str(), self.job)
    }
}

impl FromStr for Dependency {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match Self::parse_list(text)?.as_slice() {
            [one] => Ok(*one),
            _ => Err(ParseError::new(text, "one dependency such as afterok:12")),
        }
    }
}

text_schema!(
    Dependency,
    "dependency",
    "^((after|afterany|afterok|afternotok):)?[1-9][0-9]{0,18}$",
    "Another job, and what must have happened to it, such as `afterok:12`. A job id alone means `afterok`."
);

impl TryFrom<String> for Dependency {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<Dependency> for String {
    fn from(dependency: Dependency) -> Self {
        dependency.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_parse_from_the_command_line_form() {
        let list = Dependency::parse_list("afterok:3:4,after:5").expect("valid");
        let written: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(written, ["afterok:3", "afterok:4", "after:5"]);
        assert_eq!(Dependency::parse_list("12").expect("valid")[0].to_string(), "afterok:12");
        for text in ["", "afterok", "afterok:", "after:x", "12:13", "afterok:1,"] {
            assert!(Dependency::parse_list(text).is_err(), "{text}");
        }
    }
}

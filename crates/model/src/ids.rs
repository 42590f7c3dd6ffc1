//! Typed ids: each kind has its own type, so that they cannot be mixed up.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::ParseError;

/// The id of a job. Jobs are numbered from 1 in the order of submission; an id is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(minimum = 1)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The expected form of a job id, for error messages.
const JOB: &str = "a job id such as 12";

impl FromStr for JobId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        number(text).filter(|id| *id > 0).map(Self).ok_or_else(|| ParseError::new(text, JOB))
    }
}

/// Parses a number that consists of digits only. The standard library would also accept a sign.
fn number<N: FromStr>(text: &str) -> Option<N> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            0 => Err(D::Error::invalid_value(Unexpected::Unsigned(0), &JOB)),
            id => Ok(Self(id)),
        }
    }
}

/// The id of a task: a job and an index in its array. A job without an array has the single task 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct TaskId {
    /// The job that the task belongs to.
    pub job: JobId,
    /// The task's index in the array.
    pub index: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.job, self.index)
    }
}

impl FromStr for TaskId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "an array task such as 12_3");
        let (job, index) = text.split_once('_').ok_or_else(error)?;
        Ok(Self { job: job.parse().map_err(|_| error())?, index: number(index).ok_or_else(error)? })
    }
}

/// The number of a task's placement, counted from 1. A requeue increments the number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Attempt(pub u32);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many times a head has started on its store. A placement contains the epoch of the head that decided it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// The id of a run: one attempt of a task, which an agent executes and reports. A message with another attempt or epoch
/// is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct RunId {
    /// The task that runs.
    pub task: TaskId,
    /// The number of the task's attempt.
    pub attempt: Attempt,
    /// The epoch of the head that decided the placement.
    pub epoch: Epoch,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.task, self.attempt.0, self.epoch.0)
    }
}

impl FromStr for RunId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a run such as 12_3.1.4");
        let mut parts = text.split('.');
        let (Some(task), Some(attempt), Some(epoch), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(error());
        };
        Ok(Self {
            task: task.parse().map_err(|_| error())?,
            attempt: Attempt(attempt.parse().map_err(|_| error())?),
            epoch: Epoch(epoch.parse().map_err(|_| error())?),
        })
    }
}

/// A node's name: unique in the cluster; up to 63 letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let valid = (1..=63).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(ParseError::new(text, "a node name: up to 63 letters, digits, `-`, `_` and `.`"))
        }
    }
}

impl TryFrom<String> for NodeName {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kernel's id of one boot of a machine. A changed id means that all earlier processes are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_are_positive_and_have_no_sign() {
        assert_eq!("12".parse(), Ok(JobId(12)));
        assert_eq!(serde_json::from_str::<JobId>("12").ok(), Some(JobId(12)));
        for text in ["0", "+12", "-1", "", "1.5", "18446744073709551616"] {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<JobId>("0").is_err());
        assert!("12_+3".parse::<TaskId>().is_err());
    }
}

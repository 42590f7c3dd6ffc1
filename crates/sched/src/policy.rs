//! Scheduling policies.

use std::fmt;
use std::str::FromStr;

use hostler_model::ParseError;
use serde::{Deserialize, Serialize};

/// Which jobs may start behind a job that does not fit now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// First come, first served: no job starts before the jobs ahead of it.
    Fcfs,
    /// Backfill (EASY): a later job may start if that cannot delay the first waiting job.
    #[default]
    Easy,
    /// Each task that fits starts, in queue order. Nothing is reserved, so small jobs can delay a large one forever.
    Greedy,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Fcfs, Self::Easy, Self::Greedy];

    /// Returns the policy as a word in settings and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Greedy => "greedy",
            Self::Easy => "easy",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Policy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "fcfs" => Ok(Self::Fcfs),
            "easy" => Ok(Self::Easy),
            "greedy" => Ok(Self::Greedy),
            _ => Err(ParseError::new(text, "a scheduling policy: fcfs, easy or greedy")),
        }
    }
}

//! The states of jobs and tasks.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ParseError;

/// The state of a job. An array is running while any task runs; once all tasks have ended, it has the most severe ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job waits; its [`crate::Reason`] says why.
    Pending,
    /// The job is placed; the node prepares its folder and environment.
    Starting,
    /// The job's process runs.
    Running,
    /// The job's process has ended; the node uploads the results.
    Completing,
    /// The job ended with exit code 0, and its results are verified.
    Completed,
    /// The job ended with another exit code or by a signal, or could not start.
    Failed,
    /// A user cancelled the job.
    Cancelled,
    /// The job reached its time limit.
    Timeout,
    /// The kernel killed the job because it exceeded its memory limit.
    OutOfMemory,
    /// The job's node was lost, and the job was not requeued.
    NodeFail,
    /// The job was ended to free resources for another job.
    Preempted,
}

/// The state of one task of a job.
pub type TaskState = JobState;

impl JobState {
    /// Every state, in the order that jobs pass through them.
    pub const ALL: [Self; 11] = [
        Self::Pending,
        Self::Starting,
        Self::Running,
        Self::Completing,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
        Self::OutOfMemory,
        Self::NodeFail,
        Self::Preempted,
    ];

    /// The states that are not final.
    pub const LIVE: [Self; 4] = [Self::Pending, Self::Starting, Self::Running, Self::Completing];

    /// The states that are final.
    pub const ENDED: [Self; 7] = [
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
        Self::OutOfMemory,
        Self::NodeFail,
        Self::Preempted,
    ];

    /// The final states that a person should look at. A user or another job caused the others, or the job completed.
    pub const FAILED: [Self; 4] = [Self::Failed, Self::Timeout, Self::OutOfMemory, Self::NodeFail];

    /// Returns whether the state is final.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Pending | Self::Starting | Self::Running | Self::Completing => false,
            Self::Completed
            | Self::Failed
            | Self::Cancelled
            | Self::Timeout
            | Self::OutOfMemory
            | Self::NodeFail
            | Self::Preempted => true,
        }
    }

    /// Returns whether the state is one of [`Self::FAILED`].
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Timeout | Self::OutOfMemory | Self::NodeFail)
    }

    /// Returns the state as the rest of a sentence about a job or task, e.g. `has failed with exit code 1`.
    #[must_use]
    pub fn in_words(self, exit_code: Option<i32>) -> Cow<'static, str> {
        Cow::Borrowed(match (self, exit_code) {
            (Self::Failed, Some(code)) => return Cow::Owned(format!("has failed with exit code {code}")),
            (Self::Pending, _) => "is pending",
            (Self::Starting, _) => "is starting",
            (Self::Running, _) => "is running",
            (Self::Completing, _) => "is completing",
            (Self::Completed, _) => "has completed",
            (Self::Failed, None) => "has failed",
            (Self::Cancelled, _) => "was cancelled",
            (Self::Timeout, _) => "has reached its time limit",
            (Self::OutOfMemory, _) => "has used more memory than its limit",
            (Self::NodeFail, _) => "was lost with its node",
            (Self::Preempted, _) => "was preempted",
        })
    }

    /// Returns the state as a word in output and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Completing => "completing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "out_of_memory",
            Self::NodeFail => "node_fail",
            Self::Preempted => "preempted",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let name = text.to_ascii_lowercase().replace(['-', ' '], "_");
        let name = if name == "oom" { Self::OutOfMemory.as_str() } else { &name };
        Self::ALL.into_iter().find(|state| state.as_str() == name).ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            ParseError::new(text, format!("a job state; the states are {all}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_questions_agree() {
        let ended: Vec<JobState> = JobState::ALL.into_iter().filter(|state| state.is_ended()).collect();
        assert_eq!(ended, JobState::ENDED);
        assert_eq!([&JobState::LIVE[..], &JobState::ENDED].concat(), JobState::ALL);
        let failed: Vec<JobState> = JobState::ENDED.into_iter().filter(|state| state.is_failure()).collect();
        assert_eq!(failed, JobState::FAILED);
    }
}

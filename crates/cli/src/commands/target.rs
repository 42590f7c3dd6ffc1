//! A job or an array task on the command line: `12` or `12_3`.

use std::fmt;
use std::str::FromStr;

use hostler_model::{JobId, ParseError, TaskId};

/// The job or array task that a command shows or changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) job: JobId,
    /// Index of the task; `None` means the whole job.
    pub(crate) index: Option<u32>,
}

impl FromStr for Target {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a job such as 12, or an array task such as 12_3");
        if text.contains('_') {
            let task: TaskId = text.parse().map_err(|_| error())?;
            Ok(Self { job: task.job, index: Some(task.index) })
        } else {
            Ok(Self { job: text.parse().map_err(|_| error())?, index: None })
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}_{index}", self.job),
            None => self.job.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_tasks_are_parsed() {
        for text in ["12", "12_0", "7_31"] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text);
        }
        for text in ["", "a", "12_", "_3", "12_3_4", "-1"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}

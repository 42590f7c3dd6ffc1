//! A job, or one task of it, as people name them: `12` or `12_3`.

use std::fmt;
use std::str::FromStr;

use hostler_model::{JobId, ParseError, TaskId};

/// What a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) job: JobId,
    /// One task of an array; the whole job when absent.
    pub(crate) index: Option<u32>,
}

impl FromStr for Target {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, "a job such as 12, or a task of an array such as 12_3");
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
    fn jobs_and_tasks_as_people_name_them() {
        for text in ["12", "12_0", "7_31"] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text);
        }
        for text in ["", "a", "12_", "_3", "12_3_4", "-1"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}

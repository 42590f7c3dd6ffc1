//! Dependencies: conditions on other jobs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::array::MAX_INDEX;
use crate::text::text_schema;
use crate::{JobId, ParseError};

/// A condition on another job that must hold before a job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dependency {
    /// What must have happened to the other job.
    pub condition: Condition,
    /// The id of the other job.
    pub job: JobId,
    /// The index of the other job's only task that counts; `None`: the whole job.
    pub task: Option<u32>,
    /// How many minutes after the other job began the condition holds. Zero except with [`Condition::After`].
    pub delay_minutes: u32,
    /// Whether one satisfied dependency of the job's alternatives is enough.
    pub alternative: bool,
}

/// What must have happened to another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Condition {
    /// The other job has started (every task, for an array) or was cancelled.
    After,
    /// The other job has ended in any state.
    AfterAny,
    /// The other job has completed: every task with exit code 0.
    AfterOk,
    /// The other job has ended, but not completed.
    AfterNotOk,
    /// For each task of an array: the task of the other array with the same index has completed. A task without a
    /// counterpart waits for the whole other job, as with [`Self::AfterOk`]; so does a job that is not an array.
    AfterCorr,
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
            Self::AfterCorr => "aftercorr",
        }
    }

    /// Returns the condition of this word on the command line; `None` for another word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::After, Self::AfterAny, Self::AfterOk, Self::AfterNotOk, Self::AfterCorr]
            .into_iter()
            .find(|condition| condition.as_str() == word)
    }
}

/// The longest delay of a dependency, in minutes.
const MAX_DELAY_MINUTES: u32 = 999_999_999;

impl Dependency {
    /// Creates a condition on a whole job.
    #[must_use]
    pub const fn new(condition: Condition, job: JobId) -> Self {
        Self { condition, job, task: None, delay_minutes: 0, alternative: false }
    }

    /// Parses a list such as `afterok:3:4,after:5`, or alternatives such as `afterok:3?afterok:4`. A job id without a condition means
    /// `afterok`.
    ///
    /// # Errors
    /// When a part of the list is not a dependency, or the list has both kinds of separators.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ParseError> {
        let alternative = text.contains('?');
        if alternative && text.contains(',') {
            let expected = "a list with one kind of separator: `,` if all conditions must hold, `?` if one is enough";
            return Err(ParseError::new(text, expected));
        }
        let error =
            || ParseError::new(text, "a dependency such as afterok:12, afterany:12:13, after:12+5, afterok:12_3 or 12");
        let mut all = Vec::new();
        for part in text.split(if alternative { '?' } else { ',' }).map(str::trim) {
            let (condition, jobs) = match part.split_once(':') {
                Some((word, jobs)) => (Condition::from_word(word).ok_or_else(error)?, jobs),
                None => (Condition::AfterOk, part),
            };
            for job in jobs.split(':') {
                all.push(Self { alternative, ..Self::of_job(condition, job).ok_or_else(error)? });
            }
        }
        Ok(all)
    }

    /// Parses the part after the condition: `12`, `12_3`, `12+5` or `12_3+5`.
    #[must_use]
    pub fn of_job(condition: Condition, text: &str) -> Option<Self> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok())?;
        let (text, delay) = text.split_once('+').map_or((text, None), |(job, delay)| (job, Some(delay)));
        let (job, task) = text.split_once('_').map_or((text, None), |(job, task)| (job, Some(task)));
        let delay_minutes = delay.map_or(Some(0), |delay| number(delay).filter(|delay| *delay <= MAX_DELAY_MINUTES))?;
        let task = match task {
            Some(task) => Some(number(task).filter(|task| *task <= MAX_INDEX)?),
            None => None,
        };
        let is_allowed =
            (delay.is_none() || condition == Condition::After) && (task.is_none() || condition != Condition::AfterCorr);
        let job = job.parse().ok()?;
        is_allowed.then_some(Self { condition, job, task, delay_minutes, alternative: false })
    }

    /// Returns the dependency without the mark of an alternative.
    #[must_use]
    pub const fn plain(self) -> Self {
        Self { alternative: false, ..self }
    }

    /// Returns the delay in milliseconds.
    #[must_use]
    pub fn delay_ms(&self) -> u64 {
        u64::from(self.delay_minutes) * 60_000
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.alternative { "?" } else { "" })?;
        write!(f, "{}:{}", self.condition.as_str(), self.job)?;
        self.task.map_or(Ok(()), |task| write!(f, "_{task}"))?;
        if self.delay_minutes > 0 { write!(f, "+{}", self.delay_minutes) } else { Ok(()) }
    }
}

impl FromStr for Dependency {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (one, alternative) = text.strip_prefix('?').map_or((text, false), |text| (text, true));
        match Self::parse_list(one)?.as_slice() {
            [one] => Ok(Self { alternative, ..*one }),
            _ => Err(ParseError::new(text, "one dependency such as afterok:12")),
        }
    }
}

text_schema!(
    Dependency,
    "dependency",
    "^\\??(((afterany|afterok|afternotok):)?[1-9][0-9]{0,18}(_0*([0-9]{1,6}|1000000))?|aftercorr:[1-9][0-9]{0,18}|after:[1-9][0-9]{0,18}(_0*([0-9]{1,6}|1000000))?(\\+[0-9]{1,9})?)$",
    "Another job, and what must have happened to it, such as `afterok:12`. A job id alone means `afterok`. `afterok:12_3` concerns \
     one task of an array, `aftercorr:12` each task of the other array that has the same index, and `after:12+5` means five minutes \
     after job 12 began. `?` marks one of several alternatives."
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
        for text in ["", "afterok", "afterok:", "after:x", "12:13", "afterok:1,", "soon:1", "?", "1?", "1?2,3"] {
            assert!(Dependency::parse_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dependencies_name_tasks_counterparts_and_delays() {
        let list = Dependency::parse_list("aftercorr:3,after:12+5:13_7+10:14,afternotok:12_3,2_0").expect("valid");
        let written: Vec<String> = list.iter().map(ToString::to_string).collect();
        let expected = ["aftercorr:3", "after:12+5", "after:13_7+10", "after:14", "afternotok:12_3", "afterok:2_0"];
        assert_eq!(written, expected);
        assert_eq!((list[2].task, list[2].delay_minutes, list[2].delay_ms()), (Some(7), 10, 600_000));
        for text in
            ["afterok:1+5", "after:1+", "after:1+-5", "after:1+1000000000", "aftercorr:1_2", "1_", "1_x", "1_1000001"]
        {
            assert!(text.parse::<Dependency>().is_err(), "{text}");
        }
    }

    #[test]
    fn question_marks_separate_alternatives() {
        let list = Dependency::parse_list("afterok:1:2?afterany:3").expect("valid");
        let written: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(written, ["?afterok:1", "?afterok:2", "?afterany:3"]);
        assert_eq!(written[2].parse(), Ok(list[2]));
        assert_eq!(list[2].plain().to_string(), "afterany:3");
    }
}

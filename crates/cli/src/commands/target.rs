//! Jobs and array tasks on the command line: `12`, `12_3`, ranges of them, `last` or a name.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use hostler_model::{JobId, MAX_JOB_NAME_CHARACTERS, ParseError, TaskId};

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

/// What a person writes for jobs: `12`, `12_3`, `12_0-9`, `12-20`, `last`, or a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    Target(Target),
    /// All jobs from the first to the second id.
    Range(JobId, JobId),
    /// The tasks of an array from the first to the last index.
    Tasks(JobId, RangeInclusive<u32>),
    /// The caller's newest job.
    Last,
    /// The caller's jobs with this name.
    Name(String),
}

impl FromStr for Word {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "last" {
            return Ok(Self::Last);
        }
        if let Ok(target) = text.parse() {
            return Ok(Self::Target(target));
        }
        let is_list = text.contains([',', '[']) && text.starts_with(|first: char| first.is_ascii_digit());
        if is_list && text.chars().all(|c| c.is_ascii_digit() || "_-,[]".contains(c)) {
            return Err("separate jobs and ranges by spaces, e.g. 12 14-16 20_3 20_7-9".to_owned());
        }
        match range(text) {
            Some(Self::Range(first, last)) if first > last => Err("the smaller id comes first, e.g. 12-20".to_owned()),
            Some(Self::Tasks(_, indices)) if indices.is_empty() => {
                Err("the smaller index comes first, e.g. 12_0-9".to_owned())
            }
            Some(range) => Ok(range),
            None => Ok(Self::Name(text.to_owned())),
        }
    }
}

/// A range of jobs or tasks, in any order.
fn range(text: &str) -> Option<Word> {
    let (first, last) = text.split_once('-')?;
    Some(match first.split_once('_') {
        None => Word::Range(first.parse().ok()?, last.parse().ok()?),
        Some((job, first)) => Word::Tasks(job.parse().ok()?, first.parse().ok()?..=last.parse().ok()?),
    })
}

/// Parses the name of a job on the command line. Refuses a name that commands would not take for a name.
pub(crate) fn job_name(text: &str) -> Result<String, &'static str> {
    match text.parse() {
        Ok(Word::Name(name)) => Ok(name),
        _ => Err("commands would read this name as an id, a range or `last`; add a letter, e.g. run-5"),
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(target) => target.fmt(f),
            Self::Range(first, last) => write!(f, "{first}-{last}"),
            Self::Tasks(job, tasks) => write!(f, "{job}_{}-{}", tasks.start(), tasks.end()),
            Self::Last => f.write_str("last"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A valid job's name from the name of a folder or a program. Leading dashes go too, because `hostler jobs --name` would
/// take them for a flag. A name that commands would read as an id gets a prefix.
pub(crate) fn derived_name(from: &str) -> String {
    let is_bad = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
    let clean = from.replace(is_bad, "_");
    let clean: String = clean.trim().trim_start_matches('-').chars().take(MAX_JOB_NAME_CHARACTERS).collect();
    match clean.as_str() {
        "" => "job".to_owned(),
        name if job_name(name).is_err() => format!("job-{clean}").chars().take(MAX_JOB_NAME_CHARACTERS).collect(),
        _ => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_ids_ranges_and_names() {
        let target = |job, index| Word::Target(Target { job: JobId(job), index });
        for (text, expected) in [
            ("12", target(12, None)),
            ("12_3", target(12, Some(3))),
            ("12-20", Word::Range(JobId(12), JobId(20))),
            ("12_0-9", Word::Tasks(JobId(12), 0..=9)),
            ("last", Word::Last),
            ("train", Word::Name("train".to_owned())),
            ("3d-model", Word::Name("3d-model".to_owned())),
            ("12-", Word::Name("12-".to_owned())),
            ("2026-11-30", Word::Name("2026-11-30".to_owned())),
            ("a,b", Word::Name("a,b".to_owned())),
        ] {
            let word: Word = text.parse().expect(text);
            assert_eq!(word, expected);
            assert_eq!(word.to_string(), text);
            assert_eq!(job_name(text).is_ok(), matches!(expected, Word::Name(_)), "{text}");
        }
        for (text, why) in [
            ("3-1", "the smaller id comes first"),
            ("3_3-1", "the smaller index comes first"),
            ("1,3", "by spaces"),
            ("10_5-9,12", "by spaces"),
            ("10_[7-9]", "by spaces"),
        ] {
            let error = text.parse::<Word>().expect_err(text);
            assert!(error.contains(why) && job_name(text).is_err(), "{text}: {error}");
        }
    }

    #[test]
    fn jobs_and_tasks_are_parsed() {
        for text in ["12", "12_0", "7_31"] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text);
        }
        for text in ["", "a", "12_", "_3", "12_3_4", "-1"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn derived_names_follow_the_rules_for_names() {
        let not_text: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(b"caf\xe9".to_vec());
        for (from, expected) in [
            ("train", "train"),
            ("my project", "my project"),
            ("Größe 大", "Größe 大"),
            ("a\tb", "a_b"),
            ("a\nb\r", "a_b_"),
            ("\u{1b}[31mred", "_[31mred"),
            ("\u{85}", "_"),
            (&not_text.to_string_lossy(), "caf_"),
            ("-rf", "rf"),
            ("2026", "job-2026"),
            ("last", "job-last"),
            ("--", "job"),
            ("", "job"),
            (" ", "job"),
        ] {
            assert_eq!(derived_name(from), expected, "{from:?}");
        }
        assert_eq!(derived_name(&"é".repeat(300)), "é".repeat(255));
    }
}

//! Signals to the processes of a job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ParseError;
use crate::object::object_only;

/// What the text of a [`LimitSignal`] looks like.
const FORM: &str = "a signal, the time before the limit, and optionally who gets it, such as USR1@60s or TERM@2m:steps";

/// The names of the signals that a job can get, by number. Numbers are those of Linux on common processors.
const NAMES: &[(i32, &str)] = &[
    (1, "HUP"),
    (2, "INT"),
    (3, "QUIT"),
    (6, "ABRT"),
    (9, "KILL"),
    (10, "USR1"),
    (11, "SEGV"),
    (12, "USR2"),
    (13, "PIPE"),
    (14, "ALRM"),
    (15, "TERM"),
    (17, "CHLD"),
    (18, "CONT"),
    (19, "STOP"),
    (20, "TSTP"),
    (21, "TTIN"),
    (22, "TTOU"),
    (23, "URG"),
    (24, "XCPU"),
    (28, "WINCH"),
];

/// The largest number of a signal.
const LAST: i32 = 64;

/// A signal, by its number on Linux: 1 to 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "i32", into = "i32")]
#[schema(value_type = i32, minimum = 1, maximum = 64)]
pub struct SignalNumber(i32);

impl SignalNumber {
    /// SIGKILL, which no program can ignore.
    pub const KILL: Self = Self(9);

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl TryFrom<i32> for SignalNumber {
    type Error = ParseError;

    fn try_from(number: i32) -> Result<Self, ParseError> {
        if (1..=LAST).contains(&number) {
            Ok(Self(number))
        } else {
            Err(ParseError::new(&number.to_string(), "the number of a signal from 1 to 64"))
        }
    }
}

impl From<SignalNumber> for i32 {
    fn from(signal: SignalNumber) -> Self {
        signal.0
    }
}

impl FromStr for SignalNumber {
    type Err = ParseError;

    /// Parses a number, or a name with or without `SIG`, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Ok(number) = text.parse::<i32>() {
            return Self::try_from(number);
        }
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let found = NAMES.iter().find(|(_, known)| *known == name);
        found
            .map(|(number, _)| Self(*number))
            .ok_or_else(|| ParseError::new(text, "a signal such as USR1, SIGTERM or 15"))
    }
}

impl fmt::Display for SignalNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Which processes of a job get a signal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignalTarget {
    /// The job's program, but not the processes that it started.
    #[default]
    Program,
    /// The job's program and the processes that it started, but not the steps.
    Group,
    /// The processes of the job's steps, but not its program.
    Steps,
    /// The job's program, the processes that it started, and the steps.
    All,
}

impl SignalTarget {
    /// Returns the name of the target, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Group => "group",
            Self::Steps => "steps",
            Self::All => "all",
        }
    }
}

impl FromStr for SignalTarget {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let all = [Self::Program, Self::Group, Self::Steps, Self::All];
        let found = all.into_iter().find(|target| target.as_str() == text);
        found.ok_or_else(|| ParseError::new(text, "program, group, steps or all"))
    }
}

/// A signal that a job gets before its time limit, so that it can save its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct LimitSignal {
    /// The signal.
    pub signal: SignalNumber,
    /// Time between the signal and the limit, in milliseconds.
    pub before_ms: u64,
    /// Which processes get the signal; the program if absent.
    #[serde(default)]
    pub to: SignalTarget,
}

object_only!(LimitSignal);

impl FromStr for LimitSignal {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(text, FORM);
        let (signal, rest) = text.split_once('@').ok_or_else(error)?;
        let (time, to) = rest.split_once(':').map_or((rest, None), |(time, to)| (time, Some(to)));
        let before = crate::parse_duration(time).map_err(|_| error())?;
        Ok(Self {
            signal: signal.parse().map_err(|_| error())?,
            before_ms: u64::try_from(before.as_millis()).map_err(|_| error())?,
            to: to.map_or(Ok(SignalTarget::Program), str::parse).map_err(|_| error())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in [("USR1", 10), ("sigterm", 15), ("9", 9), ("34", 34)] {
            assert_eq!(text.parse::<SignalNumber>().map(SignalNumber::get).ok(), Some(number), "{text}");
        }
        for text in ["", "0", "65", "-1", "NONE", "SIG"] {
            assert!(text.parse::<SignalNumber>().is_err(), "{text}");
        }
        assert_eq!(SignalNumber(12).to_string(), "USR2");
        assert_eq!(SignalNumber(40).to_string(), "40");
    }

    #[test]
    fn signals_before_the_limit_have_a_time_and_a_target() {
        let parse = |text: &str| text.parse::<LimitSignal>().ok();
        let signal = |number, before_ms, to| Some(LimitSignal { signal: SignalNumber(number), before_ms, to });
        assert_eq!(parse("USR1@60s"), signal(10, 60_000, SignalTarget::Program));
        assert_eq!(parse("TERM@2m:steps"), signal(15, 120_000, SignalTarget::Steps));
        for text in ["", "USR1", "USR1@", "@60s", "USR1@60s:nobody", "X@1s"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_signal_before_the_limit_is_an_object() {
        let read = |text: &str| serde_json::from_str::<LimitSignal>(text).ok();
        let usr1 = LimitSignal { signal: SignalNumber(10), before_ms: 1000, to: SignalTarget::Program };
        assert_eq!(read(r#"{"signal": 10, "before_ms": 1000}"#), Some(usr1));
        for text in ["[10, 1000]", r#"{"signal": 0, "before_ms": 1}"#, r#"{"signal": 10}"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}

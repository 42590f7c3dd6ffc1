//! What went wrong between us and a controller, told apart by what can be done about it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Nothing answers, or not in time. Whether a verb that was under way took effect is not known.
    Unreachable,
    /// The controller does not accept the credentials, or they may not do this.
    Refused,
    /// The controller says that it cannot just now.
    Busy,
    /// The controller cannot do this at all.
    Unsupported,
    /// Whoever answers has not shown the certificate that is expected.
    Untrusted,
    /// The controller answered something that makes no sense, so nothing is known.
    Confused,
    /// Something is missing or wrong on this side: a program, a file, a setting.
    Unprepared,
}

/// A failure: what happened, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    kind: FaultKind,
    what: Option<String>,
    why: String,
    hint: Option<String>,
    retry_after: Option<Duration>,
}

impl Fault {
    /// A failure of this kind; `why` is a fragment that names the controller and what it did.
    #[must_use]
    pub fn new(kind: FaultKind, why: impl Into<String>) -> Self {
        Self { kind, what: None, why: why.into(), hint: None, retry_after: None }
    }

    pub(crate) fn unreachable(why: impl Into<String>) -> Self {
        Self::new(FaultKind::Unreachable, why)
    }

    pub(crate) fn refused(why: impl Into<String>) -> Self {
        Self::new(FaultKind::Refused, why)
    }

    pub(crate) fn busy(why: impl Into<String>) -> Self {
        Self::new(FaultKind::Busy, why)
    }

    pub(crate) fn unsupported(why: impl Into<String>) -> Self {
        Self::new(FaultKind::Unsupported, why)
    }

    pub(crate) fn confused(why: impl Into<String>) -> Self {
        Self::new(FaultKind::Confused, why)
    }

    pub(crate) fn unprepared(why: impl Into<String>) -> Self {
        Self::new(FaultKind::Unprepared, why)
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, for which asking again makes sense only after this time.
    #[must_use]
    pub const fn after(mut self, pause: Option<Duration>) -> Self {
        self.retry_after = pause;
        self
    }

    /// The same, with what was wanted and has not happened, unless that has been said.
    #[must_use]
    pub(crate) fn about(mut self, what: impl FnOnce() -> String) -> Self {
        self.what.get_or_insert_with(what);
        self
    }

    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> FaultKind {
        self.kind
    }

    /// What was wanted and did not happen; absent in what comes straight from a driver.
    #[must_use]
    pub fn what(&self) -> Option<&str> {
        self.what.as_deref()
    }

    /// Why.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// What a person can do about it.
    #[must_use]
    pub fn what_to_do(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// How long to wait before asking again.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether it may go away by itself. The others wait for a person.
    #[must_use]
    pub const fn is_worth_retrying(&self) -> bool {
        matches!(self.kind, FaultKind::Unreachable | FaultKind::Busy | FaultKind::Confused)
    }
}

/// What happened and why, without what to do.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Some(what) => write!(f, "{what}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for Fault {}

/// Somebody else's words, made fit for one line: no control characters, not too long, with a full stop that is not theirs to set.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN_CHARACTERS: usize = 200;
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(SHOWN_CHARACTERS + 1)
        .collect::<String>()
        .trim()
        .trim_end_matches(|c: char| c == '.' || c.is_whitespace())
        .to_owned();
    if let Some((end, _)) = line.char_indices().nth(SHOWN_CHARACTERS) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_what_and_why_once() {
        let fault = Fault::busy("the controller at x is starting").about(|| "r1 was not switched on".into());
        assert_eq!(fault.to_string(), "r1 was not switched on: the controller at x is starting");
        assert_eq!(fault.about(|| "something else".into()).what(), Some("r1 was not switched on"));
    }

    #[test]
    fn foreign_words_stay_on_their_line() {
        assert_eq!(quoted(" bad\r\nthing\u{7}. "), "bad  thing");
        assert_eq!(quoted(&"ä".repeat(500)).chars().count(), 201);
    }
}

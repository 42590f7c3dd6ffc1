//! Failures of controllers, classified by what the head or the user can do about them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// No response, or not in time. It is unknown whether a pending verb took effect.
    Unreachable,
    /// The controller rejects the credentials, or the user lacks a permission.
    Refused,
    /// The controller is temporarily unable to execute the request.
    Busy,
    /// The controller does not support the request.
    Unsupported,
    /// The server does not have the expected certificate.
    Untrusted,
    /// The controller's response is invalid, so the state is unknown.
    Confused,
    /// Something is missing or wrong on the head's side: a program, a file or a setting.
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
    /// Creates a failure. `why` is a part of a sentence that names the controller and says what the controller did.
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

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the time after which a retry makes sense.
    #[must_use]
    pub const fn after(mut self, pause: Option<Duration>) -> Self {
        self.retry_after = pause;
        self
    }

    /// Adds the operation that failed, unless it is already set.
    #[must_use]
    pub(crate) fn about(mut self, what: impl FnOnce() -> String) -> Self {
        self.what.get_or_insert_with(what);
        self
    }

    #[must_use]
    pub const fn kind(&self) -> FaultKind {
        self.kind
    }

    /// The operation that failed; absent in a fault that comes directly from a driver.
    #[must_use]
    pub fn what(&self) -> Option<&str> {
        self.what.as_deref()
    }

    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The hint for the user.
    #[must_use]
    pub fn what_to_do(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Time to wait before a retry.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the failure may be temporary. Any other failure needs a user's action.
    #[must_use]
    pub const fn is_worth_retrying(&self) -> bool {
        matches!(self.kind, FaultKind::Unreachable | FaultKind::Busy | FaultKind::Confused)
    }
}

/// Shows the operation and the reason, without the hint.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Some(what) => write!(f, "{what}: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for Fault {}

/// Makes foreign text fit for one line: replaces control characters, limits the length, and removes a final full stop.
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
    fn fault_contains_operation_and_reason_once() {
        let fault = Fault::busy("the controller at x is starting").about(|| "r1 was not switched on".into());
        assert_eq!(fault.to_string(), "r1 was not switched on: the controller at x is starting");
        assert_eq!(fault.about(|| "something else".into()).what(), Some("r1 was not switched on"));
    }

    #[test]
    fn foreign_text_stays_on_one_line() {
        assert_eq!(quoted(" bad\r\nthing\u{7}. "), "bad  thing");
        assert_eq!(quoted(&"ä".repeat(500)).chars().count(), 201);
    }
}

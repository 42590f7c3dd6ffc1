//! Errors as users see them: what happened, why, and what to do.

use std::fmt::Write as _;
use std::io;

use hostler_client::{ClientError, HEAD_AWAY};
use hostler_model::ParseError;
use serde_json::{Value, json};

use crate::exit;

#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    what: String,
    causes: Vec<String>,
    hints: Vec<String>,
    /// The head's code for a refusal, e.g. `no_such_job`.
    code: Option<String>,
    pub exit: u8,
    output: Option<OutputError>,
    /// Whether the user answered "no" when asked to confirm; this is not shown as an error.
    is_declined: bool,
}

/// Why output of a job cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputError {
    /// The reader has closed the pipe.
    Closed,
    Other,
}

/// The result of a command: its exit code, or its error.
pub type Outcome = Result<u8, Failure>;

impl Failure {
    /// A failure with exit code 1.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            causes: Vec::new(),
            hints: Vec::new(),
            code: None,
            exit: exit::FAILED,
            output: None,
            is_declined: false,
        }
    }

    /// The end of a command after a "no" of the person, exit code 1.
    pub fn declined(what: impl Into<String>) -> Self {
        Self { is_declined: true, ..Self::new(what) }
    }

    /// A failed write to `stream`, e.g. `standard output`.
    pub(crate) fn output(stream: &str, error: &io::Error) -> Self {
        let is_closed = error.kind() == io::ErrorKind::BrokenPipe;
        let kind = if is_closed { OutputError::Closed } else { OutputError::Other };
        Self { output: Some(kind), ..Self::new(format!("cannot write to {stream}")).because(error) }
    }

    /// What happened, without causes and hints.
    pub(crate) fn message(&self) -> &str {
        &self.what
    }

    /// Whether output could not be written.
    pub(crate) fn is_about_output(&self) -> bool {
        self.output.is_some()
    }

    /// Whether the reader of the output has closed the pipe. Programs then end by SIGPIPE, without a message.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        self.output == Some(OutputError::Closed)
    }

    /// A mistake on the command line, exit code 2.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(what).exiting(exit::USAGE)
    }

    /// Adds the chain of causes. Causes whose text is already in the message are left out.
    pub fn because(mut self, error: &dyn std::error::Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            if !self.what.contains(&text) && !self.causes.iter().any(|cause| cause.contains(&text)) {
                self.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    /// Adds advice on what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Changes the text of each hint.
    pub(crate) fn with_hints(mut self, change: impl Fn(String) -> String) -> Self {
        self.hints = self.hints.into_iter().map(change).collect();
        self
    }

    pub fn exiting(mut self, exit: u8) -> Self {
        self.exit = exit;
        self
    }

    /// The message without causes and hints.
    pub fn summary(&self) -> &str {
        &self.what
    }

    /// The head's code for a refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// The causes, the first one first.
    pub(crate) fn causes(&self) -> &[String] {
        &self.causes
    }

    /// The text for stderr, with a final line break.
    pub fn render(&self) -> String {
        let lead = if self.is_declined { "" } else { "error: " };
        let mut text = format!("{lead}{}\n", self.what);
        for cause in &self.causes {
            writeln!(text, "  because: {cause}").expect("strings can always be written to");
        }
        for hint in &self.hints {
            writeln!(text, "hint: {hint}").expect("strings can always be written to");
        }
        text
    }

    /// The error as one line of JSON, for stderr.
    pub(crate) fn to_json(&self) -> String {
        format!("{}\n", json!({ "error": self.as_json() }))
    }

    /// The error as an object.
    pub(crate) fn as_json(&self) -> Value {
        let Self { what, causes, hints, code, exit, .. } = self;
        json!({ "message": what, "causes": causes, "hints": hints, "code": code, "exit": exit })
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Connect { .. } | ClientError::Interrupted { .. } => exit::UNREACHABLE,
            ClientError::Refused { body, .. } if body.code == HEAD_AWAY => exit::UNREACHABLE,
            ClientError::Refused { .. } => exit::REFUSED,
            ClientError::NotAHead { .. } | ClientError::OtherCluster { .. } | ClientError::OtherVersion { .. } => {
                exit::MISMATCH
            }
            ClientError::TunnelBroken { .. } | ClientError::Local(_) => exit::FAILED,
        };
        let code = error.code().map(str::to_owned);
        let failure = Self { code, ..Self::new(error.to_string()) }.because(&error).exiting(exit);
        error.hints().into_iter().fold(failure, Self::hint)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(error.to_string()).because(error.as_ref())
    }
}

impl From<ParseError> for Failure {
    fn from(error: ParseError) -> Self {
        Self::usage(error.to_string())
    }
}

/// Adds a description of the failed operation to an error.
pub trait During<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: std::error::Error> During<T> for Result<T, E> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(what()).because(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_shows_message_cause_and_hint_in_this_order() {
        let cause = std::io::Error::other("disk on fire");
        let failure = Failure::new("cannot read the folder").because(&cause).hint("pour water");
        assert_eq!(failure.render(), "error: cannot read the folder\n  because: disk on fire\nhint: pour water\n");
    }

    #[test]
    fn cause_already_in_the_message_is_left_out() {
        let cause = std::io::Error::other("disk on fire");
        assert_eq!(
            Failure::new("cannot read: disk on fire").because(&cause).render(),
            "error: cannot read: disk on fire\n"
        );
    }
}

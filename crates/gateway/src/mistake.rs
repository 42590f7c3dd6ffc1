//! What is wrong with a description: where, what, and what to do.

use std::fmt;

/// One mistake in a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The line of the file, counted from 1; `None` when it is about something that is not there.
    pub line: Option<usize>,
    /// Such as `nodes.address`; empty when the text is not even TOML.
    pub field: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{}", self.what)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

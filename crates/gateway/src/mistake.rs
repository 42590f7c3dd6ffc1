//! Mistakes in a description.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Line in the file, counted from 1; `None` if something is missing from the whole file.
    pub line: Option<usize>,
    /// The field, e.g. `nodes.address`; empty if the text is not TOML.
    pub field: String,
    pub what: String,
    /// How to correct the mistake.
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

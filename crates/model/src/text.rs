//! What sets of numbers have in common as text, and what a person typed that could not be understood.

use std::borrow::Cow;
use std::fmt;

/// A value that could not be read, with what was expected in its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not {expected}", shown(input))]
pub struct ParseError {
    /// The text as it was given, or its beginning when it is long; empty when it is not to be shown.
    pub input: String,
    /// What would have been accepted, as a noun phrase with examples.
    pub expected: Cow<'static, str>,
}

impl ParseError {
    /// An error that shows `input` and says what was `expected` instead.
    #[must_use]
    pub fn new(input: &str, expected: impl Into<Cow<'static, str>>) -> Self {
        const SHOWN_BYTES: usize = 200;
        let end = input.floor_char_boundary(SHOWN_BYTES);
        let ellipsis = if end < input.len() { "…" } else { "" };
        Self { input: format!("{}{ellipsis}", &input[..end]), expected: expected.into() }
    }
}

impl ParseError {
    /// An error that does not show what it is about, since that is or may be a secret.
    #[must_use]
    pub fn secret(expected: &'static str) -> Self {
        Self { input: String::new(), expected: expected.into() }
    }
}

fn shown(input: &str) -> String {
    if input.is_empty() { "that".to_owned() } else { format!("`{input}`") }
}

/// Writes inclusive ranges as `0-3,8`.
pub(crate) fn write_ranges(f: &mut fmt::Formatter<'_>, ranges: impl Iterator<Item = (u32, u32)>) -> fmt::Result {
    let mut separator = "";
    for (first, last) in ranges {
        write!(f, "{separator}{first}")?;
        if last > first {
            write!(f, "-{last}")?;
        }
        separator = ",";
    }
    Ok(())
}

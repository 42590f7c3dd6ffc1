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

/// A text on one line, with every character visible that a terminal or a reader of a log could take for something else: control
/// characters, line breaks, and marks that change the direction of text. They are written as in Rust, such as `\n` and `\u{1b}`.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, is_deceptive)
}

/// The same for text of several lines: line breaks and tabs stay.
#[must_use]
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_deceptive(c) && c != '\n' && c != '\t')
}

fn escape(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_bad(c) {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    Cow::Owned(clean)
}

fn is_deceptive(c: char) -> bool {
    let changes_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || changes_direction || matches!(c, '\u{2028}' | '\u{2029}')
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_moves_the_cursor_forges_a_line_or_turns_around() {
        for (text, line, lines) in [
            ("größe 1", "größe 1", "größe 1"),
            ("a\nERROR forged", "a\\nERROR forged", "a\nERROR forged"),
            ("\u{1b}[2Jb\u{7}\r", "\\u{1b}[2Jb\\u{7}\\r", "\\u{1b}[2Jb\\u{7}\\r"),
            ("\u{9b}31m\t", "\\u{9b}31m\\t", "\\u{9b}31m\t"),
            ("abc\u{202e}txt", "abc\\u{202e}txt", "abc\\u{202e}txt"),
        ] {
            assert_eq!((escaped(text).as_ref(), escaped_lines(text).as_ref()), (line, lines), "{text:?}");
        }
    }
}

//! Shared text handling: parse errors, escaping of untrusted text, and ranges.

use std::borrow::Cow;
use std::fmt;

use crate::octets::octet;

/// The error when a text cannot be parsed: the text and the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not {expected}", shown(input))]
pub struct ParseError {
    /// The text, cut if it is long; empty if it may be secret.
    pub input: String,
    /// The accepted form, as a noun phrase with examples.
    pub expected: Cow<'static, str>,
}

impl ParseError {
    /// Creates an error that shows `input` and the `expected` form.
    #[must_use]
    pub fn new(input: &str, expected: impl Into<Cow<'static, str>>) -> Self {
        const SHOWN_BYTES: usize = 200;
        let end = input.floor_char_boundary(SHOWN_BYTES);
        let ellipsis = if end < input.len() { "…" } else { "" };
        Self { input: format!("{}{ellipsis}", &input[..end]), expected: expected.into() }
    }
}

impl ParseError {
    /// Creates an error that does not show the text, because it may be a secret.
    #[must_use]
    pub fn secret(expected: &'static str) -> Self {
        Self { input: String::new(), expected: expected.into() }
    }
}

/// Formats a number with its noun, e.g. `1 CPU`, `2 CPUs` or `3 processes`.
#[must_use]
pub fn plural(number: impl fmt::Display, noun: &str) -> String {
    let number = number.to_string();
    let ending = match noun.ends_with('s') {
        _ if number == "1" => "",
        true => "es",
        false => "s",
    };
    format!("{number} {noun}{ending}")
}

/// Returns what to do about a typographic quote, such as `“`, in the line of a text that contains the byte `at`.
#[must_use]
pub fn quote_advice(text: &str, at: usize) -> Option<String> {
    let at = text.floor_char_boundary(at);
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = text[begin..].lines().next()?;
    let quote = line.chars().find(|c| TYPOGRAPHIC_QUOTES.contains(c))?;
    Some(format!("`{quote}` is a typographic quote; write a plain one, `\"` or `'`"))
}

/// Quotes that text processors write in place of plain ones.
pub const TYPOGRAPHIC_QUOTES: [char; 8] = ['“', '”', '„', '‘', '’', '‚', '«', '»'];

fn shown(input: &str) -> String {
    if input.is_empty() { "that".to_owned() } else { format!("`{input}`") }
}

/// Escapes text for one line of a terminal or log: control characters, line breaks, and marks that change the direction of text
/// become Rust escapes, such as `\n` and `\u{1b}`. Bytes that are no text, from [`text_of`](crate::text_of), become `\xHH`.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, is_deceptive)
}

/// Like [`escaped`], but keeps line breaks and tabs.
#[must_use]
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_deceptive(c) && c != '\n' && c != '\t')
}

/// Escapes text for HTML and XML, also within quotes.
#[must_use]
pub fn escaped_html(text: &str) -> String {
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => clean.push_str("&amp;"),
            '<' => clean.push_str("&lt;"),
            '>' => clean.push_str("&gt;"),
            '"' => clean.push_str("&quot;"),
            '\'' => clean.push_str("&#39;"),
            c => clean.push(c),
        }
    }
    clean
}

/// The first `most` characters, the last of which is `…` if the text was cut.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

fn escape(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(|c| is_bad(c) || octet(c).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if let Some(byte) = octet(c) {
            clean.extend(std::ascii::escape_default(byte).map(char::from));
        } else if is_bad(c) {
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

/// Implements the JSON schema of a type that is written as text: a pattern, and a format name for rules that the
/// pattern cannot express.
macro_rules! text_schema {
    ($type:ty, $format:literal, $pattern:literal, $description:literal) => {
        impl utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::Type::String)
                    .format(Some(utoipa::openapi::SchemaFormat::Custom($format.to_owned())))
                    .pattern(Some($pattern))
                    .description(Some($description))
                    .into()
            }
        }

        impl utoipa::ToSchema for $type {}
    };
}

pub(crate) use text_schema;

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
    fn nouns_agree_with_their_number() {
        let all = [(0, "task"), (1, "task"), (2, "task"), (1, "process"), (3, "process")].map(|(n, it)| plural(n, it));
        assert_eq!(all, ["0 tasks", "1 task", "2 tasks", "1 process", "3 processes"]);
        assert_eq!((plural("1", "CPU"), plural("1.5", "CPU")), ("1 CPU".to_owned(), "1.5 CPUs".to_owned()));
    }

    #[test]
    fn escaping_stops_cursor_moves_forged_lines_and_reversed_text() {
        for (text, line, lines) in [
            ("größe 1", "größe 1", "größe 1"),
            ("a\nERROR forged", "a\\nERROR forged", "a\nERROR forged"),
            ("\u{1b}[2Jb\u{7}\r", "\\u{1b}[2Jb\\u{7}\\r", "\\u{1b}[2Jb\\u{7}\\r"),
            ("\u{9b}31m\t", "\\u{9b}31m\\t", "\\u{9b}31m\t"),
            ("caf\u{efe9}", "caf\\xe9", "caf\\xe9"),
            ("abc\u{202e}txt", "abc\\u{202e}txt", "abc\\u{202e}txt"),
        ] {
            assert_eq!((escaped(text).as_ref(), escaped_lines(text).as_ref()), (line, lines), "{text:?}");
        }
    }
}

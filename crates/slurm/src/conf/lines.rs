//! Lines of `Key=value` pairs, with comments, continued lines and quotes.

use std::fmt;
use std::iter;
use std::sync::Arc;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Name of the file, as messages write it.
    pub file: Arc<str>,
    /// Number of the line; the first is 1. Of a continued line: number of its first part.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A mistake in a file, as a sentence fragment for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the mistake is.
    pub place: Place,
    /// What is wrong.
    pub text: String,
}

impl Problem {
    /// Creates a problem.
    #[must_use]
    pub fn new(place: &Place, text: impl Into<String>) -> Self {
        Self { place: place.clone(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// A pair `Key=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Where the pair is.
    pub place: Place,
    /// The key as it is written.
    pub key: String,
    /// The value without its quotes.
    pub text: String,
}

impl Value {
    /// Returns whether the pair has this key.
    #[must_use]
    pub fn is(&self, key: &str) -> bool {
        self.key.eq_ignore_ascii_case(key)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, text, .. } = self;
        if text.is_empty() || text.contains(char::is_whitespace) {
            write!(f, "{key}=\"{text}\"")
        } else {
            write!(f, "{key}={text}")
        }
    }
}

/// A line that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// At least one pair.
    Values(Vec<Value>),
    /// The name of a file whose lines belong here.
    Include(Place, String),
}

/// Parses the text of a file. Wrong lines are left out and reported.
#[must_use]
pub fn parse(file: &Arc<str>, text: &str) -> (Vec<Line>, Vec<Problem>) {
    let (mut lines, mut problems) = (Vec::new(), Vec::new());
    let mut physical = (1..).zip(text.split('\n'));
    while let Some((number, first)) = physical.next() {
        let place = Place { file: Arc::clone(file), line: number };
        let mut line = String::new();
        let mut part = Some(first);
        while let Some(text) = part {
            let (text, is_continued) = without_continuation(without_comment(text));
            line.push_str(text);
            part = if is_continued { physical.next().map(|(_, text)| text) } else { None };
        }
        match logical(&place, &without_escapes(line.trim())) {
            Ok(line) => lines.extend(line),
            Err(problem) => problems.push(problem),
        }
    }
    (lines, problems)
}

/// The text before a `#` that no backslash escapes. Quotes do not protect a `#`.
fn without_comment(text: &str) -> &str {
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let is_comment = byte == b'#' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_comment
    });
    &text[..end.unwrap_or(text.len())]
}

/// The text before a backslash at the end of a line, and whether there is one. A pair of backslashes stands for one.
fn without_continuation(text: &str) -> (&str, bool) {
    let trimmed = text.trim_end();
    let backslashes = trimmed.len() - trimmed.trim_end_matches('\\').len();
    if backslashes % 2 == 1 { (&trimmed[..trimmed.len() - 1], true) } else { (text, false) }
}

fn without_escapes(text: &str) -> String {
    let mut characters = text.chars();
    iter::from_fn(|| match characters.next() {
        Some('\\') => characters.next(),
        other => other,
    })
    .collect()
}

/// Parses a line without comments; `None` if it is empty.
fn logical(place: &Place, text: &str) -> Result<Option<Line>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.contains(|c: char| c.is_control() && c != '\t') {
        return Err(Problem::new(place, "the line has control characters, so this is not a text file"));
    }
    if let Some(name) = included(text) {
        return Ok(Some(Line::Include(place.clone(), name.to_owned())));
    }
    let mut values = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (value, after) = pair(place, rest)?;
        values.push(value);
        rest = after.trim_start();
    }
    Ok(Some(Line::Values(values)))
}

/// The name in `Include NAME`.
fn included(text: &str) -> Option<&str> {
    let (word, name) = text.split_once(char::is_whitespace)?;
    let name = name.split_whitespace().next().filter(|name| !name.starts_with('='))?;
    word.eq_ignore_ascii_case("include").then_some(name)
}

/// Parses the pair at the start of a text; also returns the text after the pair. Blanks may surround the `=`.
fn pair<'a>(place: &Place, text: &'a str) -> Result<(Value, &'a str), Problem> {
    let beginning = || text.split_whitespace().next().unwrap_or_default().chars().take(40).collect::<String>();
    let (key, after) = text.split_at(text.find(|c| !is_of_key(c)).unwrap_or(text.len()));
    let after = after.trim_start();
    let after = after.strip_prefix(['-', '+', '*', '/']).filter(|rest| rest.starts_with('=')).unwrap_or(after);
    let value = match after.strip_prefix('=') {
        Some(value) if !key.is_empty() => value.trim_start(),
        _ => return Err(Problem::new(place, format!("`{}` is not of the form Key=value", beginning()))),
    };
    if value.is_empty() {
        return Err(Problem::new(place, format!("{key} has no value")));
    }
    let quoted = match value.strip_prefix('"') {
        Some(quoted) => {
            let open = || Problem::new(place, format!("the quote in the value of {key} is not closed"));
            let (quoted, rest) = quoted.split_once('"').ok_or_else(open)?;
            (rest.is_empty() || rest.starts_with(char::is_whitespace)).then_some((quoted, rest))
        }
        None => None,
    };
    let (text, rest) = quoted.unwrap_or_else(|| value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())));
    Ok((Value { place: place.clone(), key: key.to_owned(), text: text.to_owned() }, rest))
}

const fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lines as text, each with its number; problems after them.
    fn parsed(text: &str) -> String {
        let (lines, problems) = parse(&"s".into(), text);
        let line = |line: &Line| match line {
            Line::Include(place, name) => format!("{place} include {name}"),
            Line::Values(values) => {
                let pairs: Vec<String> = values.iter().map(ToString::to_string).collect();
                format!("{} {}", values[0].place, pairs.join(" "))
            }
        };
        let all: Vec<String> = lines.iter().map(line).chain(problems.iter().map(ToString::to_string)).collect();
        all.join("\n")
    }

    #[test]
    fn lines_are_parsed() {
        for (text, expected) in [
            ("ClusterName=lab\r\n\n# none\nKillWait=30", "s:1 ClusterName=lab\ns:4 KillWait=30"),
            ("NodeName=a \\\n  CPUs=2 \\  \nState=UP\nX=1", "s:1 NodeName=a CPUs=2 State=UP\ns:4 X=1"),
            ("NodeName=a\\\nb CPUs=2", "s:1 NodeName=ab CPUs=2"),
            ("A=1 # B=2 \\\nC=3", "s:1 A=1\ns:2 C=3"),
            ("A=x\\#y #z", "s:1 A=x#y"),
            ("A = 1  B= \"two words\"\tC=3", "s:1 A=1 B=\"two words\" C=3"),
            ("A=\"b\"c D=\"\" E=f=g,h=i", "s:1 A=\"b\"c D=\"\" E=f=g,h=i"),
            ("A+=1 B-=2", "s:1 A=1 B=2"),
            ("include /etc/%c.conf\nINCLUDE x y", "s:1 include /etc/%c.conf\ns:2 include x"),
            ("A=1 \\", "s:1 A=1"),
            ("", ""),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn wrong_lines_are_reported() {
        for (text, expected) in [
            ("hello world", "s:1: `hello` is not of the form Key=value"),
            ("\nA=1 b", "s:2: `b` is not of the form Key=value"),
            ("{\"a\": 1}", "s:1: `{\"a\":` is not of the form Key=value"),
            ("A=", "s:1: A has no value"),
            ("A=\"b c", "s:1: the quote in the value of A is not closed"),
            ("=1", "s:1: `=1` is not of the form Key=value"),
            ("A=1\u{1}", "s:1: the line has control characters, so this is not a text file"),
            ("Include", "s:1: `Include` is not of the form Key=value"),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in "(?s).{0,200}") {
            let (lines, problems) = parse(&"s".into(), &text);
            prop_assert!(lines.len() + problems.len() <= text.split('\n').count());
        }

        #[test]
        fn pairs_are_parsed_back(pairs in prop::collection::vec(("[A-Za-z][A-Za-z0-9_.]{0,8}", "[a-z0-9=,:\\[\\] ./*-]{1,12}"), 1..6), width in 1..4_usize) {
            let blanks = " ".repeat(width);
            let line: Vec<String> = pairs.iter().map(|(key, text)| format!("{key}=\"{text}\"")).collect();
            let (lines, problems) = parse(&"s".into(), &line.join(&format!("{blanks}\\\n{blanks}")));
            prop_assert_eq!(problems, vec![]);
            let [Line::Values(values)] = lines.as_slice() else { panic!("one line") };
            let found: Vec<(String, String)> = values.iter().map(|value| (value.key.clone(), value.text.clone())).collect();
            prop_assert_eq!(found, pairs);
        }
    }
}

//! Records as `scontrol show` prints them: lines of `Name=value`.

use std::fmt::Display;

use hostler_model::escaped;

use super::super::machines::NULL;

/// A record.
#[derive(Debug, Default)]
pub(super) struct Record {
    lines: Vec<String>,
}

/// A name with its value.
pub(super) type Token<'a> = (&'a str, &'a dyn Display);

impl Record {
    /// Adds a line. Programs rely on `Name=value` without exception, so an empty value becomes `(null)`. Control
    /// characters are escaped: users choose some values, which must not forge a line or control a terminal.
    pub(super) fn line(&mut self, tokens: &[Token<'_>]) {
        let token = |(name, value): &Token<'_>| {
            let value = value.to_string();
            let value = escaped(&value);
            format!("{name}={}", if value.is_empty() { NULL } else { &value })
        };
        self.lines.push(tokens.iter().map(token).collect::<Vec<_>>().join(" "));
    }

    /// Adds a line that only some records have.
    pub(super) fn maybe(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.line(&[(name, &value)]);
        }
    }

    /// Writes the record: on one line, or on several with an empty one at the end.
    pub(super) fn write(&self, one_line: bool) -> String {
        if one_line { self.lines.join(" ") + "\n" } else { self.lines.join("\n   ") + "\n\n" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_no_empty_values() {
        let mut record = Record::default();
        record.line(&[("JobId", &12), ("JobName", &"first")]);
        record.line(&[("NodeList", &"")]);
        record.maybe("Comment", None);
        record.maybe("Comment", Some("two words"));
        assert_eq!(record.write(false), "JobId=12 JobName=first\n   NodeList=(null)\n   Comment=two words\n\n");
        assert_eq!(record.write(true), "JobId=12 JobName=first NodeList=(null) Comment=two words\n");
    }

    #[test]
    fn values_cannot_forge_lines_or_control_a_terminal() {
        let mut record = Record::default();
        record.line(&[("WorkDir", &"/a\nJobId=1 JobState=COMPLETED"), ("StdOut", &"\u{1b}]52;c;eA==\u{7}")]);
        record.maybe("Comment", Some("abc\u{202e}txt"));
        let expected = r"WorkDir=/a\nJobId=1 JobState=COMPLETED StdOut=\u{1b}]52;c;eA==\u{7} Comment=abc\u{202e}txt";
        assert_eq!(record.write(true), format!("{expected}\n"));
    }
}

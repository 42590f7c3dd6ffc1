//! Messages of PMI as bytes.
//!
//! A connection begins with a line of version 1: `cmd=init pmi_version=2 pmi_subversion=0`. Version 1 goes on with such
//! lines. A message of version 2 has its length in six digits, and fields that end with semicolons; a semicolon in a value is
//! written twice.

use std::fmt::Write;

/// The longest message, in bytes. MPICH has the same limit.
const MAX_BYTES: usize = 64 << 10;

/// The digits of the length before a message of version 2.
const LENGTH_DIGITS: usize = 6;

/// What begins a message of version 1 that has several lines, and what ends it.
const MANY_LINES: (&[u8], &str) = (b"mcmd=", "endcmd");

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Version {
    #[default]
    One,
    Two,
}

/// A message: its command, and its fields in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) command: String,
    fields: Vec<(String, String)>,
}

impl Message {
    pub(super) fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), fields: Vec::new() }
    }

    pub(super) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn to_bytes(&self, version: Version) -> Vec<u8> {
        let fields = std::iter::once(("cmd", self.command.as_str()))
            .chain(self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let mut text = String::new();
        match version {
            Version::One => {
                for (name, value) in fields {
                    let blank = if text.is_empty() { "" } else { " " };
                    let _ = write!(text, "{blank}{name}={value}");
                }
                text.push('\n');
            }
            Version::Two => {
                for (name, value) in fields {
                    let _ = write!(text, "{name}={};", value.replace(';', ";;"));
                }
                text.insert_str(0, &format!("{:6}", text.len()));
            }
        }
        text.into_bytes()
    }

    /// Takes the first message from the received bytes; `None` if it is not complete.
    ///
    /// # Errors
    /// If the bytes are not a message.
    pub(super) fn take(from: &mut Vec<u8>, version: Version) -> Result<Option<Self>, &'static str> {
        let (message, length) = match version {
            Version::One => {
                let Some(length) = length_of_lines(from)? else { return Ok(None) };
                (parse_line(text(&from[..length])?), length)
            }
            Version::Two => {
                let Some(digits) = from.get(..LENGTH_DIGITS) else { return Ok(None) };
                let length: usize = text(digits)?.trim().parse().map_err(|_| "a message has no length")?;
                if length > MAX_BYTES {
                    return Err("a message is too long");
                }
                let Some(body) = from.get(LENGTH_DIGITS..LENGTH_DIGITS + length) else { return Ok(None) };
                (parse_fields(text(body)?), LENGTH_DIGITS + length)
            }
        };
        from.drain(..length);
        message.map(Some).ok_or("a message has no command")
    }
}

fn text(bytes: &[u8]) -> Result<&str, &'static str> {
    std::str::from_utf8(bytes).map_err(|_| "a message is not text")
}

/// The length of the first message of version 1, with its last line break.
fn length_of_lines(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let has_many = bytes.starts_with(MANY_LINES.0);
    let mut length = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        length += line.len();
        if length > MAX_BYTES {
            return Err("a message is too long");
        }
        let Some(line) = line.strip_suffix(b"\n") else { break };
        if !has_many || line == MANY_LINES.1.as_bytes() {
            return Ok(Some(length));
        }
    }
    Ok(None)
}

fn parse_line(text: &str) -> Option<Message> {
    let mut rest = text.trim_end_matches('\n');
    let mut fields = Vec::new();
    while let Some((name, after)) = rest.trim_start().split_once('=') {
        // The value of a key may have blanks, and comes last.
        let end = if name == "value" { after.len() } else { after.find([' ', '\n']).unwrap_or(after.len()) };
        fields.push((name.to_owned(), after[..end].to_owned()));
        rest = &after[end..];
    }
    of(fields)
}

fn parse_fields(text: &str) -> Option<Message> {
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let mut value = String::new();
        let mut letters = after.char_indices().peekable();
        let mut end = after.len();
        while let Some((at, letter)) = letters.next() {
            if letter == ';' && letters.next_if(|(_, next)| *next == ';').is_none() {
                end = at + 1;
                break;
            }
            value.push(letter);
        }
        fields.push((name.to_owned(), value));
        rest = &after[end..];
    }
    of(fields)
}

/// The message whose first field is the command.
fn of(mut fields: Vec<(String, String)>) -> Option<Message> {
    if !matches!(fields.first()?.0.as_str(), "cmd" | "mcmd") {
        return None;
    }
    let (_, command) = fields.remove(0);
    Some(Message { command, fields })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8], version: Version) -> Result<Vec<Message>, &'static str> {
        let mut left = bytes.to_vec();
        let mut messages = Vec::new();
        while let Some(message) = Message::take(&mut left, version)? {
            messages.push(message);
        }
        Ok(messages)
    }

    #[test]
    fn messages_of_both_versions_are_read() {
        let lines = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=a key=k value=x y=z\ncmd=get";
        let init = Message::new("init").with("pmi_version", "1").with("pmi_subversion", "1");
        let put = Message::new("put").with("kvsname", "a").with("key", "k").with("value", "x y=z");
        assert_eq!(all(lines, Version::One), Ok(vec![init, put]));
        let spawn = all(b"mcmd=spawn\nnprocs=2\nendcmd\n", Version::One).expect("a message");
        assert_eq!((spawn[0].command.as_str(), spawn[0].get("nprocs")), ("spawn", Some("2")));
        let fields = b"    28cmd=kvs-put;key=k;value=a;;;    10cmd=x;y=;";
        let put = Message::new("kvs-put").with("key", "k").with("value", "a;");
        assert_eq!(all(&fields[..34], Version::Two), Ok(vec![put.clone()]));
        assert_eq!(put.to_bytes(Version::Two), fields[..34]);
        assert_eq!(all(&fields[34..], Version::Two), Ok(Vec::new()), "the last message is not complete");
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b"hello\n"[..], b"key=a cmd=b\n", b"\n", b"\xff=\n", &vec![b'a'; MAX_BYTES + 1]] {
            assert!(all(bytes, Version::One).is_err(), "{:?}", &bytes[..bytes.len().min(9)]);
        }
        for bytes in [&b"abcdef"[..], b" 99999", b"     4a=b;", b"     4\xff\xff\xff\xff"] {
            assert!(all(bytes, Version::Two).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn messages_survive_encoding(
            command in "[a-z_-]{1,9}",
            fields in prop::collection::vec(("[a-z]{1,5}", "[ -~]{0,9}"), 0..4),
        ) {
            let mut message = Message::new(command);
            for (name, value) in fields {
                message = message.with(&name, value);
            }
            prop_assert_eq!(all(&message.to_bytes(Version::Two), Version::Two), Ok(vec![message]));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (all(&bytes, Version::One), all(&bytes, Version::Two));
        }
    }
}

//! Formats of lines, as `squeue -o`, `squeue -O` and the same options of `sinfo` take them.

use std::fmt::Write;

/// Width of a field of a long format without a size.
const USUAL_WIDTH: usize = 20;

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A text, written as it is.
    Text(String),
    /// A value.
    Field(Field),
}

/// A value in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The letter of a short format, or the name in a long one, in lower case.
    pub name: String,
    /// The exact width; the value's own if absent.
    pub width: Option<usize>,
    /// Whether the value stands at the right.
    pub is_right: bool,
}

/// Parses a short format such as `%.18i|%T`. Text between fields stays byte for byte as it is.
#[must_use]
pub fn parse_short(format: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        push_text(&mut pieces, before);
        let (is_right, sized) = match after.strip_prefix('.') {
            Some(sized) => (true, sized),
            None => (false, after),
        };
        let digits = sized.bytes().take_while(u8::is_ascii_digit).count();
        let Some(letter) = sized[digits..].chars().next() else {
            push_text(&mut pieces, &rest[before.len()..]);
            return pieces;
        };
        let width = sized[..digits].parse().ok().filter(|width| *width > 0);
        pieces.push(Piece::Field(Field { name: letter.to_string(), width, is_right }));
        rest = &sized[digits + letter.len_utf8()..];
    }
    push_text(&mut pieces, rest);
    pieces
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

/// Parses a long format such as `JobID:.10,State,Name:|`: names with an optional size and suffix.
#[must_use]
pub fn parse_long(list: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for part in list.split(',').map(str::trim_start).filter(|part| !part.is_empty()) {
        let (name, size) = part.split_once(':').map_or((part, None), |(name, size)| (name, Some(size)));
        let name = name.trim().to_ascii_lowercase();
        let Some(size) = size else {
            pieces.push(Piece::Field(Field { name, width: Some(USUAL_WIDTH), is_right: false }));
            continue;
        };
        let (is_right, sized) = size.strip_prefix('.').map_or((false, size), |sized| (true, sized));
        // A negative size stands for no width, and a blank after the text.
        let negative = sized.strip_prefix('-').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let sized = negative.unwrap_or(sized);
        let digits = sized.bytes().take_while(u8::is_ascii_digit).count();
        let width = sized[..digits].parse().ok().filter(|width| *width > 0 && negative.is_none());
        pieces.push(Piece::Field(Field { name, width, is_right }));
        if negative.is_some() {
            push_text(&mut pieces, " ");
        }
        push_text(&mut pieces, &sized[digits..]);
    }
    pieces
}

/// Writes a line with a line end. `value` returns the text of a field; `None` if it does not know the field, which then shows
/// its letter.
pub fn line(pieces: &[Piece], mut value: impl FnMut(&Field) -> Option<String>) -> String {
    let mut line = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => line.push_str(text),
            Piece::Field(field) => {
                let text = value(field).unwrap_or_else(|| field.name.clone());
                line.push_str(&fit(&text, field.width, field.is_right));
            }
        }
    }
    line.push('\n');
    line
}

/// Cuts or fills a text to a width, if there is one.
#[must_use]
pub fn fit(text: &str, width: Option<usize>, is_right: bool) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut fitted = String::with_capacity(width);
    let cut: String = text.chars().take(width).collect();
    let written = if is_right { write!(fitted, "{cut:>width$}") } else { write!(fitted, "{cut:<width$}") };
    written.expect("text grows");
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[Piece]) -> String {
        line(pieces, |field| Some(format!("<{}>", field.name)))
    }

    #[test]
    fn short_formats_keep_other_text() {
        for (format, expected) in [
            ("%i|%T", "<i>|<T>\n"),
            ("%.6i %.2t", "   <i> <t\n"),
            ("%2t%6j", "<t<j>   \n"),
            (" %A|%a", " <A>|<a>\n"),
            ("\"%i\",\\x1f%j", "\"<i>\",\\x1f<j>\n"),
            ("%i%", "<i>%\n"),
            ("plain", "plain\n"),
            ("", "\n"),
            ("ä%iß", "ä<i>ß\n"),
        ] {
            assert_eq!(written(&parse_short(format)), expected, "{format}");
        }
    }

    #[test]
    fn long_formats_have_sizes_and_suffixes() {
        for (list, expected) in [
            ("JobID", "<jobid>             \n"),
            ("JobID:.9,State:3", "  <jobid><st\n"),
            ("name:|,user:\u{1f}", "<name>|<user>\u{1f}\n"),
            ("jobid:7;,state:", "<jobid>;<state>\n"),
            ("jobid:-12,state:.-3;", "<jobid> <state> ;\n"),
        ] {
            assert_eq!(written(&parse_long(list)), expected, "{list}");
        }
        assert_eq!(parse_long("a,,b,").len(), 2);
    }

    #[test]
    fn unknown_fields_show_their_letter() {
        assert_eq!(line(&parse_short("%i %?"), |field| (field.name == "i").then(|| "7".to_owned())), "7 ?\n");
    }
}

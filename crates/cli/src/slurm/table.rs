//! Lines of tables. Users choose names, paths and comments, so values are escaped: no value forges a line or controls a
//! terminal.
//!
//! `scontrol show` prints records instead, which escape their values too.

use std::borrow::Cow;

use hostler_model::escaped;
use hostler_slurm::layout::{self, Field, Piece};
use hostler_slurm::table::{self, Column, Style};

/// Escapes the text from `start` on: the value that was appended last.
pub(super) fn escape_from(out: &mut String, start: usize) {
    // `squeue` prints ten thousand rows, and most values are plain ASCII.
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte);
    if out.as_bytes()[start..].iter().all(is_plain) {
        return;
    }
    if let Cow::Owned(clean) = escaped(&out[start..]) {
        out.truncate(start);
        out.push_str(&clean);
    }
}

/// Appends a row of a table whose columns have names.
pub(super) fn write_row<Value>(
    columns: &[Column<Value>],
    style: &Style,
    out: &mut String,
    mut append: impl FnMut(&Column<Value>, &mut String),
) {
    table::write_row(columns, style, out, |column, out| {
        let start = out.len();
        append(column, out);
        escape_from(out, start);
    });
}

/// Writes a line in a format such as `%.18i|%T`. Text between the values stays as it is, since the calling user chose it.
pub(super) fn layout_line(pieces: &[Piece], mut value: impl FnMut(&Field) -> Option<String>) -> String {
    layout::line(pieces, |field| value(field).map(|text| escaped(&text).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[2J\nb\u{202e}";
    const ESCAPED: &str = r"a\u{1b}[2J\nb\u{202e}";

    #[test]
    fn only_the_last_value_is_escaped() {
        for (text, expected) in [
            ("plain text", "plain text"),
            ("größe", "größe"),
            (HOSTILE, ESCAPED),
            ("\u{9b}31m\t", r"\u{9b}31m\t"),
            ("", ""),
        ] {
            let mut out = "before\n".to_owned();
            escape_from(&mut out, 7);
            out.push_str(text);
            escape_from(&mut out, 7);
            assert_eq!(out, format!("before\n{expected}"));
        }
    }

    #[test]
    fn values_stay_on_their_line() {
        let columns = [Column::new("Account", 4), Column::new("User", 6)];
        let row = |style: &Style| {
            let mut out = String::new();
            let value = |column: &Column, out: &mut String| {
                out.push_str(if column.name == "User" { "ada" } else { HOSTILE });
            };
            write_row(&columns, style, &mut out, value);
            out
        };
        assert_eq!(row(&Style::bars(false)), format!("{ESCAPED}|ada\n"));
        assert_eq!(row(&Style::Padded), "a\\u+    ada \n");
        let pieces = layout::parse_short("%j\t%u");
        let value = |field: &Field| Some(if field.name == "j" { HOSTILE } else { "ada" }.to_owned());
        assert_eq!(layout_line(&pieces, value), format!("{ESCAPED}\tada\n"));
    }
}

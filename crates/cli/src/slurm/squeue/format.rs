//! Formats of `squeue -o` and `squeue -O`, and lines in these formats.

use hostler_slurm::layout::{Field, Piece, parse_long, parse_short};

use super::super::rows::Row;
use super::super::table::escape_from;
use super::columns::{COLUMNS, Column, Printer, STEP_COLUMNS, Value};

/// A part of a line.
pub(super) enum Part {
    Text(String),
    Cell { column: &'static Column, width: usize, is_right: bool },
}

/// A format, with the names in it that no column has.
#[derive(Default)]
pub(super) struct Format {
    pub(super) parts: Vec<Part>,
    pub(super) unknown: Vec<String>,
}

impl Format {
    /// Parses a format such as `%.18i %T`.
    pub(super) fn short(format: &str, is_of_steps: bool) -> Self {
        let columns = if is_of_steps { STEP_COLUMNS } else { COLUMNS };
        let format = if format.eq_ignore_ascii_case("%all") { all_letters(columns) } else { only_single_signs(format) };
        let find = |field: &Field| columns.iter().find(|column| [column.letter] == field.name.as_bytes());
        let mut parsed = Self::default();
        for piece in parse_short(&format) {
            // The text of an unknown field appears as the user wrote it.
            let as_text = |field: &Field| {
                let dot = if field.is_right { "." } else { "" };
                let width = field.width.map(|width| width.to_string()).unwrap_or_default();
                Part::Text(format!("%{dot}{width}{}", field.name))
            };
            parsed.push(piece, find, |field| Some(as_text(field)));
        }
        parsed
    }

    /// Parses a format such as `JobID:.10,State`.
    pub(super) fn long(list: &str, is_of_steps: bool) -> Self {
        let columns = if is_of_steps { STEP_COLUMNS } else { COLUMNS };
        let find = |field: &Field| columns.iter().find(|column| column.names.contains(&field.name.as_str()));
        let mut parsed = Self::default();
        for piece in parse_long(list) {
            parsed.push(piece, find, |_| None);
        }
        parsed
    }

    fn push(
        &mut self,
        piece: Piece,
        find: impl Fn(&Field) -> Option<&'static Column>,
        unknown: impl Fn(&Field) -> Option<Part>,
    ) {
        let field = match piece {
            Piece::Text(text) => return self.parts.push(Part::Text(text)),
            Piece::Field(field) => field,
        };
        match find(&field) {
            Some(column) => {
                let width = field.width.unwrap_or(0);
                self.parts.push(Part::Cell { column, width, is_right: field.is_right });
            }
            None => {
                self.parts.extend(unknown(&field));
                self.unknown.push(field.name);
            }
        }
    }

    /// Appends the header to a text.
    pub(super) fn write_header(&self, out: &mut String) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Cell { column, width, is_right } => {
                    let start = out.len();
                    out.push_str(column.header);
                    fit(out, start, *width, *is_right, column.overflows);
                }
            }
        }
        out.push('\n');
    }

    /// Appends the line of a row to a text.
    pub(super) fn write_row(&self, printer: &mut Printer, row: &Row<'_>, out: &mut String) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Cell { column, width, is_right } => {
                    let start = out.len();
                    match column.value {
                        Value::Fixed(text) => out.push_str(text),
                        Value::Of(append) => {
                            append(printer, row, out);
                            escape_from(out, start);
                        }
                    }
                    fit(out, start, *width, *is_right, column.overflows);
                }
            }
        }
        out.push('\n');
    }
}

/// Two percent signs stand for one, and one at the end for nothing.
fn only_single_signs(format: &str) -> String {
    let mut single = String::with_capacity(format.len());
    for c in format.chars() {
        if c != '%' || !single.ends_with('%') {
            single.push(c);
        }
    }
    single.truncate(single.trim_end_matches('%').len());
    single
}

/// The format `%all`: all letters, lower case first.
fn all_letters(columns: &[Column]) -> String {
    let letters = (b'a'..=b'z').chain(b'A'..=b'Z').filter(|it| columns.iter().any(|column| column.letter == *it));
    letters.map(|letter| format!("%{}", char::from(letter))).collect::<Vec<_>>().join("|")
}

/// Cuts or fills the text from `start` on to a width; a width of zero is the text's own. Text at the right of its column
/// may be longer than the column if `overflows`.
fn fit(out: &mut String, start: usize, width: usize, is_right: bool, overflows: fn(&str) -> bool) {
    if width == 0 {
        return;
    }
    let text = &out[start..];
    let len = if text.is_ascii() { text.len() } else { text.chars().count() };
    if len > width {
        if !(is_right && overflows(text)) {
            let cut = text.char_indices().nth(width).map_or(text.len(), |(at, _)| at);
            out.truncate(start + cut);
        }
        return;
    }
    let blanks = std::iter::repeat_n(' ', width - len);
    if is_right {
        // Only the text of this column moves, since it is the last one.
        out.extend(blanks.clone());
        let end = out.len();
        let moved = out[start..end - (width - len)].to_owned();
        out.truncate(start);
        out.extend(blanks);
        out.push_str(&moved);
    } else {
        out.extend(blanks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(format: &Format) -> String {
        let mut out = String::new();
        format.write_header(&mut out);
        out
    }

    // The texts are those of squeue 22.05.
    #[test]
    fn short_formats_are_slurms() {
        for (format, expected) in [
            ("%.18i %.9P %.8j", "             JOBID PARTITION     NAME\n"),
            ("%.9l|%9l|%.3N|%3N|%.3R|%.3S", "TIME_LIMI|TIME_LIMI|NODELIST|NOD|NODELIST(REASON)|STA\n"),
            ("%2t%6j", "STNAME  \n"),
            ("%i|%.5?|%T", "JOBID|%.5?|STATE\n"),
            ("%i%%x", "JOBIDEXC_NODES\n"),
            ("%i%", "JOBID\n"),
            ("%", "\n"),
            ("\\x1f\"%i\",", "\\x1f\"JOBID\",\n"),
            ("plain", "plain\n"),
            ("%s|%K", "|ARRAY_TASK_ID\n"),
        ] {
            assert_eq!(header(&Format::short(format, false)), expected, "{format}");
        }
        assert_eq!(Format::short("%i|%.5?|%T", false).unknown, ["?"]);
        assert_eq!(header(&Format::short("%i|%N|%x", true)), "STEPID|NODELIST|%x\n");
    }

    #[test]
    fn all_letters_have_slurms_order() {
        let expected = "ACCOUNT|TRES_PER_NODE|MIN_CPUS|MIN_TMP_DISK|END_TIME|FEATURES|GROUP|OVER_SUBSCRIBE|JOBID|NAME|\
            COMMENT|TIME_LIMIT|MIN_MEMORY|REQ_NODES|COMMAND|PRIORITY|QOS|REASON||ST|USER|RESERVATION|WCKEY|EXC_NODES|NICE|\
            S:C:T|JOBID|EXEC_HOST|CPUS|NODES|DEPENDENCY|ARRAY_JOB_ID|GROUP|SOCKETS_PER_NODE|CORES_PER_SOCKET|\
            THREADS_PER_CORE|ARRAY_TASK_ID|TIME_LEFT|TIME|NODELIST|CONTIGUOUS|PARTITION|PRIORITY|NODELIST(REASON)|\
            START_TIME|STATE|UID|SUBMIT_TIME|LICENSES|CORE_SPEC|SCHEDNODES|WORK_DIR\n";
        assert_eq!(header(&Format::short("%all", false)), expected);
    }

    #[test]
    fn long_formats_are_slurms() {
        for (format, expected) in [
            ("JobArrayID,StateCompact,Reason", "JOBID               ST                  REASON              \n"),
            ("jobid:5,state:|,foo:;,name:.6", "JOBIDSTATE|;  NAME\n"),
            ("tres-alloc:.4,", "TRES\n"),
            ("", "\n"),
        ] {
            assert_eq!(header(&Format::long(format, false)), expected, "{format}");
        }
        assert_eq!(Format::long("jobid,foo", false).unknown, ["foo"]);
        assert_eq!(header(&Format::long("stepid:8,resvports:", true)), "STEPID  RESERVED_PORTS\n");
    }

    #[test]
    fn text_is_cut_or_filled() {
        let fitted = |text: &str, width, is_right, overflows: fn(&str) -> bool| {
            let mut out = format!("before:{text}");
            fit(&mut out, 7, width, is_right, overflows);
            out.split_off(7)
        };
        assert_eq!(fitted("abc", 5, true, |_| false), "  abc");
        assert_eq!(fitted("abc", 5, false, |_| false), "abc  ");
        assert_eq!(fitted("abcdef", 3, true, |_| false), "abc");
        assert_eq!(fitted("abcdef", 3, true, |_| true), "abcdef");
        assert_eq!(fitted("abcdef", 3, false, |_| true), "abc");
        assert_eq!(fitted("äöü", 2, false, |_| false), "äö");
        assert_eq!(fitted("ä", 3, true, |_| false), "  ä");
        assert_eq!(fitted("abc", 0, true, |_| false), "abc");
    }
}

//! Tables with a line of dashes below the header, as `sacct`, `sacctmgr` and `sstat` write them.

use std::borrow::Cow;

/// A column of a table. `Value` says where its values come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column<Value = ()> {
    /// The header.
    pub name: Cow<'static, str>,
    /// The width in characters; negative if values stand at the left.
    pub width: i32,
    /// How a value is fitted to the width.
    pub fit: Fit,
    /// Where the values come from.
    pub value: Value,
}

/// How a value is fitted to its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// A text that is too long ends with `+`.
    Text,
    /// A number or an elapsed time may be longer than the column.
    Number,
    /// A time is cut.
    Time,
}

/// How a table is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Style {
    /// Columns of fixed width.
    #[default]
    Padded,
    /// With a text between values.
    Delimited {
        /// The text.
        delimiter: String,
        /// Whether the text also ends each line.
        is_closed: bool,
    },
}

impl Style {
    /// Values with `|` between them.
    #[must_use]
    pub fn bars(is_closed: bool) -> Self {
        Self::Delimited { delimiter: "|".to_owned(), is_closed }
    }
}

impl Column {
    /// A column of texts, whose width is negative if values stand at the left, as in Slurm's lists of fields.
    #[must_use]
    pub const fn new(name: &'static str, width: i32) -> Self {
        Self { name: Cow::Borrowed(name), width, fit: Fit::Text, value: () }
    }
}

/// Finds the columns that a list such as `account%256,user%-10` names. The first column counts whose name begins with the text,
/// in upper or lower case.
///
/// # Errors
/// Returns the first name that no column has.
pub fn choose<Value: Clone>(list: &str, all: &[Column<Value>]) -> Result<Vec<Column<Value>>, String> {
    let mut chosen = Vec::new();
    for item in list.split(',').map(str::trim_start).filter(|item| !item.is_empty()) {
        let (name, width) = item.split_once('%').map_or((item, 0), |(name, width)| (name, parse_width(width)));
        let begins = |full: &str| full.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        let found = all.iter().find(|column| begins(&column.name)).ok_or_else(|| name.to_owned())?;
        chosen.push(Column { width: if width == 0 { found.width } else { width }, ..found.clone() });
    }
    Ok(chosen)
}

/// Parses the number at the start of a text; 0 if there is none.
fn parse_width(text: &str) -> i32 {
    let sign = usize::from(text.starts_with('-'));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    text[..sign + digits].parse().unwrap_or(0)
}

/// Writes all names, four on a line.
#[must_use]
pub fn names<Value>(columns: &[Column<Value>]) -> String {
    let line = |some: &[Column<Value>]| {
        let names: Vec<String> = some.iter().map(|column| format!("{:<19}", column.name)).collect();
        names.join(" ") + "\n"
    };
    columns.chunks(4).map(line).collect()
}

/// Appends the header to a text.
pub fn write_header<Value>(columns: &[Column<Value>], style: &Style, out: &mut String) {
    write_cells(columns, style, out, |column, out| {
        out.push_str(&column.name);
        // Names are cut without a mark.
        Fit::Time
    });
    if *style == Style::Padded {
        for column in columns {
            out.extend(std::iter::repeat_n('-', column.width.unsigned_abs() as usize));
            out.push(' ');
        }
        out.push('\n');
    }
}

/// Appends a row to a text. `append` appends the value of a column.
pub fn write_row<Value>(
    columns: &[Column<Value>],
    style: &Style,
    out: &mut String,
    mut append: impl FnMut(&Column<Value>, &mut String),
) {
    write_cells(columns, style, out, |column, out| {
        append(column, out);
        column.fit
    });
}

fn write_cells<Value>(
    columns: &[Column<Value>],
    style: &Style,
    out: &mut String,
    mut append: impl FnMut(&Column<Value>, &mut String) -> Fit,
) {
    for (position, column) in columns.iter().enumerate() {
        let start = out.len();
        let kind = append(column, out);
        match style {
            Style::Padded => {
                fit(out, start, column.width, kind);
                out.push(' ');
            }
            Style::Delimited { delimiter, is_closed } => {
                if *is_closed || position + 1 < columns.len() {
                    out.push_str(delimiter);
                }
            }
        }
    }
    out.push('\n');
}

/// Cuts or fills the text from `start` on to a width.
fn fit(out: &mut String, start: usize, width: i32, fit: Fit) {
    let (is_left, width) = (width < 0, width.unsigned_abs() as usize);
    let len = out[start..].chars().count();
    if len > width && fit != Fit::Number {
        let kept = if fit == Fit::Text { width.saturating_sub(1) } else { width };
        let cut = out[start..].char_indices().nth(kept).map_or(out.len(), |(at, _)| start + at);
        out.truncate(cut);
        if fit == Fit::Text {
            out.push('+');
        }
        return;
    }
    let blanks = " ".repeat(width.saturating_sub(len));
    if is_left { out.push_str(&blanks) } else { out.insert_str(start, &blanks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Column] = &[Column::new("Account", -8), Column::new("User", 6), Column::new("RawShares", 9)];

    fn header(columns: &[Column], style: &Style) -> String {
        let mut out = String::new();
        write_header(columns, style, &mut out);
        out
    }

    #[test]
    fn tables_are_written() {
        let columns = choose("acc,USER", ALL).expect("columns");
        assert_eq!(header(&columns, &Style::Padded), "Account    User \n-------- ------ \n");
        let row = |style: &Style| {
            let mut out = String::new();
            let value = |column: &Column, out: &mut String| {
                out.push_str(if column.name == "User" { "alexandra" } else { "default" });
            };
            write_row(&columns, style, &mut out, value);
            out
        };
        assert_eq!(row(&Style::Padded), "default  alexa+ \n");
        assert_eq!(row(&Style::bars(true)), "default|alexandra|\n");
        assert_eq!(row(&Style::bars(false)), "default|alexandra\n");
        assert_eq!(header(&columns, &Style::bars(false)), "Account|User\n");
        assert_eq!(names(ALL), "Account             User                RawShares          \n");
    }

    #[test]
    fn columns_have_widths() {
        let columns = choose("account%3,user%-9,,raw%0,raw%x", ALL).expect("columns");
        assert_eq!(columns.iter().map(|column| column.width).collect::<Vec<_>>(), [3, -9, 9, 9]);
        assert_eq!(header(&columns[..2], &Style::Padded), "Acc User      \n--- --------- \n");
        assert_eq!(choose("user,bogus%3", ALL), Err("bogus".to_owned()));
    }

    #[test]
    fn long_values_are_cut_with_a_mark() {
        let fitted = |text: &str, width, kind| {
            let mut out = format!("before {text}");
            fit(&mut out, 7, width, kind);
            out.split_off(7)
        };
        assert_eq!(fitted("CANCELLED by 0", 10, Fit::Text), "CANCELLED+");
        assert_eq!(fitted("CANCELLED by 0", 20, Fit::Text), "      CANCELLED by 0");
        assert_eq!(fitted("name", -6, Fit::Text), "name  ");
        assert_eq!(fitted("123456", 3, Fit::Number), "123456");
        assert_eq!(fitted("2026-01-02T03:04:05", 10, Fit::Time), "2026-01-02");
        assert_eq!(fitted("äöü", 2, Fit::Text), "ä+");
    }
}

//! Tables with a line of dashes below the header, as `sacctmgr` and `sstat` write them.

use std::borrow::Cow;

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The header.
    pub name: Cow<'static, str>,
    /// The width in characters.
    pub width: usize,
    /// Whether values stand at the left.
    pub is_left: bool,
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Columns of fixed width.
    #[default]
    Padded,
    /// Values with `|` between them, and one more at the end of each line.
    Parsable,
    /// Values with `|` between them.
    Parsable2,
}

impl Column {
    /// A column whose width is negative if values stand at the left, as in Slurm's lists of fields.
    #[must_use]
    pub const fn new(name: &'static str, width: i32) -> Self {
        Self { name: Cow::Borrowed(name), width: width.unsigned_abs() as usize, is_left: width < 0 }
    }

    fn cell(&self, text: &str) -> String {
        let Self { width, is_left, .. } = *self;
        let mut text = text.to_owned();
        if text.chars().count() > width {
            text = text.chars().take(width.saturating_sub(1)).chain(['+']).collect();
        }
        if is_left { format!("{text:<width$} ") } else { format!("{text:>width$} ") }
    }
}

/// Finds the columns that a list such as `account%256,user%-10` names. Names may be abbreviated, in upper or lower case.
///
/// # Errors
/// Returns the first name that no column has.
pub fn choose(list: &str, all: &[Column]) -> Result<Vec<Column>, String> {
    let mut chosen = Vec::new();
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, width) = item.split_once('%').map_or((item, None), |(name, width)| (name, Some(width)));
        let begins =
            |column: &&Column| column.name.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        let exact = all.iter().find(|column| column.name.eq_ignore_ascii_case(name));
        let found = exact.or_else(|| all.iter().find(begins)).ok_or_else(|| name.to_owned())?;
        let width = width.and_then(|width| width.parse::<i32>().ok()).filter(|width| *width != 0);
        chosen.push(
            width.map_or_else(|| found.clone(), |width| Column { name: found.name.clone(), ..Column::new("", width) }),
        );
    }
    Ok(chosen)
}

/// Writes the header.
#[must_use]
pub fn header(columns: &[Column], style: Style) -> String {
    let names: Vec<String> = columns.iter().map(|column| column.name.clone().into_owned()).collect();
    if style != Style::Padded {
        return line(columns, &names, style);
    }
    let dashes: String = columns.iter().map(|column| format!("{} ", "-".repeat(column.width))).collect();
    let cut: String = columns
        .iter()
        .map(|column| {
            let name: String = column.name.chars().take(column.width).collect();
            column.cell(&name)
        })
        .collect();
    format!("{cut}\n{dashes}\n")
}

/// Writes a row.
#[must_use]
pub fn line(columns: &[Column], values: &[String], style: Style) -> String {
    match style {
        Style::Padded => {
            columns.iter().zip(values).map(|(column, value)| column.cell(value)).collect::<String>() + "\n"
        }
        Style::Parsable => values.iter().map(|value| format!("{value}|")).collect::<String>() + "\n",
        Style::Parsable2 => values.join("|") + "\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Column] = &[Column::new("Account", -8), Column::new("User", 6), Column::new("RawShares", 9)];

    #[test]
    fn tables_are_written() {
        let columns = choose("acc,USER", ALL).expect("columns");
        assert_eq!(header(&columns, Style::Padded), "Account    User \n-------- ------ \n");
        let values = ["default".to_owned(), "alexandra".to_owned()];
        assert_eq!(line(&columns, &values, Style::Padded), "default  alexa+ \n");
        assert_eq!(line(&columns, &values, Style::Parsable), "default|alexandra|\n");
        assert_eq!(line(&columns, &values, Style::Parsable2), "default|alexandra\n");
        assert_eq!(header(&columns, Style::Parsable2), "Account|User\n");
    }

    #[test]
    fn columns_have_widths() {
        let columns = choose("account%3,user%-9,", ALL).expect("columns");
        assert_eq!(columns, [Column::new("Account", 3), Column::new("User", -9)]);
        assert_eq!(header(&columns, Style::Padded), "Acc User      \n--- --------- \n");
        assert_eq!(choose("user,bogus%3", ALL), Err("bogus".to_owned()));
    }
}

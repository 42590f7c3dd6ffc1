//! Plain-text tables: columns as wide as their widest cell, two spaces apart. Readable by people and by `awk`.

use hostler_model::escaped;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows with headings.
#[derive(Debug)]
pub struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

/// Number of spaces between columns.
const GAP: usize = 2;

impl Table {
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            aligns: columns.iter().map(|column| column.1).collect(),
            rows: vec![columns.iter().map(|column| column.0.to_owned()).collect()],
        }
    }

    /// Adds a row. Control characters are escaped, so cells stay on one line.
    ///
    /// # Panics
    /// If the number of cells differs from the number of headings.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(|cell| one_line(&cell)).collect();
        assert_eq!(cells.len(), self.aligns.len(), "a row needs one cell per heading");
        self.rows.push(cells);
    }

    /// Removes columns by their index.
    pub(crate) fn without(mut self, columns: &[usize]) -> Self {
        let is_left = |column: &usize| !columns.contains(column);
        let keep = |row: Vec<String>| {
            row.into_iter().enumerate().filter(|(column, _)| is_left(column)).map(|it| it.1).collect()
        };
        self.rows = self.rows.into_iter().map(keep).collect();
        self.aligns = (0..self.aligns.len()).filter(is_left).map(|column| self.aligns[column]).collect();
        self
    }

    /// The text. If `width` is given, longer rows are cut at the end.
    pub fn render(&self, width: Option<usize>) -> String {
        let widths: Vec<usize> = (0..self.aligns.len())
            .map(|column| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let start = text.len();
            for (column, cell) in row.iter().enumerate() {
                let padding = widths[column] - cell.chars().count();
                let (before, after) = match self.aligns[column] {
                    Align::Left => (0, padding),
                    Align::Right => (padding, 0),
                };
                text.extend(std::iter::repeat_n(' ', before));
                text.push_str(cell);
                text.extend(std::iter::repeat_n(' ', after + GAP));
            }
            text.truncate(start + text[start..].trim_end().len());
            if let Some(width) = width {
                cut(&mut text, start, width);
            }
            text.push('\n');
        }
        text
    }
}

/// Cuts the text after `start` to `width` characters, with `…` at the end if it was cut.
fn cut(text: &mut String, start: usize, width: usize) {
    let line = &text[start..];
    if line.chars().count() > width && width > 1 {
        let end = line.char_indices().nth(width - 1).map_or(line.len(), |(at, _)| at);
        text.truncate(start + end);
        text.push('…');
    }
}

/// Escapes control characters, so that the text stays on one line.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[("ID", Align::Right), ("NAME", Align::Left), ("REASON", Align::Left)]);
        table.row(["7".to_owned(), "größe".to_owned(), String::new()]);
        table.row(["12345".to_owned(), "two\nlines".to_owned(), "waits for job 7".to_owned()]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        let expected = "   ID  NAME        REASON\n    7  größe\n12345  two\\nlines  waits for job 7\n";
        assert_eq!(table().render(None), expected);
    }

    #[test]
    fn rows_are_cut_to_the_terminal_width() {
        let expected = "   ID  NAME        RE…\n    7  größe\n12345  two\\nlines  wa…\n";
        assert_eq!(table().render(Some(22)), expected);
    }
}

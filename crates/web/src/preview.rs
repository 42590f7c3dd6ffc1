//! Which files of results a page shows, and how. Content decides, not the name: an image needs the first bytes of its format.
//! HTML and SVG are only shown as source.

/// Bytes of a text that a page shows.
pub(crate) const TEXT_BYTES: u64 = 256 << 10;

/// Largest image that a page shows.
pub(crate) const IMAGE_BYTES: u64 = 16 << 20;

/// Rows and columns of a table that a page shows.
const MOST_ROWS: usize = 200;
const MOST_COLUMNS: usize = 50;

/// Characters of a cell that a page shows.
const MOST_CHARACTERS: usize = 500;

/// How a page shows a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Preview {
    /// As an image of this type.
    Image(&'static str),
    /// As a table: the first rows.
    Table(Vec<Vec<String>>),
    /// As text.
    Text(String),
    /// Not at all.
    Binary,
}

impl Preview {
    /// Chooses how to show a file. `start` is its first bytes, at most [`TEXT_BYTES`].
    pub(crate) fn of(name: &str, start: &[u8], size: u64) -> Self {
        if let Some(kind) = image_type(start).filter(|_| size <= IMAGE_BYTES) {
            return Self::Image(kind);
        }
        let Some(text) = text(start, size) else { return Self::Binary };
        let name = name.to_ascii_lowercase();
        let separator = match name.rsplit('.').next() {
            Some("csv") => ',',
            Some("tsv") => '\t',
            _ => return Self::Text(text),
        };
        Self::Table(table(&text, separator, (start.len() as u64) < size))
    }
}

/// The type of an image, by its first bytes.
pub(crate) fn image_type(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The start of a file as text; `None` if it is not text. The last character may be cut off.
fn text(start: &[u8], size: u64) -> Option<String> {
    let whole = match str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && (start.len() as u64) < size => {
            str::from_utf8(&start[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let is_binary = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\x0c' | '\x1b' | '\x08');
    (!whole.contains(is_binary)).then(|| whole.to_owned())
}

/// The first rows of separated values, with quoted fields as RFC 4180 defines them. Drops the last row if the text is cut.
fn table(text: &str, separator: char, is_cut: bool) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut is_quoted, mut length) = (false, 0);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                push(&mut cell, &mut length, '"');
            }
            '"' if is_quoted => is_quoted = false,
            '"' if length == 0 => is_quoted = true,
            c if c == separator && !is_quoted => end_cell(&mut row, &mut cell, &mut length),
            '\r' if !is_quoted => {}
            '\n' if !is_quoted => {
                end_cell(&mut row, &mut cell, &mut length);
                rows.push(std::mem::take(&mut row));
                if rows.len() == MOST_ROWS {
                    return rows;
                }
            }
            c => push(&mut cell, &mut length, c),
        }
    }
    if !is_cut && (length > 0 || !row.is_empty()) {
        end_cell(&mut row, &mut cell, &mut length);
        rows.push(row);
    }
    rows
}

/// Adds a character to a cell, up to [`MOST_CHARACTERS`].
fn push(cell: &mut String, length: &mut usize, c: char) {
    *length += 1;
    match (*length).cmp(&(MOST_CHARACTERS + 1)) {
        std::cmp::Ordering::Less => cell.push(c),
        std::cmp::Ordering::Equal => cell.push('…'),
        std::cmp::Ordering::Greater => {}
    }
}

/// Ends a cell, and adds it to its row up to [`MOST_COLUMNS`].
fn end_cell(row: &mut Vec<String>, cell: &mut String, length: &mut usize) {
    let cell = std::mem::take(cell);
    *length = 0;
    if row.len() < MOST_COLUMNS {
        row.push(cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, content: &[u8]) -> Preview {
        Preview::of(name, content, content.len() as u64)
    }

    #[test]
    fn content_decides_what_an_image_is() {
        assert_eq!(of("plot.png", b"\x89PNG\r\n\x1a\n...."), Preview::Image("image/png"));
        assert_eq!(of("evil.html", b"GIF89a<script>"), Preview::Image("image/gif"));
        assert_eq!(of("photo", b"\xff\xd8\xff\xe0"), Preview::Image("image/jpeg"));
        assert_eq!(of("a", b"RIFF\0\0\0\0WEBPVP8 "), Preview::Image("image/webp"));
        for text in ["<html><script>alert(1)</script>", "<svg onload=alert(1)>", "<?xml version=\"1.0\"?><svg/>"] {
            assert_eq!(of("plot.png", text.as_bytes()), Preview::Text(text.to_owned()));
        }
        assert_eq!(of("a.txt", b"\0\x01"), Preview::Binary);
        assert_eq!(of("a.txt", b"\xff\xfe"), Preview::Binary);
        assert_eq!(Preview::of("a.png", b"\x89PNG\r\n\x1a\n", IMAGE_BYTES + 1), Preview::Binary);
    }

    #[test]
    fn a_cut_character_does_not_make_a_text_binary() {
        assert_eq!(Preview::of("a.txt", b"gr\xc3", 4), Preview::Text("gr".to_owned()));
        assert_eq!(of("a.txt", b"gr\xc3"), Preview::Binary);
    }

    #[test]
    fn tables_are_read_with_quotes_and_bounds() {
        let rows = |text: &str| match of("a.csv", text.as_bytes()) {
            Preview::Table(rows) => rows,
            other => panic!("{other:?}"),
        };
        assert_eq!(rows("a,b\r\n1,\"x, \"\"y\"\"\nz\"\n"), [["a", "b"], ["1", "x, \"y\"\nz"]]);
        assert_eq!(rows("a,\n,b"), [["a", ""], ["", "b"]]);
        assert_eq!(rows("\"open"), [["open"]]);
        assert_eq!(rows(&"1\n".repeat(5_000)).len(), MOST_ROWS);
        assert_eq!(rows(&",".repeat(5_000))[0].len(), MOST_COLUMNS);
        assert_eq!(rows(&"x".repeat(5_000))[0][0].chars().count(), MOST_CHARACTERS + 1);
        assert_eq!(Preview::of("a.csv", b"1,2\n3,", 100), Preview::Table(vec![vec!["1".to_owned(), "2".to_owned()]]));
    }
}

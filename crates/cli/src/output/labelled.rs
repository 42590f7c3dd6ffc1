//! Output of one among several, line by line with its name before it.

/// The lines of one stream. What is left of a last line without end is written when this is dropped.
pub(crate) struct Labelled<'a, W: FnMut(&[u8])> {
    label: &'a str,
    write: W,
    rest: Vec<u8>,
}

/// What is kept together of a line: a longer one comes in pieces, each with the name, in bytes.
const LINE_BYTES: usize = 64 << 10;

impl<'a, W: FnMut(&[u8])> Labelled<'a, W> {
    /// Whole lines are written by one call each, or several lines by one.
    pub(crate) fn new(label: &'a str, write: W) -> Self {
        Self { label, write, rest: Vec::new() }
    }

    /// Takes what has come.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.rest.extend(bytes);
        let whole = match self.rest.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if self.rest.len() >= LINE_BYTES => self.rest.len(),
            None => return,
        };
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        self.print(&lines);
    }

    fn print(&mut self, lines: &[u8]) {
        let mut text = Vec::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            text.extend(self.label.as_bytes());
            text.extend(b": ");
            text.extend(line);
            if !line.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
        (self.write)(&text);
    }
}

impl<W: FnMut(&[u8])> Drop for Labelled<'_, W> {
    fn drop(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.print(&rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_the_last_one_is_ended() {
        let mut written = Vec::new();
        let mut lines = Labelled::new("n1", |text: &[u8]| written.push(String::from_utf8_lossy(text).into_owned()));
        for piece in ["a", "b\nc", "\nd\n", "e"] {
            lines.add(piece.as_bytes());
        }
        drop(lines);
        assert_eq!(written, ["n1: ab\n", "n1: c\nn1: d\n", "n1: e\n"]);
    }
}

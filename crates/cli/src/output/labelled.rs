//! Labels each line of an output with a name.

/// Labels the lines of one stream. Dropping the value writes an incomplete last line.
pub(crate) struct Labelled<'a, W: FnMut(&[u8])> {
    label: &'a str,
    write: W,
    rest: Vec<u8>,
}

/// Longer lines are written in labelled pieces of this size, in bytes.
const LINE_BYTES: usize = 64 << 10;

impl<'a, W: FnMut(&[u8])> Labelled<'a, W> {
    /// `write` gets one or more whole lines per call.
    pub(crate) fn new(label: &'a str, write: W) -> Self {
        Self { label, write, rest: Vec::new() }
    }

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
    fn lines_are_written_whole_and_the_last_gets_a_line_break() {
        let mut written = Vec::new();
        let mut lines = Labelled::new("n1", |text: &[u8]| written.push(String::from_utf8_lossy(text).into_owned()));
        for piece in ["a", "b\nc", "\nd\n", "e"] {
            lines.add(piece.as_bytes());
        }
        drop(lines);
        assert_eq!(written, ["n1: ab\n", "n1: c\nn1: d\n", "n1: e\n"]);
    }
}

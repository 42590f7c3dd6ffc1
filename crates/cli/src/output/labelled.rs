//! Labels each line of an output with a name.

/// Labels the lines of one stream. Dropping the value writes an incomplete last line.
pub(crate) struct Labelled<W: FnMut(&[u8])> {
    lines: Lines,
    write: W,
}

/// Longer lines are written in labelled pieces of this size, in bytes.
const LINE_BYTES: usize = 64 << 10;

impl<W: FnMut(&[u8])> Labelled<W> {
    /// `write` gets one or more whole lines per call.
    pub(crate) fn new(label: &str, write: W) -> Self {
        Self { lines: Lines::new(format!("{label}: ")), write }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let lines = self.lines.add(bytes);
        if !lines.is_empty() {
            (self.write)(&lines);
        }
    }
}

impl<W: FnMut(&[u8])> Drop for Labelled<W> {
    fn drop(&mut self) {
        let rest = self.lines.finish();
        if !rest.is_empty() {
            (self.write)(&rest);
        }
    }
}

/// Collects an output until lines are complete, and puts a label before each.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    label: String,
    rest: Vec<u8>,
}

impl Lines {
    /// Each line begins with `label`.
    pub(crate) fn new(label: String) -> Self {
        Self { label, rest: Vec::new() }
    }

    /// Adds a piece of output. Returns the labelled lines that are now complete.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.rest.extend(bytes);
        let whole = match self.rest.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if self.rest.len() >= LINE_BYTES => self.rest.len(),
            None => return Vec::new(),
        };
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        self.labelled(&lines)
    }

    /// Returns the last line, if it is incomplete, with a line break.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.rest);
        self.labelled(&rest)
    }

    fn labelled(&self, lines: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(lines.len() + self.label.len());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            text.extend(self.label.as_bytes());
            text.extend(line);
            if !line.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
        text
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

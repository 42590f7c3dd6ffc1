//! The last lines of an output, as they can be shown: without control characters, and bounded in memory.

use std::collections::VecDeque;

use hostler_model::escaped;

/// Maximum number of lines to keep.
const LINES: usize = 2_000;

/// Maximum length of a line, in bytes. The rest of a longer line is dropped.
const LINE_BYTES: usize = 4 << 10;

#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<String>,
    /// Bytes of the line that has not ended.
    open: Vec<u8>,
    /// Number of lines below the screen; `None` follows the end.
    below: Option<usize>,
}

impl Tail {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = LINE_BYTES.saturating_sub(self.open.len());
            // A carriage return starts the line again, so a progress bar needs no more than one line.
            let last = text.iter().rposition(|byte| *byte != b'\r').unwrap_or(0);
            match text[..last].iter().rposition(|byte| *byte == b'\r') {
                Some(at) => {
                    let rest = &text[at + 1..];
                    self.open = rest[..rest.len().min(LINE_BYTES)].to_vec();
                }
                None => self.open.extend_from_slice(&text[..text.len().min(room)]),
            }
            if ends {
                let line = shown(&std::mem::take(&mut self.open));
                self.add(line);
            }
        }
    }

    fn add(&mut self, line: String) {
        self.lines.push_back(line);
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
        // What the user reads stays on the screen.
        if let Some(below) = &mut self.below {
            *below = (*below + 1).min(self.lines.len());
        }
    }

    /// The lines for a screen of this many rows.
    pub(super) fn screen(&self, rows: usize) -> Vec<String> {
        let open = (!self.open.is_empty()).then(|| shown(&self.open));
        let all = self.lines.len() + usize::from(open.is_some());
        let end = all - self.below.unwrap_or(0).min(all);
        let lines = self.lines.iter().cloned().chain(open);
        lines.skip(end.saturating_sub(rows)).take(rows.min(end)).collect()
    }

    pub(super) fn is_following(&self) -> bool {
        self.below.is_none()
    }

    pub(super) fn follow(&mut self) {
        self.below = None;
    }

    pub(super) fn scroll_up(&mut self, lines: usize, page: usize) {
        let most = (self.lines.len() + usize::from(!self.open.is_empty())).saturating_sub(page);
        let below = self.below.unwrap_or(0).saturating_add(lines).min(most);
        self.below = (below > 0).then_some(below);
    }

    pub(super) fn scroll_down(&mut self, lines: usize) {
        let below = self.below.unwrap_or(0).saturating_sub(lines);
        self.below = (below > 0).then_some(below);
    }
}

/// A line as text: without escape sequences of colours, with tabs as spaces and other control characters escaped.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = without_colours(text.trim_end_matches('\r'));
    escaped(&text.replace('\t', "    ")).into_owned()
}

/// Removes complete CSI sequences, such as those of colours.
fn without_colours(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        clean.push_str(before);
        let is_final = |c: char| ('@'..='~').contains(&c);
        match after.char_indices().find(|(_, c)| !('\x20'..='?').contains(c)) {
            Some((at, c)) if is_final(c) => rest = &after[at + 1..],
            // Not a sequence: the escape character stays, and is escaped later.
            _ => {
                clean.push_str("\x1b[");
                rest = after;
            }
        }
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pushed: &[&str], rows: usize) -> Vec<String> {
        let mut tail = Tail::default();
        pushed.iter().for_each(|part| tail.push(part.as_bytes()));
        tail.screen(rows)
    }

    #[test]
    fn output_is_split_into_lines_and_neutralised() {
        assert_eq!(lines(&["one\ntw", "o\nthr"], 5), ["one", "two", "thr"]);
        assert_eq!(lines(&["\x1b[31mred\x1b[0m \x1b[1;2Hx\n"], 5), ["red x"]);
        assert_eq!(
            lines(&["\x1b]0;title\x07 \x1b[\u{202e}x\u{9b}2J\n"], 5),
            ["\\u{1b}]0;title\\u{7} \\u{1b}[\\u{202e}x\\u{9b}2J"]
        );
        assert_eq!(lines(&["10 %\r20 %\r30 %", "\r40 %\r\n"], 5), ["40 %"]);
        assert_eq!(lines(&["a\r\nb\tc\n"], 5), ["a", "b    c"]);
        assert_eq!(lines(&["\x1b[\x1b[", "31m"], 5), ["\\u{1b}["]);
        let mut tail = Tail::default();
        tail.push(b"\xff\xfe\n");
        assert_eq!(tail.screen(3), ["\u{fffd}\u{fffd}"]);
    }

    #[test]
    fn memory_is_bounded_and_reading_is_not_disturbed() {
        let mut tail = Tail::default();
        for at in 0..3 * LINES {
            tail.push(format!("line {at}\n").as_bytes());
        }
        tail.push(&vec![b'x'; 1 << 20]);
        assert!(tail.lines.len() == LINES && tail.open.len() == LINE_BYTES);
        tail.push(b"\n");
        tail.scroll_up(5, 10);
        let read = tail.screen(10);
        tail.push(b"new\nnewer\n");
        assert_eq!((tail.screen(10), tail.is_following()), (read, false));
        tail.follow();
        assert_eq!(tail.screen(1), ["newer"]);
        tail.scroll_up(usize::MAX, 10);
        assert_eq!(tail.screen(10).len(), 10);
        tail.scroll_down(usize::MAX);
        assert!(tail.is_following());
    }
}

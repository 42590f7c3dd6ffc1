//! Merges the outputs of several processes into one stream, line by line.
//!
//! A line is written as soon as it is complete. An incomplete line is held back for [`HOLD`], and at most
//! [`LINE_BYTES`] of it, so that prompts, progress bars and binary output appear soon and use little memory.
//!
//! Without labels, all bytes are written unchanged. A line break is inserted only where another output continues in the
//! middle of a line. With labels, each line and each piece of a long or slow line gets a label and a line break. Of text
//! that a progress bar has overwritten with carriage returns, only the last state is written, because a carriage return
//! would also overwrite the label.
//!
//! This module has no clock and no streams: callers pass the time, and write the returned bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long an incomplete line is held back.
pub const HOLD: Duration = Duration::from_millis(500);

/// Number of bytes of an incomplete line that are held back at most.
const LINE_BYTES: usize = 64 << 10;

/// What each line starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Labels {
    None,
    /// The number of the writer, right-aligned in this number of columns.
    Numbers {
        width: usize,
    },
    /// The name at the position of the writer's number.
    Names(Vec<String>),
}

/// An output: the number of its writer, which selects the label, and the number of the stream.
pub type Source = (usize, usize);

/// Merges outputs.
#[derive(Debug)]
pub struct Merger {
    labels: Labels,
    outputs: BTreeMap<Source, Held>,
    /// When the incomplete lines of which outputs must be written.
    due: BTreeSet<(Instant, Source)>,
    /// Without labels: the output that wrote last, if it ended in the middle of a line.
    unfinished: Option<Source>,
}

/// The incomplete line of one output.
#[derive(Debug, Default)]
struct Held {
    line: Vec<u8>,
    due: Option<Instant>,
    /// Whether the part of the line before `line` was already written and followed by a line break.
    is_continued: bool,
}

impl Merger {
    #[must_use]
    pub fn new(labels: Labels) -> Self {
        Self { labels, outputs: BTreeMap::new(), due: BTreeSet::new(), unfinished: None }
    }

    /// Adds bytes of an output. Returns the bytes to write now.
    #[must_use]
    pub fn add(&mut self, source: Source, bytes: &[u8], now: Instant) -> Vec<u8> {
        let mut text = Vec::new();
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (lines, rest) = bytes.split_at(end);
        if !lines.is_empty() {
            self.write_lines(source, lines, &mut text);
        }
        if !rest.is_empty() {
            self.hold(source, rest, now, &mut text);
        }
        text
    }

    /// When [`Self::write_due`] must be called.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns the incomplete lines that were held back for long enough.
    #[must_use]
    pub fn write_due(&mut self, now: Instant) -> Vec<u8> {
        let mut text = Vec::new();
        while let Some((at, source)) = self.due.first().copied()
            && at <= now
        {
            self.write_held(source, &mut text);
        }
        text
    }

    /// Ends an output. Returns its incomplete line.
    #[must_use]
    pub fn finish(&mut self, source: Source) -> Vec<u8> {
        let mut text = Vec::new();
        self.write_held(source, &mut text);
        self.outputs.remove(&source);
        text
    }

    /// Writes complete lines, the first of which may have begun earlier.
    fn write_lines(&mut self, source: Source, mut lines: &[u8], text: &mut Vec<u8>) {
        let (mut start, is_continued) = self.take(source);
        if self.labels != Labels::None {
            let mut is_continued = is_continued;
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                append_state(&mut start, &line[..line.len() - 1]);
                // If the line's content was already written, only the end of the line has arrived.
                let has_text = start.iter().any(|byte| *byte != b'\r');
                if has_text || !is_continued {
                    self.write_label(source, text);
                    text.append(&mut start);
                    text.push(b'\n');
                }
                start.clear();
                is_continued = false;
            }
            return;
        }
        if is_continued && start.is_empty() && lines[0] == b'\n' {
            // The line break after the content was already inserted.
            lines = &lines[1..];
        }
        if !lines.is_empty() {
            self.begin_plain(source, text);
            text.append(&mut start);
            text.extend_from_slice(lines);
            self.unfinished = None;
        }
    }

    /// Holds back the start of a line.
    fn hold(&mut self, source: Source, rest: &[u8], now: Instant, text: &mut Vec<u8>) {
        let held = self.outputs.entry(source).or_default();
        if self.labels == Labels::None {
            held.line.extend_from_slice(rest);
        } else {
            append_state(&mut held.line, rest);
        }
        if held.line.len() >= LINE_BYTES {
            self.write_held(source, text);
        } else if held.due.is_none() {
            let at = now + HOLD;
            held.due = Some(at);
            self.due.insert((at, source));
        }
    }

    /// Writes what is held back of an output.
    fn write_held(&mut self, source: Source, text: &mut Vec<u8>) {
        let (mut line, is_continued) = self.take(source);
        if self.labels == Labels::None {
            if line.is_empty() {
                self.mark_continued(source, is_continued);
                return;
            }
            self.begin_plain(source, text);
            text.append(&mut line);
            self.unfinished = Some(source);
            return;
        }
        line.truncate(line.iter().rposition(|byte| *byte != b'\r').map_or(0, |at| at + 1));
        if !line.is_empty() {
            self.write_label(source, text);
            text.append(&mut line);
            text.push(b'\n');
            self.mark_continued(source, true);
        } else {
            self.mark_continued(source, is_continued);
        }
    }

    /// Takes what is held back of an output, and whether the start of this line was already written.
    fn take(&mut self, source: Source) -> (Vec<u8>, bool) {
        let Some(held) = self.outputs.get_mut(&source) else { return (Vec::new(), false) };
        if let Some(at) = held.due.take() {
            self.due.remove(&(at, source));
        }
        (std::mem::take(&mut held.line), std::mem::take(&mut held.is_continued))
    }

    fn mark_continued(&mut self, source: Source, is_continued: bool) {
        if is_continued {
            self.outputs.entry(source).or_default().is_continued = true;
        }
    }

    /// Ends the line of another output, if one is unfinished.
    fn begin_plain(&mut self, source: Source, text: &mut Vec<u8>) {
        if let Some(other) = self.unfinished.take().filter(|other| *other != source) {
            text.push(b'\n');
            self.mark_continued(other, true);
        }
    }

    fn write_label(&self, source: Source, text: &mut Vec<u8>) {
        let (writer, _) = source;
        match &self.labels {
            Labels::None => {}
            Labels::Numbers { width } => text.extend_from_slice(format!("{writer:width$}: ").as_bytes()),
            Labels::Names(names) => {
                text.extend_from_slice(names.get(writer).map_or("", String::as_str).as_bytes());
                text.extend_from_slice(b": ");
            }
        }
    }
}

/// Appends to an incomplete line, without the text that a carriage return has overwritten. Carriage returns at the end
/// are kept, because they may be part of the line's end.
fn append_state(line: &mut Vec<u8>, more: &[u8]) {
    let Some(last) = more.iter().rposition(|byte| *byte != b'\r') else {
        line.extend_from_slice(more);
        return;
    };
    match more[..last].iter().rposition(|byte| *byte == b'\r') {
        Some(at) => {
            line.clear();
            line.extend_from_slice(&more[at + 1..]);
        }
        None => {
            if line.ends_with(b"\r") {
                line.clear();
            }
            line.extend_from_slice(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const NUMBERS: Labels = Labels::Numbers { width: 0 };

    /// What happens to a merger: an output writes, or time passes.
    #[derive(Debug, Clone)]
    enum Step {
        Write(usize, Vec<u8>),
        Wait(Duration),
    }

    /// Returns what a merger writes at each step; the last entry is what it writes when all outputs end.
    fn merge(labels: Labels, steps: &[Step]) -> Vec<Vec<u8>> {
        let mut merger = Merger::new(labels);
        let mut now = Instant::now();
        let mut written = Vec::new();
        let mut outputs = BTreeSet::new();
        for step in steps {
            written.push(match step {
                Step::Write(output, bytes) => {
                    outputs.insert(*output);
                    merger.add((*output, 0), bytes, now)
                }
                Step::Wait(time) => {
                    now += *time;
                    merger.write_due(now)
                }
            });
            assert!(merger.due().is_none_or(|due| due > now - HOLD && due <= now + HOLD), "no output waits longer");
            assert!(merger.outputs.values().all(|held| held.line.len() < LINE_BYTES), "memory is bounded");
        }
        written.push(outputs.into_iter().flat_map(|output| merger.finish((output, 0))).collect());
        assert_eq!(merger.due(), None);
        written
    }

    fn write(output: usize, text: &str) -> Step {
        Step::Write(output, text.as_bytes().to_vec())
    }

    fn wait() -> Step {
        Step::Wait(HOLD)
    }

    #[track_caller]
    fn check(labels: Labels, steps: &[Step], expected: &[&str]) {
        let written = merge(labels, steps);
        let texts: Vec<_> = written.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn labelled_lines_are_written_whole_and_the_last_gets_a_line_break() {
        let steps = ["a", "b\nc", "\nd\n", "e"].map(|text| write(0, text));
        check(Labels::Names(vec!["n1".to_owned()]), &steps, &["", "n1: ab\n", "n1: c\nn1: d\n", "", "n1: e\n"]);
        let empty_lines = [write(7, "\n\nx\r\n")];
        check(Labels::Numbers { width: 2 }, &empty_lines, &[" 7: \n 7: \n 7: x\r\n", ""]);
    }

    #[test]
    fn progress_bars_appear_as_labelled_lines_with_their_last_state() {
        let leading = [write(3, "\r10%"), write(3, "\r20%"), wait(), write(3, "\r100%\n")];
        check(NUMBERS, &leading, &["", "", "3: 20%\n", "3: 100%\n", ""]);
        let trailing = [write(3, "10%\r20%\r"), wait(), write(3, "30%\r"), write(3, "\n")];
        check(NUMBERS, &trailing, &["", "3: 20%\n", "", "3: 30%\r\n", ""]);
        let unended = [write(3, "10%\r"), wait(), write(3, "\n"), write(3, "next\n")];
        check(NUMBERS, &unended, &["", "3: 10%\n", "", "3: next\n", ""]);
        let at_once = [write(3, "1%\r2%\r3%\nafter\r\n"), write(3, "4%\r5%")];
        check(NUMBERS, &at_once, &["3: 3%\n3: after\r\n", "", "3: 5%\n"]);
    }

    #[test]
    fn prompts_and_dots_without_a_line_break_appear_soon() {
        let prompt = [write(0, "Continue? "), wait(), write(0, "yes\n")];
        check(NUMBERS, &prompt, &["", "0: Continue? \n", "0: yes\n", ""]);
        check(Labels::None, &prompt, &["", "Continue? ", "yes\n", ""]);
        let half = Step::Wait(HOLD / 2);
        let dots = [write(0, "."), half.clone(), write(0, "."), half, write(0, ".")];
        check(Labels::None, &dots, &["", "", "", "..", "", "."]);
    }

    #[test]
    fn bytes_without_labels_are_changed_only_where_another_output_continues() {
        check(Labels::None, &[write(0, "no line break")], &["", "no line break"]);
        let switch = [write(0, "a"), wait(), write(1, "b\n"), write(0, "\n"), write(0, "c\n")];
        check(Labels::None, &switch, &["", "a", "\nb\n", "", "c\n", ""]);
        let both = [write(0, "\r10%"), write(1, "\r50%"), wait(), write(0, "\r20%"), wait()];
        check(Labels::None, &both, &["", "", "\r10%\n\r50%", "", "\n\r20%", ""]);
    }

    #[test]
    fn endless_line_is_written_in_pieces() {
        const PIECES: usize = 60 << 8;
        let piece = [b'x'; 4 << 10];
        for labels in [Labels::None, NUMBERS] {
            let mut merger = Merger::new(labels.clone());
            let now = Instant::now();
            let mut count = 0;
            for _ in 0..PIECES {
                count += merger.add((0, 0), &piece, now).iter().filter(|byte| **byte == b'x').count();
                assert!(merger.outputs[&(0, 0)].line.capacity() <= 2 * LINE_BYTES, "{labels:?}: memory is bounded");
            }
            assert_eq!(
                count + merger.finish((0, 0)).iter().filter(|byte| **byte == b'x').count(),
                PIECES * piece.len()
            );
        }
    }

    /// Steps of three outputs, each of which writes only its own letter and characters that move the cursor.
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = |output: usize| {
            let byte = prop_oneof![4 => Just(b'a' + output as u8), 1 => Just(b'\n'), 1 => Just(b'\r')];
            prop_oneof![60 => vec(byte, 0..6), 1 => Just(vec![b'a' + output as u8; LINE_BYTES - 1])]
        };
        let write =
            (0..3_usize).prop_flat_map(move |output| bytes(output).prop_map(move |bytes| Step::Write(output, bytes)));
        let wait = (0..700_u64).prop_map(|millis| Step::Wait(Duration::from_millis(millis)));
        vec(prop_oneof![3 => write, 1 => wait], 0..40)
    }

    fn written_by(steps: &[Step], output: usize) -> Vec<u8> {
        let of_output = |step: &Step| match step {
            Step::Write(by, bytes) if *by == output => Some(bytes.clone()),
            _ => None,
        };
        steps.iter().filter_map(of_output).flatten().collect()
    }

    proptest! {
        #[test]
        fn single_output_without_labels_is_unchanged(steps in steps()) {
            let steps: Vec<_> = steps.into_iter().filter(|step| !matches!(step, Step::Write(1 | 2, _))).collect();
            prop_assert_eq!(merge(Labels::None, &steps).concat(), written_by(&steps, 0));
        }

        #[test]
        fn lines_without_labels_keep_all_bytes_and_are_never_mixed(steps in steps()) {
            let merged = merge(Labels::None, &steps).concat();
            for output in 0..3 {
                let letter = b'a' + output as u8;
                let count = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == letter).count();
                prop_assert_eq!(count(&merged), count(&written_by(&steps, output)));
            }
            for line in merged.split(|byte| *byte == b'\n') {
                let writers: BTreeSet<u8> = line.iter().copied().filter(|byte| *byte != b'\r').collect();
                prop_assert!(writers.len() <= 1, "{}", String::from_utf8_lossy(line));
            }
        }

        #[test]
        fn every_labelled_line_has_its_label_and_shows_the_last_state(steps in steps()) {
            let merged = merge(NUMBERS, &steps).concat();
            prop_assert!(merged.is_empty() || merged.ends_with(b"\n"));
            let mut last: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
            for line in merged.split_inclusive(|byte| *byte == b'\n') {
                prop_assert_eq!(&line[1..3], b": ");
                let letter = line[0] - b'0' + b'a';
                let text = &line[3..line.len() - 1];
                let text = &text[..text.iter().rposition(|byte| *byte != b'\r').map_or(0, |at| at + 1)];
                prop_assert!(text.iter().all(|byte| *byte == letter), "no carriage return overwrites the label");
                last.insert(line[0] - b'0', text.to_vec());
            }
            for output in 0..3_u8 {
                let all = written_by(&steps, output.into());
                let state = all.split(|byte| b"\r\n".contains(byte)).rfind(|state| !state.is_empty());
                let is_empty_line = last.get(&output).is_none_or(Vec::is_empty);
                let is_shown = last.get(&output).zip(state).is_some_and(|(last, state)| state.ends_with(last));
                prop_assert!(is_empty_line || is_shown);
            }
        }
    }
}

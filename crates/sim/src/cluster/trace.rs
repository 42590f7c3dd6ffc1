//! The trace: its last lines for people, and a hash over all lines to compare two runs.

use std::collections::VecDeque;
use std::fmt;

use super::rng::mix;

/// The number of lines kept for people.
const KEPT: usize = 60;

/// The trace of a simulated world.
#[derive(Debug, Default)]
pub(super) struct Trace {
    last: VecDeque<String>,
    hash: u64,
    lines: u64,
    /// Whether to keep every line, instead of only the last ones.
    keep_all: bool,
}

impl Trace {
    pub(super) fn new(keep_all: bool) -> Self {
        Self { keep_all, ..Self::default() }
    }

    pub(super) fn add(&mut self, now_us: u64, what: fmt::Arguments<'_>) {
        let line = line(now_us, what);
        for bytes in line.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.hash = mix(self.hash ^ u64::from_le_bytes(word)).wrapping_add(1);
        }
        self.lines += 1;
        if self.last.len() >= KEPT && !self.keep_all {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// Adds a line that only the whole trace contains and that the hash does not cover.
    pub(super) fn tell(&mut self, now_us: u64, what: impl FnOnce() -> Option<String>) {
        if self.keep_all
            && let Some(what) = what()
        {
            self.last.push_back(line(now_us, format_args!("{what}")));
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// All lines, if every line was kept.
    pub(super) fn into_whole(self) -> Vec<String> {
        if self.keep_all { self.last.into() } else { Vec::new() }
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.last.into()
    }
}

/// A line with its time, in milliseconds.
fn line(now_us: u64, what: fmt::Arguments<'_>) -> String {
    format!("{:>7}.{:03} {what}", now_us / 1000, now_us % 1000)
}

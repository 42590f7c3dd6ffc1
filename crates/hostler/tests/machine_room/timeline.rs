//! A timeline of the events in a room.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines with times, in order.
pub(crate) struct Timeline {
    name: &'static str,
    began: Instant,
    lines: Mutex<Vec<(Duration, String)>>,
}

impl Timeline {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, began: Instant::now(), lines: Mutex::default() }
    }

    pub(crate) fn tell(&self, line: impl Into<String>) {
        // Take the time under the lock, so that lines are in order.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push((self.began.elapsed(), line.into()));
    }

    /// Whether a line contains all of these parts.
    pub(crate) fn tells(&self, parts: &[&str]) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().any(|(_, line)| parts.iter().all(|part| line.contains(part)))
    }

    /// Prints the timeline and writes it to the target directory.
    pub(crate) fn show(&self) {
        let mut text = String::new();
        for (at, line) in self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = writeln!(text, "{:>7.1} s  {line}", at.as_secs_f64());
        }
        #[expect(clippy::print_stdout, reason = "the timeline is the output of the test")]
        {
            println!("{text}");
        }
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("timeline-{}.txt", self.name));
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
}

//! What happened in a room and when, for people to check.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines with their times, in order.
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
        // The time is taken under the lock, so that lines are in order.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push((self.began.elapsed(), line.into()));
    }

    /// Whether a line has all of these in it.
    pub(crate) fn tells(&self, parts: &[&str]) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().any(|(_, line)| parts.iter().all(|part| line.contains(part)))
    }

    /// Prints it, and writes it below the target directory.
    pub(crate) fn show(&self) {
        let mut text = String::new();
        for (at, line) in self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = writeln!(text, "{:>7.1} s  {line}", at.as_secs_f64());
        }
        #[expect(clippy::print_stdout, reason = "it is what the test shows")]
        {
            println!("{text}");
        }
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("timeline-{}.txt", self.name));
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
}

//! What a user was told once, e.g. that results are lost: lines of a file in the state directory.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::xdg;

/// The lines of the file. Without a file, everything is new.
pub(crate) struct Told {
    path: Option<PathBuf>,
    lines: BTreeSet<String>,
}

impl Told {
    /// Reads the file of lost results.
    pub(crate) fn lost_results() -> Self {
        Self::read(xdg::directory("XDG_STATE_HOME", ".local/state").map(|state| state.join("hostler/lost-results")))
    }

    fn read(path: Option<PathBuf>) -> Self {
        let text = path.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        Self { path, lines: text.lines().map(str::to_owned).collect() }
    }

    /// Adds a line. Returns whether it is new. If the file cannot be written, the line is new again next time.
    pub(crate) fn is_new(&mut self, line: &str) -> bool {
        let is_new = self.lines.insert(line.to_owned());
        if is_new {
            let _ = self.append(line);
        }
        is_new
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        writeln!(OpenOptions::new().create(true).append(true).open(path)?, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_new_once() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = Some(folder.path().join("hostler/lost"));
        let mut told = Told::read(path.clone());
        assert!(told.is_new("job 1") && !told.is_new("job 1"));
        let mut later = Told::read(path);
        assert!(!later.is_new("job 1") && later.is_new("job 2"));
        assert!(Told::read(None).is_new("job 1"));
    }
}

//! A file system that never answers one kind of request, as a dead server's does. Needs root and FUSE.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A mounted file system with one file, `program`. Dropping it unmounts it, and all pending requests fail.
#[derive(Debug)]
pub struct HangingDisk {
    process: Child,
    at: PathBuf,
}

impl HangingDisk {
    /// Mounts it at the directory `at`. It never answers the request `hanging`: `lookup`, `getattr` (of its root), `open`,
    /// `open-to-read` (other opens are answered), `read`, `flush`, `write` or `release`.
    /// `python` is a command for Python 3 in the mount namespace that shall see the file system.
    ///
    /// # Panics
    /// If it cannot be mounted.
    #[must_use]
    pub fn mount(mut python: Command, at: &Path, hanging: &str) -> Self {
        let script = include_str!("hanging_disk.py");
        python.args(["-c", script]).arg(at).arg(hanging).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = python.spawn().expect("Python 3 is installed");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("the script prints text");
        assert_eq!(line, "mounted\n", "the file system cannot be mounted");
        Self { process, at: at.to_owned() }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> String {
        self.at.join("program").display().to_string()
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        // The script unmounts at the end of its input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

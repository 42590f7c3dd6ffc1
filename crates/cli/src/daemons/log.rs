//! The log of a daemon: lines on standard error, which a service manager, a file of `hostler up` or a terminal
//! receives.
//!
//! Logging never stops a daemon and never fills a disk. Lines that cannot be written are lost. A log file that this
//! program has opened for a daemon is renamed at [`LARGE_BYTES`], and only one renamed file is kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hostler_model::escaped;
use nix::unistd::{dup2_stderr, dup2_stdout};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::failure::Failure;

/// Size at which a log file is renamed.
const LARGE_BYTES: u64 = 16 << 20;

/// Environment variable with the path of the daemon's log file.
pub(crate) const LOG_VARIABLE: &str = "HOSTLER_LOG_FILE";

/// Sends the log to standard error.
pub(crate) fn log_to_stderr() -> Result<(), Failure> {
    let wanted = std::env::var("HOSTLER_LOG").unwrap_or_else(|_| "info".to_owned());
    let filter = EnvFilter::try_new(&wanted).map_err(|error| {
        Failure::usage(format!("HOSTLER_LOG is `{wanted}`, which is not a log filter"))
            .because(&error)
            .hint("e.g. info, debug or hostler_head=debug,info")
    })?;
    let log = Log { file: std::env::var_os(LOG_VARIABLE).map(PathBuf::from), turn: Mutex::new(()) };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        // The library reports write errors on standard error, and panics if that fails too.
        .log_internal_errors(false)
        .with_writer(log)
        .init();
    Ok(())
}

/// Opens a daemon's log for appending; renames it first if it is large.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > LARGE_BYTES) {
        fs::rename(path, old(path))?;
    }
    append_to(path)
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn old(path: &Path) -> PathBuf {
    path.with_extension("log.old")
}

/// Writes log lines to standard error.
struct Log {
    /// The log file; `None` if standard error is not a log file that this program has opened.
    file: Option<PathBuf>,
    /// Held while a line is written, so that no line goes to a renamed file.
    turn: Mutex<()>,
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Log {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = io::stderr().lock().write_all(one_line(event).as_bytes());
        if let Some(path) = &self.file {
            rotate_if_large(path, LARGE_BYTES);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line of an event. Control characters are escaped, so user text cannot forge lines or control a terminal.
fn one_line(event: &[u8]) -> String {
    let text = String::from_utf8_lossy(event);
    format!("{}\n", escaped(text.trim_end_matches('\n')))
}

/// Renames the log file at `path` if it is large, and continues in a new file. Does nothing if standard error is not
/// the log file.
fn rotate_if_large(path: &Path, large_bytes: u64) {
    let (Ok(here), Ok(there)) = (nix::sys::stat::fstat(io::stderr()), fs::metadata(path)) else { return };
    let is_same = here.st_dev == there.dev() && here.st_ino == there.ino();
    if !is_same || there.len() <= large_bytes {
        return;
    }
    let follow = || -> io::Result<()> {
        let stdout_too = nix::sys::stat::fstat(io::stdout()).is_ok_and(|out| out.st_ino == here.st_ino);
        fs::rename(path, old(path))?;
        let file = append_to(path)?;
        if stdout_too {
            dup2_stdout(&file)?;
        }
        dup2_stderr(&file)?;
        Ok(())
    };
    if follow().is_err() {
        // If no new file can be created, truncate the current file. It is open for appending, so logging continues at
        // its start.
        let _ = nix::unistd::ftruncate(io::stderr(), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use super::*;

    // Not a test: acts as the daemon of the next test if `HOSTLER_TEST_TALKS` is set.
    #[test]
    fn talkative_process() {
        let Some(path) = std::env::var_os("HOSTLER_TEST_TALKS").map(PathBuf::from) else { return };
        let log = Log { file: Some(path.clone()), turn: Mutex::new(()) };
        for number in 0..1000 {
            (&log).write_all(format!("line {number:04}\n").as_bytes()).expect("never fails");
            rotate_if_large(&path, 2000);
        }
    }

    #[test]
    fn large_log_is_renamed_without_losing_lines() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("n1.log");
        let status = Command::new(std::env::current_exe().expect("the test program has a path"))
            .args(["--exact", "daemons::log::tests::talkative_process", "--test-threads=1"])
            .env("HOSTLER_TEST_TALKS", &path)
            .stdout(Stdio::null())
            .stderr(open(&path).expect("the log can be created"))
            .status()
            .expect("this program can be started again");
        assert!(status.success());
        let read = |path: &Path| fs::read_to_string(path).expect("the file exists");
        let (before, now) = (read(&old(&path)), read(&path));
        assert!(before.len() < 2100 && now.len() < 2100, "{} and {}", before.len(), now.len());
        let both = before + &now;
        let lines: Vec<&str> = both.lines().collect();
        assert_eq!(lines.last(), Some(&"line 0999"));
        assert!(lines.len() > 200 && lines.is_sorted(), "{both}");
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 2);
    }
    /// Collects lines instead of writing them.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<String>>);

    impl Write for Kept {
        fn write(&mut self, event: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push_str(&one_line(event));
            Ok(event.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn user_text_in_a_log_line_cannot_forge_another_line() {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let hostile = "x\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{9b}31m\r";
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(name = %hostile, path = hostile, "cannot run {hostile}");
            tracing::info!("next");
        });
        let text = kept.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lines: Vec<&str> = text.split_terminator('\n').collect();
        assert_eq!(lines.len(), 2, "{text:?}");
        assert!(!text.replace('\n', "").contains(char::is_control), "{text:?}");
        assert!(lines[0].contains("WARN") && lines[0].matches("ERROR forged").count() == 3, "{text:?}");
    }
}

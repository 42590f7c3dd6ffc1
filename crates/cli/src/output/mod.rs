//! The only module that prints. stdout is data, stderr is conversation.
//!
//! A command fetches values, hands them to a function of [`views`] for people or to [`Output::json`] for programs, and says
//! what it does along the way with [`Output::say`]. Nothing here is coloured; progress bars appear on a terminal only.

pub(crate) mod gateway;
pub(crate) mod labelled;
pub(crate) mod load_views;
pub(crate) mod machine;
pub(crate) mod node_views;
pub(crate) mod partitions;
pub(crate) mod people;
mod progress;
pub(crate) mod settings;
pub(crate) mod table;
pub(crate) mod views;

use std::io::{self, IsTerminal, Write};

use hostler_model::{WindowSize, escaped_lines};
use nix::libc;
use serde::Serialize;

pub(crate) use progress::Progress;

use crate::failure::Failure;

/// For whom the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For scripts that want ids and exit codes only.
    Quiet,
}

/// Where a command says things.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// Whether data goes out as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether only the barest data is wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.format == Format::Quiet
    }

    /// Whether someone watches stderr.
    pub(crate) fn is_watched(&self) -> bool {
        !self.is_quiet() && io::stderr().is_terminal()
    }

    /// A line, or several, of data for people. What others have chosen in it, such as names, cannot steer the terminal.
    pub(crate) fn data(&self, text: &str) {
        let text = escaped_lines(text);
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        to_stdout(format!("{text}{end}").as_bytes());
    }

    /// Data as JSON, on one line.
    pub(crate) fn json<T: Serialize + ?Sized>(&self, value: &T) {
        let text = serde_json::to_string(value).expect("API types are valid JSON");
        to_stdout(format!("{text}\n").as_bytes());
    }

    /// Bytes of a job for our own stdout, as they are.
    pub(crate) fn job_stdout(&self, bytes: &[u8]) {
        to_stdout(bytes);
    }

    /// Bytes of a job for our own stderr, as they are.
    pub(crate) fn job_stderr(&self, bytes: &[u8]) {
        to_stderr(bytes);
    }

    /// A line of conversation.
    pub(crate) fn say(&self, text: &str) {
        if !self.is_quiet() {
            to_stderr(format!("{}\n", escaped_lines(text)).as_bytes());
        }
    }

    /// A line of conversation that only someone at a terminal cares for.
    pub(crate) fn aside(&self, text: &str) {
        if self.is_watched() {
            self.say(text);
        }
    }

    /// Why the command failed. Said even when quiet.
    pub(crate) fn fail(&self, failure: &Failure) {
        to_stderr(escaped_lines(&failure.render()).as_bytes());
    }

    /// A progress bar over `total` bytes, if someone watches.
    pub(crate) fn progress(&self, label: &str, total_bytes: u64) -> Progress {
        if self.is_watched() { Progress::shown(label, total_bytes) } else { Progress::hidden() }
    }
}

/// How wide a table for people may be; unlimited when it goes to a file or a pipe.
pub(crate) fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    window_size().map(|size| usize::from(size.columns))
}

/// The size of the terminal on stdout or stderr.
pub(crate) fn window_size() -> Option<WindowSize> {
    [libc::STDOUT_FILENO, libc::STDERR_FILENO, libc::STDIN_FILENO].into_iter().find_map(|fd| {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the request writes one `winsize`, which is what the pointer is to.
        let result = unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) };
        (result == 0 && size.ws_row > 0 && size.ws_col > 0)
            .then_some(WindowSize { rows: size.ws_row, columns: size.ws_col })
    })
}

fn to_stdout(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    let result = stdout.write_all(bytes).and_then(|()| stdout.flush());
    if let Err(error) = result {
        give_up(&error);
    }
}

fn to_stderr(bytes: &[u8]) {
    // When even stderr is gone, nobody is left to be told.
    io::stderr().lock().write_all(bytes).ok();
}

/// Ends the program as a reader that closed the pipe expects: by SIGPIPE. The signal is ignored until here, because a head that
/// dies would raise it too, and that is no reason to die.
fn give_up(error: &io::Error) -> ! {
    use nix::sys::signal::{SigHandler, Signal, raise, signal};
    if error.kind() == io::ErrorKind::BrokenPipe {
        // SAFETY: the default action is no handler of ours.
        unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.ok();
        raise(Signal::SIGPIPE).ok();
    }
    to_stderr(format!("error: cannot write to standard output: {error}\n").as_bytes());
    std::process::exit(crate::exit::FAILED.into());
}

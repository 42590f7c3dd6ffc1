//! The only module that prints. Data goes to stdout, messages go to stderr.
//!
//! A command fetches values and passes them to a function of [`views`] for text or to [`Output::json`] for JSON.
//! [`Output::say`] prints messages. Output has no colours; progress bars appear only on a terminal.

pub(crate) mod job_columns;
pub(crate) mod load_views;
pub(crate) mod machine;
pub mod node_views;
pub(crate) mod notifications;
pub(crate) mod partitions;
pub(crate) mod people;
mod progress;
pub(crate) mod sections;
pub(crate) mod settings;
pub mod table;
pub mod text;
pub mod views;

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

use hostler_model::{JobId, WindowSize, escaped_lines, os_string_of};
use serde::Serialize;

pub(crate) use progress::{Progress, Step};

use crate::failure::{During, Failure};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
    /// Ids only, for scripts.
    Quiet,
}

#[derive(Debug, Clone)]
pub struct Output {
    format: Format,
}

impl Output {
    pub fn new(format: Format) -> Self {
        Self { format }
    }

    /// Whether data is printed as JSON.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether only essential data is printed.
    pub fn is_quiet(&self) -> bool {
        self.format == Format::Quiet
    }

    /// Whether stderr is a terminal and messages are printed.
    pub fn is_watched(&self) -> bool {
        !self.is_quiet() && io::stderr().is_terminal()
    }

    /// Prints text on stdout. Control characters, e.g. in names, are escaped.
    pub fn data(&self, text: &str) {
        let text = escaped_lines(text);
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        to_stdout(format!("{text}{end}").as_bytes());
    }

    /// Prints JSON on one line of stdout.
    pub fn json<T: Serialize + ?Sized>(&self, value: &T) {
        let text = serde_json::to_string(value).expect("API types are valid JSON");
        to_stdout(format!("{text}\n").as_bytes());
    }

    /// Notes that the command has submitted a job. If the id cannot be printed on stdout, the error names it.
    pub(crate) fn has_submitted(&self, id: JobId) {
        SUBMITTED.store(id.0, Ordering::Relaxed);
    }

    /// Copies a job's bytes to stdout unchanged.
    pub(crate) fn job_stdout(&self, bytes: &[u8]) {
        to_stdout(bytes);
    }

    /// Prints a job's text on stdout, e.g. its script. Control characters are escaped only on a terminal, so files and pipes get
    /// the exact text.
    pub(crate) fn job_text(&self, text: &str) {
        if io::stdout().is_terminal() {
            to_stdout(escaped_lines(text).as_bytes());
        } else {
            to_stdout(os_string_of(text).as_bytes());
        }
    }

    /// Copies a job's bytes to stderr unchanged.
    pub(crate) fn job_stderr(&self, bytes: &[u8]) {
        to_stderr(bytes);
    }

    /// Copies a job's bytes unchanged to stdout, or to stderr.
    ///
    /// # Errors
    /// If the stream is closed or full. The caller ends the work that produces the output.
    pub(crate) fn job_output(&self, is_stdout: bool, bytes: &[u8]) -> Result<(), Failure> {
        let written = if is_stdout { try_stdout(bytes) } else { io::stderr().lock().write_all(bytes) };
        let stream = if is_stdout { "standard output" } else { "standard error" };
        written.map_err(|error| Failure::output(stream, &error))
    }

    pub fn say(&self, text: &str) {
        if !self.is_quiet() {
            self.complain(text);
        }
    }

    /// Prints an error that does not end the command, also with `--quiet`.
    pub(crate) fn complain(&self, text: &str) {
        to_stderr(format!("{}\n", escaped_lines(text)).as_bytes());
    }

    /// Prints a message only on a terminal.
    pub fn aside(&self, text: &str) {
        if self.is_watched() {
            self.say(text);
        }
    }

    /// Asks the person at the terminal a question about `action`. True: yes.
    ///
    /// # Errors
    /// If stdin is not a terminal, or cannot be read.
    pub fn confirms(&self, action: &str, question: &str) -> Result<bool, Failure> {
        if !io::stdin().is_terminal() {
            return Err(Failure::usage(format!("stdin is not a terminal, so {action} cannot be confirmed"))
                .hint("confirm with --yes"));
        }
        self.say(&format!("{question} [y/N]"));
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).during(|| "cannot read the answer".to_owned())?;
        Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
    }

    /// Rings the bell of the terminal, and shows a text on the desktop: through the terminal if it can (OSC 9), and
    /// through `notify-send` where it exists. Does nothing if stderr is not a terminal.
    pub(crate) fn ring(&self, text: &str) {
        if !io::stderr().is_terminal() {
            return;
        }
        let text = hostler_model::escaped(text);
        to_stderr(format!("\x07\x1b]9;{text}\x1b\\").as_bytes());
        if ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some()) {
            // Not every desktop has the program.
            let mut command = std::process::Command::new("notify-send");
            let command = command.args(["--app-name=hostler", "--", "Hostler", &text]);
            let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        }
    }

    /// Prints the error of a command on stderr, even if quiet, with `--json` as a line of JSON. Ends the program by SIGPIPE instead if the
    /// reader of the output has closed the pipe.
    pub fn fail(&self, failure: &Failure) {
        if failure.is_closed_pipe() {
            end_by_sigpipe();
        }
        match self.is_json() {
            true => to_stderr(failure.to_json().as_bytes()),
            false => to_stderr(escaped_lines(&failure.render()).as_bytes()),
        }
    }

    /// A progress bar over `total_bytes`, shown only on a terminal.
    pub(crate) fn progress(&self, label: &str, total_bytes: u64) -> Progress {
        if self.is_watched() { Progress::shown(label, total_bytes) } else { Progress::hidden() }
    }
}

/// The width for tables; unlimited if stdout is not a terminal.
pub fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    window_size().map(|size| usize::from(size.columns))
}

/// The size of the terminal on stdout, stderr or stdin.
pub(crate) fn window_size() -> Option<WindowSize> {
    let size = hostler_sys::window_size(io::stdout()).or_else(|| hostler_sys::window_size(io::stderr()));
    let (rows, columns) = size.or_else(|| hostler_sys::window_size(io::stdin()))?;
    Some(WindowSize { rows, columns })
}

fn try_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush())
}

fn to_stdout(bytes: &[u8]) {
    if let Err(error) = try_stdout(bytes) {
        exit_by_sigpipe(&error);
    }
}

fn to_stderr(bytes: &[u8]) {
    // If stderr cannot be written, the error cannot be reported.
    io::stderr().lock().write_all(bytes).ok();
}

/// The job that the command has submitted; zero for none.
static SUBMITTED: AtomicU64 = AtomicU64::new(0);

/// Ends the program by SIGPIPE, like other programs whose reader has closed the pipe. SIGPIPE is ignored before, because
/// a broken connection to the head raises it too.
fn end_by_sigpipe() {
    use nix::sys::signal::{SigHandler, Signal, raise, signal};
    // SAFETY: the default action is not a handler of this program.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.ok();
    raise(Signal::SIGPIPE).ok();
}

fn exit_by_sigpipe(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        end_by_sigpipe();
    }
    let submitted = match SUBMITTED.load(Ordering::Relaxed) {
        0 => String::new(),
        id => format!("; job {id} was submitted"),
    };
    to_stderr(format!("error: cannot write to standard output: {error}{submitted}\n").as_bytes());
    std::process::exit(crate::exit::FAILED.into());
}

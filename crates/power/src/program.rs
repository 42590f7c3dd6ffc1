//! Runs external programs that talk to controllers: without a shell, with a timeout, and kills all their processes at
//! the timeout.
//!
//! A program may leave processes running after its end, because switching a machine on may start a daemon. `run` does
//! not wait for such processes, even if they keep the program's output open.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use zeroize::Zeroizing;

use crate::Fault;
use crate::fault::quoted;
use crate::tree::{MARK, Tree};

/// Maximum size of a program's output per stream. Further output is read and discarded.
const KEPT_BYTES: usize = 64 << 10;

/// Time to wait for remaining output after the program's end.
const DRAIN: Duration = Duration::from_millis(200);

pub(crate) struct Program<'a> {
    argv: &'a [String],
    environment: Vec<(&'a str, &'a str)>,
    input: Option<&'a [u8]>,
    limit: Duration,
    /// The package that contains the program.
    package: Option<&'static str>,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Zeroizing<Vec<u8>>,
    pub(crate) stderr: String,
}

impl<'a> Program<'a> {
    pub(crate) fn new(argv: &'a [String], limit: Duration) -> Self {
        Self { argv, environment: Vec::new(), input: None, limit, package: None }
    }

    /// Adds environment variables to the head's environment variables.
    pub(crate) fn environment(mut self, more: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        self.environment.extend(more);
        self
    }

    /// Sets the Debian package that contains the program.
    pub(crate) fn package(mut self, package: &'static str) -> Self {
        self.package = Some(package);
        self
    }

    /// Sets the standard input [default: empty].
    pub(crate) fn input(mut self, input: &'a [u8]) -> Self {
        self.input = Some(input);
        self
    }

    /// Runs the program. On a timeout or when the future is dropped, kills the program and all processes that it has
    /// started.
    ///
    /// # Errors
    /// The program cannot be started, or exceeds the timeout. A non-zero exit code is not an error here.
    pub(crate) async fn run(self) -> Result<Finished, Fault> {
        let name = self.argv.first().map_or("", String::as_str);
        let (mut child, tree) = self.start().map_err(|error| self.cannot_start(&error))?;
        let input = self.input.unwrap_or_default();
        match tokio::time::timeout(self.limit, follow(&mut child, input)).await {
            Ok(finished) => {
                tree.release();
                finished.map_err(|error| Fault::unprepared(format!("cannot wait for `{name}`: {error}")))
            }
            Err(_) => {
                let limit = self.limit.as_secs_f64();
                // Dropping the tree blocks, because it scans all processes.
                let _ = tokio::task::spawn_blocking(move || drop(tree)).await;
                // A process that hangs in the kernel is reaped when it ends.
                let _ = tokio::time::timeout(DRAIN, child.wait()).await;
                Err(Fault::unreachable(format!("`{name}` did not end within {limit} s and was killed"))
                    .hint("find out what the program is waiting for, or increase the `time_limit`"))
            }
        }
    }

    fn cannot_start(&self, error: &io::Error) -> Fault {
        let name = self.argv.first().map_or("", String::as_str);
        let fault = Fault::unprepared(format!("`{name}` cannot be started: {error}"));
        match (error.kind(), self.package) {
            (io::ErrorKind::NotFound, Some(package)) => {
                fault.hint(format!("install the program on the head's machine: apt install {package}"))
            }
            (io::ErrorKind::NotFound, None) => {
                fault.hint("install the program on the head's machine, or write the program's full path")
            }
            (io::ErrorKind::PermissionDenied, _) => {
                fault.hint("make the program executable for the user that runs the head")
            }
            _ => fault.hint("run the program manually as the user that runs the head"),
        }
    }

    fn start(&self) -> io::Result<(Child, Tree)> {
        let (program, arguments) = self.argv.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mark = Tree::new_mark();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(self.environment.iter().copied())
            .env(MARK, &mark)
            .current_dir("/")
            .stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn()?;
        let leader = child.id().expect("the program has not been waited for");
        Ok((child, Tree::new(leader, mark)))
    }
}

impl Finished {
    /// Description of the failure, as the end of a sentence.
    pub(crate) fn failure(&self) -> String {
        let last = self.stderr.lines().rev().find(|line| !line.trim().is_empty()).map(quoted);
        let how = self
            .status
            .code()
            .map_or_else(|| format!("was killed by {}", self.status), |code| format!("exited with {code}"));
        match last {
            Some(last) => format!("{how}: {last}"),
            None => format!("{how} without an error message"),
        }
    }
}

/// Writes the input, reads the output, and waits for the end.
async fn follow(child: &mut Child, input: &[u8]) -> io::Result<Finished> {
    let mut stdout = Zeroizing::new(Vec::new());
    let mut stderr = Vec::new();
    let (stdin, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut ended = None;
    {
        let talk = async { tokio::join!(feed(stdin, input), keep(out, &mut stdout), keep(err, &mut stderr)) };
        tokio::pin!(talk);
        tokio::select! {
            status = child.wait() => ended = Some(status?),
            _ = &mut talk => {}
        }
        if ended.is_some() {
            let _ = tokio::time::timeout(DRAIN, talk).await;
        }
    }
    let status = match ended {
        Some(status) => status,
        // The program has closed its streams but still runs.
        None => child.wait().await?,
    };
    Ok(Finished { status, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() })
}

async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        // The program may ignore its input.
        let _ = stdin.write_all(input).await;
    }
}

/// Reads a stream to its end, and keeps its beginning.
async fn keep(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut stream) = stream else { return };
    let mut buffer = Zeroizing::new(vec![0; 8192]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let room = KEPT_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}

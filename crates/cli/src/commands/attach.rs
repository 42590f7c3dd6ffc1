//! `hostler attach`: a job's terminal on this one, until one leaves as one leaves `screen`.

use std::io::{self, IsTerminal};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use hostler_client::{Client, Terminal, TerminalMessage};
use hostler_model::{JobId, JobState, TaskId, WindowSize};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

use super::target::Target;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::window_size;

/// Between two looks whether a job runs yet.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Join the terminal of a job that was submitted with --pty; Ctrl-A d leaves it, and the job goes on
///
/// Ctrl-A a sends a Ctrl-A.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// A job such as 12, or a task of an array such as 12_3
    #[arg(value_name = "ID")]
    target: Target,
}

impl Attach {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let task = TaskId { job: self.target.job, index: self.target.index.unwrap_or(0) };
        block_on(async {
            let terminal = client.attach(task, size()).await?;
            share(context, terminal, self.target).await?;
            Ok(exit::OK)
        })
    }
}

/// Joins the terminal of a job that is no array as soon as it runs; returns when it has ended or was left.
pub(crate) async fn attach_when_running(context: &Context, client: &Client, job: JobId) -> Result<Left, Failure> {
    let task = TaskId { job, index: 0 };
    loop {
        let detail = client.job_when_ended(job, 1, LOOK_AGAIN).await?;
        match detail.summary.state {
            JobState::Running => match client.attach(task, size()).await {
                Ok(terminal) => return share(context, terminal, Target { job, index: None }).await,
                // It ended in this very moment; the next look tells.
                Err(error) if error.code().is_some() => {}
                Err(error) => return Err(error.into()),
            },
            state if state.is_ended() => return Ok(Left::Closed),
            _ => {}
        }
    }
}

fn size() -> WindowSize {
    window_size().unwrap_or(WindowSize { rows: 24, columns: 80 })
}

/// Joins the two terminals until one of them is done.
async fn share(context: &Context, mut terminal: Terminal, target: Target) -> Result<Left, Failure> {
    let raw = RawMode::enter()?;
    let left = exchange(context, &mut terminal).await;
    drop(raw);
    let left = left?;
    match left {
        Left::ByUser => {
            terminal.leave().await;
            context
                .output
                .say(&format!("\nleft job {target}, which goes on; `hostler attach {target}` joins it again"));
        }
        Left::Closed => context.output.say(&format!("\nthe terminal of job {target} is closed")),
    }
    Ok(left)
}

/// Why an exchange came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// The user left; the job goes on.
    ByUser,
    /// The terminal is no more.
    Closed,
}

async fn exchange(context: &Context, terminal: &mut Terminal) -> Result<Left, Failure> {
    let mut window = signal(SignalKind::window_change()).during(|| "cannot watch the window's size".to_owned())?;
    let mut stdin = tokio::io::stdin();
    let mut keys = vec![0; 4096];
    let mut input_is_open = true;
    let mut escape = Escape::default();
    loop {
        tokio::select! {
            message = terminal.next() => match message? {
                Some(TerminalMessage::Output(bytes)) => context.output.job_stdout(&bytes),
                Some(TerminalMessage::Resize(_)) => {}
                None => return Ok(Left::Closed),
            },
            read = stdin.read(&mut keys), if input_is_open => {
                let len = read.during(|| "cannot read the keyboard".to_owned())?;
                input_is_open = len > 0;
                let (bytes, leaves) = escape.filter(&keys[..len]);
                if !bytes.is_empty() {
                    terminal.send(Bytes::from(bytes)).await?;
                }
                if leaves {
                    return Ok(Left::ByUser);
                }
            }
            _ = window.recv() => terminal.resize(size()).await?,
        }
    }
}

/// Finds Ctrl-A d in what is typed, wherever reads happen to cut it.
#[derive(Debug, Default)]
struct Escape {
    is_pending: bool,
}

/// What begins a command to ourselves.
const CTRL_A: u8 = 1;

impl Escape {
    /// What goes on to the job, and whether the user leaves.
    fn filter(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len());
        for &key in typed {
            match (std::mem::take(&mut self.is_pending), key) {
                (false, CTRL_A) => self.is_pending = true,
                (false, key) => passed.push(key),
                (true, b'd' | b'D' | 4) => return (passed, true),
                (true, b'a' | CTRL_A) => passed.push(CTRL_A),
                // Not for us after all.
                (true, key) => passed.extend([CTRL_A, key]),
            }
        }
        (passed, false)
    }
}

/// The keyboard unprocessed, for as long as this lives. Nothing when stdin is no terminal.
struct RawMode {
    before: Option<Termios>,
}

impl RawMode {
    fn enter() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Self { before: None });
        }
        let failed = || "cannot control the terminal".to_owned();
        let before = tcgetattr(io::stdin()).during(failed)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw).during(failed)?;
        Ok(Self { before: Some(before) })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The terminal is gone if this fails, and with it the need.
            tcsetattr(io::stdin(), SetArg::TCSADRAIN, before).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_escape_is_kept_back() {
        let mut escape = Escape::default();
        assert_eq!(escape.filter(b"ls\r"), (b"ls\r".to_vec(), false));
        assert_eq!(escape.filter(b"\x01a\x01x"), (b"\x01\x01x".to_vec(), false));
        assert_eq!(escape.filter(b"x\x01"), (b"x".to_vec(), false), "cut in the middle");
        assert_eq!(escape.filter(b"dnever sent"), (Vec::new(), true));
    }
}

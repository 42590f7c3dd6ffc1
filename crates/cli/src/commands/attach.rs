//! `hostler attach`: connects this terminal to a job's terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use hostler_client::{Client, Terminal, TerminalMessage};
use hostler_model::{JobId, JobState, TaskId, WindowSize};
use hostler_sys::RawTerminal;
use nix::libc;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

use super::choice::{self, Word};
use super::logs::{Source, print};
use super::target::Target;
use super::wait::{NOTE_DELAY, WaitNotes};
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::window_size;
use hostler_proto::link::Output;

/// Poll interval while the job has not started.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Connect this terminal to a job started with --pty
///
/// To detach, press Ctrl-A, then d; the job continues. To send Ctrl-A to the job, press Ctrl-A, then a. Operators can
/// watch the terminals of other users' jobs; only the job's user can type.
#[derive(Debug, Args)]
pub struct Attach {
    /// The job: its id, e.g. 12; an array task, e.g. 12_3; its name; or `last` for your newest job
    #[arg(value_name = "JOB")]
    word: Word,
}

impl Attach {
    pub fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        block_on(async {
            let target = choice::one(&client, &self.word).await?;
            let task = TaskId { job: target.job, index: target.index.unwrap_or(0) };
            let terminal = client.attach(task, size()).await?;
            share(context, terminal, target).await?;
            Ok(exit::OK)
        })
    }
}

/// Attaches to a job that is not an array as soon as it runs. Returns when the job ends or the user detaches.
pub(crate) async fn attach_when_running(context: &Context, client: &Client, job: JobId) -> Result<Left, Failure> {
    let task = TaskId { job, index: 0 };
    let (began, mut notes) = (Instant::now(), WaitNotes::default());
    loop {
        let detail = client.job_when_ended(job, 1, POLL_INTERVAL).await?;
        match detail.summary.state {
            JobState::Running => match client.attach(task, size()).await {
                Ok(terminal) => return share(context, terminal, Target { job, index: None }).await,
                // The job has just ended; the next poll returns its state.
                Err(error) if error.code().is_some() => {}
                Err(error) => return Err(error.into()),
            },
            state if state.is_ended() => {
                // It ended too soon for this terminal, or did not start.
                print(context, client, Source { task, ranks: 0..1 }, &[Output::Stdout], false).await?;
                return Ok(Left::Closed);
            }
            _ if began.elapsed() > NOTE_DELAY => notes.tell(context, &detail.summary),
            _ => {}
        }
    }
}

fn size() -> WindowSize {
    window_size().unwrap_or(WindowSize { rows: 24, columns: 80 })
}

/// Connects the two terminals until the user detaches or the job's terminal closes.
async fn share(context: &Context, mut terminal: Terminal, target: Target) -> Result<Left, Failure> {
    if !terminal.types() {
        context.output.say("note: you can only watch, because this is another user's job; Ctrl-A, then d, detaches");
    }
    let raw = io::stdin().is_terminal().then(RawTerminal::begin).transpose();
    let mut raw = raw.during(|| "cannot control the terminal".to_owned())?;
    let left = exchange(context, &mut terminal, raw.as_mut()).await;
    drop(raw);
    let left = left?;
    match left {
        Left::ByUser => {
            terminal.leave().await;
            context.output.say(&format!(
                "\ndetached from job {target}, which continues; `hostler attach {target}` attaches again"
            ));
        }
        Left::Closed => context.output.say(&format!("\nthe terminal of job {target} is closed")),
    }
    Ok(left)
}

/// Why the connection to the terminal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// The user detached; the job continues.
    ByUser,
    Closed,
}

async fn exchange(
    context: &Context,
    terminal: &mut Terminal,
    mut raw: Option<&mut RawTerminal>,
) -> Result<Left, Failure> {
    // The shell restores its own mode when this program is stopped.
    let mut resumed = signal(SignalKind::from_raw(libc::SIGCONT)).during(|| "cannot receive signals".to_owned())?;
    let mut window = signal(SignalKind::window_change()).during(|| "cannot watch the window's size".to_owned())?;
    let mut stdin = tokio::io::stdin();
    let mut keys = vec![0; 4096];
    let mut input_is_open = true;
    let mut escape = Escape::default();
    loop {
        tokio::select! {
            message = terminal.next() => match message? {
                Some(TerminalMessage::Output(bytes)) => context.output.job_output(true, &bytes)?,
                Some(TerminalMessage::Resize(_)) => {}
                None => return Ok(Left::Closed),
            },
            read = stdin.read(&mut keys), if input_is_open => {
                let len = read.during(|| "cannot read standard input".to_owned())?;
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
            _ = resumed.recv() => raw.iter_mut().for_each(|raw| raw.enter()),
        }
    }
}

/// Finds Ctrl-A d in the input, also if it spans two reads.
#[derive(Debug, Default)]
struct Escape {
    is_pending: bool,
}

/// The key Ctrl-A, which starts the key commands of `attach`.
const CTRL_A: u8 = 1;

impl Escape {
    /// Returns the bytes for the job, and whether the user detaches.
    fn filter(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len());
        for &key in typed {
            match (std::mem::take(&mut self.is_pending), key) {
                (false, CTRL_A) => self.is_pending = true,
                (false, key) => passed.push(key),
                (true, b'd' | b'D' | 4) => return (passed, true),
                (true, b'a' | CTRL_A) => passed.push(CTRL_A),
                // Both keys are input for the job.
                (true, key) => passed.extend([CTRL_A, key]),
            }
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_keys_are_not_sent_to_the_job() {
        let mut escape = Escape::default();
        assert_eq!(escape.filter(b"ls\r"), (b"ls\r".to_vec(), false));
        assert_eq!(escape.filter(b"\x01a\x01x"), (b"\x01\x01x".to_vec(), false));
        assert_eq!(escape.filter(b"x\x01"), (b"x".to_vec(), false), "the escape spans two reads");
        assert_eq!(escape.filter(b"dnever sent"), (Vec::new(), true));
    }
}

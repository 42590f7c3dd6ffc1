//! Execution of build commands, each in its own cgroup leaf and within the limits of the job that needs the
//! environment.
//!
//! Package installation can run arbitrary code, so build commands do not run among the agent's own processes. A
//! shepherd runs each command with the job's CPUs, memory, devices and user, and kills leftover processes when the
//! command ends. The command also ends with the agent; the next agent builds again.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hostler_project::Stopped;
use hostler_shepherd::cgroup::LeafSpec;
use hostler_shepherd::{
    CallOptions, Cause, Credentials, Event, ExitRecord, Launch, Launcher, Options, Sandbox, Shepherd, Status,
};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::error::{EnvError, explain, one_line, system_error};

/// Interval of checks for cancellation and timeout, in milliseconds.
const LOOK_MS: u16 = 50;

/// A command with its complete environment.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Program and arguments. The program is a path.
    pub argv: Vec<OsString>,
    /// All variables; nothing else is inherited.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    /// User who runs the command; `None` for the agent's own user.
    pub credentials: Option<Credentials>,
    /// Whether set-user-id programs work for the user.
    pub may_gain_rights: bool,
    /// Sandbox of the command, if it has one.
    pub sandbox: Option<Sandbox>,
    /// Standard input; empty by default.
    pub input: Option<Arc<File>>,
}

impl Step {
    pub(super) fn new<I: IntoIterator<Item: Into<OsString>>>(program: impl Into<OsString>, arguments: I) -> Self {
        let argv = std::iter::once(program.into()).chain(arguments.into_iter().map(Into::into)).collect();
        Self { argv, cwd: "/".into(), ..Self::default() }
    }

    pub(super) fn args<I: IntoIterator<Item: Into<OsString>>>(&mut self, arguments: I) -> &mut Self {
        self.argv.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(super) fn env(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signaled(i32),
    /// The kernel killed a process of the command at the memory limit.
    OutOfMemory {
        limit_bytes: u64,
    },
    /// The command could not be started, for this reason.
    NotStarted(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Signaled(signal) => write!(f, "was killed by signal {signal}"),
            Self::OutOfMemory { limit_bytes } => {
                write!(f, "needed more than {} of memory", hostler_model::format_bytes(*limit_bytes))
            }
            Self::NotStarted(reason) => write!(f, "could not be started: {reason}"),
        }
    }
}

/// Runs the build commands for one job.
pub trait Runner: Sync {
    /// Checks whether the job should continue.
    ///
    /// # Errors
    /// If the job was cancelled or its time limit was reached.
    fn goes_on(&self) -> Result<(), Stopped>;

    /// Runs a command to its end and passes its output, including standard error, to `output`. No process of the
    /// command remains.
    ///
    /// # Errors
    /// If the command was stopped because the job ended, or on a system error.
    fn run(&self, step: &Step, output: &mut dyn FnMut(&[u8])) -> Result<Ended, Stopped>;
}

/// Interval of attempts to take a lock. What is done under one takes much longer.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Creates the file at `path` if it is missing, and takes its exclusive lock. If another job holds the lock, logs `message` once
/// and waits until the lock is free or this job ends. Also returns whether it waited.
pub(super) fn take_lock(
    path: &Path,
    message: &[u8],
    runner: &dyn Runner,
    log: &mut dyn FnMut(&[u8]),
) -> Result<(Flock<File>, bool), EnvError> {
    let directory = path.parent().unwrap_or(path);
    let mut waited = false;
    loop {
        let file = File::options().create(true).append(true).mode(0o600).open(path);
        match Flock::lock(file.map_err(|error| system_error(directory, &error))?, FlockArg::LockExclusiveNonblock) {
            Ok(alone) => return Ok((alone, waited)),
            Err((_, Errno::EWOULDBLOCK)) => {}
            Err((_, error)) => return Err(system_error(directory, &error.into())),
        }
        if !waited {
            log(message);
            waited = true;
        }
        runner.goes_on().map_err(|stopped| explain(stopped, directory))?;
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A runner that uses shepherds, within the limits of one job.
pub struct Confined<'a> {
    pub launcher: &'a Launcher,
    /// Limits of the job.
    pub limits: Options,
    /// Describes a new cgroup leaf for a command, given a number for its name; returns `None` without cgroups.
    pub leaf: &'a (dyn Fn(u64) -> Option<LeafSpec> + Sync),
    /// Set when the job is cancelled.
    pub cancel: &'a AtomicBool,
    /// Time at which the preparation of the job began.
    pub began: Instant,
    /// Time limit of the job, which includes the preparation.
    pub time_limit: Option<Duration>,
}

/// Counter that makes the names of leaves unique: the leaf of an ended command may exist a little longer.
static LEAVES: AtomicU64 = AtomicU64::new(0);

impl Runner for Confined<'_> {
    fn goes_on(&self) -> Result<(), Stopped> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Stopped::Cancelled);
        }
        match self.time_limit.filter(|limit| self.began.elapsed() >= *limit) {
            Some(limit) => Err(Stopped::TimedOut { limit_secs: limit.as_secs() }),
            None => Ok(()),
        }
    }

    fn run(&self, step: &Step, output: &mut dyn FnMut(&[u8])) -> Result<Ended, Stopped> {
        self.goes_on()?;
        let (reader, writer) = io::pipe().map_err(Stopped::System)?;
        let input = match &step.input {
            Some(input) => Arc::clone(input),
            None => Arc::new(File::open("/dev/null").map_err(Stopped::System)?),
        };
        let options = Options {
            credentials: step.credentials.clone(),
            may_gain_rights: step.may_gain_rights,
            sandbox: step.sandbox.clone(),
            leaf: (self.leaf)(LEAVES.fetch_add(1, Ordering::Relaxed)),
            call: Some(CallOptions::default()),
            ..self.limits.clone()
        };
        let launch = Launch {
            directory: PathBuf::new(),
            argv: step.argv.clone(),
            env: step.env.clone(),
            cwd: step.cwd.clone(),
            options,
        };
        let streams = [input.as_fd(), writer.as_fd(), writer.as_fd()];
        let shepherd = self.launcher.call(&launch, streams, None).map_err(system)?;
        // Close our copy, so that the output can end.
        drop(writer);
        let record = self.follow(shepherd, reader, output)?;
        Ok(match record.status {
            Status::Exited { code: 0 } => Ended::Exited(0),
            _ if record.oom_kill == Some(true) => {
                Ended::OutOfMemory { limit_bytes: self.limits.memory_limit_bytes.unwrap_or_default() }
            }
            Status::Exited { code } => Ended::Exited(code),
            Status::Signaled { signal, .. } => Ended::Signaled(signal),
            Status::StartFailed { message, .. } => Ended::NotStarted(message),
            Status::Unkillable => Ended::NotStarted("some processes of the command could not be killed".into()),
        })
    }
}

impl Confined<'_> {
    /// Passes the command's output to `output` until all processes of the command have ended.
    fn follow(
        &self,
        mut shepherd: Shepherd,
        mut reader: PipeReader,
        output: &mut dyn FnMut(&[u8]),
    ) -> Result<ExitRecord, Stopped> {
        let mut stopped = None;
        let mut is_open = true;
        let record = loop {
            if stopped.is_none()
                && let Err(reason) = self.goes_on()
            {
                shepherd.kill(Cause::Cancelled).map_err(system)?;
                stopped = Some(reason);
            }
            is_open = is_open && pass_on(&mut reader, &shepherd, output)?;
            if !is_open {
                wait(&mut [PollFd::new(shepherd.connection(), PollFlags::POLLIN)], LOOK_MS)?;
            }
            match shepherd.try_next_event().map_err(system)? {
                Some(Event::Finished(record)) => break *record,
                Some(Event::Refused(reason)) => return Err(Stopped::System(io::Error::other(reason))),
                Some(_) | None => {}
            }
        };
        match stopped {
            Some(reason) => Err(reason),
            None => {
                drain(&mut reader, output)?;
                Ok(record)
            }
        }
    }
}

/// Waits for output or for an event of the shepherd, and passes on the output; `false` at the end of the output.
fn pass_on(reader: &mut PipeReader, shepherd: &Shepherd, output: &mut dyn FnMut(&[u8])) -> Result<bool, Stopped> {
    let mut set =
        [PollFd::new(reader.as_fd(), PollFlags::POLLIN), PollFd::new(shepherd.connection(), PollFlags::POLLIN)];
    wait(&mut set, LOOK_MS)?;
    if set[0].any() != Some(true) {
        return Ok(true);
    }
    read_once(reader, output)
}

/// Maximum number of bytes to read after a command's end: the capacity of the largest pipe that users other than root
/// can create. Bytes beyond this number come from another process.
const DRAINED_BYTES: usize = 1 << 20;

/// Reads the rest of an ended command's output. Another process may still hold the pipe and continue to write.
fn drain(reader: &mut PipeReader, output: &mut dyn FnMut(&[u8])) -> Result<(), Stopped> {
    let mut drained = 0;
    while drained < DRAINED_BYTES {
        let mut set = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        wait(&mut set, 0)?;
        let mut take = |bytes: &[u8]| {
            drained += bytes.len();
            output(bytes);
        };
        if set[0].any() != Some(true) || !read_once(reader, &mut take)? {
            break;
        }
    }
    Ok(())
}

fn read_once(reader: &mut PipeReader, output: &mut dyn FnMut(&[u8])) -> Result<bool, Stopped> {
    let mut buffer = [0; 8192];
    let count = reader.read(&mut buffer).map_err(Stopped::System)?;
    output(&buffer[..count]);
    Ok(count > 0)
}

fn wait(set: &mut [PollFd<'_>], milliseconds: u16) -> Result<(), Stopped> {
    match poll(set, PollTimeout::from(milliseconds)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(Stopped::System(errno.into())),
    }
}

fn system(error: impl std::error::Error + Send + Sync + 'static) -> Stopped {
    Stopped::System(io::Error::other(one_line(&error)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn drain_stops_on_endless_output() {
        let (mut reader, mut writer) = io::pipe().expect("a pipe can be made");
        // Ends when the reader is closed.
        let endless = std::thread::spawn(move || while writer.write_all(&[b'x'; 65536]).is_ok() {});
        let mut read = 0;
        // The pipe may be empty for a moment, which ends a drain.
        while read < DRAINED_BYTES {
            drain(&mut reader, &mut |bytes| read += bytes.len()).expect("readable");
        }
        assert!(read < 2 * DRAINED_BYTES + 8192, "{read}");
        drop(reader);
        endless.join().expect("the thread ends");
    }
}

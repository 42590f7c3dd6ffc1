//! Running the commands of builds: every one in a leaf of its own, held to the limits of the job that needs the environment.
//!
//! Installing a package can run any code, so nothing of a build may run among the agent's own processes. Each command is a call of a
//! shepherd: it has the job's CPUs, memory, devices and user, and when it ends the shepherd ends everything that it has left behind. It
//! ends with the agent too, whose successor builds again.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hostler_shepherd::cgroup::LeafSpec;
use hostler_shepherd::{
    CallOptions, Cause, Credentials, Event, ExitRecord, Launch, Launcher, Options, Shepherd, Status,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{BuildError, EnvError, build};

/// How long a raised cancel flag or a passed deadline goes unnoticed at most.
const LOOK_MS: u16 = 50;

/// A command to run, with its complete environment.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Program and arguments; the program is a path.
    pub argv: Vec<OsString>,
    /// Nothing is inherited besides.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// The user who runs it; `None` is the agent's own.
    pub credentials: Option<Credentials>,
}

impl Step {
    /// A step of `program` with these arguments.
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

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// The kernel killed a process of it at this memory limit, in bytes.
    OutOfMemory {
        /// The limit.
        limit_bytes: u64,
    },
    /// It could not be started, for this reason.
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

/// Why a command did not come to its own end.
#[derive(Debug)]
pub enum Stopped {
    /// The job was cancelled.
    Cancelled,
    /// The job's time limit has passed.
    TimedOut {
        /// The limit, in seconds.
        limit_secs: u64,
    },
    /// The system refused something.
    System(io::Error),
}

impl Stopped {
    /// The same as an error of the cache in `root`.
    pub(super) fn explain(self, root: &Path) -> EnvError {
        match self {
            Self::Cancelled => EnvError::Cancelled,
            Self::TimedOut { limit_secs } => BuildError::TimedOut { limit_secs, output: String::new() }.into(),
            Self::System(error) => build::system_error(root, &error),
        }
    }
}

/// Runs the commands that one job needs for its environment.
pub trait Runner: Sync {
    /// Whether the job wants to go on.
    ///
    /// # Errors
    /// When it was cancelled or its time is over.
    fn goes_on(&self) -> Result<(), Stopped>;

    /// Runs a command to its end and passes its output on, standard error included. No process of it remains.
    ///
    /// # Errors
    /// When it was ended because the job does not go on, or the system refuses something.
    fn run(&self, step: &Step, output: &mut dyn FnMut(&[u8])) -> Result<Ended, Stopped>;
}

/// Runs commands by shepherds, within the limits of one job.
pub struct Confined<'a> {
    /// Starts the shepherds.
    pub launcher: &'a Launcher,
    /// The job's limits.
    pub limits: Options,
    /// Makes leaves for commands, where the node has any.
    pub leaf: &'a (dyn Fn(u64) -> Option<LeafSpec> + Sync),
    /// Raised when the job is cancelled.
    pub cancel: &'a AtomicBool,
    /// When the preparation began.
    pub began: Instant,
    /// How long it may take: the job's time limit.
    pub time_limit: Option<Duration>,
}

/// Numbers leaves: two commands never have the same one, since a leaf is removed a little after its command has ended.
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
        let input = File::open("/dev/null").map_err(Stopped::System)?;
        let options = Options {
            credentials: step.credentials.clone(),
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
        let shepherd = self.launcher.call(&launch, streams).map_err(system)?;
        // The output would never end otherwise.
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
            Status::Unkillable => Ended::NotStarted("its processes could not be killed".into()),
        })
    }
}

impl Confined<'_> {
    /// Passes output on until the command and everything it started are gone.
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

/// Waits for output or for the shepherd, and passes on what there is; `false` when there will be no more output.
fn pass_on(reader: &mut PipeReader, shepherd: &Shepherd, output: &mut dyn FnMut(&[u8])) -> Result<bool, Stopped> {
    let mut set =
        [PollFd::new(reader.as_fd(), PollFlags::POLLIN), PollFd::new(shepherd.connection(), PollFlags::POLLIN)];
    wait(&mut set, LOOK_MS)?;
    if set[0].any() != Some(true) {
        return Ok(true);
    }
    read_once(reader, output)
}

/// As much as a pipe holds at most, unless root made it larger. What comes after it was written after the command's end.
const DRAINED_BYTES: usize = 1 << 20;

/// What is left in the pipe of a command that has ended. Somebody who got hold of its other end may write on.
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
    Stopped::System(io::Error::other(super::one_line(&error)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn output_that_never_ends_is_not_read_for_ever() {
        let (mut reader, mut writer) = io::pipe().expect("a pipe can be made");
        // Ends when nobody reads any more.
        let endless = std::thread::spawn(move || while writer.write_all(&[b'x'; 65536]).is_ok() {});
        let mut read = 0;
        // The pipe may be empty for a moment, which is its end here.
        while read < DRAINED_BYTES {
            drain(&mut reader, &mut |bytes| read += bytes.len()).expect("readable");
        }
        assert!(read < 2 * DRAINED_BYTES + 8192, "{read}");
        drop(reader);
        endless.join().expect("it ends");
    }
}

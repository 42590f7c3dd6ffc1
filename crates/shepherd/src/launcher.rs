//! The agent's side of launches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{ForkResult, Pid, fork};

use crate::handle::{Link, LinkError, Shepherd};
use crate::launch::Launch;
use crate::wire::{EncodeError, Event, launch_frame};
use crate::{sys, zygote};

/// Starts shepherds. Can be shared between threads; launches do not wait for each other.
#[derive(Debug)]
pub struct Launcher {
    socket: OwnedFd,
    process: Pid,
}

/// Why the launcher process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process has several threads, so a fork would copy locks that are never released.
    #[error("the launcher must start while the process has one thread, and it has {0}")]
    Threads(usize),
    #[error("cannot start the launcher process")]
    System(#[from] io::Error),
}

/// Why a run or call could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The launch itself is invalid.
    #[error("the launch is invalid")]
    Encode(#[from] EncodeError),
    /// The launcher process has ended, most likely by a signal. Only a restart of the agent starts a new launcher
    /// process. Running jobs are not affected.
    #[error("the launcher process has ended; restart the agent")]
    LauncherGone,
    /// The shepherd refused the run, for this reason. Nothing was started.
    #[error("the run was refused: {0}")]
    Refused(String),
    /// The run may or may not have been started: use [`crate::adopt`] to find out.
    #[error("no answer from the shepherd")]
    NoAnswer(#[source] LinkError),
    #[error("cannot reach the launcher process")]
    System(#[from] io::Error),
}

impl Launcher {
    /// Forks the launcher process. Must be called at the start of `main`, before any thread or runtime exists and while
    /// little memory is in use.
    ///
    /// # Errors
    /// If the process has a second thread, or on a system error.
    pub fn start() -> Result<Launcher, StartError> {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads != 1 {
            return Err(StartError::Threads(threads));
        }
        let (ours, theirs) = pair(SockType::SeqPacket)?;
        // SAFETY: this process has one thread, so the child may run any code.
        match unsafe { fork() }.map_err(io::Error::from)? {
            ForkResult::Child => {
                drop(ours);
                zygote::run(theirs)
            }
            ForkResult::Parent { child } => Ok(Launcher { socket: ours, process: child }),
        }
    }

    /// Starts a run, and waits until its program is executed: usually well under a millisecond, but as long as the file
    /// system of the program takes. [`Launcher::begin`] does not wait.
    ///
    /// A program that cannot be executed is not an error here: the shepherd reports it in the exit record as
    /// [`crate::Status::StartFailed`].
    ///
    /// # Errors
    /// If no shepherd claimed the run. After [`LaunchError::NoAnswer`], the run may have started.
    pub fn launch(&self, launch: &Launch) -> Result<Shepherd, LaunchError> {
        self.begin(launch, &[])?.wait()
    }

    /// Starts a call; [`crate::Options::call`] must be set. Its standard input, output and error are the caller's
    /// descriptors, which the caller may close when this returns. Its program runs in the mount namespace, which is
    /// given if [`crate::CallOptions::namespace`] is set. It has no directory and no journal, and ends with the
    /// connection of the returned shepherd.
    ///
    /// # Errors
    /// If no shepherd took the call. A shepherd that took it without answering ends it when it sees the closed
    /// connection.
    pub fn call(
        &self,
        launch: &Launch,
        stdio: [BorrowedFd<'_>; 3],
        namespace: Option<BorrowedFd<'_>>,
    ) -> Result<Shepherd, LaunchError> {
        self.begin(launch, &stdio.into_iter().chain(namespace).collect::<Vec<_>>())?.wait()
    }

    /// Begins to start a run, or a call with its descriptors, without waiting for its program. A program or a directory
    /// on a file system that hangs delays the answer, but not the caller.
    ///
    /// # Errors
    /// If the launch is invalid or the launcher process cannot be reached; nothing was started then.
    pub fn begin(&self, launch: &Launch, descriptors: &[BorrowedFd<'_>]) -> Result<Starting, LaunchError> {
        let frame = launch_frame(launch)?;
        let (ours, theirs) = pair(SockType::Stream)?;
        match sys::send(self.socket.as_fd(), b"L", &[theirs.as_fd()]) {
            Ok(_) => drop(theirs),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(LaunchError::LauncherGone),
            Err(error) => return Err(error.into()),
        }
        let link = Link::new(ours.into());
        // If the shepherd refused early or was never forked, the connection has the reason, which is better than the
        // write error.
        let was_sent = link.send_along(&frame, descriptors).is_ok();
        Ok(Starting { link, was_sent })
    }
}

/// A run or call whose shepherd has not answered yet. Dropping it ends a call; a run may start all the same.
#[derive(Debug)]
pub struct Starting {
    link: Link,
    was_sent: bool,
}

impl Starting {
    /// Timeout for the answer. Only a file system that hangs delays it this long.
    pub const ANSWER_BOUND: Duration = Duration::from_secs(30);

    /// The descriptor of the connection, which is readable when the answer arrives.
    pub fn connection(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Returns the shepherd if it has answered, without waiting.
    ///
    /// # Errors
    /// If no shepherd claimed the run or call. After [`LaunchError::NoAnswer`], it may have started.
    pub fn try_finish(mut self) -> Result<Result<Shepherd, Starting>, LaunchError> {
        match self.link.next_event(Some(Duration::ZERO)) {
            Err(LinkError::Timeout) => Ok(Err(self)),
            answer => self.finish(answer).map(Ok),
        }
    }

    /// The error for an answer that has not come within [`Starting::ANSWER_BOUND`].
    #[must_use]
    pub fn timed_out() -> LaunchError {
        LaunchError::NoAnswer(LinkError::Timeout)
    }

    fn wait(mut self) -> Result<Shepherd, LaunchError> {
        let answer = self.link.next_event(Some(Self::ANSWER_BOUND));
        self.finish(answer)
    }

    fn finish(self, answer: Result<Event, LinkError>) -> Result<Shepherd, LaunchError> {
        match answer {
            Ok(Event::Started(started)) => Shepherd::started(self.link, &started).map_err(LaunchError::NoAnswer),
            Ok(Event::Refused(reason)) => Err(LaunchError::Refused(reason)),
            Ok(_) => Err(LaunchError::NoAnswer(LinkError::Unexpected)),
            Err(LinkError::Closed) if !self.was_sent => Err(LaunchError::LauncherGone),
            Err(error) => Err(LaunchError::NoAnswer(error)),
        }
    }
}

impl Drop for Launcher {
    /// Ends the launcher process. Shepherds continue.
    fn drop(&mut self) {
        let _ = nix::sys::socket::shutdown(sys::raw(&self.socket), nix::sys::socket::Shutdown::Both);
        // The launcher process exits immediately, because it only waits for this socket.
        let _ = nix::sys::wait::waitpid(self.process, None);
    }
}

fn pair(kind: SockType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?)
}

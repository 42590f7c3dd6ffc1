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

/// Timeout for a shepherd to report that it started its program. Only a hanging file system delays the report this
/// long.
const ANSWER_BOUND: Duration = Duration::from_secs(30);

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

    /// Starts a run. Blocks for one fork and exec, usually well under a millisecond.
    ///
    /// A program that cannot be executed is not an error here: the shepherd reports it in the exit record as
    /// [`crate::Status::StartFailed`].
    ///
    /// # Errors
    /// If no shepherd claimed the run. After [`LaunchError::NoAnswer`], the run may have started.
    pub fn launch(&self, launch: &Launch) -> Result<Shepherd, LaunchError> {
        self.start_shepherd(launch, &[])
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
        self.start_shepherd(launch, &stdio.into_iter().chain(namespace).collect::<Vec<_>>())
    }

    fn start_shepherd(&self, launch: &Launch, along: &[BorrowedFd<'_>]) -> Result<Shepherd, LaunchError> {
        let frame = launch_frame(launch)?;
        let (ours, theirs) = pair(SockType::Stream)?;
        match sys::send(self.socket.as_fd(), b"L", &[theirs.as_fd()]) {
            Ok(_) => drop(theirs),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(LaunchError::LauncherGone),
            Err(error) => return Err(error.into()),
        }
        let mut link = Link::new(ours.into());
        // If the shepherd refused early or was never forked, the connection has the reason, which is better than the
        // write error.
        let sent = link.send_along(&frame, along);
        match link.next_event(Some(ANSWER_BOUND)) {
            Ok(Event::Started(started)) => Shepherd::started(link, &started).map_err(LaunchError::NoAnswer),
            Ok(Event::Refused(reason)) => Err(LaunchError::Refused(reason)),
            Ok(_) => Err(LaunchError::NoAnswer(LinkError::Unexpected)),
            Err(LinkError::Closed) if sent.is_err() => Err(LaunchError::LauncherGone),
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

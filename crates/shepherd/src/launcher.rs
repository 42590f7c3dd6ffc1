//! The agent's side of launching.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{ForkResult, Pid, fork};

use crate::handle::{Link, LinkError, Shepherd};
use crate::launch::Launch;
use crate::wire::{EncodeError, Event, launch_frame};
use crate::{sys, zygote};

/// How long a shepherd may take to say that it has started its program. Only a hanging file system takes so long.
const ANSWER_BOUND: Duration = Duration::from_secs(30);

/// Starts shepherds. Share it between threads; launches do not wait for each other.
#[derive(Debug)]
pub struct Launcher {
    socket: OwnedFd,
    process: Pid,
}

/// The launcher process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A fork would copy locks that nobody will ever release.
    #[error("the launcher must start while the process has one thread, and it has {0}")]
    Threads(usize),
    /// The system refused.
    #[error("cannot start the launcher process")]
    System(#[from] io::Error),
}

/// A run could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The launch itself is at fault.
    #[error("the launch cannot be passed on")]
    Encode(#[from] EncodeError),
    /// The launcher process is gone, most likely killed; only a restart of the agent brings it back. Running jobs
    /// are not affected.
    #[error("the launcher process is gone")]
    LauncherGone,
    /// The run was not taken, for the reason given. Nothing was started.
    #[error("the run was refused: {0}")]
    Refused(String),
    /// It is not known whether the run was started: ask with [`crate::adopt`].
    #[error("no answer from the shepherd")]
    NoAnswer(#[source] LinkError),
    /// The system refused.
    #[error("cannot reach the launcher process")]
    System(#[from] io::Error),
}

impl Launcher {
    /// Forks the launcher process. Call it first thing in `main`, before any thread or runtime exists and while little
    /// memory is in use.
    ///
    /// # Errors
    /// When there is already a second thread, or the system refuses.
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

    /// Starts a run. Blocks for the time of a fork and an exec, usually well under a millisecond.
    ///
    /// A program that cannot be executed is not an error here: the shepherd reports it as
    /// [`crate::Status::StartFailed`] in the exit record.
    ///
    /// # Errors
    /// When no shepherd took the run. After [`LaunchError::NoAnswer`] only, it may still have been started.
    pub fn launch(&self, launch: &Launch) -> Result<Shepherd, LaunchError> {
        self.start_shepherd(launch, &[])
    }

    /// Starts a call, whose [`crate::Options::call`] is set: its standard input, output and error are descriptors of the caller's,
    /// who may close them as soon as this returns. It has no directory and no journal, and it ends with the connection of
    /// the shepherd that is returned.
    ///
    /// # Errors
    /// When no shepherd took the call. One that does not answer ends it as soon as it sees that nobody is there.
    pub fn call(&self, launch: &Launch, stdio: [BorrowedFd<'_>; 3]) -> Result<Shepherd, LaunchError> {
        self.start_shepherd(launch, &stdio)
    }

    /// As [`Launcher::call`], of a program that starts in this mount namespace; [`crate::CallOptions::namespace`] is set.
    ///
    /// # Errors
    /// As for [`Launcher::call`].
    pub fn call_in(
        &self,
        launch: &Launch,
        [stdin, stdout, stderr]: [BorrowedFd<'_>; 3],
        namespace: BorrowedFd<'_>,
    ) -> Result<Shepherd, LaunchError> {
        self.start_shepherd(launch, &[stdin, stdout, stderr, namespace])
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
        // When the shepherd refuses early or was never forked, the reason is what can be read, not that writing failed.
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
    /// Ends the launcher process. Shepherds stay.
    fn drop(&mut self) {
        let _ = nix::sys::socket::shutdown(sys::raw(&self.socket), nix::sys::socket::Shutdown::Both);
        // It ends at once, as it only ever waits for us.
        let _ = nix::sys::wait::waitpid(self.process, None);
    }
}

fn pair(kind: SockType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?)
}

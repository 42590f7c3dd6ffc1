//! The agent's handle on a shepherd: a pidfd, and a control connection.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, socket};

use crate::launch::{Launch, WindowSize};
use crate::process::ProcessId;
use crate::record::{Cause, ExitRecord, RunningRecord, StatusReport};
use crate::sys;
use crate::wire::{
    EncodeError, Event, Started, Terminate, WireError, attach_frame, launch_frame, resize_frame, signal_frame,
    status_frame, take_frame, terminal_input_frame, terminate_frame,
};

/// How long a shepherd may take to answer a question. It never waits for anything itself, so this is generous.
pub(crate) const ANSWER_BOUND: Duration = Duration::from_secs(10);

/// A shepherd that looks after a run.
///
/// Its descriptor ([`AsFd`]) is a pidfd, readable once the shepherd has exited, which it does after writing the exit
/// record. [`Shepherd::connection`] is readable when an event has come, which is a little sooner. Dropping the handle
/// leaves a run alone, and ends a call.
#[derive(Debug)]
pub struct Shepherd {
    pid: u32,
    child: Option<u32>,
    pidfd: OwnedFd,
    link: Link,
    /// Events that came while the answer to a question was awaited.
    early: VecDeque<Event>,
}

/// A conversation with a shepherd failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The connection broke or closed.
    #[error("no connection to the shepherd")]
    Link(#[from] LinkError),
    /// The shepherd declined.
    #[error("the shepherd refused: {0}")]
    Refused(String),
    /// The launch itself is at fault.
    #[error("the launch cannot be passed on")]
    Encode(#[from] EncodeError),
}

impl Shepherd {
    /// From the first answer on a new connection, which carries the pidfd.
    pub(crate) fn started(mut link: Link, started: &Started) -> Result<Shepherd, LinkError> {
        let pidfd = link.descriptor.take().ok_or(LinkError::Unexpected)?;
        Ok(Shepherd { pid: started.shepherd, child: started.child, pidfd, link, early: VecDeque::new() })
    }

    /// From a verified pidfd and a new connection.
    pub(crate) fn adopted(pid: u32, pidfd: OwnedFd, link: Link) -> Shepherd {
        Shepherd { pid, child: None, pidfd, link, early: VecDeque::new() }
    }

    /// The shepherd's pid, for people to read. Signals belong to [`Shepherd::terminate`].
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The pid of the run's main process at its start; `None` when it could not be started. After adoption,
    /// [`Shepherd::status`] tells.
    pub fn child(&self) -> Option<u32> {
        self.child
    }

    /// Readable when [`Shepherd::try_next_event`] has something to say.
    pub fn connection(&self) -> BorrowedFd<'_> {
        self.link.stream.as_fd()
    }

    /// Ends the run: TERM to all its processes now, KILL after `grace`, at once when it is zero. Returns without
    /// waiting. The first cause is the one recorded; a shorter grace replaces a longer one. After the end of the main
    /// process this does nothing.
    ///
    /// # Errors
    /// When the shepherd is gone.
    pub fn terminate(&self, cause: Cause, grace: Duration) -> Result<(), ControlError> {
        Ok(self.link.send(&terminate_frame(&Terminate { cause, grace }))?)
    }

    /// Kills all processes of the run now.
    ///
    /// # Errors
    /// When the shepherd is gone.
    pub fn kill(&self, cause: Cause) -> Result<(), ControlError> {
        self.terminate(cause, Duration::ZERO)
    }

    /// Sends a signal to the process group of the main process of a call, of a run never. Returns without waiting; what is refused comes
    /// as [`Event::Refused`]. After the end of the main process this does nothing.
    ///
    /// The signals that stop a process from its terminal become STOP for a call without one: the kernel would drop them, as nobody in
    /// such a call's session could continue it.
    ///
    /// # Errors
    /// When the shepherd is gone.
    pub fn signal(&self, signal: i32) -> Result<(), ControlError> {
        Ok(self.link.send(&signal_frame(signal))?)
    }

    /// How the run is doing. Events that come before the answer are kept for [`Shepherd::next_event`].
    ///
    /// # Errors
    /// When the shepherd is gone, or is between two runs.
    pub fn status(&mut self) -> Result<StatusReport, ControlError> {
        self.link.send(&status_frame())?;
        let deadline = Instant::now() + ANSWER_BOUND;
        loop {
            match self.link.next_event(Some(deadline.saturating_duration_since(Instant::now())))? {
                Event::Status(report) => return Ok(report),
                Event::Refused(reason) => return Err(ControlError::Refused(reason)),
                event => self.early.push_back(event),
            }
        }
    }

    /// Waits for the next event. [`LinkError::Closed`] after the last one.
    ///
    /// # Errors
    /// When the connection closes or breaks.
    pub fn next_event(&mut self) -> Result<Event, LinkError> {
        match self.early.pop_front() {
            Some(event) => Ok(event),
            None => self.link.next_event(None),
        }
    }

    /// The next event if one has come; `None` when the connection has nothing now.
    ///
    /// # Errors
    /// When the connection closes or breaks.
    pub fn try_next_event(&mut self) -> Result<Option<Event>, LinkError> {
        if let Some(event) = self.early.pop_front() {
            return Ok(Some(event));
        }
        match self.link.next_event(Some(Duration::ZERO)) {
            Ok(event) => Ok(Some(event)),
            Err(LinkError::Timeout) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// When the connection closes without a record, because the shepherd was killed; [`crate::adopt`] then tells.
    pub fn wait(&mut self) -> Result<ExitRecord, LinkError> {
        loop {
            if let Event::Finished(record) = self.next_event()? {
                return Ok(*record);
            }
        }
    }

    /// Hands a lingering shepherd its next run, after the last one's [`Event::Finished`]. Returns at once; the next
    /// event is [`Event::Started`] or [`Event::Refused`].
    ///
    /// The shepherd may have stopped lingering just now. An error, or the connection closing before an answer, says
    /// that nothing was started, unless the journal says that the run was taken: adoption tells.
    ///
    /// # Errors
    /// When the launch is at fault, or the shepherd is gone.
    pub fn launch_next(&mut self, launch: &Launch) -> Result<(), ControlError> {
        Ok(self.link.send(&launch_frame(launch)?)?)
    }

    /// Hands a lingering shepherd its next call, as [`Shepherd::launch_next`] does a run; see [`crate::Launcher::call`].
    ///
    /// # Errors
    /// When the launch is at fault, or the shepherd is gone.
    pub fn call_next(&mut self, launch: &Launch, stdio: [BorrowedFd<'_>; 3]) -> Result<(), ControlError> {
        Ok(self.link.send_along(&launch_frame(launch)?, &stdio)?)
    }

    /// As [`Shepherd::call_next`], of a program that starts in this mount namespace; see [`crate::Launcher::call_in`].
    ///
    /// # Errors
    /// As for [`Shepherd::call_next`].
    pub fn call_next_in(
        &mut self,
        launch: &Launch,
        [stdin, stdout, stderr]: [BorrowedFd<'_>; 3],
        namespace: BorrowedFd<'_>,
    ) -> Result<(), ControlError> {
        Ok(self.link.send_along(&launch_frame(launch)?, &[stdin, stdout, stderr, namespace])?)
    }
}

impl AsFd for Shepherd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// A client's view of a run's terminal, on a connection of its own.
///
/// Reading the stream gives what the terminal prints, beginning with a replay of up to 64 KiB, and ends with
/// the run. What is written must be made by [`terminal_input_frame`] and [`resize_frame`]. A client that reads too
/// slowly misses output; it never holds up the job.
#[derive(Debug)]
pub struct Attachment {
    stream: UnixStream,
}

impl Attachment {
    /// Attaches to the terminal of the run in `directory`, which takes the size of this client's window.
    ///
    /// # Errors
    /// When the run has ended or has no terminal.
    pub fn open(directory: &Path, size: WindowSize) -> Result<Attachment, ControlError> {
        let gone = || ControlError::Refused("the run has ended, or never started".into());
        let Ok(Some(record)) = RunningRecord::read(directory) else { return Err(gone()) };
        let mut link = Link::connect(&record).map_err(|_| gone())?;
        link.send(&attach_frame(size))?;
        match link.next_event_exactly()? {
            // A lingering shepherd may have gone on to another run.
            Event::Attached if matches!(ExitRecord::read(directory), Ok(Some(_))) => Err(gone()),
            Event::Attached => Ok(Attachment { stream: link.stream }),
            Event::Refused(reason) => Err(ControlError::Refused(reason)),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Types `bytes`.
    ///
    /// # Errors
    /// When the run has ended.
    pub fn type_in(&self, bytes: &[u8]) -> io::Result<()> {
        send_all(&self.stream, &terminal_input_frame(bytes), &[])
    }

    /// Tells the job that the window has changed.
    ///
    /// # Errors
    /// When the run has ended.
    pub fn resize(&self, size: WindowSize) -> io::Result<()> {
        send_all(&self.stream, &resize_frame(size), &[])
    }

    /// The connection itself, blocking.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The connection itself, to be driven by a runtime.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }
}

/// A control connection failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The shepherd closed it, or ended.
    #[error("the connection is closed")]
    Closed,
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// An answer to something else.
    #[error("an unexpected answer")]
    Unexpected,
    /// Not our protocol.
    #[error("a malformed answer")]
    Wire(#[from] WireError),
    /// The system refused.
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

/// Connects to an abstract name, and gives up soon: others who connect without end fill the queue, and whoever waits in it for his turn may be
/// an agent with other things to do.
fn connect_soon(name: &[u8]) -> io::Result<UnixStream> {
    const ATTEMPTS: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(5);
    let address = UnixAddr::new_abstract(name)?;
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let stream = UnixStream::from(socket(AddressFamily::Unix, SockType::Stream, flags, None)?);
    for _ in 0..ATTEMPTS {
        match connect(stream.as_raw_fd(), &address) {
            Err(Errno::EAGAIN) => std::thread::sleep(PAUSE),
            connected => {
                connected?;
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// The client's end of a control connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: UnixStream,
    inbox: Vec<u8>,
    /// The last descriptor that came along.
    descriptor: Option<OwnedFd>,
}

impl Link {
    pub(crate) fn new(stream: UnixStream) -> Link {
        Link { stream, inbox: Vec::new(), descriptor: None }
    }

    /// Connects to the shepherd that wrote `record`, and to nobody else who may have taken its socket's name since.
    pub(crate) fn connect(record: &RunningRecord) -> io::Result<Link> {
        let stream = connect_soon(record.socket.as_bytes())?;
        let peer = sys::peer(&stream)?;
        // A job of another user might be given the pid of a shepherd that is gone; it cannot be given its user.
        let is_ours = peer.uid == 0 || peer.uid == nix::unistd::geteuid().as_raw();
        if ProcessId::of(peer.pid) != Some(record.shepherd) || !is_ours {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the socket belongs to another process"));
        }
        Ok(Link::new(stream))
    }

    pub(crate) fn send(&self, frame: &[u8]) -> Result<(), LinkError> {
        self.send_along(frame, &[])
    }

    /// Sends a frame with descriptors.
    pub(crate) fn send_along(&self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        send_all(&self.stream, frame, descriptors).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LinkError::Closed,
            _ => LinkError::Io(error),
        })
    }

    /// Waits for one event, no longer than `patience`.
    pub(crate) fn next_event(&mut self, patience: Option<Duration>) -> Result<Event, LinkError> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        loop {
            if let Some((kind, body)) = take_frame(&mut self.inbox)? {
                return Ok(Event::decode(kind, &body)?);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let ready = sys::wait_readable(self.stream.as_fd(), left)?;
            if ready {
                self.fill(4096)?;
            } else if left == Some(Duration::ZERO) {
                return Err(LinkError::Timeout);
            }
        }
    }

    /// As [`Link::next_event`], without taking a byte that follows the frame.
    fn next_event_exactly(&mut self) -> Result<Event, LinkError> {
        let deadline = Instant::now() + ANSWER_BOUND;
        loop {
            if let Some((kind, body)) = take_frame(&mut self.inbox)? {
                return Ok(Event::decode(kind, &body)?);
            }
            let missing = match self.inbox.first_chunk::<4>() {
                None => 4 - self.inbox.len(),
                Some(length) => (4 + u32::from_le_bytes(*length) as usize).saturating_sub(self.inbox.len()),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if !sys::wait_readable(self.stream.as_fd(), Some(left))? && left.is_zero() {
                return Err(LinkError::Timeout);
            }
            self.fill(missing.min(4096))?;
        }
    }

    fn fill(&mut self, limit: usize) -> Result<(), LinkError> {
        let mut chunk = [0; 4096];
        let chunk = &mut chunk[..limit];
        match sys::receive(self.stream.as_fd(), chunk, MsgFlags::MSG_DONTWAIT) {
            Ok((0, _)) => Err(LinkError::Closed),
            Ok((length, mut along)) => {
                self.inbox.extend_from_slice(&chunk[..length]);
                self.descriptor = along.pop().or(self.descriptor.take());
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(LinkError::Closed),
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes all of it, without SIGPIPE; the descriptors go with the first byte.
fn send_all(stream: &UnixStream, mut bytes: &[u8], mut descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    while !bytes.is_empty() {
        match sys::send(stream.as_fd(), bytes, descriptors) {
            Ok(sent) => (bytes, descriptors) = (&bytes[sent..], &[]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

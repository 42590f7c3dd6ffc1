//! The agent's handle on a shepherd: a pidfd and a control connection.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, socket};

use crate::journal::JournalContent;
use crate::launch::{Launch, RunSignal, WindowSize};
use crate::process::ProcessId;
use crate::record::{Cause, ExitRecord, RunningRecord, StatusReport};
use crate::sys;
use crate::wire::{
    EncodeError, Event, Started, Terminate, WireError, attach_frame, change_limit_frame, launch_frame, resize_frame,
    signal_frame, signal_run_frame, status_frame, take_frame, terminal_input_frame, terminate_frame,
};

/// Timeout for answers. A shepherd answers at once, unless it waits for the file system of its program.
pub(crate) const ANSWER_BOUND: Duration = Duration::from_secs(10);

/// Maximum kernel memory, in bytes, of signals that the shepherd has not read. The kernel's own limit is three times as
/// high.
const MAX_UNREAD_SIGNAL_BYTES: usize = 64 << 10;

/// Maximum kernel memory, in bytes, of all requests that the shepherd has not read. Beyond it, many requests to end the
/// run wait already.
const MAX_UNREAD_BYTES: usize = 128 << 10;

/// The agent's handle on a shepherd and its run or call.
///
/// The handle's descriptor ([`AsFd`]) is a pidfd, which becomes readable after the shepherd has written the exit record
/// and exited. [`Shepherd::connection`] becomes readable slightly earlier, when an event arrives. Dropping the handle
/// does not affect a run, but ends a call.
#[derive(Debug)]
pub struct Shepherd {
    pid: u32,
    child: Option<u32>,
    pidfd: OwnedFd,
    link: Link,
    /// Events that arrived while this handle waited for an answer.
    early: VecDeque<Event>,
}

/// Why communication with a shepherd failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("no connection to the shepherd")]
    Link(#[from] LinkError),
    #[error("the shepherd refused: {0}")]
    Refused(String),
    /// The launch itself is invalid.
    #[error("the launch is invalid")]
    Encode(#[from] EncodeError),
}

impl Shepherd {
    /// Creates a handle from the first answer on a new connection, which carries the pidfd.
    pub(crate) fn started(mut link: Link, started: &Started) -> Result<Shepherd, LinkError> {
        let pidfd = link.descriptor.take().ok_or(LinkError::Unexpected)?;
        Ok(Shepherd { pid: started.shepherd, child: started.child, pidfd, link, early: VecDeque::new() })
    }

    /// Creates a handle from a verified pidfd and a new connection.
    pub(crate) fn adopted(pid: u32, child: Option<u32>, pidfd: OwnedFd, link: Link) -> Shepherd {
        Shepherd { pid, child, pidfd, link, early: VecDeque::new() }
    }

    /// Pid of the shepherd, for display. To send signals, use [`Shepherd::terminate`].
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Pid of the run's main process at its start; `None` if the process could not be started. After adoption, `None` if
    /// the process was not known to have started.
    pub fn child(&self) -> Option<u32> {
        self.child
    }

    /// The descriptor of the control connection; readable when [`Shepherd::try_next_event`] has an event.
    pub fn connection(&self) -> BorrowedFd<'_> {
        self.link.stream.as_fd()
    }

    /// Ends the run: sends TERM to all its processes now, and KILL after `grace`. A zero `grace` sends KILL
    /// immediately. Does not wait. The first cause is recorded; a shorter grace replaces a longer one. Has no effect
    /// after the main process has ended.
    ///
    /// # Errors
    /// If the shepherd has ended, or does not read its requests and many of them wait.
    pub fn terminate(&self, cause: Cause, grace: Duration) -> Result<(), ControlError> {
        Ok(self.link.send_unless_unread(&terminate_frame(&Terminate { cause, grace }), MAX_UNREAD_BYTES)?)
    }

    /// Kills all processes of the run immediately.
    ///
    /// # Errors
    /// If the shepherd has ended.
    pub fn kill(&self, cause: Cause) -> Result<(), ControlError> {
        self.terminate(cause, Duration::ZERO)
    }

    /// Sends a signal to the process group of a call's main process; not possible for a run. Does not wait; a refusal
    /// arrives as [`Event::Refused`]. Has no effect after the main process has ended.
    ///
    /// For a call without a terminal, terminal stop signals are replaced by STOP: the kernel would ignore them, because
    /// nothing in a session without a terminal could continue the process.
    ///
    /// # Errors
    /// If the shepherd has ended, or does not read its requests.
    pub fn signal(&self, signal: i32) -> Result<(), ControlError> {
        Ok(self.link.send_unless_unread(&signal_frame(signal), MAX_UNREAD_SIGNAL_BYTES)?)
    }

    /// Sends a signal to processes of the run. Does not wait. Has no effect after the main process has ended.
    ///
    /// # Errors
    /// If the shepherd has ended, or does not read its requests.
    pub fn signal_run(&self, signal: &RunSignal) -> Result<(), ControlError> {
        Ok(self.link.send_unless_unread(&signal_run_frame(signal), MAX_UNREAD_SIGNAL_BYTES)?)
    }

    /// Replaces the time limit of the run; `None` means no limit. The time counts from the start of the run, including the
    /// time that its preparation has taken ([`crate::Options::time_spent`]). Does not wait. Has no effect on a run that is being ended.
    ///
    /// # Errors
    /// If the shepherd has ended, or does not read its requests.
    pub fn change_limit(&self, limit: Option<Duration>) -> Result<(), ControlError> {
        Ok(self.link.send_unless_unread(&change_limit_frame(limit), MAX_UNREAD_BYTES)?)
    }

    /// Queries the status of the run. Events that arrive before the answer are kept for [`Shepherd::next_event`].
    ///
    /// # Errors
    /// If the shepherd has ended or has no run.
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

    /// Waits for the next event; [`LinkError::Closed`] after the last one.
    ///
    /// # Errors
    /// If the connection is closed or broken.
    pub fn next_event(&mut self) -> Result<Event, LinkError> {
        match self.early.pop_front() {
            Some(event) => Ok(event),
            None => self.link.next_event(None),
        }
    }

    /// Returns the next event; `None` if no event has arrived.
    ///
    /// # Errors
    /// If the connection is closed or broken.
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
    /// If the connection closes without a record, because the shepherd was killed. Then use [`crate::adopt`].
    pub fn wait(&mut self) -> Result<ExitRecord, LinkError> {
        loop {
            if let Event::Finished(record) = self.next_event()? {
                return Ok(*record);
            }
        }
    }

    /// Sends the next run to a lingering shepherd, after [`Event::Finished`] of the last run. Does not wait; the next
    /// event is [`Event::Started`] or [`Event::Refused`].
    ///
    /// The shepherd may be exiting. After an error, or if the connection closes without an answer, nothing was started
    /// unless the journal says that the shepherd claimed the run; use [`crate::adopt`] to find out.
    ///
    /// # Errors
    /// If the launch is invalid or the shepherd has ended.
    pub fn launch_next(&mut self, launch: &Launch) -> Result<(), ControlError> {
        Ok(self.link.send(&launch_frame(launch)?)?)
    }

    /// Sends the next call with its descriptors to a lingering shepherd, like [`Shepherd::launch_next`] does with a run;
    /// see [`crate::Launcher::call`].
    ///
    /// # Errors
    /// If the launch is invalid or the shepherd is gone.
    pub fn call_next(&mut self, launch: &Launch, descriptors: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        Ok(self.link.send_along(&launch_frame(launch)?, descriptors)?)
    }
}

impl AsFd for Shepherd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// A client's connection to a run's terminal.
///
/// The stream returns the terminal's output, starting with a replay of up to 64 KiB, and ends with the run. Write only
/// frames from [`terminal_input_frame`] and [`resize_frame`]. A client that reads too slowly misses output, but never
/// delays the job.
#[derive(Debug)]
pub struct Attachment {
    stream: UnixStream,
}

impl Attachment {
    /// Attaches to the terminal of the run in `directory` and sets the terminal to the size of this client's window.
    ///
    /// # Errors
    /// If the run has ended or has no terminal.
    pub fn open(directory: &Path, size: WindowSize) -> Result<Attachment, ControlError> {
        let gone = || ControlError::Refused("the run has ended, or never started".into());
        let Ok(JournalContent { taken: Some(record), .. }) = JournalContent::read(directory) else {
            return Err(gone());
        };
        let mut link = Link::connect(&record).map_err(|_| gone())?;
        link.send(&attach_frame(size))?;
        match link.next_event_exactly()? {
            // A lingering shepherd may have started another run.
            Event::Attached if matches!(JournalContent::read(directory), Ok(JournalContent { ended: Some(_), .. })) => {
                Err(gone())
            }
            Event::Attached => Ok(Attachment { stream: link.stream }),
            Event::Refused(reason) => Err(ControlError::Refused(reason)),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Sends input to the terminal.
    ///
    /// # Errors
    /// If the run has ended.
    pub fn type_in(&self, bytes: &[u8]) -> io::Result<()> {
        send_all(&self.stream, &terminal_input_frame(bytes), &[])
    }

    /// Sets the size of the terminal.
    ///
    /// # Errors
    /// If the run has ended.
    pub fn resize(&self, size: WindowSize) -> io::Result<()> {
        send_all(&self.stream, &resize_frame(size), &[])
    }

    /// The connection, in blocking mode.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The connection, for use with an async runtime.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }
}

/// Why a control connection failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the connection is closed")]
    Closed,
    #[error("no answer in time")]
    Timeout,
    /// The answer does not match the request.
    #[error("the answer does not match the request")]
    Unexpected,
    /// The data violates the protocol.
    #[error("the answer violates the protocol")]
    Wire(#[from] WireError),
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

/// Connects to the abstract socket `name` with a short timeout: other clients may fill the socket's connection queue,
/// and the agent must not block on it.
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
    descriptor: Option<OwnedFd>,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Link {
    pub(crate) fn new(stream: UnixStream) -> Link {
        Link { stream, inbox: Vec::new(), descriptor: None }
    }

    /// Connects to the shepherd of `record`. Rejects another process that has bound the same socket name after the
    /// shepherd's end.
    pub(crate) fn connect(record: &RunningRecord) -> io::Result<Link> {
        let stream = connect_soon(record.socket.as_bytes())?;
        let peer = sys::peer(&stream)?;
        // Another user's job might get the pid of a former shepherd, but not its uid.
        let is_ours = peer.uid == 0 || peer.uid == nix::unistd::geteuid().as_raw();
        if ProcessId::of(peer.pid) != Some(record.shepherd) || !is_ours {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the socket belongs to another process"));
        }
        Ok(Link::new(stream))
    }

    pub(crate) fn send(&self, frame: &[u8]) -> Result<(), LinkError> {
        self.send_along(frame, &[])
    }

    /// Sends a frame unless more than `limit` bytes are unread, because the shepherd waits for the file system of its
    /// program. Frames that users cause at will must not fill the connection: sending would then block.
    fn send_unless_unread(&self, frame: &[u8], limit: usize) -> Result<(), LinkError> {
        if sys::unread_bytes(self.stream.as_fd())? > limit { Err(LinkError::Timeout) } else { self.send(frame) }
    }

    /// Sends a frame with descriptors.
    pub(crate) fn send_along(&self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        send_all(&self.stream, frame, descriptors).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LinkError::Closed,
            _ => LinkError::Io(error),
        })
    }

    /// Waits for one event, up to a timeout.
    pub(crate) fn next_event(&mut self, retry_limits: Option<Duration>) -> Result<Event, LinkError> {
        let deadline = retry_limits.map(|retry_limits| Instant::now() + retry_limits);
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

    /// Like [`Link::next_event`], but never reads data after the frame.
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

/// Writes all bytes without raising SIGPIPE. The descriptors are sent with the first byte.
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

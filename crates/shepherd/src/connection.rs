//! The shepherd's end of a control connection. Nothing here ever waits for a client.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use crate::sys;
use crate::wire::{Request, WireError, take_frame};

/// Taken in at once. Cleared each time, so not larger than most launches.
const CHUNK_BYTES: usize = 4 << 10;

pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    inbox: Vec<u8>,
    /// An attached client's position in the terminal's output.
    pub(crate) viewing: Option<u64>,
    /// It has brought a whole frame, as every honest client does at once.
    pub(crate) has_spoken: bool,
    /// The other end is gone or broke the rules; to be dropped.
    pub(crate) closed: bool,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, inbox: Vec::new(), viewing: None, has_spoken: false, closed: false })
    }

    /// Takes in one chunk of what has arrived; bounded, so that one client cannot keep the shepherd busy.
    pub(crate) fn fill(&mut self) {
        let mut chunk = [0; CHUNK_BYTES];
        // There is no room for descriptors, so the kernel drops whatever somebody sends along.
        match recv(self.stream.as_raw_fd(), &mut chunk, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => self.closed = true,
            Ok(length) => self.inbox.extend_from_slice(&chunk[..length]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => self.closed = true,
        }
    }

    /// What has come of a frame that is not complete, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.inbox.len()
    }

    /// Closes it, and forgets what it has sent.
    pub(crate) fn drop_inbox(&mut self) {
        self.inbox = Vec::new();
        self.closed = true;
    }

    /// The next complete request; `None` when there is none yet. Breaking the rules closes the connection.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        match self.try_next_request() {
            Ok(request) => request,
            Err(_) => {
                self.closed = true;
                None
            }
        }
    }

    fn try_next_request(&mut self) -> Result<Option<Request>, WireError> {
        let Some((kind, body)) = take_frame(&mut self.inbox)? else { return Ok(None) };
        self.has_spoken = true;
        if self.inbox.is_empty() {
            // A large launch must not stay in memory for the length of the run.
            self.inbox = Vec::new();
        }
        Request::decode(kind, body).map(Some)
    }

    /// Sends a frame. A client that does not even take small frames is dropped.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        if !matches!(sys::send(self.stream.as_fd(), frame, None), Ok(sent) if sent == frame.len()) {
            self.closed = true;
        }
    }
}

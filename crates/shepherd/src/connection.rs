//! The shepherd's end of a control connection. No function here waits for a client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::MsgFlags;

use crate::sys;
use crate::wire::{Request, WireError, take_frame};

/// Read size in bytes: enough for most launches, and small because the buffer is zeroed for each read.
const CHUNK_BYTES: usize = 4 << 10;

pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    inbox: Vec<u8>,
    /// The last received descriptors, and the index in `inbox` of the last byte received with them. Valid clients
    /// finish a frame before they send more descriptors. If a client sends more descriptors in the middle of a frame,
    /// the earlier descriptors are closed.
    along: Option<(usize, Vec<OwnedFd>)>,
    /// Whether this client requested the current call.
    pub(crate) is_caller: bool,
    /// Position in the terminal's output up to which an attached client has received it; `None` if the client is not
    /// attached.
    pub(crate) viewing: Option<u64>,
    /// Whether the client has sent a complete frame. Valid clients send one immediately.
    pub(crate) has_spoken: bool,
    /// Whether the connection is closed or violated the protocol, and should be dropped.
    pub(crate) closed: bool,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        let (inbox, along) = (Vec::new(), None);
        Ok(Connection { stream, inbox, along, is_caller: false, viewing: None, has_spoken: false, closed: false })
    }

    /// Reads at most one chunk of data, so that one client cannot keep the shepherd busy.
    pub(crate) fn fill(&mut self) {
        let mut chunk = [0; CHUNK_BYTES];
        match sys::receive(self.stream.as_fd(), &mut chunk, MsgFlags::MSG_DONTWAIT) {
            Ok((0, _)) => self.closed = true,
            Ok((length, along)) => {
                self.inbox.extend_from_slice(&chunk[..length]);
                if !along.is_empty() {
                    self.along = Some((self.inbox.len() - 1, along));
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.closed = true,
        }
    }

    /// Number of received bytes that are not processed yet.
    pub(crate) fn held_bytes(&self) -> usize {
        self.inbox.len()
    }

    /// Closes the connection and discards its data.
    pub(crate) fn drop_inbox(&mut self) {
        self.inbox = Vec::new();
        self.along = None;
        self.closed = true;
    }

    /// The next complete request with its descriptors; `None` if no request is complete. A protocol violation closes
    /// the connection.
    pub(crate) fn next_request(&mut self) -> Option<(Request, Vec<OwnedFd>)> {
        match self.try_next_request() {
            Ok(request) => request,
            Err(_) => {
                self.closed = true;
                None
            }
        }
    }

    fn try_next_request(&mut self) -> Result<Option<(Request, Vec<OwnedFd>)>, WireError> {
        let held = self.inbox.len();
        let Some((kind, body)) = take_frame(&mut self.inbox)? else { return Ok(None) };
        self.has_spoken = true;
        let along = self.descriptors_of(held - self.inbox.len());
        if self.inbox.is_empty() {
            // Frees the memory of a large launch for the duration of the run.
            self.inbox = Vec::new();
        }
        Ok(Some((Request::decode(kind, body)?, along)))
    }

    /// Returns the descriptors that belong to the frame of `length` bytes that was just removed from the inbox. A
    /// sender attaches descriptors to the first byte of a frame, and a read that returns descriptors ends with the data
    /// of the same message. So the descriptors belong to the frame that contains the end of this data.
    fn descriptors_of(&mut self, length: usize) -> Vec<OwnedFd> {
        match &mut self.along {
            Some((last, _)) if *last >= length => {
                *last -= length;
                Vec::new()
            }
            _ => self.along.take().map(|(_, along)| along).unwrap_or_default(),
        }
    }

    /// Sends a frame. If the client does not accept the whole frame at once, marks the connection as closed.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        if !matches!(sys::send(self.stream.as_fd(), frame, &[]), Ok(sent) if sent == frame.len()) {
            self.closed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;
    use crate::launch::Launch;
    use crate::wire::{launch_frame, status_frame};

    /// Creates a connection. Also returns the client's end of the connection.
    fn connection() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (Connection::new(ours).expect("a new socket can be set up"), theirs)
    }

    /// Sends a frame with `count` copies of the writing end of a pipe. Returns the reading end, which shows whether all
    /// copies are closed.
    fn send(client: &UnixStream, frame: &[u8], count: usize) -> File {
        let (read, write) =
            nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK).expect("a pipe");
        let along = vec![write.as_fd(); count];
        let sent = sys::send(client.as_fd(), frame, &along).expect("the socket buffer has space");
        (&*client).write_all(&frame[sent..]).expect("the socket buffer has space");
        read.into()
    }

    /// Whether any copy of the other end is open.
    fn is_held(pipe: &File) -> bool {
        io::Read::read(&mut &*pipe, &mut [0]).is_err()
    }

    fn launch() -> Vec<u8> {
        let mut launch = Launch::new("/", ["true"]);
        // More than one read.
        launch.env = vec![("A".into(), "x".repeat(3 * CHUNK_BYTES).into())];
        launch_frame(&launch).expect("fits")
    }

    #[test]
    fn descriptors_belong_to_the_frame_they_came_with() {
        let (mut connection, client) = connection();
        let before = send(&client, &status_frame(), 0);
        let ours = send(&client, &launch(), 3);
        send(&client, &status_frame(), 0);
        let mut taken = Vec::new();
        while taken.len() < 3 {
            connection.fill();
            taken.extend(std::iter::from_fn(|| connection.next_request()));
        }
        let counts: Vec<_> = taken.iter().map(|(request, along)| (request == &Request::Status, along.len())).collect();
        assert_eq!(counts, [(true, 0), (false, 3), (true, 0)]);
        assert!(!is_held(&before) && is_held(&ours));
        drop(taken);
        assert!(!is_held(&ours));
    }

    #[test]
    fn surplus_and_unused_descriptors_are_closed() {
        let (mut connection, client) = connection();
        let many = send(&client, &status_frame(), 40);
        connection.fill();
        let (_, along) = connection.next_request().expect("earlier frames are still valid");
        assert_eq!(along.len(), 4, "the kernel closes those that do not fit");
        drop(along);
        assert!(!is_held(&many));
        // The same for an unfinished frame, for further descriptors within it, and for a dropped connection.
        let first = send(&client, &launch()[..100], 3);
        connection.fill();
        assert!(connection.next_request().is_none() && is_held(&first));
        let second = send(&client, &launch()[100..200], 3);
        connection.fill();
        assert!(!is_held(&first) && is_held(&second));
        connection.drop_inbox();
        assert!(!is_held(&second));
    }
}

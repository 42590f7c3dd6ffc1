//! The shepherd's end of a control connection. Nothing here ever waits for a client.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::MsgFlags;

use crate::sys;
use crate::wire::{Request, WireError, take_frame};

/// Taken in at once. Cleared each time, so not larger than most launches.
const CHUNK_BYTES: usize = 4 << 10;

pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    inbox: Vec<u8>,
    /// The descriptors that came along last, and where in `inbox` the last byte is that came with them. Nobody honest sends any before the
    /// frame of the ones before is complete, so those are closed then.
    along: Option<(usize, Vec<OwnedFd>)>,
    /// It asked for the call that is going on.
    pub(crate) is_caller: bool,
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
        let (inbox, along) = (Vec::new(), None);
        Ok(Connection { stream, inbox, along, is_caller: false, viewing: None, has_spoken: false, closed: false })
    }

    /// Takes in one chunk of what has arrived; bounded, so that one client cannot keep the shepherd busy.
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

    /// What has come of a frame that is not complete, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.inbox.len()
    }

    /// Closes it, and forgets what it has sent.
    pub(crate) fn drop_inbox(&mut self) {
        self.inbox = Vec::new();
        self.along = None;
        self.closed = true;
    }

    /// The next complete request, with the descriptors that came along with it; `None` when there is none yet. Breaking the rules
    /// closes the connection.
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
        let along = self.take_along(held - self.inbox.len());
        if self.inbox.is_empty() {
            // A large launch must not stay in memory for the length of the run.
            self.inbox = Vec::new();
        }
        Ok(Some((Request::decode(kind, body)?, along)))
    }

    /// The descriptors of a frame of so many bytes that was just taken. A sender gives them to the first byte of a frame, and the
    /// kernel ends what is received at once with the piece they came with, so theirs is the frame which that ends in.
    fn take_along(&mut self, length: usize) -> Vec<OwnedFd> {
        match &mut self.along {
            Some((last, _)) if *last >= length => {
                *last -= length;
                Vec::new()
            }
            _ => self.along.take().map(|(_, along)| along).unwrap_or_default(),
        }
    }

    /// Sends a frame. A client that does not even take small frames is dropped.
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

    /// A connection, and the end of whoever is connected.
    fn connection() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (Connection::new(ours).expect("ours"), theirs)
    }

    /// Sends a frame with so many descriptors of the writing end of a pipe. The reading end tells when nobody holds any.
    fn send(client: &UnixStream, frame: &[u8], count: usize) -> File {
        let (read, write) =
            nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK).expect("a pipe");
        let along = vec![write.as_fd(); count];
        let sent = sys::send(client.as_fd(), frame, &along).expect("there is room");
        (&*client).write_all(&frame[sent..]).expect("there is room");
        read.into()
    }

    /// Whether somebody holds the other end of the pipe.
    fn is_held(pipe: &File) -> bool {
        io::Read::read(&mut &*pipe, &mut [0]).is_err()
    }

    fn launch() -> Vec<u8> {
        let mut launch = Launch::new("/", ["true"]);
        // More than is taken in at once.
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
    fn nothing_that_is_too_much_or_came_in_vain_stays_open() {
        let (mut connection, client) = connection();
        let many = send(&client, &status_frame(), 40);
        connection.fill();
        let (_, along) = connection.next_request().expect("what was said counts");
        assert!(along.is_empty() && !is_held(&many));
        // The same again for a frame that is never finished, and then a second time, and a connection that is given up.
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

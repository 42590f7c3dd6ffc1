//! The connections of local programs, the standard streams that they hand over, and how the agent closes both.
//!
//! Closing a file waits for its file system, which may be a program of the caller that never answers. The kernel also
//! closes files: those in unread messages of a socket that is closed, and those that the receiver of a message does not
//! take. All remote commands share one thread, so one thread per user closes files and connections instead. A user whose
//! thread hangs gets no further commands until the file system answers.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hostler_shepherd::receive_all;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::MsgFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

use crate::mutex::lock;

/// How long closing one descriptor takes before further commands of its user are refused.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// How many descriptors of one user wait to be closed before the agent takes no more from this user.
const MAX_WAITING: usize = 4096;

/// How long a thread waits for more descriptors.
const LINGER: Duration = Duration::from_secs(10);

/// The threads that close descriptors, by uid.
#[derive(Default)]
pub(super) struct Closers(Mutex<HashMap<u32, Closer>>);

struct Closer {
    queue: Sender<OwnedFd>,
    /// The number of descriptors in the queue.
    waiting: Arc<AtomicUsize>,
    /// When the thread began to close the present descriptor.
    closing: Arc<Mutex<Option<Instant>>>,
}

impl Closers {
    /// Whether closing a descriptor of this user takes long, because its file system does not answer.
    pub(super) fn is_stuck(&self, uid: u32) -> bool {
        let since = lock(&self.0).get(&uid).and_then(|closer| *lock(&closer.closing));
        since.is_some_and(|since| since.elapsed() > STUCK_AFTER)
    }

    /// Whether as many descriptors of this user wait as may.
    fn is_full(&self, uid: u32) -> bool {
        lock(&self.0).get(&uid).is_some_and(|closer| closer.waiting.load(Relaxed) >= MAX_WAITING)
    }

    fn close(&self, uid: u32, descriptor: OwnedFd) {
        if is_pipe(&descriptor) {
            return;
        }
        let mut closers = lock(&self.0);
        let mut left = Some(descriptor);
        for _ in 0..2 {
            let closer = closers.entry(uid).or_insert_with(|| Closer::start(uid));
            let Some(descriptor) = left.take() else { return };
            closer.waiting.fetch_add(1, Relaxed);
            match closer.queue.send(descriptor) {
                Ok(()) => return,
                // The thread has just ended.
                Err(SendError(descriptor)) => {
                    closers.remove(&uid);
                    left = Some(descriptor);
                }
            }
        }
        // No thread could be started. The descriptor stays open, rather than to delay other users.
        std::mem::forget(left);
    }
}

impl Closer {
    fn start(uid: u32) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "`is_full` bounds the queue, since a descriptor cannot be refused here"
        )]
        let (queue, descriptors) = channel();
        let (waiting, closing) = (Arc::default(), Arc::default());
        let (left, present) = (Arc::clone(&waiting), Arc::clone(&closing));
        let run = move || close_all(&descriptors, &left, &present);
        if let Err(error) = std::thread::Builder::new().name(format!("close-{uid}")).stack_size(64 << 10).spawn(run) {
            tracing::warn!(uid, %error, "cannot start a thread that closes streams");
        }
        Self { queue, waiting, closing }
    }
}

fn close_all(descriptors: &Receiver<OwnedFd>, waiting: &AtomicUsize, closing: &Mutex<Option<Instant>>) {
    while let Ok(descriptor) = descriptors.recv_timeout(LINGER) {
        *lock(closing) = Some(Instant::now());
        drop(descriptor);
        *lock(closing) = None;
        waiting.fetch_sub(1, Relaxed);
    }
}

/// Whether the descriptor is a pipe, which is closed at once. Asks no file system.
fn is_pipe(descriptor: &OwnedFd) -> bool {
    fcntl(descriptor, FcntlArg::F_GETPIPE_SZ).is_ok()
}

/// Descriptors that a local program has handed over. Dropping them never waits.
pub(super) struct CallerStreams {
    descriptors: Vec<OwnedFd>,
    uid: u32,
    closers: Arc<Closers>,
}

impl CallerStreams {
    pub(super) fn new(descriptors: Vec<OwnedFd>, uid: u32, closers: &Arc<Closers>) -> Self {
        Self { descriptors, uid, closers: Arc::clone(closers) }
    }

    /// Whether these are a program's three standard streams.
    pub(super) fn are_three(&self) -> bool {
        self.descriptors.len() == 3
    }

    pub(super) fn borrowed(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd).collect()
    }
}

impl Drop for CallerStreams {
    fn drop(&mut self) {
        self.descriptors.drain(..).for_each(|descriptor| self.closers.close(self.uid, descriptor));
    }
}

/// The connection of a local program. Neither reading from it nor dropping it waits for a file system.
pub(super) struct CallerSocket {
    /// `None` only while this value is dropped.
    stream: Option<UnixStream>,
    uid: u32,
    closers: Arc<Closers>,
}

impl CallerSocket {
    pub(super) fn new(stream: UnixStream, uid: u32, closers: &Arc<Closers>) -> Self {
        Self { stream: Some(stream), uid, closers: Arc::clone(closers) }
    }

    pub(super) fn get(&self) -> &UnixStream {
        self.stream.as_ref().expect("the value is not dropped yet")
    }

    /// Receives bytes, and the descriptors that came with them.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, CallerStreams)> {
        self.get().async_io(Interest::READABLE, || self.receive_now(buffer)).await
    }

    fn receive_now(&self, buffer: &mut [u8]) -> io::Result<(usize, CallerStreams)> {
        if self.closers.is_full(self.uid) {
            return Err(io::Error::other("too many files of earlier commands cannot be closed"));
        }
        let (length, descriptors) = receive_all(self.get().as_fd(), buffer, MsgFlags::MSG_DONTWAIT)?;
        Ok((length, CallerStreams::new(descriptors, self.uid, &self.closers)))
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut UnixStream> {
        Pin::new(self.get_mut().stream.as_mut().expect("the value is not dropped yet"))
    }
}

impl AsyncRead for CallerSocket {
    /// Reads bytes. Descriptors that come with them are closed.
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.get().poll_read_ready(context))?;
            let free = buffer.initialize_unfilled();
            match self.get().try_io(Interest::READABLE, || self.receive_now(free)) {
                Ok((length, _)) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for CallerSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.get().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}

impl Drop for CallerSocket {
    fn drop(&mut self) {
        if let Some(Ok(stream)) = self.stream.take().map(UnixStream::into_std) {
            // Afterwards no message arrives. Without an unread one, closing waits for nothing.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            if has_unread(&stream) {
                self.closers.close(self.uid, stream.into());
            }
        }
    }
}

/// Whether a socket has data that nobody has read.
fn has_unread(socket: &impl AsFd) -> bool {
    let mut count: nix::libc::c_int = 0;
    // SAFETY: the pointer refers to a local variable of the type that this request writes.
    let asked = unsafe {
        nix::libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd()), nix::libc::FIONREAD, &raw mut count)
    };
    asked != 0 || count != 0
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::IoSlice;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{ControlMessage, sendmsg};
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn files_are_closed_by_a_thread_and_pipes_at_once() {
        let closers = Arc::new(Closers::default());
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        assert!(is_pipe(&reader) && !is_pipe(&OwnedFd::from(File::open("/etc/passwd").expect("there"))));
        // The lock of a file ends with its last descriptor.
        let file = tempfile::NamedTempFile::new().expect("a file");
        let locked = file.reopen().expect("there");
        locked.lock().expect("free");
        drop(CallerStreams::new(vec![writer, locked.into()], 1000, &closers));
        assert_eq!(nix::unistd::read(&reader, &mut [0]), Ok(0), "the pipe has no writer");
        file.as_file().lock().expect("the thread closes the file");
        assert!(!closers.is_stuck(1000));
    }

    #[tokio::test]
    async fn user_whose_files_cannot_be_closed_hands_over_no_more() {
        let closers = Arc::new(Closers::default());
        // A thread that never closes anything.
        #[expect(clippy::disallowed_methods, reason = "the queue that is tested")]
        let (queue, descriptors) = channel();
        let waiting = Arc::new(AtomicUsize::new(MAX_WAITING - 1));
        let closer = Closer { queue, waiting: Arc::clone(&waiting), closing: Arc::default() };
        lock(&closers.0).insert(1000, closer);
        let send = || {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let file = tempfile::tempfile().expect("a file");
            let rights = [file.as_raw_fd()];
            let along = [ControlMessage::ScmRights(&rights)];
            sendmsg::<()>(theirs.as_raw_fd(), &[IoSlice::new(b"x")], &along, MsgFlags::empty(), None).expect("sent");
            CallerSocket::new(ours, 1000, &closers)
        };
        drop(send().receive(&mut [0]).await.expect("there is room for one"));
        assert_eq!(waiting.load(Relaxed), MAX_WAITING);
        assert!(send().receive(&mut [0]).await.is_err());
        let other = UnixStream::pair().expect("a pair");
        other.1.try_write(b"x").expect("sent");
        CallerSocket::new(other.0, 1001, &closers).receive(&mut [0]).await.expect("another user is served");
        assert!(descriptors.try_iter().count() > 0, "the file waits until it can be closed");
    }

    #[tokio::test]
    async fn descriptors_that_nobody_asked_for_are_closed_by_the_thread() {
        let closers = Arc::new(Closers::default());
        for (what, count, is_read) in [("few", 3, true), ("many", 200, true), ("unread", 3, false)] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let file = tempfile::NamedTempFile::new().expect("a file");
            let sent = file.reopen().expect("there");
            sent.lock().expect("free");
            let rights = vec![sent.as_raw_fd(); count];
            let along = [ControlMessage::ScmRights(&rights)];
            sendmsg::<()>(theirs.as_raw_fd(), &[IoSlice::new(b"x")], &along, MsgFlags::empty(), None).expect("sent");
            drop(sent);
            let mut socket = CallerSocket::new(ours, 1000, &closers);
            if is_read {
                assert_eq!(socket.read_u8().await.expect("sent"), b'x', "{what}");
            }
            assert!(file.as_file().try_lock().is_err() || is_read, "{what} is open");
            drop(socket);
            // The lock ends with the last descriptor.
            file.as_file().lock().expect("the thread closes all");
            assert!(lock(&closers.0).contains_key(&1000), "{what} were closed by the thread");
            lock(&closers.0).clear();
        }
        // A connection without unread data needs no thread.
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        drop(CallerSocket::new(ours, 1000, &closers));
        assert!(lock(&closers.0).is_empty());
    }
}

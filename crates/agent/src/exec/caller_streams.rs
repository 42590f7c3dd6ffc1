//! The standard streams that local programs hand over, and how the agent closes them.
//!
//! Closing a file waits for its file system, which may be a program of the caller that never answers. All remote
//! commands share one thread, so one thread per user closes files instead. A user whose thread hangs gets no further
//! commands until the file system answers.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};

use crate::mutex::lock;

/// How long closing one descriptor takes before further commands of its user are refused.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Length of a thread's queue: more than the descriptors of all admitted connections of one user.
const QUEUE_LEN: usize = 4096;

/// How long a thread waits for more descriptors.
const LINGER: Duration = Duration::from_secs(10);

/// The threads that close descriptors, by uid.
#[derive(Default)]
pub(super) struct Closers(Mutex<HashMap<u32, Closer>>);

struct Closer {
    queue: SyncSender<OwnedFd>,
    /// When the thread began to close the present descriptor.
    closing: Arc<Mutex<Option<Instant>>>,
}

impl Closers {
    /// Whether closing a descriptor of this user takes long, because its file system does not answer.
    pub(super) fn is_stuck(&self, uid: u32) -> bool {
        let since = lock(&self.0).get(&uid).and_then(|closer| *lock(&closer.closing));
        since.is_some_and(|since| since.elapsed() > STUCK_AFTER)
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
            match closer.queue.try_send(descriptor) {
                Ok(()) => return,
                // Only a stuck thread has a full queue. The descriptor stays open, rather than to delay other users.
                Err(TrySendError::Full(descriptor)) => return std::mem::forget(descriptor),
                // The thread has just ended.
                Err(TrySendError::Disconnected(descriptor)) => {
                    closers.remove(&uid);
                    left = Some(descriptor);
                }
            }
        }
        std::mem::forget(left);
    }
}

impl Closer {
    fn start(uid: u32) -> Self {
        let (queue, descriptors) = sync_channel(QUEUE_LEN);
        let closing = Arc::default();
        let present = Arc::clone(&closing);
        let run = move || close_all(&descriptors, &present);
        if let Err(error) = std::thread::Builder::new().name(format!("close-{uid}")).stack_size(64 << 10).spawn(run) {
            tracing::warn!(uid, %error, "cannot start a thread that closes streams");
        }
        Self { queue, closing }
    }
}

fn close_all(descriptors: &Receiver<OwnedFd>, closing: &Mutex<Option<Instant>>) {
    while let Ok(descriptor) = descriptors.recv_timeout(LINGER) {
        *lock(closing) = Some(Instant::now());
        drop(descriptor);
        *lock(closing) = None;
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

#[cfg(test)]
mod tests {
    use std::fs::File;

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
}

//! The standard streams that local programs hand over, and how the agent closes them.
//!
//! Closing a file waits for its file system, which may be a program of the caller that never answers. All remote
//! commands share one thread, so one thread per user closes files instead. A user whose thread hangs gets no further
//! commands with streams until the file system answers.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::libc;

use crate::mutex::lock;

/// How many descriptors of a user may wait to be closed before further commands are refused.
const MAX_WAITING: usize = 64;

/// Length of a thread's queue: the maximum number of waiting descriptors, and those of all commands of one user that
/// were accepted before.
const QUEUE_LEN: usize = 4096;

/// How long a thread waits for more descriptors.
const LINGER: Duration = Duration::from_secs(10);

/// The threads that close descriptors, by uid.
#[derive(Default)]
pub(super) struct Closers(Mutex<HashMap<u32, Closer>>);

struct Closer {
    queue: SyncSender<OwnedFd>,
    waiting: Arc<AtomicUsize>,
}

impl Closers {
    /// Whether too many descriptors of this user wait to be closed.
    pub(super) fn is_stuck(&self, uid: u32) -> bool {
        let closers = lock(&self.0);
        closers.get(&uid).is_some_and(|closer| closer.waiting.load(Ordering::Relaxed) > MAX_WAITING)
    }

    fn close(&self, uid: u32, descriptor: OwnedFd) {
        if never_waits(&descriptor) {
            return;
        }
        let mut closers = lock(&self.0);
        let mut left = Some(descriptor);
        for _ in 0..2 {
            let closer = closers.entry(uid).or_insert_with(|| Closer::start(uid));
            let Some(descriptor) = left.take() else { return };
            closer.waiting.fetch_add(1, Ordering::Relaxed);
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
        let waiting = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&waiting);
        let run = move || close_all(&descriptors, &counter);
        if let Err(error) = std::thread::Builder::new().name(format!("close-{uid}")).stack_size(64 << 10).spawn(run) {
            tracing::warn!(uid, %error, "cannot start a thread that closes streams");
        }
        Self { queue, waiting }
    }
}

fn close_all(descriptors: &Receiver<OwnedFd>, waiting: &AtomicUsize) {
    while let Ok(descriptor) = descriptors.recv_timeout(LINGER) {
        drop(descriptor);
        waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether closing the descriptor involves no file system: pipes, sockets and terminals. Asks no file system either.
fn never_waits(descriptor: &OwnedFd) -> bool {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: all zeroes is a valid statx, and the call overwrites it. The path is NUL-terminated.
    let mode = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let got = libc::statx(descriptor.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_TYPE, &raw mut found);
        if got == 0 { u32::from(found.stx_mode) } else { 0 }
    };
    matches!(mode & libc::S_IFMT, libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFCHR)
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
        assert!(never_waits(&reader) && !never_waits(&OwnedFd::from(File::open("/etc/passwd").expect("there"))));
        let file = OwnedFd::from(tempfile::tempfile().expect("a file"));
        drop(CallerStreams::new(vec![writer, file], 1000, &closers));
        assert_eq!(nix::unistd::read(&reader, &mut [0]), Ok(0), "the pipe has no writer");
        let waiting = Arc::clone(&closers.0.lock().expect("not poisoned")[&1000].waiting);
        while waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert!(!closers.is_stuck(1000));
    }
}

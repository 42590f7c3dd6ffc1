//! Waiting until a descriptor can be read, on the runtime.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that is waited for. It is owned, so it stays open and the same for as long as it is registered.
pub(crate) struct Readiness<T: AsFd>(AsyncFd<Owned<T>>);

/// What owns the descriptor.
struct Owned<T: AsFd>(T);

impl<T: AsFd> AsRawFd for Owned<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<T: AsFd> Readiness<T> {
    /// Registers a descriptor. Needs a runtime.
    pub(crate) fn of(owner: T) -> io::Result<Self> {
        // SAFETY: `Owned` keeps the owner, and with it the one descriptor it borrows out, unchanged until it is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(Owned(owner), Interest::READABLE) };
        registered.map(Self).map_err(|error| io::Error::other(error.to_string()))
    }

    /// What was registered.
    pub(crate) fn owner(&self) -> &T {
        &self.0.get_ref().0
    }

    /// Ends when there may be something to read that was not there when it was last found empty.
    pub(crate) async fn readable(&self) {
        if let Ok(mut ready) = self.0.readable().await {
            ready.clear_ready();
        }
    }
}

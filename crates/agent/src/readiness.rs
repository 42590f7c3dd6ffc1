//! Waits on the async runtime until a file descriptor is readable.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A file descriptor that is registered with the runtime. Owns the descriptor, which therefore stays open while it is
/// registered.
pub(crate) struct Readiness<T: AsFd>(AsyncFd<Owned<T>>);

/// Owner of the descriptor.
struct Owned<T: AsFd>(T);

impl<T: AsFd> AsRawFd for Owned<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl<T: AsFd> Readiness<T> {
    /// Registers a descriptor. Needs a runtime.
    pub(crate) fn of(owner: T) -> io::Result<Self> {
        // SAFETY: `Owned` keeps the owner, and so its descriptor, unchanged until the registration is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(Owned(owner), Interest::READABLE) };
        registered.map(Self).map_err(|error| io::Error::other(error.to_string()))
    }

    pub(crate) fn owner(&self) -> &T {
        &self.0.get_ref().0
    }

    /// Waits until there may be new data to read.
    pub(crate) async fn readable(&self) {
        if let Ok(mut ready) = self.0.readable().await {
            ready.clear_ready();
        }
    }
}

//! Limits on TCP connections that hear nothing from the other end, such as after a machine has got another address. Without them,
//! Linux waits for a quarter of an hour, or for ever if nothing is sent. Errors are ignored.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::libc;

/// Closes a connection that sends nothing if the other end answers no probe for about this long, at least six seconds.
pub fn limit_silence(socket: impl AsFd, limit: Duration) {
    let seconds = libc::c_int::try_from(limit.as_secs()).unwrap_or(libc::c_int::MAX).max(6);
    // The first probe after a third of the limit, and the last of four at its end.
    set(&socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds / 3);
    set(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds / 6);
    set(&socket, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4);
}

/// Closes a connection whose data the other end does not take for this long. Only for connections whose other end always reads.
pub fn limit_unread(socket: impl AsFd, limit: Duration) {
    let milliseconds = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
    set(&socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, milliseconds);
}

fn set(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    // SAFETY: the pointer is to an int, which these options expect. The borrowed descriptor is open.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

//! How long a TCP connection may hear nothing from the other end.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::libc;

/// Closes a TCP connection whose other end acknowledges nothing for this long, such as after a machine has got another
/// address: within seconds of the limit, at least six. Without this, Linux waits for a quarter of an hour, or for ever if
/// nothing is sent. Errors are ignored.
pub fn limit_silence(socket: impl AsFd, limit: Duration) {
    let seconds = libc::c_int::try_from(limit.as_secs()).unwrap_or(libc::c_int::MAX).max(6);
    // The first probe after a third of the limit, and the last of four at its end.
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds / 3),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds / 6),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, seconds.saturating_mul(1000)),
    ];
    for (level, name, value) in options {
        // SAFETY: the pointer is to an int, which this option expects. The borrowed descriptor is open.
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
}

//! TCP keep-alive settings that detect a vanished peer within a minute.

use std::os::fd::AsRawFd;

use nix::libc;
use tokio::net::TcpStream;

/// Socket options: seconds of silence before the first probe, seconds between probes, number of probes, and
/// milliseconds until unacknowledged data closes the connection.
const OPTIONS: [(libc::c_int, libc::c_int, libc::c_int); 5] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 20),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 60_000),
];

/// Enables keep-alive probes on a connection, and sends small frames without delay. Errors are ignored.
pub fn keep_alive(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    for (level, name, value) in OPTIONS {
        // SAFETY: the pointer is to an int, which this option expects. The descriptor is open as long as the stream.
        let _ = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
    }
}

//! A peer whose machine has gone without a word is noticed within a minute.

use std::os::fd::AsRawFd;

use nix::libc;
use tokio::net::TcpStream;

/// What the kernel is told: it asks after so many seconds of silence, then at intervals of seconds, gives up after so many questions, and
/// waits so many milliseconds for what was sent to be acknowledged.
const OPTIONS: [(libc::c_int, libc::c_int, libc::c_int); 5] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 20),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 60_000),
];

/// Has the kernel look after a connection, and send small frames at once. A system that refuses that loses only the notice.
pub fn keep_alive(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    for (level, name, value) in OPTIONS {
        // SAFETY: the option is an int, which is what the pointer is to, and the descriptor is open as long as the stream.
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

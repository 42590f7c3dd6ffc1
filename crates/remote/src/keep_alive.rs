//! Settings of connections between nodes.

use std::time::Duration;

use tokio::net::TcpStream;

/// Time after which a silent connection counts as broken.
const SILENCE: Duration = Duration::from_secs(60);

/// Detects a vanished peer within a minute, and sends small frames without delay. Errors are ignored.
pub fn keep_alive(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    hostler_sys::limit_silence(stream, SILENCE);
    // The other end reads always: each channel has a window of its own.
    hostler_sys::limit_unread(stream, SILENCE);
}

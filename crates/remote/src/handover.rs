//! What a program hands to the agent of its machine before it asks: its own standard streams, so that on this machine a command writes
//! where its caller would have written, with nothing in between.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};

/// Sends them, or word that there are none. It precedes the first frame.
///
/// # Errors
/// When the connection breaks.
pub fn hand_over(to: &UnixStream, streams: Option<[BorrowedFd<'_>; 3]>) -> io::Result<()> {
    let numbers = streams.map(|streams| streams.map(|stream| stream.as_raw_fd()));
    let rights: Vec<_> = numbers.iter().map(|numbers| ControlMessage::ScmRights(numbers)).collect();
    let word = [IoSlice::new(if numbers.is_some() { &[3] } else { &[0] })];
    match sendmsg::<UnixAddr>(to.as_raw_fd(), &word, &rights, MsgFlags::MSG_NOSIGNAL, None) {
        // One of them is closed: then there is nothing to hand over.
        Err(nix::errno::Errno::EBADF) if numbers.is_some() => hand_over(to, None),
        sent => sent.map(drop).map_err(io::Error::from),
    }
}

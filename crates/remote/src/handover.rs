//! The first message of a program to its local agent: the protocol version and the program's standard streams.
//!
//! A command that runs on this machine writes directly to the streams of its caller.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};

use crate::frame::PROTOCOL;

/// Sends the protocol version and, if given, the streams.
///
/// # Errors
/// Fails when the connection breaks.
pub fn hand_over(to: &UnixStream, streams: Option<[BorrowedFd<'_>; 3]>) -> io::Result<()> {
    let numbers = streams.map(|streams| streams.map(|stream| stream.as_raw_fd()));
    let rights: Vec<_> = numbers.iter().map(|numbers| ControlMessage::ScmRights(numbers)).collect();
    let word = [PROTOCOL, u8::from(numbers.is_some())];
    let word = [IoSlice::new(&word)];
    match sendmsg::<UnixAddr>(to.as_raw_fd(), &word, &rights, MsgFlags::MSG_NOSIGNAL, None) {
        // One of the streams is closed: send none.
        Err(nix::errno::Errno::EBADF) if numbers.is_some() => hand_over(to, None),
        sent => sent.map(drop).map_err(io::Error::from),
    }
}

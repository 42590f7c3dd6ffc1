//! Terminal of a run: the pty, the replay buffer, and the attached clients.
//!
//! The job's output goes to its log and into a ring buffer of 64 KiB. A client has a position in that stream: a new
//! client starts at the oldest byte (the replay). A client that is too slow skips bytes that the buffer no longer
//! contains. Clients therefore never delay the job, and need no memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::launch::{Credentials, WindowSize};
use crate::sys;

/// Size of the replay for a new client, in bytes.
const REPLAY_BYTES: usize = 64 << 10;

const CHUNK_BYTES: usize = 16 << 10;

/// Notice for clients that were too slow.
const SKIPPED: &[u8] = b"\r\n[output skipped]\r\n";

pub(crate) struct Terminal {
    master: File,
    /// The slave side. Kept open, so that the job may close and reopen its terminal without a hang-up of the master.
    slave: OwnedFd,
    log: File,
    replay: Replay,
    /// Input that the terminal has not accepted yet. The shepherd reads no client until this buffer is empty.
    typed: Vec<u8>,
    log_error: Option<String>,
    /// Whether the master has hung up; it is then no longer polled.
    hung_up: bool,
}

impl Terminal {
    /// Opens a terminal and appends its output to `log`.
    pub(crate) fn open(size: WindowSize, log: File, owner: Option<&Credentials>) -> io::Result<Terminal> {
        // SAFETY: the system call takes plain integers.
        let master = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK) };
        sys::check(master.into())?;
        // SAFETY: the descriptor was just created for this process.
        let master = unsafe { File::from_raw_fd(master) };
        // SAFETY: the descriptor is a pty master.
        sys::check(unsafe { libc::unlockpt(master.as_raw_fd()) }.into())?;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: the descriptor is a pty master; the call opens its slave, wherever /dev/pts is mounted.
        let slave = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
        sys::check(slave.into())?;
        // SAFETY: the descriptor was just created for this process.
        let slave = unsafe { OwnedFd::from_raw_fd(slave) };
        if let Some(owner) = owner {
            std::os::unix::fs::fchown(&slave, Some(owner.uid), None)?;
        }
        let terminal = Terminal {
            master,
            slave,
            log,
            replay: Replay::default(),
            typed: Vec::new(),
            log_error: None,
            hung_up: false,
        };
        terminal.resize(size);
        Ok(terminal)
    }

    pub(crate) fn slave(&self) -> BorrowedFd<'_> {
        self.slave.as_fd()
    }

    pub(crate) fn master(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }

    /// Sets the size of the terminal. A size of zero keeps the current size.
    pub(crate) fn resize(&self, size: WindowSize) {
        if size.rows == 0 || size.columns == 0 {
            return;
        }
        let size = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the descriptor is a pty master, and the pointer refers to a local variable. A failure leaves the old size.
        unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    }

    /// Reads one chunk of the job's output; `false` if no output is available. A hung-up master returns EIO instead of
    /// an end of file; this function treats both alike.
    pub(crate) fn take_output(&mut self) -> bool {
        let mut chunk = [0; CHUNK_BYTES];
        let length = match self.master.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Ok(0) | Err(_) => {
                self.hung_up = true;
                return false;
            }
            Ok(length) => length,
        };
        let chunk = &chunk[..length];
        // A full disk does not end the job; the record reports that the log is incomplete.
        if let Err(error) = self.log.write_all(chunk) {
            self.log_error.get_or_insert_with(|| error.to_string());
        }
        self.replay.push(chunk);
        true
    }

    /// Forwards input of a client.
    pub(crate) fn type_in(&mut self, bytes: &[u8]) {
        self.typed.extend_from_slice(bytes);
        self.flush_typed();
    }

    /// Writes as much buffered input as the terminal accepts.
    pub(crate) fn flush_typed(&mut self) {
        while !self.typed.is_empty() {
            match self.master.write(&self.typed) {
                Ok(written) => drop(self.typed.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.typed.clear(),
            }
        }
        self.typed = Vec::new();
    }

    /// Poll events for the master; `None` if the master has hung up.
    pub(crate) fn interest(&self) -> Option<libc::c_short> {
        let write = if self.is_congested() { libc::POLLOUT } else { 0 };
        (!self.hung_up).then_some(libc::POLLIN | write)
    }

    /// Whether the terminal has not accepted all input yet. No further input is read until it has.
    pub(crate) fn is_congested(&self) -> bool {
        !self.typed.is_empty()
    }

    /// The position in the output at which a new client starts.
    pub(crate) fn first_position(&self) -> u64 {
        self.replay.start()
    }

    /// Whether a client at `position` has received all output so far.
    pub(crate) fn is_up_to_date(&self, position: u64) -> bool {
        position == self.replay.end
    }

    /// Sends outstanding output to a client, as far as its socket accepts it now. An error means that the client has
    /// disconnected.
    pub(crate) fn show(&self, client: &UnixStream, position: &mut u64) -> io::Result<()> {
        if *position < self.replay.start() {
            match sys::send(client.as_fd(), SKIPPED, &[]) {
                // If only a part of the notice fits, the client sees only that part.
                Ok(_) => *position = self.replay.start(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        while !self.is_up_to_date(*position) {
            match sys::send(client.as_fd(), self.replay.after(*position), &[]) {
                Ok(sent) => *position += sent as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) fn log_error(&self) -> Option<&str> {
        self.log_error.as_deref()
    }
}

/// The last [`REPLAY_BYTES`] of a stream, addressed by stream position.
#[derive(Default)]
struct Replay {
    kept: VecDeque<u8>,
    /// Total number of bytes pushed.
    end: u64,
}

impl Replay {
    fn push(&mut self, bytes: &[u8]) {
        let surplus = (self.kept.len() + bytes.len()).saturating_sub(REPLAY_BYTES);
        self.kept.drain(..surplus.min(self.kept.len()));
        self.kept.extend(bytes);
        self.end += bytes.len() as u64;
    }

    /// Position of the oldest byte in the buffer.
    fn start(&self) -> u64 {
        self.end - self.kept.len() as u64
    }

    /// Returns a contiguous piece of the stream from `position`, which must not be before [`Replay::start`]. Empty only
    /// at the end of the stream.
    fn after(&self, position: u64) -> &[u8] {
        let skip = (position - self.start()) as usize;
        let (front, back) = self.kept.as_slices();
        if skip < front.len() { &front[skip..] } else { &back[skip - front.len()..] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_keeps_the_end_of_the_stream() {
        let mut replay = Replay::default();
        let stream: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        for chunk in stream.chunks(7_001) {
            replay.push(chunk);
        }
        assert_eq!(replay.end, 200_000);
        assert_eq!(replay.start(), 200_000 - REPLAY_BYTES as u64);
        let mut seen = Vec::new();
        while replay.start() + (seen.len() as u64) < replay.end {
            seen.extend_from_slice(replay.after(replay.start() + seen.len() as u64));
        }
        assert_eq!(seen, &stream[200_000 - REPLAY_BYTES..]);
    }
}

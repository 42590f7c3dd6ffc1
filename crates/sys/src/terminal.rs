//! The terminal on standard input: its raw mode and its size.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::libc;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};

/// The terminal on standard input in raw mode. Dropping this value restores the terminal's previous mode.
#[derive(Debug)]
pub struct RawTerminal {
    before: Termios,
    is_raw: bool,
}

impl RawTerminal {
    /// Switches the terminal to raw mode, unless another job is in the terminal's foreground.
    ///
    /// # Errors
    /// When standard input is not a terminal.
    pub fn begin() -> io::Result<Self> {
        let mut raw = Self { before: tcgetattr(io::stdin())?, is_raw: false };
        raw.enter();
        Ok(raw)
    }

    /// Switches the terminal to raw mode again, unless another job is in the terminal's foreground.
    pub fn enter(&mut self) {
        if is_in_background() {
            return;
        }
        // While another job was in the foreground, the terminal's settings may have changed.
        if !self.is_raw
            && let Ok(now) = tcgetattr(io::stdin())
        {
            self.before = now;
        }
        self.is_raw = true;
        let mut raw = self.before.clone();
        cfmakeraw(&mut raw);
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw);
    }

    /// Restores the terminal's previous mode, unless another job is in the terminal's foreground.
    pub fn leave(&mut self) {
        if self.is_raw && !is_in_background() {
            let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
            self.is_raw = false;
        }
    }

    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.is_raw
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns whether another job is in the foreground of the terminal.
#[must_use]
pub fn is_in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

/// The rows and columns of the terminal `of`; `None` if `of` is not a terminal, or has no size.
#[must_use]
pub fn window_size(of: impl AsFd) -> Option<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request writes one `winsize` to the pointer's target.
    let result = unsafe { libc::ioctl(of.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_row > 0 && size.ws_col > 0).then_some((size.ws_row, size.ws_col))
}

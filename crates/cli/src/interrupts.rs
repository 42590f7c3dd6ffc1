//! Handles SIGINT, SIGTERM and SIGHUP, for commands that must clean up before they end.

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit;
use crate::failure::{During, Failure};

/// Handles SIGINT, SIGTERM and SIGHUP, which then no longer end the program.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
}

impl Interrupts {
    /// Starts to handle the three signals.
    pub(crate) fn take() -> Result<Self, Failure> {
        let take = |kind| unix::signal(kind).during(|| "cannot handle signals".to_owned());
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: take(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.hangup.recv() => Signal::SIGHUP,
        }
    }
}

/// The exit code that a shell reports for a program that was ended by `signal`.
pub(crate) fn exit_code(signal: Signal) -> u8 {
    exit::SIGNAL_BASE + signal as u8
}

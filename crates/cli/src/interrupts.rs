//! Ctrl-C and its relatives, for commands that have to do something about it first.

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit;
use crate::failure::{During, Failure};

/// INT, TERM and HUP from now on.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
}

impl Interrupts {
    /// Takes them over: until this is called they end the program.
    pub(crate) fn take() -> Result<Self, Failure> {
        let take = |kind| unix::signal(kind).during(|| "cannot handle signals".to_owned());
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: take(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.hangup.recv() => Signal::SIGHUP,
        }
    }
}

/// What a shell shows for a program that ended by `signal`.
pub(crate) fn exit_code(signal: Signal) -> u8 {
    exit::SIGNAL_BASE + signal as u8
}

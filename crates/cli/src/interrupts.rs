//! Handles SIGINT, SIGTERM and SIGHUP, for commands that must clean up before they end.

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit;
use crate::failure::{During, Failure};

/// Handles SIGINT, SIGTERM and SIGHUP, which then no longer end the program. A SIGHUP that the caller ignores, as `nohup`
/// does, stays ignored.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: Option<unix::Signal>,
}

impl Interrupts {
    /// Starts to handle the three signals.
    pub fn take() -> Result<Self, Failure> {
        let take = |kind| unix::signal(kind).during(|| "cannot handle signals".to_owned());
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hangup: (!is_ignored(Signal::SIGHUP)).then(|| take(SignalKind::hangup())).transpose()?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.terminate.recv() => Signal::SIGTERM,
            () = received(self.hangup.as_mut()) => Signal::SIGHUP,
        }
    }
}

async fn received(signal: Option<&mut unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether this process ignores the signal.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored >> (signal as u32 - 1) & 1 == 1
}

/// The exit code that a shell reports for a program that was ended by `signal`.
pub fn exit_code(signal: Signal) -> u8 {
    exit::SIGNAL_BASE + signal as u8
}

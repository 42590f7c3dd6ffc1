//! The signals that the caller's program passes on to its command on another node.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Signals that this program passes on to the command.
const PASSED_ON: [libc::c_int; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// Signals of this list end this program while its command has not started.
const ENDING: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// How long an ending signal waits for the report that the command has started.
const START_GRACE: Duration = Duration::from_secs(1);

/// The signals that end this program are blocked in this thread as long as this value lives. The command may have
/// started already, although its node's report has not arrived. Such a signal is then meant for the command.
#[derive(Debug)]
pub struct HeldSignals {
    before: SigSet,
    arrived: SignalFd,
}

impl HeldSignals {
    /// Blocks the signals.
    ///
    /// # Errors
    /// Fails when the process has no free descriptor.
    pub fn begin() -> io::Result<Self> {
        let signals: SigSet = ENDING.into_iter().collect();
        let arrived = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        Ok(Self { before, arrived })
    }

    /// Waits until `stream` is readable. After a signal, waits at most [`START_GRACE`] longer; then the signal ends this
    /// program.
    pub fn await_readable(&self, stream: &impl AsFd) {
        let mut until: Option<Instant> = None;
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let wait = left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
            let signals = if until.is_some() { PollFlags::empty() } else { PollFlags::POLLIN };
            let mut both = [PollFd::new(stream.as_fd(), PollFlags::POLLIN), PollFd::new(self.arrived.as_fd(), signals)];
            let _ = poll(&mut both, wait);
            if both[0].any() == Some(true) {
                return;
            }
            if left.is_some_and(|left| left.is_zero()) {
                self.release();
                return;
            }
            if both[1].any() == Some(true) {
                until = Some(Instant::now() + START_GRACE);
            }
        }
    }

    /// Unblocks the signals. Those that have arrived take effect.
    fn release(&self) {
        let _ = self.before.thread_set_mask();
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        self.release();
    }
}

/// Starts to catch the signals that this program passes on to the command, and first those that `held` has kept.
pub(crate) fn caught(held: Option<HeldSignals>) -> io::Result<mpsc::Receiver<libc::c_int>> {
    let (sender, receiver) = mpsc::channel(64);
    for number in PASSED_ON.into_iter().filter(|number| !is_ignored(*number)) {
        let mut stream = signal(SignalKind::from_raw(number))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                // Drop the signal when the queue is full. The kernel also merges repeated signals.
                let _ = sender.try_send(number);
            }
        });
    }
    drop(held);
    // The kernel decides about background writes to the terminal; `read_piece` handles background reads.
    let mut readers = SigSet::empty();
    readers.add(Signal::SIGTTIN);
    readers.thread_block()?;
    Ok(receiver)
}

/// Returns whether this program ignores a signal because its parent set that, as `nohup` does. Ignored signals are not
/// forwarded.
fn is_ignored(number: libc::c_int) -> bool {
    // SAFETY: all zeroes is a valid sigaction. The call overwrites it and installs nothing.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(number, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use nix::sys::signal::raise;

    use super::*;

    #[tokio::test]
    async fn signal_before_the_start_report_reaches_the_command() {
        let (mut agent, stream) = UnixStream::pair().expect("a pair");
        let held = HeldSignals::begin().expect("a descriptor is free");
        raise(Signal::SIGTERM).expect("the signal exists");
        let report = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            agent.write_all(b"started").expect("the stream is open");
            agent
        });
        held.await_readable(&stream);
        let mut signals = caught(Some(held)).expect("the signals can be caught");
        assert_eq!(signals.recv().await, Some(libc::SIGTERM));
        report.join().expect("the thread ends");
    }
}

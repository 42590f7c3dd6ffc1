//! Exit codes. They are part of the interface: `docs/reference/exit-codes.md` lists them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// All went well.
pub(crate) const OK: u8 = 0;

/// Something went wrong that has no code of its own; from `wait`, `submit --wait` and `fetch`: a job did not complete.
pub(crate) const FAILED: u8 = 1;

/// The command line makes no sense.
pub(crate) const USAGE: u8 = 2;

/// The head cannot be reached.
pub(crate) const UNREACHABLE: u8 = 3;

/// The head understood and said no: no such job, no node could ever run it, jobs are live.
pub(crate) const REFUSED: u8 = 4;

/// What answered is no head, or a head of another version.
pub(crate) const MISMATCH: u8 = 5;

/// From `gateway plan`: there is something to do.
pub(crate) const GATEWAY_CHANGE: u8 = 2;

/// From `run`: the command was ended because its time was up.
pub(crate) const RUN_TIMEOUT: u8 = 124;

/// From `run`: the command has no exit code, because Hostler failed and not the command.
pub(crate) const RUN_FAILED: u8 = 125;

/// What a shell shows for a program that ended so.
pub(crate) fn of(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map(|number| i32::from(SIGNAL_BASE) + number);
    status.code().or_else(by_signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

/// Added to a signal's number, as shells do.
pub(crate) const SIGNAL_BASE: u8 = 128;

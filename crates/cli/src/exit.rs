//! Exit codes. They are part of the interface; `docs/reference/exit-codes.md` lists them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

pub const OK: u8 = 0;

/// A failure without a code of its own. From `wait`, `submit --wait` and `fetch`: a job did not complete.
pub const FAILED: u8 = 1;

/// The command line is not valid.
pub const USAGE: u8 = 2;

pub(crate) const UNREACHABLE: u8 = 3;

/// The head refused the request, e.g. the job does not exist or no node can run it.
pub const REFUSED: u8 = 4;

/// The server is not a head, belongs to another cluster or has another version.
pub(crate) const MISMATCH: u8 = 5;

/// From `gateway plan`: `apply` would change something.
pub const GATEWAY_CHANGE: u8 = 2;

/// From `classroom check`: no promise is broken, but not all were tried.
pub(crate) const NOT_TRIED: u8 = 2;

/// From `run`: the command reached its time limit.
pub(crate) const RUN_TIMEOUT: u8 = 124;

/// From `run`: Hostler failed, or the output could not be written, so the command has no exit code.
pub(crate) const RUN_FAILED: u8 = 125;

/// The exit code that a shell reports for this status.
pub(crate) fn of(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map(|number| i32::from(SIGNAL_BASE) + number);
    status.code().or_else(by_signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

/// Shells add this to the number of the signal that ended a program.
pub(crate) const SIGNAL_BASE: u8 = 128;

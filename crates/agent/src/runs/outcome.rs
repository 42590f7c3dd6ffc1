//! How a run ended on this node.

use hostler_core::agent::Why;
use hostler_shepherd::{Cause, ExitRecord, LostReason, Status};

/// How a run ended on this node. The only way to its report for the head is [`RunEnds`](super::exit::RunEnds), which first ends what
/// surrounds the run.
pub(crate) enum RunOutcome {
    /// As its shepherd recorded, or this agent in its place.
    Recorded(Box<ExitRecord>),
    /// Its exit status is unknown.
    Lost(LostReason),
    /// Its program did not start. The message is for the user.
    NotStarted { why: Why, message: String },
}

impl RunOutcome {
    /// A run that never started.
    pub(crate) const fn not_started(message: String) -> Self {
        Self::NotStarted { why: Why::NotStarted, message }
    }

    /// Why the run ended, for the head.
    pub(crate) fn why(&self) -> Why {
        match self {
            Self::Recorded(record) => why_of(record, false),
            Self::Lost(_) => Why::Lost,
            Self::NotStarted { why, .. } => *why,
        }
    }
}

/// The exit code of a shell whose program was killed.
const KILLED: i32 = 128 + nix::libc::SIGKILL;

/// Determines why a run ended. `ends_script`: whether a process that the kernel killed for memory makes the run end so, even
/// if its script went on.
pub(super) fn why_of(record: &ExitRecord, ends_script: bool) -> Why {
    let code = record.status.exit_code();
    match &record.cause {
        None if is_out_of_memory(record) => Why::OutOfMemory(code),
        // Callers must not take the end for a success.
        None if ends_script && record.oom_kill == Some(true) => Why::OutOfMemory(if code == 0 { KILLED } else { code }),
        None => Why::Exited(code),
        Some(Cause::TimeLimit) => Why::TimeLimit(code),
        // Not requested by anybody: the run failed, and the message says why.
        Some(Cause::OutputLimit | Cause::Other(_)) => Why::Exited(if code == 0 { 1 } else { code }),
        Some(Cause::Cancelled | Cause::Preempted | Cause::Superseded | Cause::NodeShutdown) => Why::Asked(code),
    }
}

/// Whether the memory limit ended the run itself: its main process was killed, or passed on the exit code of a killed
/// process. [`ExitRecord::oom_kill`] alone does not say so: the run may have continued after the kernel killed one of
/// its processes.
pub(crate) fn is_out_of_memory(record: &ExitRecord) -> bool {
    const SIGKILL: i32 = nix::libc::SIGKILL;
    let was_killed =
        matches!(record.status, Status::Signaled { signal: SIGKILL, .. } | Status::Exited { code: KILLED });
    record.oom_kill == Some(true) && record.cause.is_none() && was_killed
}

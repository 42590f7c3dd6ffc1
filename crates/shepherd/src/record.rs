//! Records and reports of a shepherd.
//!
//! Agents may read records of older shepherds, and newer shepherds may write for older agents. New fields therefore
//! have defaults, and existing fields never change.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process::ProcessId;
use crate::sys;

pub(crate) const STDOUT: &str = "stdout";
pub(crate) const STDERR: &str = "stderr";

/// How a run ended: the last line of the run's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// [`crate::Options::identity`].
    pub identity: String,
    /// How the main process ended.
    pub status: Status,
    /// The reason why the shepherd ended the run; `None` if the run ended by itself.
    #[serde(default)]
    pub cause: Option<Cause>,
    /// Start of the program.
    pub started: Moment,
    pub ended: Moment,
    /// Time from start to end of the main process, on a clock that stops while the machine is suspended.
    pub wall_time: Duration,
    /// CPU time in user mode of all processes.
    pub user_time: Duration,
    /// CPU time in the kernel of all processes.
    pub system_time: Duration,
    /// Largest resident memory of a single process, in bytes; at least the shepherd's resident memory at the start of
    /// the run.
    pub max_rss_bytes: u64,
    /// Size of the `stdout` file.
    pub stdout_bytes: u64,
    /// Size of the `stderr` file; 0 when merged.
    pub stderr_bytes: u64,
    /// Whether the kernel killed a process of the leaf because of the memory limit; `None` if unknown.
    #[serde(default)]
    pub oom_kill: Option<bool>,
    /// Number of processes that were still running when the main process ended, and that the shepherd ended.
    #[serde(default)]
    pub leftovers: u32,
    /// Pids of processes that did not end in time even after KILL. The node needs attention.
    #[serde(default)]
    pub unkillable: Vec<u32>,
    /// How the job's processes were tracked.
    pub containment: Containment,
    /// Peak memory of all processes together, including page cache, in bytes; `None` if the kernel does not report it.
    #[serde(default)]
    pub memory_peak_bytes: Option<u64>,
    /// Disk reads and writes of the job; `None` if the kernel does not report them.
    #[serde(default)]
    pub io: Option<Io>,
    /// Context switches and page faults of the processes that were waited for; `None` if unknown.
    #[serde(default)]
    pub events: Option<ProcessEvents>,
    /// Which limits were enforced.
    #[serde(default)]
    pub limits: Limits,
    /// Error while writing terminal output to `stdout`, e.g. because of a full disk.
    #[serde(default)]
    pub log_error: Option<String>,
}

/// Context switches and page faults of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessEvents {
    /// Context switches because a process waited.
    pub voluntary_switches: u64,
    /// Context switches because a process had to give up its CPU.
    pub involuntary_switches: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that needed a disk.
    pub major_faults: u64,
}

impl std::ops::AddAssign for ProcessEvents {
    fn add_assign(&mut self, other: Self) {
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
    }
}

/// How the main process of a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Status {
    Exited {
        code: i32,
    },
    Signaled {
        signal: i32,
        /// Whether a core file was dumped.
        core_dumped: bool,
    },
    /// The program could not be started.
    StartFailed {
        /// Cause, as a text for users.
        message: String,
        /// Exit code of a shell: 127 if the program was not found, 126 otherwise.
        code: i32,
    },
    /// The process did not end in time after KILL.
    Unkillable,
}

impl Status {
    /// Exit code as a shell reports it: 128 + signal for a signal.
    pub fn exit_code(&self) -> i32 {
        match self {
            Status::Exited { code } | Status::StartFailed { code, .. } => *code,
            Status::Signaled { signal, .. } => 128 + signal,
            Status::Unkillable => 128 + libc::SIGKILL,
        }
    }
}

/// Disk reads and writes. Accesses served from memory do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub source: IoSource,
}

/// Source of disk read and write counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoSource {
    /// The leaf's io controller, which covers all processes.
    Leaf,
    /// Per-process accounting. This misses processes that no parent waited for, and counts a write when the process
    /// writes to memory.
    Processes,
}

/// The reason why a shepherd ended a run. Every request to end a run contains a cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    TimeLimit,
    OutputLimit,
    Cancelled,
    /// The resources are needed for a more important job.
    Preempted,
    /// A newer attempt replaces this run: its task was requeued.
    Superseded,
    /// The node is shutting down.
    NodeShutdown,
    /// A cause that this version does not know.
    Other(String),
}

impl Cause {
    /// Returns the signal by which the shepherd tells a step host that it ends the run for this cause; `None` if it does not tell.
    #[must_use]
    pub fn signal_to_host(&self) -> Option<i32> {
        // The C library may use the first ones.
        match self {
            Cause::TimeLimit => Some(libc::SIGRTMIN() + 3),
            Cause::Cancelled => Some(libc::SIGRTMIN() + 4),
            Cause::Superseded => Some(libc::SIGRTMIN() + 5),
            _ => None,
        }
    }
}

/// A point in time on two clocks: one for comparisons until the next reboot, one for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// `CLOCK_BOOTTIME`, in nanoseconds.
    pub boottime_ns: u64,
    /// Wall clock in milliseconds since 1970; may be wrong.
    pub unix_ms: u64,
}

impl Moment {
    pub(crate) fn now() -> Moment {
        let wall = sys::clock(libc::CLOCK_REALTIME);
        Moment { boottime_ns: sys::clock(libc::CLOCK_BOOTTIME).as_nanos() as u64, unix_ms: wall.as_millis() as u64 }
    }

    /// Time since a moment of this boot.
    pub fn elapsed(self) -> Duration {
        sys::clock(libc::CLOCK_BOOTTIME).saturating_sub(Duration::from_nanos(self.boottime_ns))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Containment {
    /// In a cgroup leaf, which the kernel can kill atomically.
    Leaf { path: PathBuf },
    /// By descent from the shepherd, which is a subreaper.
    Descent { reason: String },
}

/// Which limits are enforced; `None` for limits that were not requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// [`crate::Options::cpus`].
    pub cpus: Option<Enforcement>,
    /// [`crate::Options::memory_limit_bytes`].
    pub memory: Option<Enforcement>,
    /// [`crate::Options::process_limit`].
    pub processes: Option<Enforcement>,
    /// [`crate::Options::denied_devices`].
    #[serde(default)]
    pub devices: Option<Enforcement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// Enforced by the kernel.
    Enforced,
    /// Not enforced, for this reason.
    Advisory(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRecord {
    pub shepherd: ProcessId,
    pub boot_id: String,
    /// Abstract name of the shepherd's control socket. Another process may bind the same name later, so
    /// [`crate::adopt`] verifies the process.
    pub socket: String,
    /// [`crate::Options::identity`].
    pub identity: String,
    /// Time at which the shepherd claimed the run.
    pub taken: Moment,
    #[serde(default)]
    pub leaf: Option<PathBuf>,
    /// Pid of the main process, from a separate line of the journal; `None` before that line is written.
    #[serde(skip)]
    pub child: Option<u32>,
}

/// Answer to [`crate::Shepherd::status`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// [`crate::Options::identity`].
    pub identity: String,
    pub phase: Phase,
    /// Pid of the main process; `None` after its end.
    pub child: Option<u32>,
    /// Time since the start of the program.
    pub elapsed: Duration,
    /// Current size of the `stdout` file.
    pub stdout_bytes: u64,
    /// Current size of the `stderr` file.
    pub stderr_bytes: u64,
    /// The reason why the shepherd is ending the run; `None` if the run continues.
    pub cause: Option<Cause>,
    /// Number of live processes.
    pub processes: u32,
    /// Number of clients attached to the terminal.
    pub attached: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Running,
    /// TERM was sent; the grace period is running.
    Terminating,
    /// KILL was sent.
    Killing,
    /// The main process has ended; leftover processes are being ended.
    CleaningUp,
    /// Everything has ended, but the exit record cannot be written yet, e.g. because the disk is full.
    Recording,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_first_version_are_readable() {
        let text = r#"{"identity":"7.1","status":{"kind":"signaled","signal":15,"core_dumped":false},
            "started":{"boottime_ns":1,"unix_ms":2},"ended":{"boottime_ns":3,"unix_ms":4},
            "wall_time":{"secs":1,"nanos":5},"user_time":{"secs":0,"nanos":0},"system_time":{"secs":0,"nanos":0},
            "max_rss_bytes":4096,"stdout_bytes":1,"stderr_bytes":0,
            "containment":{"by":"descent","reason":"not asked for"},"something_newer":true}"#;
        let record: ExitRecord = serde_json::from_str(text).expect("unknown fields are ignored, missing ones default");
        assert_eq!(record.status.exit_code(), 143);
        assert_eq!(record.cause, None);
    }

    #[test]
    fn causes_are_encoded_as_words() {
        let words = serde_json::to_string(&[Cause::TimeLimit, Cause::Other("x".into())]).expect("plain data");
        assert_eq!(words, r#"["time_limit",{"other":"x"}]"#);
    }
}

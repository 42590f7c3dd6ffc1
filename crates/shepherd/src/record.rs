//! What a shepherd writes down and reports.
//!
//! An agent may read records of an older shepherd and a newer one may write for an older agent: fields are only ever
//! added, and every added field has a default.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::journal::Story;
use crate::process::ProcessId;
use crate::sys;

pub(crate) const STDOUT: &str = "stdout";
pub(crate) const STDERR: &str = "stderr";

/// How a run ended; the last line of its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// [`crate::Options::identity`].
    pub identity: String,
    /// How the main process ended.
    pub status: Status,
    /// Why the shepherd ended the run; `None` when it ended by itself.
    #[serde(default)]
    pub cause: Option<Cause>,
    /// When the program was started.
    pub started: Moment,
    /// When nothing of the run was left.
    pub ended: Moment,
    /// From the start to the end of the main process, on a clock that stops while the machine sleeps.
    pub wall_time: Duration,
    /// CPU time in user mode of all processes of the run.
    pub user_time: Duration,
    /// CPU time in the kernel of all processes of the run.
    pub system_time: Duration,
    /// Largest resident set of any single process; never less than what the shepherd itself had at the start.
    pub max_rss_bytes: u64,
    /// Size of the `stdout` file.
    pub stdout_bytes: u64,
    /// Size of the `stderr` file; 0 when merged.
    pub stderr_bytes: u64,
    /// Whether the kernel killed a process of the leaf for lack of memory; `None` where it does not tell.
    #[serde(default)]
    pub oom_kill: Option<bool>,
    /// Processes that were still there when the main process had ended, and which the shepherd ended.
    #[serde(default)]
    pub leftovers: u32,
    /// Processes that even KILL did not end within the bound: the node deserves attention.
    #[serde(default)]
    pub unkillable: Vec<u32>,
    /// What held the job's processes together.
    pub containment: Containment,
    /// The most memory the job's processes had in use at once, page cache included, in bytes; `None` where the kernel does
    /// not tell.
    #[serde(default)]
    pub memory_peak_bytes: Option<u64>,
    /// What the job read from and wrote to disks; `None` where the kernel does not tell.
    #[serde(default)]
    pub io: Option<Io>,
    /// Whether the limits asked for were binding.
    #[serde(default)]
    pub limits: Limits,
    /// What went wrong when terminal output was written to `stdout`, for instance a full disk.
    #[serde(default)]
    pub log_error: Option<String>,
}

impl ExitRecord {
    /// Reads the record in the run's directory; `None` when the run has not ended.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn read(directory: &Path) -> io::Result<Option<ExitRecord>> {
        Ok(Story::read(directory)?.ended.map(|record| *record))
    }
}

/// How the main process of a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Status {
    /// It exited.
    Exited {
        /// 0 to 255.
        code: i32,
    },
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// Whether a core was dumped.
        core_dumped: bool,
    },
    /// It never ran.
    StartFailed {
        /// What happened and why, for people.
        message: String,
        /// What a shell would return: 127 when the program was not found, 126 otherwise.
        code: i32,
    },
    /// It did not die of KILL within the bound.
    Unkillable,
}

impl Status {
    /// The exit code a shell would report: 128 + signal for a signal.
    pub fn exit_code(&self) -> i32 {
        match self {
            Status::Exited { code } | Status::StartFailed { code, .. } => *code,
            Status::Signaled { signal, .. } => 128 + signal,
            Status::Unkillable => 128 + libc::SIGKILL,
        }
    }
}

/// What went to and came from disks, as opposed to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// Read, in bytes.
    pub read_bytes: u64,
    /// Written, in bytes.
    pub write_bytes: u64,
    /// Who counted.
    pub source: IoSource,
}

/// Who counted what a job read and wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoSource {
    /// The leaf's io controller: all that was done for the job's processes.
    Leaf,
    /// The processes' own counts, which lack those that nobody waited for, and count what was written when it was still in memory.
    Processes,
}

/// Why a shepherd ended a run: whoever sends a signal states the cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The run's own time limit.
    TimeLimit,
    /// The run's own output limit.
    OutputLimit,
    /// A person cancelled the job.
    Cancelled,
    /// A more important job needs the room.
    Preempted,
    /// The job runs, or ended, elsewhere: another node of the same step failed, or this attempt is stale.
    Superseded,
    /// The node is being shut down.
    NodeShutdown,
    /// Something newer than this list.
    Other(String),
}

/// A point in time on two clocks: one to compare with on this boot, one for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// `CLOCK_BOOTTIME`, in nanoseconds.
    pub boottime_ns: u64,
    /// Milliseconds since 1970, by a clock that may be wrong.
    pub unix_ms: u64,
}

impl Moment {
    pub(crate) fn now() -> Moment {
        let wall = sys::clock(libc::CLOCK_REALTIME);
        Moment { boottime_ns: sys::clock(libc::CLOCK_BOOTTIME).as_nanos() as u64, unix_ms: wall.as_millis() as u64 }
    }
}

/// What holds the job's processes together, so that none is missed and no other is touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Containment {
    /// A cgroup leaf: the kernel's own list, killed at once.
    Leaf {
        /// Its directory.
        path: PathBuf,
    },
    /// Descent from the shepherd, which orphans are handed to.
    Descent {
        /// Why there is no leaf.
        reason: String,
    },
}

/// Which limits held; `None` for those that were not asked for.
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

/// Whether a limit holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// By the kernel.
    Enforced,
    /// Not, for this reason.
    Advisory(String),
}

/// Who looks after a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRecord {
    /// The shepherd.
    pub shepherd: ProcessId,
    /// The boot it lives in.
    pub boot_id: String,
    /// Abstract name of its control socket. A name proves nothing: see [`crate::adopt`] for what is checked.
    pub socket: String,
    /// [`crate::Options::identity`].
    pub identity: String,
    /// When the shepherd took the run.
    pub taken: Moment,
    /// The run's cgroup leaf.
    #[serde(default)]
    pub leaf: Option<PathBuf>,
    /// The main process, once it has been started; a line of its own in the journal.
    #[serde(skip)]
    pub child: Option<u32>,
}

impl RunningRecord {
    /// Reads the record in the run's directory; `None` when no shepherd took the run, or is just taking it.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn read(directory: &Path) -> io::Result<Option<RunningRecord>> {
        Ok(Story::read(directory)?.taken)
    }
}

/// Answer to [`crate::Shepherd::status`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// [`crate::Options::identity`].
    pub identity: String,
    /// What the shepherd is doing.
    pub phase: Phase,
    /// The main process, while it lives.
    pub child: Option<u32>,
    /// Since the start of the program.
    pub elapsed: Duration,
    /// Size of the `stdout` file so far.
    pub stdout_bytes: u64,
    /// Size of the `stderr` file so far.
    pub stderr_bytes: u64,
    /// Why the run is being ended, if it is.
    pub cause: Option<Cause>,
    /// Live processes of the run.
    pub processes: u32,
    /// Clients attached to the terminal.
    pub attached: u32,
}

/// What a shepherd is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The main process runs.
    Running,
    /// TERM was sent; the grace runs.
    Terminating,
    /// KILL was sent.
    Killing,
    /// The main process has ended; what it left behind is being ended.
    CleaningUp,
    /// Everything has ended but the exit record cannot be written yet, for instance because the disk is full.
    Recording,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_first_version_stays_readable() {
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
    fn causes_are_plain_words() {
        let words = serde_json::to_string(&[Cause::TimeLimit, Cause::Other("x".into())]).expect("plain data");
        assert_eq!(words, r#"["time_limit",{"other":"x"}]"#);
    }
}

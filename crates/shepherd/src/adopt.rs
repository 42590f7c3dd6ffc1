//! Adoption: finds the shepherd of a run after a restart of the agent. Also ends a run whose shepherd cannot serve requests,
//! because the program does not start.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::handle::{ControlError, Link, LinkError, Shepherd};
use crate::journal::{self, JournalContent, JournalLock};
use crate::members;
use crate::process::{self, ProcessId};
use crate::record::{Cause, Containment, ExitRecord, Limits, Moment, RunningRecord, Status};
use crate::sys;

/// How long [`adopt`] waits for another process to finish a journal line, or for an exiting shepherd to end.
const SETTLE_BOUND: Duration = Duration::from_secs(2);

/// Delay between two reads of the journal while another process is writing a line.
const SETTLE_ROUND: Duration = Duration::from_millis(2);

/// How long [`end_unstarted`] waits for the end of a killed shepherd.
const SHEPHERD_BOUND: Duration = Duration::from_secs(10);

/// How long [`end_unstarted`] waits for the end of the processes of a killed shepherd.
const PROCESSES_BOUND: Duration = Duration::from_secs(1);

/// State of a run that an earlier agent started.
#[derive(Debug)]
pub enum Adopted {
    /// The run continues.
    Running(Shepherd),
    Ended(Box<ExitRecord>),
    /// The run is lost: no exit record exists, no shepherd supervises the run, and no shepherd can start the run later.
    Lost(Lost),
}

#[derive(Debug)]
pub struct Lost {
    pub reason: LostReason,
    /// The shepherd's record in the journal. It names the run's leaf, which must be swept before the run is started
    /// again.
    pub record: Option<RunningRecord>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostReason {
    /// No shepherd claimed the run, and no shepherd can claim the run later.
    NeverStarted,
    Rebooted,
    /// The shepherd was killed before it wrote an exit record.
    ShepherdGone,
    /// The shepherd's pid belongs to another process.
    PidReused,
    Damaged,
}

/// Why the state of a run is unknown.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error("cannot read the run's journal")]
    Journal(#[from] io::Error),
    /// The shepherd is alive but does not respond.
    #[error("the shepherd with pid {pid} is running but does not respond")]
    Unreachable { pid: u32, source: io::Error },
}

/// Determines the state of the run in `directory`. If the run continues, connects to its shepherd.
///
/// If no shepherd has claimed the run yet, this function voids the run, so that a shepherd that receives the launch
/// late refuses to start it. The result is therefore final, except that a running run can end or get lost.
///
/// # Errors
/// If the directory is unreadable, or a live shepherd does not respond. The state is then unknown.
pub fn adopt(directory: &Path) -> Result<Adopted, AdoptError> {
    let record = match read_settled_journal(directory)? {
        JournalContent { ended: Some(record), .. } => return Ok(Adopted::Ended(record)),
        JournalContent { is_torn: true, .. } => return Ok(lost(LostReason::Damaged, None)),
        JournalContent { taken: Some(record), .. } => record,
        _ => return Ok(lost(LostReason::NeverStarted, None)),
    };
    if record.boot_id != process::boot_id() {
        return Ok(lost(LostReason::Rebooted, Some(record)));
    }
    let pid = record.shepherd.pid;
    match hold(record.shepherd) {
        Hold::Held(pidfd) => connect_to_shepherd(directory, record, &pidfd),
        Hold::Gone => after_the_end(directory, LostReason::ShepherdGone, record),
        Hold::Other => after_the_end(directory, LostReason::PidReused, record),
        Hold::Failed(source) => Err(AdoptError::Unreachable { pid, source }),
    }
}

fn lost(reason: LostReason, record: Option<RunningRecord>) -> Adopted {
    Adopted::Lost(Lost { reason, record })
}

/// Returns the state of a run whose shepherd has ended. Reads the journal again, because the shepherd, or an agent that has
/// killed it, may have written the exit record since the last check.
fn after_the_end(directory: &Path, reason: LostReason, record: RunningRecord) -> Result<Adopted, AdoptError> {
    Ok(match JournalLock::take(directory)?.read()?.ended {
        Some(record) => Adopted::Ended(record),
        None => lost(reason, Some(record)),
    })
}

/// Ends the run in `directory` if its shepherd waits for the start of the program, and writes the exit record with this
/// cause. Returns the record of the killed shepherd; `None` if there was nothing to end: no shepherd has claimed the run,
/// the program has started, or the run has ended.
///
/// A file system that never answers keeps the shepherd waiting in `vfork`, or for the init process of a sandbox, so that it
/// serves no requests. The process that should execute the program may be unkillable until the file system answers, but the shepherd is not. The process gets a
/// KILL with the shepherd's death. If it cannot end yet, the exit record lists it.
///
/// # Errors
/// If the journal cannot be read or written, or the shepherd cannot be killed.
pub fn end_unstarted(directory: &Path, cause: Cause) -> io::Result<Option<RunningRecord>> {
    // The lock is held until the exit record is written. Another thread that sees the shepherd gone waits for the lock, and
    // then finds the record instead of reporting a lost run.
    let journal = JournalLock::take(directory)?;
    let content = journal.read()?;
    let Some(record) = content.taken.filter(|record| record.child.is_none()) else { return Ok(None) };
    if content.ended.is_some() || record.boot_id != process::boot_id() {
        return Ok(None);
    }
    let pid = record.shepherd.pid;
    let pidfd = match hold(record.shepherd) {
        Hold::Held(pidfd) => pidfd,
        Hold::Gone | Hold::Other => return Ok(None),
        Hold::Failed(error) => return Err(error),
    };
    let starting = members::below(pid, &|| !sys::pidfd_ended(pidfd.as_fd()));
    // A shepherd that serves requests sleeps in `poll`, which a signal could interrupt. The process that it waits for in a
    // pipe has not executed a program yet, and so has the shepherd's name.
    let shepherd = process::stat(pid);
    let waits = shepherd.as_ref().is_some_and(|stat| stat.state == b'D')
        || starting.iter().any(|(child, _)| shepherd.is_some() && process::name(*child) == process::name(pid));
    if !waits {
        return Ok(None);
    }
    sys::pidfd_signal(pidfd.as_fd(), libc::SIGKILL)?;
    if !ends_by(pidfd.as_fd(), Instant::now() + SHEPHERD_BOUND) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("the shepherd with pid {pid} does not end")));
    }
    for (_, handle) in &starting {
        // The process has usually ended with the shepherd.
        let _ = sys::pidfd_signal(handle.as_fd(), libc::SIGKILL);
    }
    let until = Instant::now() + PROCESSES_BOUND;
    let remaining = starting.iter().filter(|(_, handle)| !ends_by(handle.as_fd(), until));
    let unkillable = remaining.map(|(process, _)| *process).collect();
    let status = match journal.read()?.taken.and_then(|record| record.child) {
        None => Status::StartFailed {
            message: "the program did not start: a file system that it needs does not answer".to_owned(),
            code: 126,
        },
        // The program started just before the shepherd was killed, and ended with it.
        Some(_) => Status::Signaled { signal: libc::SIGKILL, core_dumped: false },
    };
    journal.end(exit_record(&record, status, cause, unkillable))?;
    Ok(Some(record))
}

/// The exit record of a run whose shepherd was killed. Figures that only the shepherd knew are zero or absent.
fn exit_record(record: &RunningRecord, status: Status, cause: Cause, unkillable: Vec<u32>) -> ExitRecord {
    ExitRecord {
        identity: record.identity.clone(),
        status,
        cause: Some(cause),
        started: record.taken,
        ended: Moment::now(),
        wall_time: record.taken.elapsed(),
        user_time: Duration::ZERO,
        system_time: Duration::ZERO,
        max_rss_bytes: 0,
        stdout_bytes: 0,
        stderr_bytes: 0,
        oom_kill: None,
        leftovers: 0,
        unkillable,
        containment: match &record.leaf {
            Some(path) => Containment::Leaf { path: path.clone() },
            None => Containment::Descent { reason: "no leaf was requested".to_owned() },
        },
        memory_peak_bytes: None,
        io: None,
        events: None,
        limits: Limits::default(),
        log_error: None,
    }
}

/// Whether the process of the pidfd ends before the deadline.
fn ends_by(pidfd: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match sys::wait_readable(pidfd, Some(left)) {
            Ok(true) => return true,
            Ok(false) if !left.is_zero() => {}
            Ok(false) | Err(_) => return false,
        }
    }
}

/// Connects to a verified shepherd, which may be about to exit or to claim another run.
fn connect_to_shepherd(directory: &Path, record: RunningRecord, pidfd: &OwnedFd) -> Result<Adopted, AdoptError> {
    let pid = record.shepherd.pid;
    let connected = Link::connect(&record);
    // A shepherd writes the exit record, then accepts waiting connections, then announces the end. If there is no
    // record now, this connection will receive the announcement.
    if let Some(record) = JournalContent::read(directory)?.ended {
        return Ok(Adopted::Ended(record));
    }
    let handle = pidfd.try_clone();
    match connected.and_then(|link| introduce(Shepherd::adopted(pid, record.child, handle?, link))) {
        Ok(shepherd) => Ok(Adopted::Running(shepherd)),
        // The shepherd may have just ended.
        Err(_) if sys::wait_readable(pidfd.as_fd(), Some(SETTLE_BOUND)).unwrap_or(false) => {
            after_the_end(directory, LostReason::ShepherdGone, record)
        }
        Err(source) => match JournalContent::read(directory)?.ended {
            // The shepherd has taken another run.
            Some(record) => Ok(Adopted::Ended(record)),
            None => Err(AdoptError::Unreachable { pid, source }),
        },
    }
}

/// Queries the shepherd's status once, because a shepherd with too many connections closes the connection of a client
/// that has sent nothing. Fails if the connection is refused.
fn introduce(mut shepherd: Shepherd) -> io::Result<Shepherd> {
    match shepherd.status() {
        // A shepherd that is suspended, or waits for the start of its program, will read the request later.
        Ok(_) | Err(ControlError::Link(LinkError::Timeout)) => Ok(shepherd),
        Err(error) => Err(io::Error::new(io::ErrorKind::ConnectionRefused, error)),
    }
}

/// Result of opening a pidfd of a recorded process.
enum Hold {
    Held(OwnedFd),
    Gone,
    /// The pid belongs to another process.
    Other,
    Failed(io::Error),
}

fn hold(wanted: ProcessId) -> Hold {
    let pidfd = match sys::pidfd_open(wanted.pid) {
        Ok(pidfd) => pidfd,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Hold::Gone,
        Err(error) => return Hold::Failed(error),
    };
    // Verified after opening the handle: if the process matches now, the handle refers to it, because an ended process
    // cannot return.
    match ProcessId::of(wanted.pid) {
        Some(found) if found == wanted && !sys::pidfd_ended(pidfd.as_fd()) => Hold::Held(pidfd),
        Some(found) if found != wanted => Hold::Other,
        _ => Hold::Gone,
    }
}

/// Reads the journal until the run is claimed, void or ended. Voids a run that nobody has claimed. Returns a damaged
/// journal with `is_torn` set.
fn read_settled_journal(directory: &Path) -> io::Result<JournalContent> {
    let deadline = Instant::now() + SETTLE_BOUND;
    loop {
        let story = JournalContent::read(directory)?;
        match &story {
            // The writer is in the middle of a line, or died there.
            JournalContent { is_torn: true, .. } if Instant::now() < deadline => std::thread::sleep(SETTLE_ROUND),
            JournalContent { is_torn: false, is_void: false, taken: None, ended: None, .. } => {
                journal::void(directory)?;
            }
            _ => return Ok(story),
        }
    }
}

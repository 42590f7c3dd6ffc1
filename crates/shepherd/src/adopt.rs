//! Finding the shepherd of a run again, after the agent has been restarted.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::handle::{ControlError, Link, LinkError, Shepherd};
use crate::journal::{self, Story};
use crate::process::{self, ProcessId};
use crate::record::{ExitRecord, RunningRecord};
use crate::sys;

/// How long a line that is just being written, or a shepherd that is just ending, is waited for.
const SETTLE_BOUND: Duration = Duration::from_secs(2);

/// Between two looks at a line that is being written.
const SETTLE_ROUND: Duration = Duration::from_millis(2);

/// What became of a run while the agent was away.
#[derive(Debug)]
pub enum Adopted {
    /// It goes on.
    Running(Shepherd),
    /// It ended, so.
    Ended(Box<ExitRecord>),
    /// It has no record and never will have one: nobody looks after it, and nobody can start it late.
    Lost(Lost),
}

/// A run that nobody can vouch for.
#[derive(Debug)]
pub struct Lost {
    /// What happened.
    pub reason: LostReason,
    /// What its shepherd had written down. A leaf named here is swept before the run is started anew.
    pub record: Option<RunningRecord>,
}

/// Why a run is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostReason {
    /// No shepherd ever took it; from now on none can.
    NeverStarted,
    /// The machine has been restarted since.
    Rebooted,
    /// The shepherd is gone without a record: it was killed.
    ShepherdGone,
    /// The shepherd's pid now belongs to another process.
    PidReused,
    /// The journal is damaged.
    Damaged,
}

/// It cannot be told what became of a run.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The journal is unreadable.
    #[error("cannot read the run's journal")]
    Journal(#[from] io::Error),
    /// The process is alive but cannot be handled.
    #[error("the shepherd with pid {pid} lives but cannot be reached")]
    Unreachable {
        /// The shepherd.
        pid: u32,
        /// Why.
        source: io::Error,
    },
}

/// Finds out what became of the run in `directory`, and takes it up again if it goes on.
///
/// When no shepherd has taken the run yet, this declares that none may: a launch that was under way when the agent died
/// is refused by its own shepherd from then on. So the answer never changes afterwards, except from running to ended
/// or lost.
///
/// # Errors
/// When the directory cannot be read, or a live shepherd cannot be reached. Then nothing is known.
pub fn adopt(directory: &Path) -> Result<Adopted, AdoptError> {
    let record = match settled(directory)? {
        Story { ended: Some(record), .. } => return Ok(Adopted::Ended(record)),
        Story { is_torn: true, .. } => return Ok(lost(LostReason::Damaged, None)),
        Story { taken: Some(record), .. } => record,
        _ => return Ok(lost(LostReason::NeverStarted, None)),
    };
    if record.boot_id != process::boot_id() {
        return Ok(lost(LostReason::Rebooted, Some(record)));
    }
    let pid = record.shepherd.pid;
    match hold(record.shepherd) {
        Hold::Held(pidfd) => take_up(directory, record, &pidfd),
        Hold::Gone => after_the_end(directory, LostReason::ShepherdGone, record),
        Hold::Other => after_the_end(directory, LostReason::PidReused, record),
        Hold::Failed(source) => Err(AdoptError::Unreachable { pid, source }),
    }
}

fn lost(reason: LostReason, record: Option<RunningRecord>) -> Adopted {
    Adopted::Lost(Lost { reason, record })
}

/// The shepherd has ended: with a record, which may have appeared since we looked, or without.
fn after_the_end(directory: &Path, reason: LostReason, record: RunningRecord) -> Result<Adopted, AdoptError> {
    Ok(match ExitRecord::read(directory)? {
        Some(record) => Adopted::Ended(Box::new(record)),
        None => lost(reason, Some(record)),
    })
}

/// Connects to a verified shepherd, which may be about to end, or to go on to another run.
fn take_up(directory: &Path, record: RunningRecord, pidfd: &OwnedFd) -> Result<Adopted, AdoptError> {
    let pid = record.shepherd.pid;
    let connected = Link::connect(&record);
    // A shepherd writes the record, then accepts whoever has connected, then announces the end. So without
    // a record now, this connection will hear of this run's end.
    if let Some(record) = ExitRecord::read(directory)? {
        return Ok(Adopted::Ended(Box::new(record)));
    }
    let handle = pidfd.try_clone();
    match connected.and_then(|link| introduce(Shepherd::adopted(pid, handle?, link))) {
        Ok(shepherd) => Ok(Adopted::Running(shepherd)),
        // It ended just now, if it is ending at all.
        Err(_) if sys::wait_readable(pidfd.as_fd(), Some(SETTLE_BOUND)).unwrap_or(false) => {
            after_the_end(directory, LostReason::ShepherdGone, record)
        }
        Err(source) => match ExitRecord::read(directory)? {
            // It went on to another run.
            Some(record) => Ok(Adopted::Ended(Box::new(record))),
            None => Err(AdoptError::Unreachable { pid, source }),
        },
    }
}

/// Says something to a shepherd, since it makes room for others by those who say nothing, and looks whether it was turned away itself.
fn introduce(mut shepherd: Shepherd) -> io::Result<Shepherd> {
    match shepherd.status() {
        // One that stands still will hear it later.
        Ok(_) | Err(ControlError::Link(LinkError::Timeout)) => Ok(shepherd),
        Err(error) => Err(io::Error::new(io::ErrorKind::ConnectionRefused, error)),
    }
}

/// A handle on exactly the process that was written down.
enum Hold {
    Held(OwnedFd),
    Gone,
    /// The pid belongs to another process by now.
    Other,
    Failed(io::Error),
}

fn hold(wanted: ProcessId) -> Hold {
    let pidfd = match sys::pidfd_open(wanted.pid) {
        Ok(pidfd) => pidfd,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Hold::Gone,
        Err(error) => return Hold::Failed(error),
    };
    // Looked at after the handle was opened: if it is the right process now, the handle is on it, as the right
    // process cannot have come back.
    match ProcessId::of(wanted.pid) {
        Some(found) if found == wanted && !sys::pidfd_ended(pidfd.as_fd()) => Hold::Held(pidfd),
        Some(found) if found != wanted => Hold::Other,
        _ => Hold::Gone,
    }
}

/// Reads the journal when it says who took the run, if need be that nobody may; torn when it is damaged.
fn settled(directory: &Path) -> io::Result<Story> {
    let deadline = Instant::now() + SETTLE_BOUND;
    loop {
        let story = Story::read(directory)?;
        match &story {
            // Its writer is in the middle of a line, or died there.
            Story { is_torn: true, .. } if Instant::now() < deadline => std::thread::sleep(SETTLE_ROUND),
            Story { is_torn: false, is_void: false, taken: None, ended: None, .. } => journal::void(directory)?,
            _ => return Ok(story),
        }
    }
}

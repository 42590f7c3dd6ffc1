//! Long-running processes, identified by pid and start time, because the kernel reuses pids.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// Time for a process to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// Start time in clock ticks since boot.
    start_ticks: u64,
    boot: String,
}

impl Process {
    /// Returns the process with this pid; `None` if the process does not exist or is a zombie.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The process name is in parentheses and may contain any characters.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
        let state = fields.next()?;
        let start_ticks = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then(|| Self { pid, start_ticks, boot: boot_id() })
    }

    pub(super) fn this() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    /// Processes in this network namespace with exactly these arguments. The program name is ignored, because a
    /// script's interpreter precedes it.
    pub(super) fn running(arguments: &[OsString]) -> Vec<Self> {
        let words = arguments.iter().flat_map(|word| [b"\0", word.as_bytes()].concat());
        let wanted: Vec<u8> = words.chain([0]).collect();
        let network = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
        let ours = network("self");
        let is_it = |pid: &i32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found.ends_with(&wanted))
                && network(&pid.to_string()) == ours
        };
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_it).filter_map(Self::of).collect()
    }

    pub(super) fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Ends the process: first with SIGTERM, then with SIGKILL.
    pub(super) fn end(&self) -> io::Result<()> {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            self.signal(signal)?;
            let deadline = Instant::now() + GRACE;
            while Instant::now() < deadline {
                if !self.is_alive() {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Err(io::Error::other(format!("process {} did not end after SIGKILL", self.pid)))
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        // SAFETY: the call takes plain numbers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        if fd < 0 {
            return no_such(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        // The descriptor refers to the current owner of the pid. The comparison ensures that this owner is the recorded
        // process.
        if !self.is_alive() {
            return Ok(());
        }
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and the pointer to the signal information may be null.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal as i32, no_info, 0) };
        if result == 0 { Ok(()) } else { no_such(io::Error::last_os_error()) }
    }
}

/// Ignores the error ESRCH: a process that no longer exists needs no signal.
fn no_such(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

/// Identifies this boot of the machine.
pub(super) fn boot_id() -> String {
    hostler_sys::boot_id().unwrap_or_default()
}

/// Time since boot in milliseconds, including suspend.
pub(super) fn since_boot_ms() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Wall clock in seconds since 1970, for display only.
pub(super) fn wall_secs() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_identified_until_its_end_and_no_other_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("every system has sleep");
        let process = Process::of(child.id() as i32).expect("the process runs");
        let earlier = Process { start_ticks: process.start_ticks - 1, ..process.clone() };
        assert!(process.is_alive() && !earlier.is_alive());
        earlier.end().expect("killing an ended process succeeds");
        assert!(process.is_alive());
        process.end().expect("permitted");
        assert!(!process.is_alive(), "a zombie does not count as alive");
        child.wait().expect("permitted");
        assert!(since_boot_ms() > 0);
    }
}

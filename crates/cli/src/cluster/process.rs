//! The processes of an embedded cluster. They outlive the terminal, and signals never reach another process by mistake.
//!
//! A process id alone is ambiguous, because the kernel reuses it. A [`ProcessId`] also has the start time and the
//! boot id. Signals go through a pidfd that is opened before these are compared.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::daemons::log;
use crate::failure::{During, Failure};

/// Identifies one process uniquely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    pub boot: String,
}

impl ProcessId {
    /// Identifies the process `pid`; `None` if it does not exist or is a zombie.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let Some(start_ticks) = start_ticks(pid)? else { return Ok(None) };
        Ok(Some(Self { pid, start_ticks, boot: hostler_sys::boot_id()? }))
    }

    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now.as_ref() == Some(self))
    }

    /// Opens a pidfd; `None` if the process has ended.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        // SAFETY: the call takes plain numbers and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::ESRCH) { Ok(None) } else { Err(error) };
        }
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        // The pid may have been reused before the pidfd was opened; compare after that.
        Ok(self.is_alive().then_some(fd))
    }

    /// Sends a signal. Does nothing if the process has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(fd) = self.open()? else { return Ok(()) };
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and the pointer to the signal information may be null.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal as i32, no_info, 0) };
        let error = io::Error::last_os_error();
        if result == 0 || error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
    }

    /// Waits up to `limit` for the end of the process. Returns whether it has ended.
    pub fn wait_gone(&self, limit: Duration) -> io::Result<bool> {
        let Some(fd) = self.open()? else { return Ok(true) };
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left.min(Duration::from_secs(60))).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) if left.is_zero() => return Ok(false),
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the start time of a process in clock ticks; `None` if the process does not exist or is a zombie.
fn start_ticks(pid: i32) -> io::Result<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => {
            parse_stat(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has an unknown format")))
        }
        // ESRCH: the process ended between open and read.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses the start time, field 22 of `/proc/PID/stat`. The outer `None` means an invalid line, the inner `None` a
/// process that has ended.
#[expect(clippy::option_option, reason = "an invalid line and an ended process need different handling")]
fn parse_stat(stat: &str) -> Option<Option<u64>> {
    // The name is in parentheses and may contain any characters.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((!matches!(state, "Z" | "X")).then_some(start))
}

/// Starts this executable with `args` in a new session, with its output in `log` and no inherited descriptors.
pub fn spawn(executable: &Path, args: &[OsString], log: &Path) -> Result<Child, Failure> {
    let failed = || format!("cannot start {} {}", executable.display(), args[0].to_string_lossy());
    daemon(executable, args, log)?.spawn().during(failed)
}

/// Builds the command that [`spawn`] starts.
pub fn daemon(executable: &Path, args: &[OsString], log: &Path) -> Result<Command, Failure> {
    let log_file = log::open(log).during(|| format!("cannot write the log {}", log.display()))?;
    let log_copy = log_file.try_clone().during(|| format!("cannot write the log {}", log.display()))?;
    let mut command = Command::new(executable);
    command.args(args).current_dir("/").stdin(Stdio::null()).stdout(log_copy).stderr(log_file);
    // HOSTLER_HEAD is for the caller's commands, not for daemons.
    command.env_remove("HOSTLER_HEAD");
    command.env(log::LOG_VARIABLE, log);
    // SAFETY: only makes system calls that are safe after fork.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            // The daemon must not keep pipes or locks of the caller open. Kernels before 5.11 lack this call; there,
            // descriptors stay open.
            libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    Ok(command)
}

/// The last `lines` lines of a log after the first `from` bytes.
pub fn log_tail(path: &Path, from: u64, lines: usize) -> Vec<String> {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes.get(from as usize..).unwrap_or_default()).into_owned();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().expect("every system has sleep")
    }

    #[test]
    fn process_is_alive_until_it_ends() {
        let mut child = sleeper();
        let id = ProcessId::of(child.id() as i32).expect("readable").expect("runs");
        assert!(id.is_alive());
        assert!(!id.wait_gone(Duration::ZERO).expect("polled"));
        id.signal(Signal::SIGKILL).expect("ours");
        assert!(id.wait_gone(Duration::from_secs(10)).expect("polled"));
        assert!(!id.is_alive(), "a zombie has ended");
        child.wait().expect("ours");
        id.signal(Signal::SIGKILL).expect("stopping an ended process succeeds");
    }

    #[test]
    fn process_with_a_reused_pid_is_not_signalled() {
        let mut child = sleeper();
        let id = ProcessId::of(child.id() as i32).expect("readable").expect("runs");
        let earlier = ProcessId { start_ticks: id.start_ticks - 1, ..id.clone() };
        let other_boot = ProcessId { boot: "another".to_owned(), ..id.clone() };
        for other in [earlier, other_boot] {
            assert!(!other.is_alive());
            other.signal(Signal::SIGKILL).expect("no process to signal");
        }
        assert!(id.is_alive());
        child.kill().expect("ours");
        child.wait().expect("ours");
    }

    #[test]
    fn daemon_has_its_own_session_and_inherits_no_descriptors() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let log = directory.path().join("x.log");
        let script = "echo out; echo err >&2; ls /proc/self/fd | tr '\\n' ' '; cut -d' ' -f6 /proc/self/stat; echo $$";
        // A descriptor without close-on-exec, as a careless caller may leave it open.
        let careless = File::open("/dev/null").expect("always there");
        // SAFETY: only clears a flag of a descriptor that this test owns.
        unsafe { libc::fcntl(careless.as_raw_fd(), libc::F_SETFD, 0) };
        let mut child = spawn(Path::new("/bin/sh"), &["-c".into(), script.into()], &log).expect("starts");
        assert!(child.wait().expect("ours").success());
        let lines = log_tail(&log, 0, 10);
        let [out, err, descriptors, session] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((out.as_str(), err.as_str()), ("out", "err"));
        let (descriptors, session_line) = descriptors.rsplit_once(' ').expect("a list");
        assert_eq!(descriptors, "0 1 2 3", "3 is the directory that ls reads");
        assert_eq!(session_line, session, "the shell leads its session");
        assert_eq!(log_tail(&log, 4, 10)[0], "err");
    }

    #[test]
    fn process_names_may_contain_parentheses() {
        let line = "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        assert_eq!(parse_stat(line), Some(Some(4711)));
        assert_eq!(parse_stat(&line.replace(" S ", " Z ")), Some(None));
        assert_eq!(parse_stat("nonsense"), None);
    }
}

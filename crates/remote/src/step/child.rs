//! A process that the step host has started, and what it used.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use hostler_model::WindowSize;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::pty::{OpenptyResult, openpty};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::{Input, Report, Streams};

/// A process in a group of its own, or a job's program. It is not reaped before [`Self::wait`] has returned, so its number stays valid.
#[derive(Debug)]
pub(super) struct Child {
    pid: libc::pid_t,
    ended: AsyncFd<OwnedFd>,
    began: Instant,
}

impl Child {
    /// Starts a command with pipes, or on a terminal of this size. If the variable `messages` is given, it names the
    /// command's end of a socket.
    pub(super) fn start(
        mut command: Command,
        has_input: bool,
        terminal: Option<WindowSize>,
        messages: Option<&str>,
    ) -> io::Result<(Self, Streams)> {
        let began = Instant::now();
        let socket = messages.map(|variable| with_socket(&mut command, variable)).transpose()?;
        // Its own end of the socket is open until the command has started.
        let (messages, _its_end) = socket.unzip();
        if let Some(size) = terminal {
            let (child, master) = on_terminal(command, size)?;
            let streams =
                Streams { input: Some(Input::Terminal), terminal: Some(master), messages, ..Streams::default() };
            return Ok((Self::watch(&child, began)?, streams));
        }
        command.process_group(0);
        command.stdin(if has_input { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let streams = Streams {
            input: child.stdin.take().map(|pipe| Input::Pipe(pipe.into(), None)),
            output: child.stdout.take().map(OwnedFd::from),
            errors: child.stderr.take().map(OwnedFd::from),
            messages,
            ..Streams::default()
        };
        Ok((Self::watch(&child, began)?, streams))
    }

    /// Number of the process, and of its process group.
    pub(super) fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Watches a process that was started at `began`.
    pub(super) fn watch(child: &std::process::Child, began: Instant) -> io::Result<Self> {
        let pid = child.id() as libc::pid_t;
        // SAFETY: the call takes two numbers and returns a descriptor or an error. Nobody has reaped the process yet.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if descriptor < 0 {
            let error = io::Error::last_os_error();
            signal_group(pid, libc::SIGKILL);
            return Err(error);
        }
        // SAFETY: the kernel has just created this descriptor for us. It fits, because descriptors are ints.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) };
        // SAFETY: an owned descriptor stays open and unchanged for as long as it is registered.
        let ended = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        let ended = ended.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self { pid, ended, began })
    }

    /// Waits for the end of the process, and returns how it ended and what it used. Cancel safe.
    pub(super) async fn wait(&self) -> Report {
        // The descriptor of a process becomes readable when the process ends. If the system fails, waiting blocks below.
        drop(self.ended.readable().await);
        let mut status = 0;
        // SAFETY: all zeroes is a valid rusage.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointers are to locals of the types that the call writes. The process is ours and not reaped.
        while unsafe { libc::wait4(self.pid, &raw mut status, 0, &raw mut used) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        let status = ExitStatus::from_raw(status);
        let milliseconds = |time: libc::timeval| (time.tv_sec * 1000 + time.tv_usec / 1000).unsigned_abs();
        Report {
            code: exit_code(status),
            signal: status.signal(),
            wall_us: u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX),
            system_ms: milliseconds(used.ru_stime),
            cpu_ms: milliseconds(used.ru_utime) + milliseconds(used.ru_stime),
            memory_peak_bytes: Some(used.ru_maxrss.unsigned_abs() * 1024),
            ..Report::default()
        }
    }

    /// Signals the group of the process. An error is ignored: the group may have just ended.
    pub(super) fn signal(&self, number: i32) {
        signal_group(self.pid, number);
    }
}

fn signal_group(pid: libc::pid_t, number: i32) {
    if let Ok(signal) = nix::sys::signal::Signal::try_from(number) {
        let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(pid), signal);
    }
}

/// Gives the command one end of a socket, whose number the variable names. Returns both ends, ours first.
fn with_socket(command: &mut Command, variable: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, its) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?;
    let number = its.as_raw_fd();
    command.env(variable, number.to_string());
    // SAFETY: the closure calls only async-signal-safe functions. The descriptor is open until the command has started.
    unsafe {
        command.pre_exec(move || {
            fcntl(BorrowedFd::borrow_raw(number), FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        });
    }
    Ok((ours, its))
}

/// Starts a command in a session of its own on a new terminal. Returns the other end of the terminal.
fn on_terminal(mut command: Command, size: WindowSize) -> io::Result<(std::process::Child, OwnedFd)> {
    let size = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    let OpenptyResult { master, slave } = openpty(&size, None)?;
    // Otherwise the command would keep its own terminal open.
    fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
    // SAFETY: the closure calls only async-signal-safe functions.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            // Standard input is the terminal, which becomes the controlling one.
            if libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    Ok((command.spawn()?, master))
}

/// Returns the exit code that a shell would give.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

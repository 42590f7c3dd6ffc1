//! The session leader of a call on a terminal, which makes ^Z work as in a shell.
//!
//! A session leader cannot be stopped from its terminal, because the kernel sees no parent in the session that could
//! continue it. The command therefore gets its own process group in the foreground of the terminal, and this process
//! acts as the shell behind it. When the command stops, this process takes the terminal back and stops too. The
//! shepherd sees that and reports it to the caller. When this process is continued, the command gets the terminal again
//! and continues. This process ends in the same way as the command.
//!
//! Not included: job control for several commands, and changes of the terminal's modes, which a command restores itself
//! before it stops.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};

use crate::sys;

/// Descriptor of the terminal: standard input.
const TERMINAL: libc::c_int = 0;

/// Signals that are forwarded to the command's group. The kernel sends signals from terminal input to the command
/// directly.
const PASSED_ON: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
];

/// Runs a command in the foreground of the terminal on standard input. This process must lead the terminal's session.
/// Returns the command's exit code, or 127 or 126 with a message if the command cannot be executed. If a signal ends
/// the command, this process ends by the same signal.
///
/// # Errors
/// If this process does not lead the session of a terminal on standard input, or waiting for the command fails.
pub fn run(argv: &[OsString]) -> io::Result<i32> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
    };
    // SAFETY: the system calls take and return integers.
    let (own, foreground) = unsafe { (libc::getpgrp(), libc::tcgetpgrp(TERMINAL)) };
    if own != foreground {
        return Err(io::Error::other("standard input is not a terminal with this process in its foreground"));
    }
    let awaited = block_signals()?;
    match start(program, arguments) {
        Ok(group) => ForegroundCommand { group, awaited }.supervise(),
        Err(error) => {
            let message = format!("cannot execute `{}`: {}\n", program.display(), sys::explain(&error));
            // Standard error is the only place to report the error.
            let _ = io::stderr().write_all(message.as_bytes());
            let is_missing = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
            Ok(if is_missing { 127 } else { 126 })
        }
    }
}

/// Blocks the signals that this process waits for, and SIGTTOU, which the kernel sends when a background process
/// changes the foreground group.
fn block_signals() -> io::Result<SigSet> {
    let mut awaited: SigSet = PASSED_ON.into_iter().collect();
    awaited.add(Signal::SIGCHLD);
    let mut blocked = awaited;
    blocked.add(Signal::SIGTTOU);
    blocked.thread_set_mask()?;
    Ok(awaited)
}

/// Starts the command in its own process group, and puts the group in the terminal's foreground before the program
/// runs.
fn start(program: &OsStr, arguments: &[OsString]) -> io::Result<u32> {
    let mut command = Command::new(program);
    command.args(arguments);
    let mut from_behind = SigSet::empty();
    from_behind.add(Signal::SIGTTOU);
    // SAFETY: only system calls with integers and prepared data.
    unsafe {
        command.pre_exec(move || {
            sys::check(libc::setpgid(0, 0).into())?;
            from_behind.thread_set_mask()?;
            sys::check(libc::tcsetpgrp(TERMINAL, libc::getpid()).into())?;
            SigSet::empty().thread_set_mask()?;
            // The shepherd ties this process to itself in the same way.
            sys::check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())?;
            Ok(())
        });
    }
    Ok(command.spawn()?.id())
}

/// The running command, which leads its process group.
struct ForegroundCommand {
    group: u32,
    awaited: SigSet,
}

/// A state change of the command.
enum News {
    Exited(i32),
    Signaled(i32),
    Stopped,
}

impl ForegroundCommand {
    fn supervise(&self) -> io::Result<i32> {
        loop {
            match self.awaited.wait() {
                Ok(Signal::SIGCHLD) => {}
                Ok(signal) => {
                    // The command may have just ended.
                    let _ = sys::signal_group(self.group, signal as libc::c_int);
                    continue;
                }
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            match self.news()? {
                Some(News::Exited(code)) => return Ok(code),
                Some(News::Signaled(signal)) => return Ok(end_by(signal)),
                Some(News::Stopped) => self.stop(),
                None => {}
            }
        }
    }

    fn news(&self) -> io::Result<Option<News>> {
        let mut status = 0;
        // SAFETY: the pointer refers to a local variable.
        let pid = unsafe { libc::waitpid(self.group as libc::pid_t, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
        Ok(match sys::check(pid.into())? {
            0 => None,
            _ if libc::WIFSTOPPED(status) => Some(News::Stopped),
            _ if libc::WIFSIGNALED(status) => Some(News::Signaled(libc::WTERMSIG(status))),
            _ => Some(News::Exited(libc::WEXITSTATUS(status))),
        })
    }

    /// Stops this process, because the command has stopped. After this process is continued, continues the command.
    fn stop(&self) {
        // SAFETY: the system calls take plain integers. After a hang-up of the terminal they fail harmlessly.
        unsafe {
            libc::tcsetpgrp(TERMINAL, libc::getpgrp());
            libc::kill(libc::getpid(), libc::SIGSTOP);
            libc::tcsetpgrp(TERMINAL, self.group as libc::pid_t);
        }
        let _ = sys::signal_group(self.group, libc::SIGCONT);
    }
}

/// Ends this process with a signal but without a core file, because the command has already dumped its own. If the
/// signal has no effect, returns the exit code of a shell.
fn end_by(signal: libc::c_int) -> i32 {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: installs no handler; the set is a local variable.
    unsafe {
        // The core limit does not apply to core dumps that are piped to a program.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut only = std::mem::zeroed::<libc::sigset_t>();
        libc::sigaddset(&raw mut only, signal);
        libc::kill(libc::getpid(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
    }
    128 + signal
}

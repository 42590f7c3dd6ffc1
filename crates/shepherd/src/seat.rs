//! The process of ours that leads the session of a call on a terminal, so that ^Z works there as in a shell.
//!
//! Who leads a session cannot be stopped from its terminal: the kernel sees nobody who could continue it. So the command gets a
//! process group of its own in the foreground of the terminal, and we are the shell that remains behind it. When the command stops
//! we take the terminal back and stop as well, which the shepherd sees and the caller hears of; when we are continued the command
//! gets the terminal again and goes on. It ends, and so do we, in the same way.
//!
//! Deliberately absent: job control for several commands, and any change to the terminal's modes, which a command that stops puts
//! back by itself.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};

use crate::sys;

/// Standard input.
const TERMINAL: libc::c_int = 0;

/// What the command's group is sent when we are. What is typed reaches it without us.
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

/// Runs a command in the foreground of the terminal that is standard input, whose session we lead; its exit code, or 127 or 126, with
/// a message, when it cannot be executed. When a signal ends the command, this process ends by the same.
///
/// # Errors
/// When standard input is not the terminal whose session we lead, or the command cannot be waited for.
pub fn run(argv: &[OsString]) -> io::Result<i32> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
    };
    // SAFETY: takes and gives integers.
    let (own, foreground) = unsafe { (libc::getpgrp(), libc::tcgetpgrp(TERMINAL)) };
    if own != foreground {
        return Err(io::Error::other("standard input is not a terminal with this process in its foreground"));
    }
    let awaited = block_signals()?;
    match start(program, arguments) {
        Ok(group) => Seated { group, awaited }.look_after(),
        Err(error) => {
            let message = format!("cannot execute `{}`: {}\n", program.display(), sys::explain(&error));
            // There is nowhere else to say it.
            let _ = io::stderr().write_all(message.as_bytes());
            let is_missing = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
            Ok(if is_missing { 127 } else { 126 })
        }
    }
}

/// Blocks what is waited for instead, and what the kernel sends to those who hand over a terminal from behind.
fn block_signals() -> io::Result<SigSet> {
    let mut awaited: SigSet = PASSED_ON.into_iter().collect();
    awaited.add(Signal::SIGCHLD);
    let mut blocked = awaited;
    blocked.add(Signal::SIGTTOU);
    blocked.thread_set_mask()?;
    Ok(awaited)
}

/// Starts the command in a group of its own, which has the terminal by the time the program runs.
fn start(program: &OsStr, arguments: &[OsString]) -> io::Result<u32> {
    let mut command = Command::new(program);
    command.args(arguments);
    let mut from_behind = SigSet::empty();
    from_behind.add(Signal::SIGTTOU);
    // SAFETY: system calls on integers and on what was laid out before.
    unsafe {
        command.pre_exec(move || {
            sys::check(libc::setpgid(0, 0).into())?;
            from_behind.thread_set_mask()?;
            sys::check(libc::tcsetpgrp(TERMINAL, libc::getpid()).into())?;
            SigSet::empty().thread_set_mask()?;
            // As its shepherd ties us to itself.
            sys::check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())?;
            Ok(())
        });
    }
    Ok(command.spawn()?.id())
}

/// The command, which leads its group.
struct Seated {
    group: u32,
    awaited: SigSet,
}

/// What there is to know of the command.
enum News {
    Exited(i32),
    Signaled(i32),
    Stopped,
}

impl Seated {
    fn look_after(&self) -> io::Result<i32> {
        loop {
            match self.awaited.wait() {
                Ok(Signal::SIGCHLD) => {}
                Ok(signal) => {
                    // It may have ended just now.
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
        // SAFETY: the pointer is to a local.
        let pid = unsafe { libc::waitpid(self.group as libc::pid_t, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
        Ok(match sys::check(pid.into())? {
            0 => None,
            _ if libc::WIFSTOPPED(status) => Some(News::Stopped),
            _ if libc::WIFSIGNALED(status) => Some(News::Signaled(libc::WTERMSIG(status))),
            _ => Some(News::Exited(libc::WEXITSTATUS(status))),
        })
    }

    /// The command has stopped: so do we, until somebody continues us, and it with us.
    fn stop(&self) {
        // SAFETY: plain integers go in. When the terminal has hung up there is nothing to hand over.
        unsafe {
            libc::tcsetpgrp(TERMINAL, libc::getpgrp());
            libc::kill(libc::getpid(), libc::SIGSTOP);
            libc::tcsetpgrp(TERMINAL, self.group as libc::pid_t);
        }
        let _ = sys::signal_group(self.group, libc::SIGCONT);
    }
}

/// Ends this process by a signal, and leaves no core file: the command's own is enough. What a shell would return, if that fails.
fn end_by(signal: libc::c_int) -> i32 {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: installs no handler; the set is a local.
    unsafe {
        // Core files that go to a program know no limit.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut only = std::mem::zeroed::<libc::sigset_t>();
        libc::sigaddset(&raw mut only, signal);
        libc::kill(libc::getpid(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
    }
    128 + signal
}

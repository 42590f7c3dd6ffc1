//! Runs a command on this machine by replacing this process, so that the caller gets the command's signals and exit
//! status directly.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command as Process, Stdio};
use std::time::Instant;

use hostler_remote::{Command, Destination, Report};
use hostler_sys::explain_start;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};

use super::report;
use crate::context::Context;
use crate::exit;
use crate::failure::{Failure, Outcome};

/// Replaces this process by the command. With `tell`, runs the command as a child and prints afterwards where it ran.
pub(super) fn run(command: &Command, placed: Option<&Destination>, tell: Option<&Context>) -> Outcome {
    let argv = command.argv();
    let mut process = Process::new(&argv[0]);
    process.args(&argv[1..]);
    if command.directory_id.is_none() {
        process.current_dir(command.directory()).env("PWD", command.directory());
    }
    if !command.has_input {
        process.stdin(Stdio::null());
    }
    if let Some(placed) = placed {
        process.env("HOSTLER_NODE", placed.node.as_str());
    }
    reset_sigpipe(&mut process);
    let cannot = |error: std::io::Error| {
        let directory = command.directory();
        if command.directory_id.is_none() && !directory.is_dir() {
            return Failure::new(format!("cannot enter the directory {}", directory.display()))
                .because(&error)
                .exiting(126);
        }
        let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let why = explain_start(&argv[0], &command.directory(), &path, &error);
        Failure::new(format!("cannot execute `{}`: {why}", argv[0].display())).exiting(code)
    };
    let (Some(context), Some(placed)) = (tell, placed) else { return Err(cannot(process.exec())) };
    let began = Instant::now();
    // The terminal sends these signals to both processes. This process must outlive the command, so it ignores them.
    // The command gets the previous handlers.
    for number in [Signal::SIGINT, Signal::SIGQUIT] {
        // SAFETY: installs no handler.
        let before = unsafe { signal(number, SigHandler::SigIgn) }.unwrap_or(SigHandler::SigDfl);
        // SAFETY: only makes a system call, as required between fork and exec.
        unsafe {
            process.pre_exec(move || {
                signal(number, before)?;
                Ok(())
            });
        }
    }
    let status = process.spawn().map_err(cannot)?.wait().map_err(cannot)?;
    let wall_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    report::placed(
        context,
        placed,
        Some(&Report { code: exit::of(status).into(), wall_us, ..Report::default() }),
        None,
    );
    if let Some(number) = status.signal() {
        end_by(number);
    }
    Ok(exit::of(status))
}

/// Restores the default action of SIGPIPE for the command. The Rust runtime ignores the signal, but programs expect it
/// to end them.
fn reset_sigpipe(process: &mut Process) {
    // SAFETY: only makes a system call, as required between fork and exec.
    unsafe {
        process.pre_exec(|| {
            signal(Signal::SIGPIPE, SigHandler::SigDfl)?;
            Ok(())
        });
    }
}

/// Ends this process by the signal that ended the command. Returns if that fails.
pub(super) fn end_by(number: i32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: pointers are to locals, and no handler is installed. This process writes no core file, because the
    // command has written one on its node. libc instead of nix, because nix does not know real-time signals.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(number, libc::SIG_DFL);
        let mut only = std::mem::zeroed::<libc::sigset_t>();
        libc::sigaddset(&raw mut only, number);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        libc::raise(number);
    }
}

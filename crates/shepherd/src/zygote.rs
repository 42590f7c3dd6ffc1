//! The launcher process: a small fork of the agent from before it had threads, which forks shepherds.
//!
//! It reads nothing but descriptors: each message brings one end of a socket pair, on which the new shepherd will find
//! its launch. It never executes another program, so a shepherd starts as a copy of a tiny process. When the agent
//! ends, its socket closes and the launcher process ends too; shepherds stay.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use nix::sys::socket::MsgFlags;
use nix::unistd::{ForkResult, fork};

use crate::credentials;
use crate::keeper;
use crate::process;
use crate::spawn;
use crate::sys;
use crate::wire;

/// Where the agent's socket is put; everything above is closed.
const SOCKET_FD: RawFd = 3;

/// Highest signal number on Linux.
const LAST_SIGNAL: libc::c_int = 64;

/// The body of the launcher process. Never returns into the agent's code, not even by panicking.
pub(crate) fn run(socket: OwnedFd) -> ! {
    let ended = std::panic::catch_unwind(|| settle(socket).and_then(|socket| serve(&socket)));
    sys::exit(if matches!(ended, Ok(Ok(()))) { 0 } else { 70 })
}

/// Lets go of everything that belongs to the agent: session, signals, descriptors, directory.
fn settle(socket: OwnedFd) -> io::Result<OwnedFd> {
    sys::set_name(c"hostler-launch");
    nix::unistd::setsid()?;
    nix::unistd::chdir("/")?;
    spawn::offer_jobs_to_oom_killer();
    settle_limits()?;
    // Blocked for this process and for shepherds, which only KILL may end; a job gets an empty mask.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    for signal in 1..=LAST_SIGNAL {
        default_disposition(signal);
    }
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // The kernel reaps shepherds by itself.
    // SAFETY: installs no handler.
    unsafe { sigaction(Signal::SIGCHLD, &ignore) }?;
    settle_descriptors(socket)
}

/// What jobs inherit besides: no core files unless they ask for them. As root also limits and keys that were meant for the agent
/// alone are let go: how many processes one user may have is not for root's shell to say, and its keys are not for jobs.
fn settle_limits() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_CORE)?;
    setrlimit(Resource::RLIMIT_CORE, 0, most)?;
    if nix::unistd::geteuid().is_root() {
        let (_, most) = getrlimit(Resource::RLIMIT_NPROC)?;
        setrlimit(Resource::RLIMIT_NPROC, most, most)?;
        credentials::lock_session_keyring();
    }
    Ok(())
}

/// Resets one signal. The call goes around the C library, which hides two real-time signals that whoever started the
/// agent may have ignored.
fn default_disposition(signal: libc::c_int) {
    // The kernel's structure is four words; all zeroes is SIG_DFL, without flags and with an empty mask.
    let default = [0_u64; 4];
    let none = std::ptr::null_mut::<u64>();
    // SAFETY: installs no handler. That KILL and STOP are refused does no harm.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, size_of::<u64>()) };
}

/// Leaves /dev/null as 0, 1 and 2, and the socket.
fn settle_descriptors(socket: OwnedFd) -> io::Result<OwnedFd> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // High numbers first, so that nothing that is still needed is overwritten.
    let high = nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(SOCKET_FD + 1))?;
    for standard in 0..SOCKET_FD {
        // SAFETY: replaces the agent's standard descriptors in this process only; nothing here uses them.
        sys::check(unsafe { libc::dup2(sys::raw(&null), standard) }.into())?;
    }
    // Their numbers are about to be taken over or closed.
    std::mem::forget((socket, null));
    // SAFETY: whatever was descriptor 3 belonged to the agent's code, which never runs in this process again.
    sys::check(unsafe { libc::dup3(high, SOCKET_FD, libc::O_CLOEXEC) }.into())?;
    // SAFETY: closes what is left of the agent's descriptors; none is owned by any value that is still used here.
    sys::check(unsafe { libc::syscall(libc::SYS_close_range, SOCKET_FD + 1, libc::c_uint::MAX, 0) })?;
    // SAFETY: just made, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(SOCKET_FD) })
}

fn serve(socket: &OwnedFd) -> io::Result<()> {
    let boot_id = process::boot_id();
    loop {
        let mut byte = [0];
        match sys::receive(socket.as_fd(), &mut byte, MsgFlags::empty()) {
            Ok((0, _)) => return Ok(()),
            // A message without its descriptor: the limit on descriptors was reached. The agent sees its end closed.
            Ok((_, mut along)) => {
                if let Some(connection) = along.pop() {
                    fork_shepherd(socket, connection, &boot_id);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn fork_shepherd(socket: &OwnedFd, connection: OwnedFd, boot_id: &str) {
    // SAFETY: this process has one thread, so the child may run any code.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { .. }) => {}
        Ok(ForkResult::Child) => {
            // SAFETY: this process exits below without using or dropping the socket again. It must not stay open, as
            // the launcher process would otherwise outlive the agent.
            unsafe { libc::close(sys::raw(socket)) };
            let served = keeper::serve(UnixStream::from(connection), boot_id);
            sys::exit(if served.is_ok() { 0 } else { 70 });
        }
        Err(errno) => {
            let reason = format!("cannot fork a shepherd: {}", errno.desc());
            let _ = sys::send(connection.as_fd(), &wire::refused_frame(&reason), &[]);
        }
    }
}

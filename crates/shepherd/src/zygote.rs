//! The launcher process: a small fork of the agent, made before the agent has threads. It forks shepherds.
//!
//! It receives only descriptors: each message has one end of a socket pair, on which the new shepherd receives its
//! launch. It never executes another program, so each shepherd starts as a copy of a tiny process. When the agent ends,
//! the socket closes and the launcher process ends; shepherds continue.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use nix::sys::socket::MsgFlags;
use nix::unistd::{ForkResult, fork};

use crate::credentials;
use crate::keeper;
use crate::oom;
use crate::process;
use crate::sandbox;
use crate::sys;
use crate::wire;

/// Descriptor number of the agent's socket; the launcher closes all higher descriptors.
const SOCKET_FD: RawFd = 3;

/// Highest signal number on Linux.
const LAST_SIGNAL: libc::c_int = 64;

/// Main function of the launcher process. Never returns into the agent's code, not even after a panic.
pub(crate) fn run(socket: OwnedFd) -> ! {
    let ended = std::panic::catch_unwind(|| settle(socket).and_then(|socket| serve(&socket)));
    sys::exit(if matches!(ended, Ok(Ok(()))) { 0 } else { 70 })
}

/// Detaches from the agent: session, signals, descriptors, working directory.
fn settle(socket: OwnedFd) -> io::Result<OwnedFd> {
    sys::set_name(c"hostler-launch");
    nix::unistd::setsid()?;
    nix::unistd::chdir("/")?;
    oom::prefer_jobs_for_oom_kill();
    settle_priority();
    settle_limits()?;
    // Blocked in this process and in shepherds, which therefore end only by KILL. Jobs get an empty mask.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    for signal in 1..=LAST_SIGNAL {
        default_disposition(signal);
    }
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // With SIGCHLD ignored, the kernel reaps shepherds automatically.
    // SAFETY: installs no handler.
    unsafe { sigaction(Signal::SIGCHLD, &ignore) }?;
    settle_descriptors(socket)
}

/// Gives up a priority over other programs, for the CPU or for disks, which was meant for the agent. Jobs would inherit
/// it. A lower priority stays. Always permitted.
fn settle_priority() {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const REAL_TIME: libc::c_long = 1;
    const BEST_EFFORT: libc::c_long = 2;
    /// The level of programs without an own one.
    const USUAL: libc::c_long = 4;
    // SAFETY: the system calls take plain integers, and a structure that they only read. 0 means this process.
    unsafe {
        let usual = std::mem::zeroed::<libc::sched_param>();
        if matches!(libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO | libc::SCHED_RR) {
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const usual);
        }
        if libc::getpriority(libc::PRIO_PROCESS, 0) < 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        }
        let io = libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
        let (class, level) = (io >> 13, io & 7);
        if class == REAL_TIME || (class == BEST_EFFORT && level < USUAL) {
            libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0);
        }
    }
}

/// Sets what jobs inherit: no core files by default, and without root the login uid. As root, also raises the process limit and locks the
/// session keyring. The old limit and keyring were meant for the agent, and users' jobs must not inherit them.
fn settle_limits() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_CORE)?;
    setrlimit(Resource::RLIMIT_CORE, 0, most)?;
    if nix::unistd::geteuid().is_root() {
        let (_, most) = getrlimit(Resource::RLIMIT_NPROC)?;
        setrlimit(Resource::RLIMIT_NPROC, most, most)?;
        credentials::lock_session_keyring();
        // For sandboxes, once for all shepherds.
        sandbox::compile_filters();
    } else {
        // For all jobs, which have the same user. A failure is harmless: the user could choose another one without Hostler.
        let _ = std::fs::write("/proc/self/loginuid", nix::unistd::geteuid().to_string());
    }
    Ok(())
}

/// Restores the default action of one signal. Uses a raw system call, because the C library hides two real-time
/// signals, which the agent's parent may have ignored.
fn default_disposition(signal: libc::c_int) {
    // The kernel's structure has four words; zeroes mean SIG_DFL without flags and with an empty mask.
    let default = [0_u64; 4];
    let none = std::ptr::null_mut::<u64>();
    // SAFETY: installs no handler. The call fails harmlessly for KILL and STOP.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, size_of::<u64>()) };
}

/// Keeps only /dev/null as descriptors 0, 1 and 2, and the socket.
fn settle_descriptors(socket: OwnedFd) -> io::Result<OwnedFd> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // Duplicates to a high number first, so that no descriptor that is still needed is overwritten.
    let high = nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(SOCKET_FD + 1))?;
    for standard in 0..SOCKET_FD {
        // SAFETY: replaces the agent's standard descriptors in this process only; nothing here uses them.
        sys::check(unsafe { libc::dup2(sys::raw(&null), standard) }.into())?;
    }
    // These numbers are about to be replaced or closed.
    std::mem::forget((socket, null));
    // SAFETY: the previous descriptor 3 belonged to the agent's code, which never runs in this process again.
    sys::check(unsafe { libc::dup3(high, SOCKET_FD, libc::O_CLOEXEC) }.into())?;
    // SAFETY: closes the agent's remaining descriptors; no value that is still used here owns one of them.
    sys::check(unsafe { libc::syscall(libc::SYS_close_range, SOCKET_FD + 1, libc::c_uint::MAX, 0) })?;
    // SAFETY: the descriptor was just created and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(SOCKET_FD) })
}

fn serve(socket: &OwnedFd) -> io::Result<()> {
    let boot_id = process::boot_id();
    loop {
        let mut byte = [0];
        match sys::receive(socket.as_fd(), &mut byte, MsgFlags::empty()) {
            Ok((0, _)) => return Ok(()),
            // A message without a descriptor: the limit on descriptors was reached. The agent sees its end closed.
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

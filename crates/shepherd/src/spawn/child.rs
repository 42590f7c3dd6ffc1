//! Code of the child between `clone` and `execve`.
//!
//! The memory may be the shepherd's, and a lock may be held in a copy of it. The code therefore only makes system calls
//! with prepared data, and writes only to its stack, the report, the prepared data and `errno`. The child of a sandbox has a
//! copy of the memory of a process with one thread, and may do more.

use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::Ordering;

use hostler_sys::is_marked;
use libc::c_int;

use super::prepare::{CappedLimit, Prepared, StreamFile};
use super::report::{MOST_TEXT, Report, Step};
use crate::{credentials, oom, sandbox, sys};

/// Executes the program, or reports the failed step and exits.
pub(super) fn become_program(prepared: &mut Prepared<'_>) -> ! {
    let (step, errno) = match settle(prepared) {
        Ok(()) => execute(prepared),
        Err(step) => (step, errno()),
    };
    prepared.report.fail(step, errno);
    sys::exit(127)
}

fn settle(prepared: &Prepared<'_>) -> Result<(), Step> {
    let program = prepared.program;
    record_login(prepared)?;
    enter_leaf(prepared);
    set_oom_score();
    bind_to_cpus(prepared);
    if program.sandbox.is_some() {
        enter_sandbox(prepared)?;
    }
    own_session(prepared)?;
    lower_limits(prepared)?;
    if let Some(namespace) = program.namespace {
        // SAFETY: the system call takes plain integers.
        check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS) }, Step::Namespace)?;
    }
    if let Some(hosts) = program.hosts {
        show_hosts(hosts);
    }
    // In a sandbox, the init process has done this already.
    if program.sandbox.is_none() {
        if let Some(user) = program.credentials {
            let become_user = match program.may_gain_rights {
                true => credentials::become_user_as_in_login,
                false => credentials::become_user,
            };
            become_user(user).map_err(|()| Step::Credentials)?;
        }
        // After the change of user, which clears the signal.
        end_with_parent(prepared.parent)?;
    }
    // SAFETY: the path is NUL-terminated.
    check(unsafe { libc::chdir(program.cwd.as_ptr()) }, Step::Directory)?;
    if program.sandbox.is_some() {
        check_directory_and_close_rest()?;
    }
    open_files(prepared)?;
    unblock_signals();
    Ok(())
}

/// Shows the program another `/etc/hosts`, in a mount namespace that still gets the mounts of the machine. If the kernel refuses,
/// the program sees that of the machine.
fn show_hosts(hosts: &CStr) {
    let none = ptr::null();
    // SAFETY: the paths are NUL-terminated, and the kernel accepts null for all that these mounts do not need.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, none.cast()) == 0
        {
            libc::mount(hosts.as_ptr(), c"/etc/hosts".as_ptr(), none, libc::MS_BIND, none.cast());
        }
    }
}

/// Makes this process the init process of a sandbox, and returns in the process of the program. Allocates, since the
/// process of a sandbox always has its own copy of the memory.
fn enter_sandbox(prepared: &Prepared<'_>) -> Result<(), Step> {
    let (Some(plan), Some((reader, writer))) = (&prepared.program.sandbox, &prepared.outcome) else { return Ok(()) };
    let shepherd = sandbox::ToShepherd {
        reader: reader.as_raw_fd(),
        writer: writer.as_raw_fd(),
        ended: &prepared.report.program_ended,
    };
    sandbox::enter(plan, &shepherd).map_err(|error| {
        prepared.report.keep_text(error.to_string().as_bytes());
        Step::Sandbox
    })
}

/// Checks that the working directory is in the sandbox's file tree, and marks all descriptors but the streams to be closed
/// with the start of the program.
fn check_directory_and_close_rest() -> Result<(), Step> {
    let mut path = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: the kernel writes at most this many bytes to a local variable; the other call takes plain integers.
    unsafe {
        check(libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) as c_int, Step::Directory)?;
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        check(libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, flags) as c_int, Step::Sandbox)?;
    }
    if path[0] == b'/' {
        return Ok(());
    }
    nix::errno::Errno::set_raw(libc::ENOENT);
    Err(Step::Directory)
}

/// Sets the login uid, by which the kernel's audit log says who acts, as PAM does in a login. It is fixed from then on, also
/// for descendants. The agent's own is usually unset, and a process may set an unset one to any user. Without root, all
/// have one user, and the launcher process has set its login uid.
///
/// Without the file, the kernel has no audit log. With `EPERM`, the login uid is fixed already: it is that of the person who
/// has started the agent. No process of the job can change it.
fn record_login(prepared: &Prepared<'_>) -> Result<(), Step> {
    let Some(uid) = &prepared.login_uid else { return Ok(()) };
    match write(c"/proc/self/loginuid", uid.as_bytes()) {
        Err(()) if !matches!(errno(), libc::ENOENT | libc::EPERM) => Err(Step::Login),
        _ => Ok(()),
    }
}

/// Writes a file at once. A failure leaves its cause in `errno`.
fn write(path: &CStr, bytes: &[u8]) -> Result<(), ()> {
    // SAFETY: the path is NUL-terminated, the buffer has the given length, and the descriptor is closed once.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file == -1 {
            return Err(());
        }
        let written = libc::write(file, bytes.as_ptr().cast(), bytes.len());
        let cause = errno();
        libc::close(file);
        nix::errno::Errno::set_raw(cause);
        if written == bytes.len() as isize { Ok(()) } else { Err(()) }
    }
}

/// Enters the leaf, unless `clone` has put the child there.
fn enter_leaf(prepared: &Prepared<'_>) {
    if let Some(members) = &prepared.members {
        // "0" means the writing process.
        // SAFETY: the buffer is a literal with this length.
        if unsafe { libc::write(members.as_raw_fd(), b"0".as_ptr().cast(), 1) } != 1 {
            prepared.report.leaf_errno.store(errno(), Ordering::Release);
        }
    }
}

/// Sets the score for the OOM killer. A failure is harmless.
fn set_oom_score() {
    if let Some(score) = oom::job_score() {
        let _ = write(c"/proc/self/oom_score_adj", score.to_bytes());
    }
}

fn bind_to_cpus(prepared: &Prepared<'_>) {
    let mask = &prepared.cpu_mask;
    // SAFETY: the mask is valid for its size; pid 0 means the calling process.
    let set = || unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(mask.as_slice()), mask.as_ptr()) };
    if !mask.is_empty() && set() == -1 {
        prepared.report.cpus_errno.store(errno(), Ordering::Release);
    }
}

/// Creates a session with the program's streams and, if requested, its controlling terminal.
fn own_session(prepared: &Prepared<'_>) -> Result<(), Step> {
    let program = prepared.program;
    // SAFETY: system calls with integers.
    unsafe {
        libc::umask(program.umask as libc::mode_t);
        check(libc::setsid(), Step::Session)?;
        for (wanted, fd) in (0..).zip(program.stdio) {
            check(libc::dup2(fd.as_raw_fd(), wanted), Step::Output)?;
        }
        if program.terminal {
            check(libc::ioctl(0, libc::TIOCSCTTY, 0), Step::Terminal)?;
        }
    }
    Ok(())
}

fn lower_limits(prepared: &Prepared<'_>) -> Result<(), Step> {
    let nothing = ptr::null_mut::<CappedLimit>();
    // A sandbox has its own limit of core files, which only root could raise again.
    let is_ours = |resource: i32| prepared.program.sandbox.is_none() || resource != libc::RLIMIT_CORE as i32;
    prepared.limits.iter().filter(|(resource, _)| is_ours(*resource)).try_for_each(|(resource, limit)| {
        // SAFETY: the kernel reads the limit.
        let set = unsafe { libc::syscall(libc::SYS_prlimit64, 0, *resource, ptr::from_ref(limit), nothing) };
        check(set as c_int, Step::Limits)
    })
}

/// Makes the kernel kill this process when the shepherd ends.
fn end_with_parent(parent: u32) -> Result<(), Step> {
    // SAFETY: the system calls take plain integers.
    let is_alive = unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0), Step::Parent)?;
        libc::getppid() as u32 == parent
    };
    if is_alive { Ok(()) } else { sys::exit(126) }
}

/// Opens the files that replace streams.
fn open_files(prepared: &Prepared<'_>) -> Result<(), Step> {
    for file in &prepared.files {
        let StreamFile { step, stream, path, parents, flags } = file;
        // SAFETY: the paths are NUL-terminated, and the other arguments are integers.
        unsafe {
            for parent in parents {
                // If this fails, so does opening the file, unless the directory exists.
                libc::mkdir(parent.as_ptr(), 0o777);
            }
            let opened = libc::open(path.as_ptr(), *flags, 0o666);
            check(opened, *step)?;
            check(libc::fcntl(opened, libc::F_SETFL, flags & libc::O_APPEND), *step)?;
            check(libc::dup2(opened, *stream), *step)?;
        }
    }
    if prepared.stderr_is_stdout {
        // SAFETY: the system call takes plain integers.
        check(unsafe { libc::dup2(1, 2) }, Step::Stderr)?;
    }
    Ok(())
}

/// Resets the signal mask. The launcher process has reset all signal dispositions.
fn unblock_signals() {
    // SAFETY: zeroes are a valid set, and the calls only access this variable.
    unsafe {
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Tries the candidates like `execvpe`. Returns the failed step and the most informative errno.
fn execute(prepared: &mut Prepared<'_>) -> (Step, i32) {
    let (mut step, mut result) = (Step::Execute, libc::ENOENT);
    for candidate in &prepared.candidates {
        // SAFETY: the path is NUL-terminated.
        let is_absent = unsafe { libc::access(candidate.as_ptr(), libc::F_OK) } == -1;
        if is_absent && matches!(errno(), libc::ENOENT | libc::ENOTDIR) {
            continue;
        }
        // SAFETY: the arrays are null-terminated, and the prepared data keeps their strings alive.
        unsafe { libc::execve(candidate.as_ptr(), prepared.argv.as_ptr(), prepared.env.as_ptr()) };
        match errno() {
            // The file is there.
            libc::ENOENT => {
                step = Step::Interpreter;
                let _ = keep_beginning(candidate, prepared.report);
            }
            libc::ENOTDIR => {}
            libc::EACCES => result = libc::EACCES,
            libc::ENOEXEC => {
                if is_marked(&keep_beginning(candidate, prepared.report)) {
                    return (Step::Interpreter, libc::ENOEXEC);
                }
                prepared.shell_argv[1] = candidate.as_ptr();
                // SAFETY: see above.
                unsafe { libc::execve(c"/bin/sh".as_ptr(), prepared.shell_argv.as_ptr(), prepared.env.as_ptr()) };
                return (Step::Execute, libc::ENOEXEC);
            }
            other => return (Step::Execute, other),
        }
    }
    if result == libc::ENOENT { (step, result) } else { (Step::Execute, result) }
}

/// Records and returns the beginning of a script, read with the user's rights. Replaces that of an earlier candidate.
fn keep_beginning(script: &CStr, report: &Report) -> [u8; MOST_TEXT] {
    let mut bytes = [0_u8; MOST_TEXT];
    // SAFETY: the path is NUL-terminated, and the buffer has the given length. The descriptor closes when the
    // process executes a program or ends.
    unsafe {
        let file = libc::open(script.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK);
        libc::read(file, bytes.as_mut_ptr().cast(), bytes.len());
    }
    report.keep_text(&bytes);
    bytes
}

fn check(returned: c_int, step: Step) -> Result<(), Step> {
    if returned == -1 { Err(step) } else { Ok(()) }
}

fn errno() -> i32 {
    nix::errno::Errno::last_raw()
}

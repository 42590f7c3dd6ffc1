//! The sandbox of a job: namespaces and a file tree of its own, no rights, and a system call filter.
//!
//! ```text
//! shepherd ──clone with new namespaces──▶ init (pid 1) ──fork──▶ the job's program (pid 2) ──▶ its descendants
//! ```
//!
//! The child that [`crate::spawn`] creates becomes the init process. It builds the file tree ([`root`], with an [`image`] if the job has one), becomes the job's
//! user, gives up all rights, installs the filter ([`filter`]) and forks the program. Then it only reaps processes. It
//! ends with the program, and the kernel then kills all other processes in the pid namespace. The mounts are not visible
//! outside, and the kernel removes the namespaces with their last process.
//!
//! Init never executes a program, so no executable of the machine runs with rights inside. It is not dumpable, so the
//! job can neither read its memory nor trace it.
//!
//! A shepherd that is not root adds a user namespace, in which init has the rights for all this. Only the shepherd's own
//! user exists there, as itself; files of all others seem to belong to `nobody`.
//!
//! **Not included:** a limit for the job's folder.

mod calls;
mod files;
mod filter;
mod folder;
mod image;
mod network;
mod plan;
mod root;

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_long};
use nix::sched::{CloneFlags, unshare};

use crate::credentials;
use crate::launch::Credentials;
use crate::{process, sys};

pub(crate) use self::filter::compile as compile_filters;
pub use self::network::{JOB_INTERFACE, JOB_MTU};
use self::plan::During;
pub(crate) use self::plan::Plan;
pub use self::root::HOME;

/// The execution domain of `personality` without deviations.
const LINUX: libc::c_ulong = 0;

/// Measure with performance counters; since Linux 5.8. The library does not name it.
const CAP_PERFMON: u32 = 38;

/// What init shares with the shepherd.
pub(crate) struct ToShepherd<'a> {
    /// The shepherd's end of a pipe, of which this process has a copy.
    pub(crate) reader: c_int,
    /// This end of the pipe. It closes when the program is executed or has failed.
    pub(crate) writer: c_int,
    /// The program's status as of `waitpid`, plus one, written when it has ended.
    pub(crate) ended: &'a AtomicI32,
}

/// Builds the sandbox and forks the program. Returns only in the program's process; the calling process becomes init.
///
/// # Errors
/// If the kernel refuses a step; the text says which. The caller must exit.
pub(crate) fn enter(plan: &Plan<'_>, shepherd: &ToShepherd<'_>) -> io::Result<()> {
    // Inherited from the shepherd, it would hide directories from the job.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    if plan.is_unprivileged {
        map_user(plan.user)?;
    }
    unshare(CloneFlags::CLONE_NEWCGROUP).during("create a cgroup namespace")?;
    let arguments = process::arguments();
    if let Some(network) = &plan.wanted.job_network {
        // Before the machine's /dev is out of reach.
        network.create().during("make the network of the job")?;
    }
    root::build(plan)?;
    if plan.wanted.host_network {
        // The host name stays too: on the network, the machine is known by it.
        let has_left = leave_abstract_sockets().during("leave the sockets of the machine")?;
        if plan.is_unprivileged && !has_left {
            // Its shepherd, for example, obeys every program of this user.
            let why = "programs of the same user outside listen on sockets that Linux before 6.12 cannot keep a job with the \
                       network of the machine from; start the agent as root";
            return Err(io::Error::other(why)).during("share the network");
        }
    } else {
        nix::unistd::sethostname(plan.host_name()).during("set the host name")?;
        bring_up_loopback().during("bring up the loopback interface")?;
    }
    drop_rights(plan)?;
    end_with_shepherd(shepherd)?;
    filter::install(plan.wanted.performance_counters).during("install the system call filter")?;
    // SAFETY: this process has one thread, so the child may run any code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).during("start the program's process"),
        0 => Ok(()),
        program => {
            if let Some(arguments) = arguments {
                hide(arguments);
            }
            reap_until_end(program, shepherd.ended)
        }
    }
}

/// Forbids connections to Unix sockets with abstract names, which belong to the network rather than to the file tree. Linux
/// older than 6.12 has no way to forbid them. Returns whether they are forbidden.
fn leave_abstract_sockets() -> io::Result<bool> {
    /// `struct landlock_ruleset_attr`.
    #[repr(C)]
    struct Rules {
        files: u64,
        network: u64,
        scopes: u64,
    }
    const ABSTRACT_UNIX_SOCKETS: u64 = 1;
    let rules = Rules { files: 0, network: 0, scopes: ABSTRACT_UNIX_SOCKETS };
    // SAFETY: the kernel reads a structure of this size. An older kernel refuses the size or the value.
    let opened = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const rules, size_of::<Rules>(), 0) };
    let ruleset = match sys::check(opened) {
        // The kernel is too old, or was started without Landlock.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL | libc::E2BIG)) =>
        {
            return Ok(false);
        }
        opened => opened?,
    };
    // SAFETY: the kernel has just opened this descriptor.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset as c_int) };
    // Needs `CAP_SYS_ADMIN`, which init still has, or `no_new_privs`.
    // SAFETY: the system call takes plain integers.
    sys::check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) }).map(|_| true)
}

fn bring_up_loopback() -> io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: zeroes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel only reads the structure.
    sys::check(unsafe { libc::ioctl(sys::raw(&socket), libc::SIOCSIFFLAGS, &raw const request) }.into())?;
    Ok(())
}

/// Why the namespaces of an unprivileged sandbox cannot be created.
pub(crate) fn explain_clone(error: &io::Error) -> String {
    let why = sys::explain(error);
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSPC | libc::EUSERS | libc::EINVAL) => {
            "; the kernel lets no ordinary user create user namespaces (sysctl user.max_user_namespaces and \
             kernel.unprivileged_userns_clone)"
        }
        _ => "",
    };
    format!("cannot build the sandbox: cannot create its namespaces: {why}{remedy}")
}

/// Makes the user exist in the new user namespace, under its own number, and nobody else.
fn map_user(user: &Credentials) -> io::Result<()> {
    let what = "map the user in a user namespace";
    let Credentials { uid, gid, .. } = user;
    // The kernel demands it before an ordinary user maps groups.
    std::fs::write("/proc/self/setgroups", "deny").during(what)?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).during(what)?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).during(what)
}

/// Becomes the user, without any capability in any set, and without core files.
fn drop_rights(plan: &Plan<'_>) -> io::Result<()> {
    let user = plan.user;
    let none = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel only reads the structure; the other calls take plain integers.
    unsafe {
        libc::setrlimit64(libc::RLIMIT_CORE, &raw const none);
        libc::personality(LINUX);
        // The first capability that the kernel does not know ends the list.
        let is_kept = |capability| plan.wanted.performance_counters && capability == CAP_PERFMON;
        let last = (0..64)
            .find(|capability| !is_kept(*capability) && libc::prctl(libc::PR_CAPBSET_DROP, *capability, 0, 0, 0) == -1);
        if last.is_none_or(|last| last == 0) {
            return Err(io::Error::last_os_error()).during("drop the capabilities");
        }
    }
    let become_user = || match (plan.is_unprivileged, plan.wanted.performance_counters) {
        (true, _) => credentials::give_up_rights(),
        (false, false) => credentials::become_user(user),
        (false, true) => credentials::become_user_with(user, CAP_PERFMON),
    };
    become_user()
        .map_err(|()| io::Error::last_os_error())
        .during(format_args!("switch to user {} (uid {})", user.name, user.uid))?;
    // SAFETY: the system call takes plain integers.
    sys::check(c_long::from(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }))
        .during("protect the init process")?;
    Ok(())
}

/// Makes the kernel kill this process, and with it the sandbox, when the shepherd ends.
fn end_with_shepherd(shepherd: &ToShepherd<'_>) -> io::Result<()> {
    // SAFETY: the system calls take plain integers. Nothing in this process uses the descriptor.
    unsafe {
        libc::close(shepherd.reader);
        sys::check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())
            .during("tie the sandbox to its shepherd")?;
    }
    // The parent is outside of the pid namespace, so its pid cannot be compared: has the other end of the pipe closed?
    let mut ends = [libc::pollfd { fd: shepherd.writer, events: 0, revents: 0 }];
    sys::poll(&mut ends, Some(std::time::Duration::ZERO))?;
    if ends[0].revents & libc::POLLERR != 0 {
        sys::exit(126)
    }
    Ok(())
}

/// Replaces the arguments of this process, which are those of the agent, by a name. `arguments`: their addresses.
fn hide(arguments: Range<usize>) {
    let name = b"hostler-init";
    // SAFETY: the kernel has put the arguments there, in writable memory of this process, which has a copy of its parent's
    // memory and never reads them again.
    unsafe {
        let start = arguments.start as *mut u8;
        ptr::write_bytes(start, 0, arguments.len());
        ptr::copy_nonoverlapping(name.as_ptr(), start, name.len().min(arguments.len().saturating_sub(1)));
    }
}

/// The init process: reaps processes until the program ends.
fn reap_until_end(program: libc::pid_t, program_ended: &AtomicI32) -> ! {
    // SAFETY: closes descriptors that nothing in this process uses again: those of the shepherd and of its clients.
    unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
    sys::set_name(c"hostler-init");
    loop {
        let mut status = 0;
        // SAFETY: the pointer refers to a local variable.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if ended == program {
            program_ended.store(status + 1, Ordering::Release);
            sys::exit(0);
        }
        if ended == -1 && nix::errno::Errno::last_raw() == libc::ECHILD {
            sys::exit(126);
        }
    }
}

//! The system call filter of a sandbox.
//!
//! A [search tree](calls) allows a list of calls; all others are as in a kernel that lacks them, which is what programs are
//! prepared for: the C library falls back from `clone3` to `clone`, whose flags a filter can see. The calls and arguments that
//! need an explanation other than "not implemented" are refused with EPERM, by the rest of the filter, which a library compiles.
//! Calls of other architectures of the processor end the process, or are as if they did not exist.
//!
//! The lists follow the default profile of Docker, without `io_uring`, handles of files, and sockets of unusual
//! families; they add memory policies, which numeric programs need.

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::calls::{self, Verdict};
use crate::sys;

/// The library does not name this call on every architecture.
const FCHMODAT2: c_long = 452;

/// Calls that every architecture has.
const ALLOWED: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_chdir,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_mempolicy,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getitimer,
    libc::SYS_getpeername,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_io_cancel,
    libc::SYS_io_destroy,
    libc::SYS_io_getevents,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_ioctl,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_kill,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_lgetxattr,
    libc::SYS_linkat,
    libc::SYS_listen,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lseek,
    libc::SYS_lsetxattr,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_mincore,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mq_getsetattr,
    libc::SYS_mq_notify,
    libc::SYS_mq_open,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_unlink,
    libc::SYS_mremap,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pipe2,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_prlimit64,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pselect6,
    libc::SYS_ptrace,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_remap_file_pages,
    libc::SYS_removexattr,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_seccomp,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_mempolicy,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setitimer,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setrlimit,
    libc::SYS_setsid,
    libc::SYS_setsockopt,
    libc::SYS_setuid,
    libc::SYS_setxattr,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_shmget,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_sysinfo,
    libc::SYS_tee,
    libc::SYS_tgkill,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
    libc::SYS_tkill,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
    // Newer calls have the same numbers everywhere, and the library does not name them on every architecture.
    450, // set_mempolicy_home_node
    451, // cachestat
    FCHMODAT2,
    453, // map_shadow_stack
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
    462, // mseal
    463, // setxattrat
    464, // getxattrat
    465, // listxattrat
    466, // removexattrat
];

/// Calls that only this architecture has, most of them older forms of those above, or with a number of its own.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[
    333, // io_pgetevents
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_creat,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_futimesat,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_inotify_init,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_signalfd,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[
    292, // io_pgetevents
];

/// Calls that a job never may make, refused with EPERM.
const REFUSED: &[c_long] = &[
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Keyrings, which belong to the user and not to a namespace.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Large parts of the kernel that programs hardly need.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    // Files and descriptors behind the back of the file tree.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The machine.
    libc::SYS_syslog,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

/// Flags of `clone` that create namespaces.
const NEW_NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Families of sockets. Others, such as the kernel's cryptography, have had many holes.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Terminal requests that insert input into a terminal, as if somebody had typed it.
const TYPING: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Execution domains of `personality`: Linux, without random addresses (debuggers), older version numbers, and the query.
const DOMAINS: [u64; 6] = [0, 8, 0x4_0000, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The number of instructions with which the library's filters check the architecture.
const CHECK_OF_ARCHITECTURE: usize = 3;

type Filter = Result<BpfProgram, String>;

/// The filter of usual jobs, and that of jobs that may use performance counters.
static FILTERS: [OnceLock<Filter>; 2] = [OnceLock::new(), OnceLock::new()];

/// Compiles the filter of usual jobs, once in this process and for its later forks.
pub(crate) fn compile() {
    compiled(false);
}

fn compiled(counters: bool) -> &'static Filter {
    FILTERS[usize::from(counters)].get_or_init(|| make(counters).map_err(|error| error.to_string()))
}

fn make(counters: bool) -> Result<BpfProgram, seccompiler::BackendError> {
    let counting: &[c_long] = if counters { &[libc::SYS_perf_event_open] } else { &[] };
    let refused = refused(counters)?;
    let number = |call: c_long| u32::try_from(call).expect("numbers of calls are small");
    let allowed = ALLOWED.iter().chain(ALLOWED_HERE).chain(counting).chain(&[libc::SYS_personality]);
    let mut verdicts: BTreeMap<u32, Verdict> =
        allowed.map(|call| (number(*call), Verdict::Return(libc::SECCOMP_RET_ALLOW))).collect();
    for (call, rules) in &refused {
        // Arguments of a call that is not allowed do not matter.
        if rules.is_empty() || verdicts.contains_key(&number(*call)) {
            verdicts.insert(number(*call), Verdict::Judge);
        }
    }
    let forbidden = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    let rest = SeccompFilter::new(refused.into_iter().collect(), SeccompAction::Allow, forbidden, architecture)?;
    let rest: BpfProgram = rest.try_into()?;
    // The library begins with the check of the architecture, which ends the process if it is another one.
    let mut filter = rest[..CHECK_OF_ARCHITECTURE].to_vec();
    let missing = Verdict::Return(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32);
    filter.extend(calls::filter(&verdicts, missing, rest));
    Ok(filter)
}

/// The calls to refuse; those with rules only if one of the rules holds.
fn refused(counters: bool) -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let always =
        |calls: &[c_long]| -> Vec<(i64, Vec<SeccompRule>)> { calls.iter().map(|call| (*call, Vec::new())).collect() };
    let mut refused = always(REFUSED);
    if counters {
        refused.retain(|(call, _)| *call != libc::SYS_perf_event_open);
    }
    #[cfg(target_arch = "x86_64")]
    refused.extend(always(&[libc::SYS_iopl, libc::SYS_ioperm]));
    let new = |flag: libc::c_int| {
        let flag = flag as u64;
        rule(&[argument(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    };
    refused.push((libc::SYS_clone, NEW_NAMESPACES.into_iter().map(new).collect::<Result<_, _>>()?));
    let types = |request| rule(&[argument(1, SeccompCmpOp::Eq, request)?]);
    refused.push((libc::SYS_ioctl, TYPING.into_iter().map(types).collect::<Result<_, _>>()?));
    let no_domain = DOMAINS.into_iter().map(|domain| argument(0, SeccompCmpOp::Ne, domain));
    refused.push((libc::SYS_personality, vec![rule(&no_domain.collect::<Result<Vec<_>, _>>()?)?]));
    let other = FAMILIES.into_iter().map(|family| argument(0, SeccompCmpOp::Ne, family as u64));
    let other = rule(&other.collect::<Result<Vec<_>, _>>()?)?;
    let other_netlink = rule(&[
        argument(0, SeccompCmpOp::Eq, libc::AF_NETLINK as u64)?,
        argument(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE as u64)?,
    ])?;
    refused.push((libc::SYS_socket, vec![other, other_netlink]));
    let not_unix = rule(&[argument(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)?])?;
    refused.push((libc::SYS_socketpair, vec![not_unix]));
    refused.extend(set_user_id_rules()?);
    Ok(refused)
}

/// Rules against set-user-id files: outside of the sandbox, others could act as the job's user with one that the job has
/// left in its folder. `openat2` is not allowed at all, because the mode is in the program's memory.
fn set_user_id_rules() -> Result<Vec<(c_long, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let has = |number: u8, bits: u32| argument(number, SeccompCmpOp::MaskedEq(bits.into()), bits.into());
    let mode = |call: c_long, number: u8| -> Result<_, seccompiler::BackendError> {
        Ok((call, vec![rule(&[has(number, libc::S_ISUID)?])?]))
    };
    // Without these flags, the kernel ignores the mode.
    const TEMPORARY: u32 = libc::O_TMPFILE as u32 & !(libc::O_DIRECTORY as u32);
    let opens = |call: c_long, flags: u8| -> Result<_, seccompiler::BackendError> {
        let creating = [libc::O_CREAT as u32, TEMPORARY];
        let rules = creating.into_iter().map(|flag| rule(&[has(flags, flag)?, has(flags + 1, libc::S_ISUID)?]));
        Ok((call, rules.collect::<Result<_, _>>()?))
    };
    let mut rules = vec![
        mode(libc::SYS_fchmod, 1)?,
        mode(libc::SYS_fchmodat, 2)?,
        mode(FCHMODAT2, 2)?,
        mode(libc::SYS_mknodat, 2)?,
        opens(libc::SYS_openat, 2)?,
    ];
    #[cfg(target_arch = "x86_64")]
    rules.extend([
        mode(libc::SYS_chmod, 1)?,
        mode(libc::SYS_creat, 1)?,
        mode(libc::SYS_mknod, 1)?,
        opens(libc::SYS_open, 1)?,
    ]);
    Ok(rules)
}

/// A condition on the low 32 bits of an argument, which is all that the kernel reads of these arguments.
fn argument(number: u8, comparison: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(number, SeccompCmpArgLen::Dword, comparison, value)
}

/// A rule whose conditions must all hold.
fn rule(conditions: &[SeccompCondition]) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.to_vec())
}

/// Installs the filter for this process and its descendants. Does not switch on protections of the processor that
/// would slow down the job: the flag says so.
/// `counters`: whether performance counters may be used.
pub(super) fn install(counters: bool) -> io::Result<()> {
    let filter = compiled(counters).as_ref().map_err(|error| io::Error::other(error.clone()))?;
    let program = libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel only reads the program, whose instructions have the kernel's layout.
    sys::check(unsafe {
        let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_compiles_and_no_refused_call_is_in_the_allowed_list() {
        for counters in [false, true] {
            let filter = compiled(counters).as_ref().expect("valid rules");
            assert!(filter.len() >= REFUSED.len());
            // Load the architecture, compare, and kill the process.
            let codes: Vec<u16> = filter[..CHECK_OF_ARCHITECTURE].iter().map(|it| it.code).collect();
            assert_eq!((codes, filter[0].k, filter[2].k), (vec![0x20, 0x15, 0x06], 4, libc::SECCOMP_RET_KILL_PROCESS));
        }
        assert!(!REFUSED.iter().any(|call| ALLOWED.contains(call) || ALLOWED_HERE.contains(call)));
        for call in [libc::SYS_io_uring_setup, libc::SYS_clone3, libc::SYS_openat2, libc::SYS_kexec_file_load] {
            assert!(!ALLOWED.contains(&call) && !ALLOWED_HERE.contains(&call), "{call}");
        }
    }
}

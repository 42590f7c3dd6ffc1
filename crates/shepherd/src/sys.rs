//! The system calls that the standard library and nix do not wrap the way we need them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, bind, getsockname, getsockopt,
    listen, sendmsg, socket, sockopt,
};

/// Turns the C convention (-1 and `errno`) into a `Result`.
pub(crate) fn check(returned: libc::c_long) -> io::Result<libc::c_long> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// What the kernel says about `errno`, without Rust's "(os error 2)".
pub(crate) fn describe(errno: i32) -> &'static str {
    Errno::from_raw(errno).desc()
}

/// An error as people read it, without Rust's "(os error 2)".
pub(crate) fn explain(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |errno| describe(errno).to_owned())
}

/// A handle on the process that has `pid` now; readable when that process has ended.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain integers go in.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) })?;
    // SAFETY: the kernel has just made this descriptor for us; it is close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Signals exactly the process behind the handle; `ESRCH` when it has been reaped.
pub(crate) fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> io::Result<()> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo is allowed and means "as kill(2) does".
    check(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, info, 0) })?;
    Ok(())
}

/// Whether the process behind the handle has ended.
pub fn pidfd_ended(pidfd: BorrowedFd<'_>) -> bool {
    wait_readable(pidfd, Some(Duration::ZERO)).unwrap_or(false)
}

/// Signals all of a process group.
pub(crate) fn signal_group(group: u32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: plain integers go in.
    check(unsafe { libc::kill(-(group as libc::pid_t), signal) }.into())?;
    Ok(())
}

/// The signal that has stopped a child, once for each time it stops.
pub(crate) fn take_stop(child: u32) -> Option<libc::c_int> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WSTOPPED | libc::WNOHANG;
    // SAFETY: the pointer is to a local of the right type.
    let waited = unsafe { libc::waitid(libc::P_PID, child, info.as_mut_ptr(), flags) };
    // SAFETY: all zeroes is a valid siginfo, and stays there when there is nothing to tell; else it is one of a child.
    let (pid, signal) = unsafe {
        let info = info.assume_init();
        (info.si_pid(), info.si_status())
    };
    (waited == 0 && pid != 0).then_some(signal)
}

/// Waits until `fd` is readable or hung up; `false` when `timeout` passed first.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    let mut set = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    poll(&mut set, timeout)?;
    Ok(set[0].revents != 0)
}

/// `ppoll`; being interrupted counts as nothing ready.
pub(crate) fn poll(set: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().min(1 << 40) as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `set` is valid for its length; `timeout` is null or points to a local that outlives the call.
    let ready = unsafe { libc::ppoll(set.as_mut_ptr(), set.len() as libc::nfds_t, timeout, std::ptr::null()) };
    match check(libc::c_long::from(ready)) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Ok(_) => Ok(()),
        Err(_) => {
            set.iter_mut().for_each(|entry| entry.revents = 0);
            Ok(())
        }
    }
}

/// Sends one message, with descriptors beside it, and never raises SIGPIPE. They come along with the first byte.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights };
    let iov = [io::IoSlice::new(bytes)];
    Ok(sendmsg::<UnixAddr>(socket.as_raw_fd(), &iov, control, MsgFlags::MSG_NOSIGNAL, None)?)
}

/// Descriptors that may come along with one message.
const DESCRIPTOR_ROOM: usize = 4;

/// Receives into `buffer`, with the descriptors that came along: none when there were more than there is room for, or more than this
/// process may have. What was said counts all the same. 0 bytes: the other end is gone.
///
/// # Errors
/// When the system refuses, or nothing has come on a socket that does not wait.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: MsgFlags) -> io::Result<(usize, Vec<OwnedFd>)> {
    /// More than a header and [`DESCRIPTOR_ROOM`] numbers take.
    #[repr(align(16))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes is a valid `msghdr`.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = descriptors_length(DESCRIPTOR_ROOM) as _;
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points at locals that outlive the call, of the lengths it says.
    let length = check(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags.bits()) } as libc::c_long)?;
    let mut received = take_descriptors(&header);
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        // Those that did fit were installed nevertheless.
        received.clear();
    }
    Ok((length as usize, received))
}

/// The length of a control message with so many descriptors, in bytes.
fn descriptors_length(count: usize) -> usize {
    // SAFETY: arithmetic only.
    unsafe { libc::CMSG_LEN((count * size_of::<RawFd>()) as libc::c_uint) as usize }
}

/// Takes hold of the descriptors that came with a message.
fn take_descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut received = Vec::new();
    // SAFETY: the kernel has filled in the header and what it points at.
    let mut entry = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !entry.is_null() {
        // SAFETY: neither macro goes beyond what the kernel has written.
        let (message, data) = unsafe { (&*entry, libc::CMSG_DATA(entry).cast::<RawFd>()) };
        if (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // C libraries disagree about the type of the length.
            let count = (message.cmsg_len as u64 as usize - descriptors_length(0)) / size_of::<RawFd>();
            // SAFETY: the message has so many numbers, of descriptors that the kernel has just installed and nobody else knows of.
            received.extend((0..count).map(|at| unsafe { OwnedFd::from_raw_fd(data.add(at).read_unaligned()) }));
        }
        // SAFETY: as above.
        entry = unsafe { libc::CMSG_NXTHDR(header, entry) };
    }
    received
}

/// Listens on an abstract name that the kernel chooses: no inode, no path that is too long, gone with its owner.
pub(crate) fn listen_anywhere() -> io::Result<(UnixListener, String)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new_unnamed())?;
    listen(&listener, Backlog::MAXALLOWABLE)?;
    let address = getsockname::<UnixAddr>(listener.as_raw_fd())?;
    // The kernel's own names are hexadecimal digits.
    let name = String::from_utf8_lossy(address.as_abstract().unwrap_or_default()).into_owned();
    Ok((listener.into(), name))
}

/// Who is at the other end: for a connected socket, whoever connected or listened.
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

/// Asks the kernel who is at the other end.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = getsockopt(stream, sockopt::PeerCredentials)?;
    Ok(Peer { pid: credentials.pid() as u32, uid: credentials.uid() })
}

/// What [`reap`] found.
pub(crate) enum Reaped {
    /// A child ended; it is reaped.
    Child {
        pid: u32,
        /// As `waitpid` gives it.
        status: libc::c_int,
        usage: Usage,
    },
    /// There are children, all alive.
    AllAlive,
    /// There is no child, hence, for a subreaper, no descendant.
    NoneLeft,
}

/// Resources a reaped child and its own reaped children used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) max_rss_bytes: u64,
    /// From disks.
    pub(crate) read_bytes: u64,
    /// To files on disks.
    pub(crate) write_bytes: u64,
}

/// Reaps one child, if one has ended.
pub(crate) fn reap() -> Reaped {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to locals of the right type.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::__WALL, usage.as_mut_ptr()) };
    match pid {
        0 => Reaped::AllAlive,
        -1 => Reaped::NoneLeft,
        _ => {
            // SAFETY: all zeroes is a valid rusage, and wait4 has filled it in.
            let usage = unsafe { usage.assume_init() };
            Reaped::Child { pid: pid as u32, status, usage: Usage::from(usage) }
        }
    }
}

impl From<libc::rusage> for Usage {
    fn from(usage: libc::rusage) -> Usage {
        /// What the kernel counts in, whatever the disk's own are.
        const BLOCK_BYTES: u64 = 512;
        let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Usage {
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            max_rss_bytes: usage.ru_maxrss as u64 * 1024,
            read_bytes: usage.ru_inblock as u64 * BLOCK_BYTES,
            write_bytes: usage.ru_oublock as u64 * BLOCK_BYTES,
        }
    }
}

/// Time since the clock's own origin.
pub(crate) fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local; the clocks we ask for always exist.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Orphaned descendants become children of the calling process from now on.
pub(crate) fn become_subreaper() -> io::Result<()> {
    // SAFETY: plain integers go in.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }))?;
    Ok(())
}

/// The name shown by `ps -o comm`; at most 15 bytes are kept.
pub(crate) fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel copies at most 16 bytes of a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Ends the process at once: no destructors, no exit handlers that belong to the agent we were forked from.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// The raw number, for poll sets.
pub(crate) fn raw(fd: &impl AsFd) -> RawFd {
    fd.as_fd().as_raw_fd()
}

//! System calls that the standard library and nix do not wrap as needed.

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

/// Converts a C result (-1 and `errno`) to a `Result`.
pub(crate) fn check(returned: libc::c_long) -> io::Result<libc::c_long> {
    if returned == -1 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// The kernel's description of an errno, without the "(os error 2)" that Rust appends.
pub(crate) fn describe(errno: i32) -> &'static str {
    Errno::from_raw(errno).desc()
}

/// The system's description of an error, without the "(os error 2)" that Rust appends.
pub(crate) fn explain(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |errno| describe(errno).to_owned())
}

/// Opens a pidfd of the process that has `pid` now; readable when that process has ended.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the system call takes plain integers.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) })?;
    // SAFETY: the kernel has just created this descriptor for this process; it is close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Sends a signal to the process of the pidfd; fails with `ESRCH` if the process was reaped.
pub(crate) fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> io::Result<()> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo is allowed and means the same as in kill(2).
    check(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, info, 0) })?;
    Ok(())
}

/// Signals a child that has not been reaped. An error is ignored: the child may have just ended.
pub(crate) fn signal(child: u32, signal: libc::c_int) {
    // SAFETY: the system call takes plain integers.
    unsafe { libc::kill(child as libc::pid_t, signal) };
}

/// Whether the process of the pidfd has ended.
pub fn pidfd_ended(pidfd: BorrowedFd<'_>) -> bool {
    wait_readable(pidfd, Some(Duration::ZERO)).unwrap_or(false)
}

/// Sends a signal to a process group.
pub(crate) fn signal_group(group: u32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: the system call takes plain integers.
    check(unsafe { libc::kill(-(group as libc::pid_t), signal) }.into())?;
    Ok(())
}

/// The signal that stopped a child. Each stop is reported once.
pub(crate) fn take_stop(child: u32) -> Option<libc::c_int> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WSTOPPED | libc::WNOHANG;
    // SAFETY: the pointer refers to a local variable of the right type.
    let waited = unsafe { libc::waitid(libc::P_PID, child, info.as_mut_ptr(), flags) };
    // SAFETY: zeroes are a valid siginfo, and remain if there is nothing to report; otherwise it describes a child.
    let (pid, signal) = unsafe {
        let info = info.assume_init();
        (info.si_pid(), info.si_status())
    };
    (waited == 0 && pid != 0).then_some(signal)
}

/// Waits until `fd` is readable or hung up; `false` after the timeout.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    let mut set = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    poll(&mut set, timeout)?;
    Ok(set[0].revents != 0)
}

/// Calls `ppoll`. An interruption counts as no events.
pub(crate) fn poll(set: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().min(1 << 40) as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `set` is valid for its length; `timeout` is null or refers to a local variable.
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

/// Sends one message with descriptors, without raising SIGPIPE. The receiver gets the descriptors with the first byte.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights };
    let iov = [io::IoSlice::new(bytes)];
    Ok(sendmsg::<UnixAddr>(socket.as_raw_fd(), &iov, control, MsgFlags::MSG_NOSIGNAL, None)?)
}

/// Memory in bytes of sent data that the other end of a stream socket has not read.
pub(crate) fn unread_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the pointer refers to a local variable of the type that this request writes.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) }.into())?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Maximum number of descriptors that a shepherd or its client takes from a message.
const DESCRIPTOR_ROOM: usize = 4;

/// Maximum number of descriptors per message, in the kernel.
const ALL_DESCRIPTORS: usize = 253;

/// Receives into `buffer`, and returns the number of bytes and the descriptors: only the first ones if the message had
/// more than four of them, or if this process has too many descriptors open. The data is valid in any case. 0 bytes mean
/// that the other end is closed.
///
/// # Errors
/// On a system error, or if a non-blocking socket has no data.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: MsgFlags) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_up_to(DESCRIPTOR_ROOM, socket, buffer, flags)
}

/// Receives into `buffer`, and returns the number of bytes and all descriptors of the message. Then the kernel closes
/// none of them, which could wait for a file system, unless this process has too many descriptors open.
///
/// # Errors
/// On a system error, or if a non-blocking socket has no data.
pub fn receive_all(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: MsgFlags) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_up_to(ALL_DESCRIPTORS, socket, buffer, flags)
}

fn receive_up_to(
    most: usize,
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    /// Buffer for control messages, larger than a header with [`ALL_DESCRIPTORS`] numbers.
    #[repr(align(16))]
    struct Control([u8; 1040]);
    let mut control = Control([0; 1040]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: zeroes are a valid `msghdr`.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = descriptors_length(most) as _;
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    // SAFETY: the header refers to local variables with matching lengths.
    let length = check(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags.bits()) } as libc::c_long)?;
    Ok((length as usize, take_descriptors(&header)))
}

/// Length of a control message with `count` descriptors, in bytes.
fn descriptors_length(count: usize) -> usize {
    // SAFETY: this is arithmetic only.
    unsafe { libc::CMSG_LEN((count * size_of::<RawFd>()) as libc::c_uint) as usize }
}

/// Takes ownership of the descriptors in a message.
fn take_descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut received = Vec::new();
    // SAFETY: the kernel has filled in the header and its buffers.
    let mut entry = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !entry.is_null() {
        // SAFETY: both macros stay within the data that the kernel has written.
        let (message, data) = unsafe { (&*entry, libc::CMSG_DATA(entry).cast::<RawFd>()) };
        if (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // The type of the length differs between C libraries.
            let count = (message.cmsg_len as u64 as usize - descriptors_length(0)) / size_of::<RawFd>();
            // SAFETY: the message has `count` numbers of newly installed descriptors, which have no other owner.
            received.extend((0..count).map(|at| unsafe { OwnedFd::from_raw_fd(data.add(at).read_unaligned()) }));
        }
        // SAFETY: see above.
        entry = unsafe { libc::CMSG_NXTHDR(header, entry) };
    }
    received
}

/// Listens on an abstract name that the kernel chooses: no socket file, no path length limit, and the name vanishes
/// with its owner.
pub(crate) fn listen_anywhere() -> io::Result<(UnixListener, String)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new_unnamed())?;
    // Any user can connect. Only the connection over which the agent started this process carries descriptors.
    hostler_sys::refuse_descriptors(&listener);
    listen(&listener, Backlog::MAXALLOWABLE)?;
    let address = getsockname::<UnixAddr>(listener.as_raw_fd())?;
    // Names that the kernel chooses are hexadecimal digits.
    let name = String::from_utf8_lossy(address.as_abstract().unwrap_or_default()).into_owned();
    Ok((listener.into(), name))
}

/// Peer of a connected socket: the process that connected or listened.
pub(crate) struct Peer {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

/// Gets the peer's credentials from the kernel.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = getsockopt(stream, sockopt::PeerCredentials)?;
    Ok(Peer { pid: credentials.pid() as u32, uid: credentials.uid() })
}

/// Reading of a clock, as the time since the clock's origin.
pub(crate) fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer refers to a local variable; the requested clocks always exist.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Makes orphaned descendants become children of the calling process.
pub(crate) fn become_subreaper() -> io::Result<()> {
    // SAFETY: the system call takes plain integers.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }))?;
    Ok(())
}

/// Sets the name shown by `ps -o comm`, at most 15 bytes.
pub(crate) fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel copies at most 16 bytes of a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Ends the process immediately, without destructors and exit handlers, which belong to the agent.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// The raw descriptor, for poll sets.
pub(crate) fn raw(fd: &impl AsFd) -> RawFd {
    fd.as_fd().as_raw_fd()
}

//! Sockets and interfaces in the network namespaces of sandboxes.
//!
//! A socket stays in the namespace in which it was made, so everything after its creation is done by the agent itself. The
//! network of a sandbox that an ordinary user made belongs to a user namespace, which only a process with a single thread can
//! enter. So a child makes the socket. It shares the table of open files with the agent, so that the socket's number is valid
//! in both. The processes of the job do not see the child, since it stays outside of their pid namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use hostler_shepherd::JOB_INTERFACE;
use nix::errno::Errno;
use nix::libc::{self, c_int, c_long};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, geteuid};
use socket2::{Domain, Socket};

/// Makes a TCP socket in the network namespace of a process. `namespace` is the namespace as the kernel names it, which the
/// process must still be in.
pub(super) fn socket_inside(namespace: &Path, pid: u32, domain: Domain) -> io::Result<Socket> {
    open_inside(namespace, pid, Wanted::Stream(c_int::from(domain))).map(Socket::from)
}

/// Opens the interface of a job's network in the network namespace of a process, without blocking. `namespace` is as for
/// [`socket_inside`].
pub(crate) fn interface_inside(namespace: &Path, pid: u32) -> io::Result<OwnedFd> {
    open_inside(namespace, pid, Wanted::JobInterface)
}

fn open_inside(namespace: &Path, pid: u32, wanted: Wanted) -> io::Result<OwnedFd> {
    let network = File::open(format!("/proc/{pid}/ns/net"))?;
    // The process may have ended, and its number may be that of another process.
    if fs::read_link(format!("/proc/self/fd/{}", network.as_raw_fd()))? != namespace {
        return Err(io::ErrorKind::NotFound.into());
    }
    let owner = if geteuid().is_root() { None } else { Some(owner_of(&network)?) };
    let answer = Answer::new()?;
    let visit = Visit {
        owner: owner.as_ref().map(AsRawFd::as_raw_fd),
        network: network.as_raw_fd(),
        wanted,
        answer: answer.cell(),
    };
    let flags = c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    // SAFETY: with a null stack, this is like `fork`. The child has one thread and a copy of this memory, in which locks of other
    // threads may be held for ever. So it makes system calls only.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => return Err(io::Error::last_os_error()),
        0 => visit.open(),
        child => {
            let child = Pid::from_raw(child as libc::pid_t);
            while waitpid(child, None) == Err(Errno::EINTR) {}
        }
    }
    match answer.cell().load(Ordering::Acquire) {
        0 => Err(io::Error::other("the process that enters the sandbox was killed")),
        failed if failed < 0 => Err(io::Error::from_raw_os_error(-failed)),
        // SAFETY: the child has just opened this descriptor, which nothing else knows.
        opened => Ok(unsafe { OwnedFd::from_raw_fd(opened - 1) }),
    }
}

/// The user namespace that a network namespace belongs to.
fn owner_of(network: &File) -> io::Result<OwnedFd> {
    /// `NS_GET_USERNS` of `linux/nsfs.h`.
    const GET_USER_NAMESPACE: libc::Ioctl = 0xb701;
    // SAFETY: the request takes no argument, and returns a new descriptor.
    let opened = unsafe { libc::ioctl(network.as_raw_fd(), GET_USER_NAMESPACE) };
    if opened == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// What the child opens.
#[derive(Clone, Copy)]
enum Wanted {
    /// A stream socket of this domain.
    Stream(c_int),
    /// The interface of the job's network.
    JobInterface,
}

/// The work of the child.
struct Visit<'a> {
    /// Descriptor of the user namespace to enter first, in which the child has the right to enter the network.
    owner: Option<c_int>,
    /// Descriptor of the network namespace.
    network: c_int,
    wanted: Wanted,
    /// Gets the number of the new descriptor plus one, or the negative number of an error.
    answer: &'a AtomicI32,
}

impl Visit<'_> {
    /// Runs in the child.
    fn open(&self) -> ! {
        // SAFETY: the system calls take plain integers, and the last one does not return.
        unsafe {
            let entered = self.owner.is_none_or(|owner| libc::setns(owner, libc::CLONE_NEWUSER) == 0)
                && libc::setns(self.network, libc::CLONE_NEWNET) == 0;
            let opened = match self.wanted {
                _ if !entered => -1,
                Wanted::Stream(domain) => libc::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0),
                Wanted::JobInterface => open_interface(),
            };
            let answer = if opened == -1 { -Errno::last_raw() } else { opened + 1 };
            self.answer.store(answer, Ordering::Release);
            libc::_exit(0)
        }
    }
}

/// Opens the interface of the job's network: its descriptor, or -1 and `errno`. Makes system calls only.
fn open_interface() -> c_int {
    // SAFETY: the calls take plain integers, constants and a local structure, of which zeroes are a valid value.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (into, letter) in request.ifr_name.iter_mut().zip(JOB_INTERFACE.to_bytes()) {
            *into = *letter as libc::c_char;
        }
        // Without an interface of this name, the kernel would create another one. It is up when it is complete.
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let is_known = socket != -1 && libc::ioctl(socket, libc::SIOCGIFFLAGS, &raw mut request) == 0;
        libc::close(socket);
        if !is_known || c_int::from(request.ifr_ifru.ifru_flags) & libc::IFF_UP == 0 {
            Errno::ENODEV.set();
            return -1;
        }
        let device = libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK);
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        if device != -1 && libc::ioctl(device, libc::TUNSETIFF, &raw const request) == -1 {
            let error = Errno::last();
            libc::close(device);
            error.set();
            return -1;
        }
        device
    }
}

/// A number that stays shared with a child.
struct Answer(std::ptr::NonNull<AtomicI32>);

const ANSWER_BYTES: std::num::NonZeroUsize =
    std::num::NonZeroUsize::new(size_of::<AtomicI32>()).expect("a number has bytes");

impl Answer {
    fn new() -> io::Result<Self> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: this creates a new mapping at an address that the kernel chooses. Its zeroes are a valid number.
        Ok(Self(unsafe { mmap_anonymous(None, ANSWER_BYTES, protection, MapFlags::MAP_SHARED) }?.cast()))
    }

    fn cell(&self) -> &AtomicI32 {
        // SAFETY: the mapping is aligned, zero-initialised and lives as long as `self`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: this is the mapping from `new`, and no reference to it outlives `self`.
        let _ = unsafe { munmap(self.0.cast(), ANSWER_BYTES.get()) };
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use nix::sys::socket::{SockType, getsockopt, sockopt};

    use super::*;

    #[test]
    fn socket_is_made_in_the_namespace_of_a_process_that_is_still_there() {
        let own = fs::read_link("/proc/self/ns/net").expect("the process has a network");
        let pid = std::process::id();
        let socket = socket_inside(&own, pid, Domain::IPV4).expect("needs root");
        assert_eq!(getsockopt(&socket, sockopt::SockType), Ok(SockType::Stream));
        let flags = fcntl(&socket, FcntlArg::F_GETFD).map(FdFlag::from_bits_truncate);
        assert_eq!(flags, Ok(FdFlag::FD_CLOEXEC), "programs do not inherit it");
        let other = socket_inside(Path::new("net:[1]"), pid, Domain::IPV4).expect_err("another namespace");
        assert_eq!(other.kind(), io::ErrorKind::NotFound);
        let unknown = socket_inside(&own, pid, Domain::from(-1)).expect_err("no such domain");
        assert_eq!(unknown.raw_os_error(), Some(libc::EAFNOSUPPORT));
    }
}

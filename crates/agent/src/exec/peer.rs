//! The peer of a local connection: a user and the process that connected.
//!
//! The kernel records a pid when a connection is made. The process may end while the connection stays open, and its
//! pid may be reused. So this module holds a pidfd from the start, and checks it before each use.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use hostler_shepherd::{ProcessId, pidfd_ended, pidfd_open};
use nix::libc;
use tokio::net::UnixStream;

/// Socket option since Linux 6.5: a pidfd of the process that connected.
const SO_PEERPIDFD: libc::c_int = 77;

/// The user and the process at the other end.
pub(super) struct Peer {
    uid: u32,
    process: Option<Process>,
}

/// The process that connected.
pub(super) struct Process {
    id: ProcessId,
    handle: OwnedFd,
}

impl Peer {
    /// Identifies the peer of a newly accepted connection.
    ///
    /// # Errors
    /// Fails when the kernel reports no credentials.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        // A process in another container has no pid here.
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        let handle = |pid| match handle_of(stream) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => pidfd_open(pid),
            handle => handle,
        };
        let process = pid.and_then(|pid| Process::behind(pid, handle(pid).ok()?));
        Ok(Self { uid: credentials.uid(), process })
    }

    pub(super) const fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the process that connected, if it still runs and has only the rights of the peer's user.
    pub(super) fn process(&self) -> Option<&Process> {
        self.process.as_ref().filter(|process| process.is_of(self.uid))
    }
}

impl Process {
    /// Returns the process with the pid `pid`, if it still runs. `handle` is its pidfd.
    fn behind(pid: u32, handle: OwnedFd) -> Option<Self> {
        let id = ProcessId::of(pid)?;
        // The pid cannot be reused while the process runs, so this start time is the caller's.
        (!pidfd_ended(handle.as_fd())).then_some(Self { id, handle })
    }

    /// Returns the process's pid and start time, which no later process shares.
    pub(super) const fn id(&self) -> ProcessId {
        self.id
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Returns whether the process still runs and has only the rights of the user `uid`. After a set-user-id program
    /// has been executed, it has others.
    fn is_of(&self, uid: u32) -> bool {
        ProcessId::of(self.id.pid) == Some(self.id)
            && uids_of(self.id.pid) == Some([uid; 4])
            && !pidfd_ended(self.handle.as_fd())
    }
}

/// Returns a handle on the process that connected.
fn handle_of(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most one number, to a local variable.
    let answer = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &raw mut length)
    };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created this descriptor. It is close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the real, effective, saved and file system user ids of a process.
fn uids_of(pid: u32) -> Option<[u32; 4]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let ids: Vec<u32> = ids.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    ids.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use tokio::net::UnixListener;

    use super::*;

    /// Starts a process that connects as the user `uid`. With `ends`, the process exits, and its child keeps the
    /// connection open.
    fn connect(socket: &Path, uid: u32, ends: bool) -> Child {
        const CONNECT: &str = "import os, socket, sys, time\n\
            s = socket.socket(socket.AF_UNIX)\n\
            s.connect(sys.argv[1])\n\
            if sys.argv[2] == 'ends' and os.fork(): os._exit(0)\n\
            s.recv(1)";
        let mut command = Command::new("python3");
        command.args(["-c", CONNECT]).arg(socket).arg(if ends { "ends" } else { "stays" }).uid(uid);
        command.stdin(Stdio::null()).spawn().expect("these tests need python3, and root")
    }

    /// Starts a process of the test's own user with this unused pid.
    fn take(pid: u32) -> Child {
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("root may choose pids");
            let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("starts");
            if child.id() == pid {
                return child;
            }
            end(&mut child);
        }
        panic!("no process got pid {pid} within a minute");
    }

    fn end(child: &mut Child) {
        child.kill().expect("the process is a child of this test");
        child.wait().expect("the process is a child of this test");
    }

    /// Listens at a socket that every user may connect to.
    fn listen(directory: &Path) -> (UnixListener, std::path::PathBuf) {
        use std::os::unix::fs::PermissionsExt;
        let socket = directory.join("socket");
        let listener = UnixListener::bind(&socket).expect("a short path");
        for (path, mode) in [(directory, 0o755), (socket.as_path(), 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("this test owns the path");
        }
        (listener, socket)
    }

    /// Needs root.
    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a server of the test")]
    async fn whoever_gets_the_pid_of_a_caller_that_has_ended_is_not_taken_for_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (listener, socket) = listen(directory.path());
        for is_accepted_before in [true, false] {
            let mut caller = connect(&socket, 65534, true);
            let (stream, _) = listener.accept().await.expect("the client connects");
            let early = is_accepted_before.then(|| Peer::of(&stream).expect("the kernel reports the peer"));
            let pid = caller.id();
            caller.wait().expect("the process is a child of this test");
            let mut victim = take(pid);
            assert_eq!(
                stream.peer_cred().expect("the kernel reports the peer").pid(),
                Some(pid.cast_signed()),
                "the kernel still reports the pid of the ended caller"
            );
            let peer = early.unwrap_or_else(|| Peer::of(&stream).expect("the kernel reports the peer"));
            assert_eq!(peer.uid(), 65534);
            assert!(peer.process().is_none(), "process {pid} of root is taken for the caller");
            // A handle opened by pid shows that the process now belongs to root.
            let process = Process::behind(pid, pidfd_open(pid).expect("the process runs")).expect("the process runs");
            assert!(!process.is_of(65534) && process.is_of(0));
            end(&mut victim);
        }
    }

    /// Needs root.
    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a server of the test")]
    async fn caller_is_known_until_it_ends() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (listener, socket) = listen(directory.path());
        let mut caller = connect(&socket, 65534, false);
        let (stream, _) = listener.accept().await.expect("the client connects");
        let peer = Peer::of(&stream).expect("the kernel reports the peer");
        assert_eq!(peer.process().map(|process| process.id().pid), Some(caller.id()));
        end(&mut caller);
        assert!(peer.process().is_none());
    }
}

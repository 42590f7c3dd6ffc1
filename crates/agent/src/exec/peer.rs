//! Who is at the other end of a local connection: a user, and the process that connected.
//!
//! The kernel notes a pid when a connection is made. By the time somebody acts on that pid the process may have ended, and the pid may be
//! another's: whoever keeps the connection open decides how long that takes. So the process is held by a handle from the start, and
//! looked at anew whenever something is done with it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use hostler_shepherd::{ProcessId, pidfd_ended, pidfd_open};
use nix::libc;
use tokio::net::UnixStream;

/// A socket option since Linux 6.5: a handle on the process that connected.
const SO_PEERPIDFD: libc::c_int = 77;

/// The user at the other end, and their process.
pub(super) struct Peer {
    uid: u32,
    process: Option<Process>,
}

/// A process that a user connected with.
pub(super) struct Process {
    id: ProcessId,
    handle: OwnedFd,
}

impl Peer {
    /// Of a connection that has just been accepted.
    ///
    /// # Errors
    /// When the kernel does not say whose it is.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        // In another container it has no pid here.
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        let handle = |pid| match handle_of(stream) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => pidfd_open(pid),
            handle => handle,
        };
        let process = pid.and_then(|pid| Process::behind(pid, handle(pid).ok()?));
        Ok(Self { uid: credentials.uid(), process })
    }

    /// The user.
    pub(super) const fn uid(&self) -> u32 {
        self.uid
    }

    /// The process, if it still runs with the rights of this user alone.
    pub(super) fn process(&self) -> Option<&Process> {
        self.process.as_ref().filter(|process| process.is_of(self.uid))
    }
}

impl Process {
    /// The process with this pid, if it is the one behind the handle and runs.
    fn behind(pid: u32, handle: OwnedFd) -> Option<Self> {
        let id = ProcessId::of(pid)?;
        // The pid cannot be reused while the process runs, so this start time is the caller's.
        (!pidfd_ended(handle.as_fd())).then_some(Self { id, handle })
    }

    /// What tells it apart from any later one with its pid.
    pub(super) const fn id(&self) -> ProcessId {
        self.id
    }

    /// A handle on it.
    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Whether it runs, and has the rights of this user and of nobody else: a program may have been started in it that gives it more.
    fn is_of(&self, uid: u32) -> bool {
        ProcessId::of(self.id.pid) == Some(self.id)
            && uids_of(self.id.pid) == Some([uid; 4])
            && !pidfd_ended(self.handle.as_fd())
    }
}

/// A handle on the process that connected.
fn handle_of(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most a number, to a local.
    let answer = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &raw mut length)
    };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; it is close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The real, effective and saved user ids of a process, and that for files.
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

    /// Connects as this user, and ends, or goes on, while another process keeps the connection open.
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

    /// A process of the test's own user with this unused pid.
    fn take(pid: u32) -> Child {
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("needs root");
            let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("starts");
            if child.id() == pid {
                return child;
            }
            end(&mut child);
        }
        panic!("pid {pid} is not to be had");
    }

    fn end(child: &mut Child) {
        child.kill().expect("ours");
        child.wait().expect("ours");
    }

    /// A socket that everybody may connect to.
    fn listen(directory: &Path) -> (UnixListener, std::path::PathBuf) {
        use std::os::unix::fs::PermissionsExt;
        let socket = directory.join("socket");
        let listener = UnixListener::bind(&socket).expect("a short path");
        for (path, mode) in [(directory, 0o755), (socket.as_path(), 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        }
        (listener, socket)
    }

    /// Needs root.
    #[tokio::test]
    async fn whoever_gets_the_pid_of_a_caller_that_has_ended_is_not_taken_for_it() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (listener, socket) = listen(directory.path());
        for is_accepted_before in [true, false] {
            let mut caller = connect(&socket, 65534, true);
            let (stream, _) = listener.accept().await.expect("it connects");
            let early = is_accepted_before.then(|| Peer::of(&stream).expect("the kernel knows"));
            let pid = caller.id();
            caller.wait().expect("ours");
            let mut victim = take(pid);
            assert_eq!(stream.peer_cred().expect("the kernel knows").pid(), Some(pid.cast_signed()), "as it was");
            let peer = early.unwrap_or_else(|| Peer::of(&stream).expect("the kernel knows"));
            assert_eq!(peer.uid(), 65534);
            assert!(peer.process().is_none(), "root's process {pid}");
            // Where the kernel gives no handle, the one on whoever has the pid now is no better.
            let process = Process::behind(pid, pidfd_open(pid).expect("it runs")).expect("it runs");
            assert!(!process.is_of(65534) && process.is_of(0));
            end(&mut victim);
        }
    }

    /// Needs root.
    #[tokio::test]
    async fn a_caller_is_known_for_as_long_as_it_runs() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (listener, socket) = listen(directory.path());
        let mut caller = connect(&socket, 65534, false);
        let (stream, _) = listener.accept().await.expect("it connects");
        let peer = Peer::of(&stream).expect("the kernel knows");
        assert_eq!(peer.process().map(|process| process.id().pid), Some(caller.id()));
        end(&mut caller);
        assert!(peer.process().is_none());
    }
}

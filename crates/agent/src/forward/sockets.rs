//! Connects to Unix sockets on which a run listens.
//!
//! The path belongs to the job's user, who can make it lead anywhere. So it is resolved in the file tree of the job, and
//! the kernel checks it with the rights of the user. Then the listener is checked: the kernel says which process it was,
//! and only one of the run counts. Everything else is as if nothing listened, and nothing is sent to it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::account::Ids;
use crate::measure::usage::run::RunPlace;
use crate::rights::act_alone;

/// How a run sees files.
#[derive(Debug)]
pub(super) struct Site {
    /// The working directory of the job.
    pub(super) folder: PathBuf,
    pub(super) is_sandboxed: bool,
    /// The user of the run; `None` for the agent's own user.
    pub(super) user: Option<Ids>,
}

impl Site {
    pub(super) fn uid(&self) -> u32 {
        self.user.as_ref().map_or_else(|| geteuid().as_raw(), |user| user.uid)
    }
}

/// Connects to the socket at `path`, which is relative to the job's folder or absolute. `None` if no process of the run
/// listens there.
///
/// # Errors
/// If the kernel lacks `openat2`, or the processes of the run cannot be listed.
pub(super) fn connect(place: &RunPlace, site: &Site, path: &str, deadline: Instant) -> io::Result<Option<UnixStream>> {
    let Some(root) = root_of(place, site)? else { return Ok(None) };
    let path = site.folder.join(path);
    match act_alone(site.user.as_ref(), || connect_below(&root, &path, deadline)) {
        Ok(stream) => Ok(is_of_run(place, site, &stream)?.then_some(stream)),
        Err(error) if error.raw_os_error() == Some(Errno::ENOSYS as i32) => {
            Err(io::Error::new(error.kind(), "sockets of jobs need Linux 5.6 or newer"))
        }
        // The answer must not reveal what is at the path.
        Err(_) => Ok(None),
    }
}

/// The root directory of the run's file tree; `None` if the run has no process in it yet, or has ended.
pub(super) fn root_of(place: &RunPlace, site: &Site) -> io::Result<Option<File>> {
    if site.user.is_none() && !site.is_sandboxed {
        // The agent's own user may not look into all processes.
        return File::open("/").map(Some);
    }
    // A process may end meanwhile. If its number is reused, the listener that is found is not one of the run.
    Ok(inhabitants(place, site).into_iter().find_map(|pid| File::open(format!("/proc/{pid}/root")).ok()))
}

/// Processes that see files, and the network, as the job does.
pub(super) fn inhabitants(place: &RunPlace, site: &Site) -> Vec<u32> {
    let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    // The shepherd of a sandbox stays outside.
    let outside = namespace(place.shepherd);
    let mut pids = if site.is_sandboxed { place.processes().unwrap_or_default() } else { vec![place.shepherd] };
    pids.retain(|pid| (namespace(*pid) != outside) == site.is_sandboxed);
    pids
}

/// Connects to the socket at `path` below `root`, with the rights of the calling thread.
fn connect_below(root: &File, path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let file = open_in(root, path, deadline)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Connecting waits while the queue of the listener is full.
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    socket.set_write_timeout(Some(left))?;
    // By the number of the open file: the path may be too long for an address, and may lead elsewhere by now.
    socket.connect(&SockAddr::unix(format!("/proc/self/fd/{}", file.as_raw_fd()))?)?;
    socket.set_write_timeout(None)?;
    Ok(OwnedFd::from(socket).into())
}

/// Opens a file without reading or writing it. Links lead nowhere else than they would with `root` as root directory.
pub(super) fn open_in(root: &File, path: &Path, deadline: Instant) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    loop {
        match openat2(root, path, how) {
            // Something on this machine was renamed or mounted while the kernel followed `..`.
            Err(Errno::EAGAIN) if Instant::now() < deadline => {}
            opened => return Ok(opened?),
        }
    }
}

/// Whether the other end belongs to a process of the run, of its user: the one that made the socket listen, or that
/// connected.
pub(super) fn is_of_run(place: &RunPlace, site: &Site, stream: &UnixStream) -> io::Result<bool> {
    let peer = getsockopt(stream, sockopt::PeerCredentials)?;
    let processes = place.processes().ok_or_else(|| io::Error::other("cannot list the processes of the job"))?;
    Ok(peer.uid() == site.uid() && u32::try_from(peer.pid()).is_ok_and(|pid| processes.contains(&pid)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn reaches(root: &Path, path: &str) -> bool {
        let root = File::open(root).expect("readable");
        connect_below(&root, Path::new(path), Instant::now() + SOON).is_ok()
    }

    #[test]
    fn links_lead_to_files_below_the_root_only() {
        let outside = tempfile::tempdir().expect("a temporary directory");
        let _listener = UnixListener::bind(outside.path().join("s")).expect("a free name");
        let outer = outside.path().join("s").display().to_string();
        assert!(reaches(Path::new("/"), &outer));
        let root = outside.path().join("root");
        fs::create_dir(&root).expect("writable");
        symlink("../s", root.join("up")).expect("writable");
        symlink(&outer, root.join("absolute")).expect("writable");
        symlink("/proc/self/cwd/../s", root.join("magic")).expect("writable");
        for path in ["up", "absolute", "magic", "../s", &outer] {
            assert!(!reaches(&root, path), "{path}");
        }
        let _inner = UnixListener::bind(root.join("s")).expect("a free name");
        for path in ["s", "/s", "up", "../s"] {
            assert!(reaches(&root, path), "{path}");
        }
    }

    #[test]
    fn long_paths_are_reached() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let deep = directory.path().join("d".repeat(200));
        fs::create_dir(&deep).expect("writable");
        symlink(&deep, directory.path().join("short")).expect("writable");
        let _listener = UnixListener::bind(directory.path().join("short/s")).expect("a free name");
        assert!(reaches(Path::new("/"), &deep.join("s").display().to_string()));
    }

    #[test]
    fn full_queue_is_given_up_at_the_deadline() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a descriptor is free");
        let path = directory.path().join("s");
        listener.bind(&SockAddr::unix(&path).expect("short enough")).expect("a free name");
        listener.listen(0).expect("bound");
        let root = File::open("/").expect("readable");
        let connect = || connect_below(&root, &path, Instant::now() + Duration::from_millis(50));
        let _queued = connect().expect("the queue has one place");
        connect().expect_err("the queue is full");
    }
}

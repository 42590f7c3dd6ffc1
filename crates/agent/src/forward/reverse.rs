//! Listeners in runs, whose connections go to the machine of the run's user.
//!
//! A port of the node's loopback is open to everybody on the node, so a connection counts only if a process of the run holds
//! its other end, or, for a Unix socket, has made it. All others are reset. The agent announces each connection, and keeps it
//! until the user's program asks for it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hostler_model::RunId;
use hostler_proto::forward::{Announcement, Destination, ForwardAnswer, PICKUP};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use super::listeners::connects;
use super::sockets::{Site, inhabitants, is_of_run, open_in, root_of};
use super::visit::socket_inside;
use super::{CONNECT_TIME, Forwarding, Near, Running};
use crate::measure::usage::run::RunPlace;
use crate::random::random_bits;
use crate::rights::act_alone;
use crate::runs::control::Control;

/// Length of the queue of a listener.
const QUEUE: i32 = 128;

/// Maximum length of the address of a Unix socket, in bytes.
const MAX_ADDRESS: usize = 107;

/// Pause after a failed `accept`, as when no descriptor is free.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause after a connection of somebody else, who may try again and again.
const SHORT_PAUSE: Duration = Duration::from_millis(5);

/// How often a listener checks whether its run has ended.
const CHECK: Duration = Duration::from_secs(1);

/// Connections that wait for the program of their user.
pub(crate) struct AcceptedConnections {
    last: AtomicU64,
    waiting: Mutex<BTreeMap<u64, (RunId, Accepted)>>,
}

/// A connection that a process of a run has made.
pub(super) struct Accepted {
    pub(super) near: Near,
    /// Held until the connection ends.
    pub(super) permit: OwnedSemaphorePermit,
}

impl Default for AcceptedConnections {
    fn default() -> Self {
        // A program that has not noticed a restart of the agent gets no connection of another listener.
        Self { last: AtomicU64::new(random_bits() >> 1), waiting: Mutex::default() }
    }
}

impl AcceptedConnections {
    pub(super) fn take(&self, run: RunId, number: u64) -> Option<Accepted> {
        let mut waiting = self.waiting();
        let (its, accepted) = waiting.remove(&number)?;
        if its == run {
            return Some(accepted);
        }
        waiting.insert(number, (its, accepted));
        None
    }

    fn keep(&self, run: RunId, accepted: Accepted) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.waiting().insert(number, (run, accepted));
        number
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, (RunId, Accepted)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers the head's request for a listener in a run, and announces its connections until the user's program or the run
/// ends. `running` is absent for a run that is not on this node.
pub(crate) async fn listen(
    forwarding: &Arc<Forwarding>,
    stream: &str,
    run: RunId,
    running: Option<Running>,
    at: Destination,
    is_live: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let made = match running {
        Some(running) => running.listen(forwarding, at).await,
        None => Err(anyhow::anyhow!("the job has no process there")),
    };
    let (answer, listener) = match made {
        Ok(listener) => (ForwardAnswer::Connected, Some(listener)),
        Err(error) if is_taken(&error) => (ForwardAnswer::Taken, None),
        Err(error) => (ForwardAnswer::Failed(format!("{error:#}")), None),
    };
    let connected = forwarding.head.stream_forward(stream, &answer).await;
    let Some(listener) = listener else { return connected.map(drop).map_err(Into::into) };
    let is_over = async {
        while is_live() {
            sleep(CHECK).await;
        }
        Ok(())
    };
    let announced = async { listener.announce(forwarding, run, connected?.into_control()).await };
    let ended = tokio::select! {
        ended = announced => ended,
        ended = is_over => ended,
    };
    let Listener { socket, control, .. } = listener;
    if let Listening::Unix(socket, file) = socket {
        drop(socket);
        // The file is in a directory of the user, whose file system may never answer.
        control.connect(move || file.remove()).await?;
    }
    ended
}

fn is_taken(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// A listener in a run.
struct Listener {
    socket: Listening,
    control: Control,
    place: RunPlace,
    site: Arc<Site>,
}

/// The socket of a listener.
enum Listening {
    /// The network namespace, as the kernel names it.
    Tcp(tokio::net::TcpListener, PathBuf),
    Unix(tokio::net::UnixListener, SocketFile),
}

impl Running {
    async fn listen(self, forwarding: &Forwarding, at: Destination) -> anyhow::Result<Listener> {
        let site = Arc::new(self.site(forwarding).await?);
        let Self { control, place, .. } = self;
        let (its_place, its_site) = (place.clone(), Arc::clone(&site));
        let socket = match at {
            Destination::Port(port) => {
                let made = control.connect(move || listen_on_port(&its_place, &its_site, port)).await??;
                Listening::Tcp(tokio::net::TcpListener::from_std(made.0)?, made.1)
            }
            Destination::Socket(path) => {
                let made = control.connect(move || listen_on_socket(&its_place, its_site, &path)).await??;
                Listening::Unix(tokio::net::UnixListener::from_std(made.0)?, made.1)
            }
            Destination::Accepted(_) => anyhow::bail!("an accepted connection is not an address to listen on"),
        };
        Ok(Listener { socket, control, place, site })
    }
}

impl Listener {
    async fn announce(
        &self,
        forwarding: &Arc<Forwarding>,
        run: RunId,
        mut to: hostler_client::ForwardControl,
    ) -> anyhow::Result<()> {
        let port = match &self.socket {
            Listening::Tcp(listener, _) => listener.local_addr()?.port(),
            Listening::Unix(..) => 0,
        };
        to.send(&Announcement::Listening(port)).await?;
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                // The user's program sends nothing, so this is the end of the connection.
                ended = to.next() => return ended.map(drop).map_err(Into::into),
            };
            let number = forwarding.accepted.keep(run, accepted);
            let forwarding = Arc::clone(forwarding);
            tokio::spawn(async move {
                sleep(PICKUP).await;
                drop(forwarding.accepted.take(run, number));
            });
            to.send(&Announcement::Accepted(number)).await?;
        }
    }

    /// Accepts the next connection of the run, and resets those of others. Cancel safe.
    #[expect(
        clippy::disallowed_methods,
        reason = "the check closes connections of other users before they take a place"
    )]
    async fn accept(&self) -> Accepted {
        loop {
            let accepted = match &self.socket {
                Listening::Tcp(listener, _) => listener.accept().await.and_then(|(it, _)| it.into_std()).map(Near::Tcp),
                Listening::Unix(listener, _) => {
                    listener.accept().await.and_then(|(it, _)| it.into_std()).map(Near::Unix)
                }
            };
            let Ok(near) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            near.reset_when_dropped();
            let Some(near) = self.checked(near).await else {
                sleep(SHORT_PAUSE).await;
                continue;
            };
            // Only afterwards: a listener that waits for a connection takes no place from the others.
            let permit = Arc::clone(&self.control.accepted).acquire_owned().await.expect("it is never closed");
            return Accepted { near, permit };
        }
    }

    /// Returns the connection if it belongs to the run.
    async fn checked(&self, near: Near) -> Option<Near> {
        let (place, site) = (self.place.clone(), Arc::clone(&self.site));
        let namespace = match &self.socket {
            Listening::Tcp(_, namespace) => namespace.clone(),
            Listening::Unix(..) => PathBuf::new(),
        };
        let check = move || {
            let is_own = match &near {
                Near::Tcp(stream) => {
                    let deadline = Instant::now() + CONNECT_TIME;
                    let connects = |ends| connects(&place, site.uid(), &namespace, ends, deadline);
                    stream.peer_addr().and_then(|from| connects((from, stream.local_addr()?)))
                }
                Near::Unix(stream) => is_of_run(&place, &site, stream),
            };
            is_own.unwrap_or(false).then_some(near)
        };
        self.control.connect(check).await.ok().flatten()
    }
}

/// Listens on a port of the loopback that the job sees, with the user's rights. Returns the network namespace, too.
fn listen_on_port(place: &RunPlace, site: &Site, port: u16) -> anyhow::Result<(TcpListener, PathBuf)> {
    let new = || Socket::new(Domain::IPV4, Type::STREAM, None);
    let listen = |socket: Socket| {
        // Allow rebinding while old connections are in TIME_WAIT.
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
        socket.listen(QUEUE)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    let here = fs::read_link("/proc/self/ns/net")?;
    let namespace = |pid: u32| Some((pid, fs::read_link(format!("/proc/{pid}/ns/net")).ok()?));
    let (pid, namespace) = match site.is_sandboxed {
        true => {
            let found = inhabitants(place, site).into_iter().find_map(namespace);
            found.ok_or_else(|| anyhow::anyhow!("the job has no process yet"))?
        }
        false => (std::process::id(), here.clone()),
    };
    let listener = if namespace == here {
        act_alone(site.user.as_ref(), || listen(new()?))?
    } else {
        let socket = socket_inside(&namespace, pid, Domain::IPV4)?;
        act_alone(site.user.as_ref(), || listen(socket))?
    };
    Ok((listener, namespace))
}

/// Listens on a Unix socket in the file tree of the job, with the user's rights, for the user alone.
fn listen_on_socket(place: &RunPlace, site: Arc<Site>, path: &str) -> anyhow::Result<(UnixListener, SocketFile)> {
    let root = root_of(place, &site)?.ok_or_else(|| anyhow::anyhow!("the job has no process yet"))?;
    let path = site.folder.join(path);
    let made = act_alone(site.user.as_ref(), || bind_below(&root, &path, Instant::now() + CONNECT_TIME));
    let (listener, at) = made?;
    Ok((listener, SocketFile { at, site }))
}

/// Makes a Unix socket at `path` below `root`, with the rights of the calling thread.
fn bind_below(root: &File, path: &Path, deadline: Instant) -> io::Result<(UnixListener, Name)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = open_in(root, directory, deadline)?;
    // By the number of the open directory: the path may be too long for an address, and may lead elsewhere by now.
    let start = format!("/proc/self/fd/{}/", directory.as_raw_fd());
    let most = MAX_ADDRESS.saturating_sub(start.len());
    if name.len() > most {
        let why = format!("the last part of the path is longer than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidFilename, why));
    }
    let address = SockAddr::unix(Path::new(&start).join(name))?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file gets the mode of the socket.
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(&directory, name, &address) => {
            unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir)?;
            socket.bind(&address)?;
        }
        bound => bound?,
    }
    socket.listen(QUEUE)?;
    socket.set_nonblocking(true)?;
    let inode = inode_of(&directory, name)?;
    Ok((OwnedFd::from(socket).into(), Name { directory, name: name.to_owned(), inode }))
}

/// Whether a program that has ended without removing its socket has left it there.
fn is_stale(directory: &OwnedFd, name: &OsStr, address: &SockAddr) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // Its queue may be full.
        socket.set_nonblocking(true)?;
        socket.connect(address)
    };
    inode_of(directory, name).is_ok() && connect().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The inode of a socket's file.
fn inode_of(directory: &OwnedFd, name: &OsStr) -> io::Result<u64> {
    let found = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
    if kind == SFlag::S_IFSOCK { Ok(found.st_ino) } else { Err(Errno::ENOTSOCK.into()) }
}

/// The name of a socket in a directory.
struct Name {
    directory: OwnedFd,
    name: OsString,
    inode: u64,
}

/// The file of a Unix socket.
struct SocketFile {
    at: Name,
    site: Arc<Site>,
}

impl SocketFile {
    fn remove(self) {
        let Name { directory, name, inode } = &self.at;
        let remove = || {
            // The user may have another file there by now.
            if inode_of(directory, name)? == *inode {
                unlinkat(directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir)?;
            }
            Ok(())
        };
        // The directory may be gone.
        let _ = act_alone(self.site.user.as_ref(), remove);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn bind(root: &Path, path: &str) -> io::Result<(UnixListener, Name)> {
        let root = File::open(root).expect("readable");
        bind_below(&root, Path::new(path), Instant::now() + Duration::from_secs(10))
    }

    #[test]
    fn socket_is_made_below_the_root_for_its_user_alone() {
        let outside = tempfile::tempdir().expect("a temporary directory");
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("inner")).expect("writable");
        symlink("../../..", root.join("inner/up")).expect("writable");
        let (listener, name) = bind(&root, "/inner/up/s").expect("a free name");
        let made = fs::metadata(root.join("s")).expect("below the root");
        assert_eq!((made.permissions().mode() & 0o777, made.ino()), (0o600, name.inode));
        UnixStream::connect(root.join("s")).expect("it listens");
        let taken = bind(&root, "/s").map(drop).expect_err("somebody listens");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        // A killed program leaves its socket file.
        drop(listener);
        bind(&root, "/s").expect("nobody listens");
        fs::write(root.join("file"), "").expect("writable");
        symlink("inner", root.join("link")).expect("writable");
        for path in ["/file", "/link", "/inner"] {
            let taken = bind(&root, path).map(drop).expect_err("it is not a socket");
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse, "{path}");
        }
        for path in ["/missing/s", "/..", "/"] {
            bind(&root, path).map(drop).expect_err(path);
        }
        let long = bind(&root, &format!("/{}", "s".repeat(100))).map(drop).expect_err("too long");
        assert!(long.to_string().starts_with("the last part of the path is longer than "), "{long}");
    }

    #[test]
    fn connection_is_found_for_its_run_alone() {
        let accepted = AcceptedConnections::default();
        let run = |id: u32| format!("{id}_0.1.1").parse::<RunId>().expect("a run");
        let (near, _far) = UnixStream::pair().expect("a descriptor is free");
        let permit = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().expect("free");
        let number = accepted.keep(run(1), Accepted { near: Near::Unix(near), permit });
        assert!(accepted.take(run(2), number).is_none() && accepted.take(run(1), number + 1).is_none());
        assert!(accepted.take(run(1), number).is_some() && accepted.take(run(1), number).is_none());
    }
}
